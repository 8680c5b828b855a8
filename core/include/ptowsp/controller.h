// A run in which one worker at a time decides what happens next: to repeat a recording, or to draw
// an interleaving from a seed.
//
// What happens is a row of events: an idle worker starts a ready task, a busy one ends its task.
// Whoever has the turn carries out its event, decides on the next one and gives the turn to that
// one's worker. Starting passes the turn on before the kernel runs, so kernels of several workers
// overlap; a worker whose task is to end next has the turn already while its kernel still runs.
// Everything that depends on order (generation, ready tasks, what successors wait for) happens
// under the turn.
//
// Thread roles: members below "under the turn" belong to whoever has it; giving it is a release,
// having it an acquire.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptowsp/park.h"
#include "ptowsp/recording.h"

namespace ptowsp {

// What a run is asked to do beyond running.
struct RunControl {
  std::optional<Recording> replay;  // do this again
  std::optional<u64> seed;          // draw an interleaving
  bool record = false;              // keep the decisions
  Recording head;                   // what a recording of the run says of the plan
  bool controlled() const { return replay.has_value() || seed.has_value(); }
};

class Controller {
 public:
  // `replay` may be null: then everything is drawn.
  Controller(u32 workers, const Recording* replay, u64 seed);

  // --- the turn ---
  void give(u32 worker);
  // True: this worker has the turn. False: the time is over.
  bool wait(u32 worker, std::chrono::nanoseconds most);
  // The run is over.
  void wake_all();

  // --- under the turn ---
  struct Next {
    u32 worker = 0;
    u32 slot = 0;
    bool starts = false;
    bool stolen = false;
  };
  Next next;                      // what the worker that has the turn is to do
  std::vector<u32> running;       // by worker: the slot of its task, or kNone
  std::vector<Decision> history;  // all events so far
  u64 ended = 0;                  // tasks
  u64 now_ns = 0;  // a clock that goes on with events, for policies that ask for time

  bool replays() const { return replay_ != nullptr; }
  const Recording& recording() const { return *replay_; }
  // The next event of the recording; null behind the last one.
  const Decision* scripted() const {
    const std::size_t at = history.size();
    return at < replay_->decisions.size() ? &replay_->decisions[at] : nullptr;
  }

  // Ready tasks, where the schedule leaves their order open.
  void add_ready(u64 task, u32 slot);
  bool take_ready(u64 task, u32* slot);
  bool take_any(u32* slot);

  u64 below(u64 n) {  // a number drawn from 0 .. n-1
    random_ += 0x9E3779B97F4A7C15ull;
    return splitmix(random_) % n;
  }
  u32 idle() const;  // workers
  void starts(u32 worker, u32 slot, u64 task);
  void ends(u32 worker);

 private:
  struct alignas(kCacheLine) Seat {
    std::atomic<bool> turn{false};
    ParkingLot lot;
  };

  std::atomic<bool> over_{false};  // nobody has a turn any more
  const Recording* replay_;
  std::vector<std::unique_ptr<Seat>> seats_;  // by worker
  std::unordered_map<u64, u32> ready_;        // replay: slot by task
  std::vector<std::pair<u64, u32>> open_;     // drawn: the same, in the order they came
  u64 random_;
};

}  // namespace ptowsp
