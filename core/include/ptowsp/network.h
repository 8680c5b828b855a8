// Processes and channels: cursors that take turns.
//
// A process is a cursor; a replicated one is a cursor for each replica. They are advanced one at a
// time, in turns: a turn ends where a message was sent, where the body of a RECV ends, where the
// cursor has to wait for another one, at its end, and after kTurn tasks. What a cursor waits for is
// a matter of generation alone: a message is there once its SEND was reached, a buffer is free once
// the receiver's body was left. So the order in which tasks are generated depends on the plan and
// what is bound to it, never on how fast tasks run, and a network in which no cursor can go on is
// known as such without waiting for anything. That tasks use a buffer one after the other is what
// their regions say: each buffer is a copy of the channel's element, and data dependences on it
// order its writer, its readers, and the writer of the message that comes into it next.
//
// Messages are numbered. Number m of a channel comes from replica m modulo the number of producers,
// goes to replica m modulo the number of consumers, and lies in buffer m modulo their number.
//
// Thread roles: as a Cursor, it belongs to whoever generates.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ptowsp/cursor.h"

namespace ptowsp {

class Network {
 public:
  static constexpr u32 kTurn = 64;  // tasks

  explicit Network(const BoundPlan& plan);

  // As Cursor::advance() of the process whose turn it is. Switch: it is another one's turn now.
  // Tasks that the caller makes without asking are told by spend().
  Event advance(Error* error);
  Cursor& cursor() { return actors_[at_].cursor; }
  const Cursor& cursor() const { return actors_[at_].cursor; }
  u32 current() const { return at_; }
  u32 size() const { return static_cast<u32>(actors_.size()); }

  u32 budget() const { return budget_; }
  void spend(u32 tasks) { budget_ -= tasks < budget_ ? tasks : budget_; }

  // Buffers of temporaries: as many copies in use at a time as there are cursors of a process.
  void share_copies();
  // The same where tasks run as they are generated: one copy for each cursor.
  void keep_copies();
  // Messages that are there at the start hold zeros.
  void clear_initial() const;

  struct Counters {
    u64 messages = 0;
    u64 empty = 0;  // how often a process had to wait for a message,
    u64 full = 0;   // and for a buffer or a receiver
    u64 high = 0;   // most buffers of one channel in use
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Buffer {
    u64 free_for;     // the message that may be written there next
    u64 arrived = 0;  // one more than the number of the last message that was sent there
  };
  // The next message of a replica at one end of a channel, and where it lies: counted up, since
  // dividing would cost as much as all the rest.
  struct End {
    u64 message = 0;
    u32 buffer = 0;
    u32 held_in = 0;  // consumers: where the message lies that the process has,
    u64 held = 0;     // and its number
    u64 count = 0;    // so far
    bool closed = false;
  };
  struct Actor {
    Cursor cursor;
    u32 process;
    u32 replica;
    u32 waits = kNone;  // channel
    bool ended = false;
  };
  struct State {
    const BoundChannel* bound = nullptr;
    std::vector<Buffer> buffers;
    std::vector<End> producers;  // by replica
    std::vector<End> consumers;
    u32 first_consumer = 0;  // actor
    u64 in_use = 0;          // buffers
  };
  enum class Step : u8 { Goes, Waits, Fails };

  static std::vector<End> make_ends(u64 first, std::size_t replicas, u32 buffers);
  static void count_up(End* end, std::size_t replicas, std::size_t buffers);
  Step communicate(Actor* actor, Error* error);
  Step take(Actor* actor, Instr instr, Error* error);
  void leave(Actor* actor, u32 channel);
  Step closed(const Actor& actor, const std::string& does, const char* why, Error* error) const;
  bool can_go(const Actor& actor) const;
  static bool has_room(const State& s, const End& end) {
    return s.buffers[end.buffer].free_for == end.message;
  }
  bool is_awaited(const State& s, const End& end) const;
  static bool is_there(const State& s, const End& end) {
    return s.buffers[end.buffer].arrived == end.message + 1;
  }
  static bool never_comes(const State& s, u64 message);
  void end(Actor* actor);
  Event next_turn(Error* error);
  bool check_gaps(Error* error) const;
  Error stuck() const;
  std::string describe(const Actor& actor) const;
  std::string name(const Actor& actor) const;

  const BoundPlan& plan_;
  std::vector<Actor> actors_;
  std::vector<State> states_;  // by CHANNEL
  u32 at_ = 0;
  u32 budget_ = kTurn;
  Counters counters_;
};

// Generation by whoever runs nothing: the cursor of a plan, or those of its processes.
class Walk {
 public:
  // `rotates`: iterations have copies of temporaries in turn, as where they are in flight together.
  Walk(const BoundPlan& plan, bool rotates) : plan_(plan), main_(Cursor::at_entry(plan, 0)) {
    if (!rotates) main_.copy = 0;
    if (!plan.is_network()) return;
    network_.emplace(plan);
    if (rotates) {
      network_->share_copies();
    } else {
      network_->keep_copies();
    }
  }
  Cursor& cursor() { return network_ ? network_->cursor() : main_; }
  const Cursor& cursor() const { return network_ ? network_->cursor() : main_; }
  // Never a Switch: cursor() is another one then.
  Event advance(Error* error) {
    if (!network_) return main_.advance(plan_, error);
    Event event = Event::Switch;
    while (event == Event::Switch) event = network_->advance(error);
    return event;
  }
  // How many tasks of a leaf loop may be made at once, and that they were.
  i64 most(i64 wanted) const {
    return network_ ? std::min<i64>(wanted, network_->budget()) : wanted;
  }
  void made(i64 tasks) {
    if (network_) network_->spend(static_cast<u32>(tasks));
  }

 private:
  const BoundPlan& plan_;
  Cursor main_;
  std::optional<Network> network_;
};

}  // namespace ptowsp
