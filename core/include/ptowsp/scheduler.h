// The state of one run: what is generated, what waits, what may run, what has ended.
//
// A Scheduler owns no threads and does not block. The executor's workers drive it under one lock:
//
//   take()      a task to run, if one may start now
//   generate()  a few more tasks, if there are any and the window has room
//   finish()    a task has ended: release its successors
//   quiesce()   nothing runs and nothing else can be done: let go what a policy holds back, or
//               report a deadlock
//
// Every generated task waits only for tasks with a smaller seq, so as long as something is held
// back only by policy, quiesce() always finds a way on.
#pragma once

#include <string>

#include "ptowsp/clock.h"
#include "ptowsp/cursor.h"
#include "ptowsp/phases.h"
#include "ptowsp/ready_set.h"
#include "ptowsp/schedule.h"
#include "ptowsp/tensor_map.h"

namespace ptowsp {

class Scheduler {
 public:
  Scheduler(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, u64 seed);

  bool take(u32 worker, u32* slot, bool* stolen);
  bool can_generate() const { return !generated_all_ && !(pending_ && ring_.full()); }
  // Generates up to `burst` tasks; they belong to `worker`. False: stop the run with `error`.
  bool generate(u32 worker, u32 burst, Error* error);
  void finish(u32 slot, u32 worker);
  // Only when no task runs. False: deadlock, described in `error`.
  bool quiesce(Error* error);

  bool finished() const { return generated_all_ && ring_.live() == 0; }
  std::size_t ready() const { return fifo_.size() + steal_.size(); }
  const TaskRecord& record(u32 slot) const { return ring_[slot]; }
  ptowsp_stats stats() const;

  // For tests: a task waits for one thing more, which never happens.
  void hold_for_test(u32 slot) { ring_[slot].fanin += 1; }

 private:
  bool submit(u32 worker, Error* error);
  void find_conflicts(u32 slot);
  void release(u32 slot, u32 worker);
  void push_ready(u32 slot, u32 worker);
  void note_stall();
  void end_stall();
  std::string deadlock_report() const;
  std::string describe(u32 slot) const;

  const BoundPlan& plan_;
  const ScheduleConfig config_;
  const Clock clock_;
  TaskRing ring_;
  EdgePool edges_;
  Phases phases_{&edges_};
  FixedTensorMap map_;
  FifoReady fifo_;
  StealReady steal_;
  Cursor cursor_;
  bool pending_ = false;  // the cursor stands at a task that is not submitted yet
  bool generated_all_ = false;
  bool started_ = false;  // the start policy has let go
  bool stalled_ = false;
  u64 stall_since_ = 0;
  u64 next_seq_ = 0;
  std::vector<Region> regions_;  // of the task that is being submitted
  ptowsp_stats stats_{};
};

}  // namespace ptowsp
