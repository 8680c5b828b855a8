// Runs whose schedule needs an Issuer: between it and the workers.
#include <algorithm>
#include <chrono>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

// Like work_flow(), with one call of the issuer for each task: that which ends one gives the next.
void Run::work_issued(u32 worker) {
  Worker& me = *workers_[worker];
  Issuer::Taken task;
  bool has_task = false;
  u32 misses = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (has_task || take_issued(worker, &task)) {
      misses = 0;
      const u32 slot = task.slot;
      me.take = task.take;
      me.stolen += task.stolen ? 1 : 0;
      if (is_crowded(&me, worker, task)) {
        if (!run_and_step_back(worker, slot)) return;
        has_task = false;
        continue;
      }
      if (!run_one(worker, slot, task.stolen)) return;
      has_task = end_issued(worker, slot, &task);
    } else {
      look_for_more(worker, &misses);
    }
  }
  leave_work(worker);
}

// Whether this worker and others have taken tasks in turn for a while. With short ones they spend
// their time on passing the queue to and fro, and one worker alone would be faster.
bool Run::is_crowded(Worker* me, u32 worker, const Issuer::Taken& task) {
  if (task.before == worker || task.before == kNone || !issuer_->is_one_queue()) return false;
  me->crowded += 1;
  if (me->crowded < me->crowd) return false;
  me->crowded = 0;
  u32 leader = kNone;
  leader_.compare_exchange_strong(leader, task.before, std::memory_order_relaxed);
  return leader_.load(std::memory_order_relaxed) != worker;
}

// If the task was a short one, leaves those that follow to the leader.
bool Run::run_and_step_back(u32 worker, u32 slot) {
  constexpr u64 kShortNs = 300;
  Worker& me = *workers_[worker];
  const u64 begin = clock_.since();
  if (!run_one(worker, slot, false)) return false;
  const bool is_short = clock_.since() - begin < kShortNs;
  end_without_taking(worker, slot);
  const bool was_right = is_short && stay_back(worker);
  leader_.store(kNone, std::memory_order_relaxed);
  // Who was wrong asks less often.
  me.crowd = was_right ? Worker::kCrowd : std::min(2 * me.crowd, 64 * Worker::kCrowd);
  return true;
}

// Only generates, as long as the leader takes several tasks in a microsecond: longer ones are
// shared again. False if it never did.
bool Run::stay_back(u32 worker) {
  constexpr std::chrono::microseconds kNap{50};
  constexpr u64 kQuick = 2 * kNap.count();
  constexpr u64 kAhead = 1024;
  for (u64 naps = 0;; ++naps) {
    while (made_ - total_done() < kAhead && generate_burst(worker)) {
    }
    const u64 ticket = aside_.prepare();
    const u64 takes = issuer_->takes();
    if (!stop_) {
      aside_.wait(ticket, kNap);
    } else {
      aside_.withdraw();
    }
    if (stop_ || issuer_->takes() - takes < kQuick) return naps > 0;
  }
}

bool Run::take_issued(u32 worker, Issuer::Taken* task) {
  const Issuer::Seen seen = issuer_->take(worker, issue_time(), task);
  if (seen.for_others) wake_others();
  return seen.took;
}

// The tasks that waited only for this one.
void Run::collect_arrivals(Worker* me, u32 slot) {
  finish_slot(me, slot, [&](u32 next) {
    if (!arrivals_.empty() && is_under_way(0, next)) return;
    if (traced_) ready_ticks_[next] = me->now;
    me->arrived.push_back(next);
  });
}

// True: there is another task for this worker.
bool Run::end_issued(u32 worker, u32 slot, Issuer::Taken* task) {
  Worker& me = *workers_[worker];
  if (config_.batch_deps > 0 || runs_low(worker)) {
    end_without_taking(worker, slot);
    if (config_.batch_deps == 0 || runs_low(worker)) generate_burst(worker);  // so others find more
    return take_issued(worker, task);
  }
  me.arrived.clear();
  collect_arrivals(&me, slot);
  const Issuer::Seen seen = issuer_->end_and_take(worker, slot, me.arrived, issue_time(), task);
  after_issue(seen.for_others);
  return seen.took;
}

void Run::end_without_taking(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  if (config_.batch_deps > 0) {  // gates count tasks in flight, not batches
    after_issue(issuer_->leave(worker, slot, issue_time()).for_others);
    end_in_batch(worker, slot);
    return;
  }
  me.arrived.clear();
  collect_arrivals(&me, slot);
  after_issue(issuer_->end(worker, slot, me.arrived, issue_time()).for_others);
}

// The tasks of a batch have left their gates already.
void Run::commit_issued(u32 worker) {
  Worker& me = *workers_[worker];
  me.arrived.clear();
  for (const u32 slot : me.committed) collect_arrivals(&me, slot);
  const Issuer::Seen seen = issuer_->settle(worker, me.committed.size(), me.arrived, issue_time());
  after_issue(seen.for_others);
}

// Under the token.
void Run::issue_held(u32 worker) {
  if (!arrivals_.empty()) {
    std::erase_if(held_, [this](u32 slot) { return is_under_way(0, slot); });
  }
  if (held_.empty()) return;
  if (traced_) {
    for (const u32 slot : held_) ready_ticks_[slot] = now();
  }
  after_issue(issuer_->arrive(worker, held_, issue_time()));
  held_.clear();
}

// `some`: there is a task to take.
void Run::after_issue(bool some) {
  if (issuer_->overflowed() != kNone) gate_overflowed();
  if (some) wake_others();
}

void Run::wake_others() {
  call_crew();
  lot_.wake();  // a task may be for one worker only, whom notify_one() need not meet
}

void Run::gate_overflowed() {
  const u32 slot = issuer_->overflowed();
  const TaskTable::Record& r = flow_->table()[slot];
  const BoundSite& site = plan_->sites()[r.site()];
  i64 loops[kMaxVars];
  flow_->table().get_loops(slot, loops, site.level + site.num_registers);
  Error error = Error::make(Status::WINDOW_OVERFLOW,
                            "a pipeline_depth gate is full and its on_full is \"error\"");
  error.at_task(r.site(), r.task_id, loops, site.level);
  fail_now(std::move(error));
}

}  // namespace ptowsp
