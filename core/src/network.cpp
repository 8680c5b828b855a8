#include "ptowsp/network.h"

#include <algorithm>
#include <cstring>

namespace ptowsp {

Network::Network(const BoundPlan& plan) : plan_(plan) {
  std::vector<u32> first(plan.processes().size());
  for (u32 p = 0; p < plan.processes().size(); ++p) {
    const BoundProcess& process = plan.processes()[p];
    first[p] = static_cast<u32>(actors_.size());
    for (u32 r = 0; r < process.replicas; ++r) {
      actors_.push_back({process.replicated
                             ? Cursor::over_range(plan, process.entry, r, i64{r} + 1, 0)
                             : Cursor::at_entry(plan, process.entry),
                         p, r});
    }
  }
  for (const BoundChannel& channel : plan.channels()) {
    const auto count = [&](u32 process) {
      return process == kNone ? std::size_t{0} : plan.processes()[process].replicas;
    };
    State s;
    s.bound = &channel;
    s.buffers.resize(channel.buffers);
    for (u32 b = 0; b < channel.buffers; ++b) s.buffers[b].free_for = b;
    for (u32 m = 0; m < channel.initial; ++m) s.buffers[m].arrived = m + 1;
    s.in_use = channel.initial;
    s.producers = make_ends(channel.initial, count(channel.producer), channel.buffers);
    s.consumers = make_ends(0, count(channel.consumer), channel.buffers);
    s.first_consumer = channel.consumer == kNone ? 0 : first[channel.consumer];
    states_.push_back(std::move(s));
  }
}

std::vector<Network::End> Network::make_ends(u64 first, std::size_t replicas, u32 buffers) {
  std::vector<End> ends(replicas);
  for (std::size_t r = 0; r < replicas; ++r) {
    ends[r].message = first + r;
    ends[r].buffer = static_cast<u32>(ends[r].message % buffers);
  }
  return ends;
}

void Network::count_up(End* end, std::size_t replicas, std::size_t buffers) {
  end->count += 1;
  end->message += replicas;
  std::size_t next = end->buffer + replicas;
  if (next >= buffers) next = next < 2 * buffers ? next - buffers : next % buffers;
  end->buffer = static_cast<u32>(next);
}

void Network::share_copies() {
  for (Actor& actor : actors_) {
    const u32 replicas = plan_.processes()[actor.process].replicas;
    actor.cursor.first_copy = actor.replica;
    actor.cursor.copy_step = replicas;
    for (u32 a = 0; a < plan_.plan().count(Section::ALLOC); ++a) {
      actor.cursor.vars[plan_.copy_variable(a)] = static_cast<i64>(actor.replica) - replicas;
    }
  }
}

void Network::keep_copies() {
  for (Actor& actor : actors_) actor.cursor.copy = actor.replica;
}

void Network::clear_initial() const {
  for (const State& s : states_) {
    const BoundAlloc& alloc = plan_.alloc(s.bound->alloc);
    char* const data = static_cast<char*>(plan_.tensors()[s.bound->element].data);
    if (s.bound->initial > 0) std::memset(data, 0, s.bound->initial * alloc.bytes);
  }
}

Event Network::advance(Error* error) {
  if (budget_ == 0) {
    const Event event = next_turn(error);
    if (event != Event::Task) return event;
  }
  while (true) {
    Actor& actor = actors_[at_];
    bool ends = false;  // the turn
    const Event event = actor.cursor.advance(plan_, error);
    if (event == Event::Channel) {
      const Op op = static_cast<Op>(plan_.code()[actor.cursor.pc].opcode);
      const Step step = communicate(&actor, error);
      if (step == Step::Fails) return Event::Error;
      ends = step == Step::Waits || op == Op::SEND;
    } else if (event == Event::Left) {
      leave(&actor, actor.cursor.site);
      ends = true;
    } else if (event == Event::Done) {
      end(&actor);
      ends = true;
    } else {
      return event;
    }
    if (!ends) continue;
    const Event next = next_turn(error);
    if (next != Event::Task) return next;
  }
}

// Whoever comes next in the round and can go on. Task: it is the same one again.
Event Network::next_turn(Error* error) {
  const u32 n = size();
  for (u32 k = 1; k <= n; ++k) {
    const u32 next = at_ + k < n ? at_ + k : at_ + k - n;
    if (!can_go(actors_[next])) continue;
    budget_ = kTurn;
    actors_[next].waits = kNone;
    if (next == at_) return Event::Task;
    actors_[next].cursor.next_task = actors_[at_].cursor.next_task;
    at_ = next;
    return Event::Switch;
  }
  if (std::all_of(actors_.begin(), actors_.end(), [](const Actor& a) { return a.ended; })) {
    return check_gaps(error) ? Event::Done : Event::Error;
  }
  *error = stuck();
  return Event::Error;
}

// --- what processes wait for ---------------------------------------------------------------------

// Whether a message may be passed on: at once where there are buffers, else to a receiver that
// waits for just this one.
bool Network::is_awaited(const State& s, const End& end) const {
  if (s.bound->depth > 0) return true;
  if (s.consumers.empty()) return false;
  const u32 replica = static_cast<u32>(end.message % s.consumers.size());
  const Actor& receiver = actors_[s.first_consumer + replica];
  if (receiver.waits == kNone || &states_[receiver.waits] != &s) return false;
  return s.consumers[replica].message == end.message;
}

// Of a message that is not there.
bool Network::never_comes(const State& s, u64 message) {
  if (s.producers.empty()) return true;
  const End& end = s.producers[(message - s.bound->initial) % s.producers.size()];
  return end.closed && end.message <= message;
}

bool Network::can_go(const Actor& actor) const {
  if (actor.ended) return false;
  if (actor.waits == kNone) return true;
  const State& s = states_[actor.waits];
  switch (static_cast<Op>(plan_.code()[actor.cursor.pc].opcode)) {
    case Op::ROOM:
      return has_room(s, s.producers[actor.replica]);
    case Op::SEND:
      return is_awaited(s, s.producers[actor.replica]);
    default: {
      const End& end = s.consumers[actor.replica];
      return is_there(s, end) || never_comes(s, end.message);
    }
  }
}

// --- what they do --------------------------------------------------------------------------------

// The instruction at which the cursor stands.
Network::Step Network::communicate(Actor* actor, Error* error) {
  Cursor& cursor = actor->cursor;
  const Instr instr = plan_.code()[cursor.pc];
  State& s = states_[instr.operand1];
  i64& copy = cursor.vars[plan_.copy_variable(s.bound->alloc)];
  const auto waits = [&](u64* counter) {
    actor->waits = instr.operand1;
    *counter += 1;
    return Step::Waits;
  };
  switch (static_cast<Op>(instr.opcode)) {
    case Op::ROOM:
      if (s.producers[actor->replica].closed) {
        return closed(*actor, " sends to channel ", ", which it has closed", error);
      }
      if (!has_room(s, s.producers[actor->replica])) return waits(&counters_.full);
      copy = s.producers[actor->replica].buffer;
      s.in_use += 1;
      counters_.high = std::max(counters_.high, s.in_use);
      break;
    case Op::SEND: {
      End& end = s.producers[actor->replica];
      if (!is_awaited(s, end)) return waits(&counters_.full);
      s.buffers[end.buffer].arrived = end.message + 1;
      count_up(&end, s.producers.size(), s.buffers.size());
      counters_.messages += 1;
      break;
    }
    case Op::CLOSE:
      s.producers[actor->replica].closed = true;
      break;
    case Op::DROP:
      leave(actor, instr.operand1);
      break;
    default: {
      const End& end = s.consumers[actor->replica];
      if (!is_there(s, end) && !never_comes(s, end.message)) return waits(&counters_.empty);
      return take(actor, instr, error);
    }
  }
  cursor.pass();
  return Step::Goes;
}

// RECV and TAKE of a message that is there, or will never be.
Network::Step Network::take(Actor* actor, Instr instr, Error* error) {
  State& s = states_[instr.operand1];
  Cursor& cursor = actor->cursor;
  End& end = s.consumers[actor->replica];
  const u64 message = end.message;
  const bool repeats = static_cast<Op>(instr.opcode) == Op::RECV;
  if (!is_there(s, end)) {
    if (repeats) {
      cursor.pass_to(instr.operand2);
      return Step::Goes;
    }
    return closed(*actor, " receives message " + std::to_string(message) + " of channel ",
                  ", which is closed: no more come", error);
  }
  end.held = message;
  end.held_in = end.buffer;
  cursor.vars[plan_.copy_variable(s.bound->alloc)] = end.buffer;
  count_up(&end, s.consumers.size(), s.buffers.size());
  if (repeats) {
    cursor.enter_message(static_cast<i64>(message));
  } else {
    cursor.pass();
  }
  return Step::Goes;
}

// What the process at the instruction of a channel wants of it cannot be.
Network::Step Network::closed(const Actor& actor, const std::string& does, const char* why,
                              Error* error) const {
  const u32 channel = plan_.code()[actor.cursor.pc].operand1;
  const Channel record = plan_.plan().get<Section::CHANNEL>(channel);
  *error = Error::make(
      Status::CHANNEL_CLOSED,
      name(actor) + does + "'" + std::string(plan_.plan().string(record.name)) + "'" + why);
  error->at_record(Section::CODE, actor.cursor.pc, nullptr, 0);
  return Step::Fails;
}

void Network::leave(Actor* actor, u32 channel) {
  State& s = states_[channel];
  const End& end = s.consumers[actor->replica];
  s.buffers[end.held_in].free_for = end.held + s.buffers.size();
  s.in_use -= 1;
}

// A process that has come to its end sends no more.
void Network::end(Actor* actor) {
  actor->ended = true;
  for (State& s : states_) {
    if (s.bound->producer == actor->process) s.producers[actor->replica].closed = true;
  }
}

// Messages of replicas are collected in turn: one that sent fewer than its turn hides those of
// others behind it.
bool Network::check_gaps(Error* error) const {
  for (u32 c = 0; c < states_.size(); ++c) {
    const State& s = states_[c];
    const u64 n = s.producers.size();
    u64 total = 0;
    for (const End& end : s.producers) total += end.count;
    for (u64 r = 0; r < n; ++r) {
      const u64 expected = total > r ? (total - r + n - 1) / n : 0;
      if (s.producers[r].count == expected) continue;
      const Channel record = plan_.plan().get<Section::CHANNEL>(c);
      *error = Error::make(Status::CHANNEL_GAP,
                           "replica " + std::to_string(r) + " has sent " +
                               std::to_string(s.producers[r].count) + " messages to channel '" +
                               std::string(plan_.plan().string(record.name)) +
                               "' where it should have sent " + std::to_string(expected) +
                               ": messages of replicas are collected in turn");
      error->at_record(Section::CHANNEL, c, nullptr, 0);
      return false;
    }
  }
  return true;
}

// --- reports -------------------------------------------------------------------------------------

std::string Network::name(const Actor& actor) const {
  const BoundProcess& process = plan_.processes()[actor.process];
  std::string text = "process '";
  text += process.record == kNone ? "main"
                                  : std::string(plan_.plan().string(
                                        plan_.plan().get<Section::PROCESS>(process.record).name));
  text += "'";
  if (process.replicated) text += " replica " + std::to_string(actor.replica);
  return text;
}

std::string Network::describe(const Actor& actor) const {
  const State& s = states_[actor.waits];
  const Channel record = plan_.plan().get<Section::CHANNEL>(actor.waits);
  const auto op = static_cast<Op>(plan_.code()[actor.cursor.pc].opcode);
  const std::string channel = "channel '" + std::string(plan_.plan().string(record.name)) + "'";
  std::string text = name(actor);
  if (op == Op::ROOM) {
    text += " waits for a free buffer of " + channel + " (" + std::to_string(s.in_use) + " of " +
            std::to_string(s.buffers.size()) + " in use)";
  } else if (op == Op::SEND) {
    text += " waits for a receiver at " + channel + " (rendezvous)";
  } else {
    text += " waits for message " + std::to_string(s.consumers[actor.replica].message) + " of " +
            channel + " (empty, " + std::to_string(s.in_use) + " of " +
            std::to_string(s.buffers.size()) + " buffers in use)";
  }
  return text + line_of(plan_.plan(), Section::CODE, actor.cursor.pc);
}

Error Network::stuck() const {
  std::string text = "no process can go on";
  const Actor* first = nullptr;
  for (const Actor& actor : actors_) {
    if (actor.ended) continue;
    if (first == nullptr) first = &actor;
    text += "\n  " + describe(actor);
  }
  for (const Actor& actor : actors_) {
    if (actor.ended) text += "\n  " + name(actor) + " has come to its end";
  }
  Error error = Error::make(Status::DEADLOCK, std::move(text));
  if (first != nullptr) {
    error.at_record(Section::CODE, first->cursor.pc, nullptr, 0);
  }
  return error;
}

}  // namespace ptowsp
