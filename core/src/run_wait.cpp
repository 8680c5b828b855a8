// Runs that track dependences: what stands still, why, and for how long.
#include <algorithm>
#include <thread>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

// --- generation ----------------------------------------------------------------------------------

// Under the token.
void Run::window_full(u32 worker) {
  if (stall_since_ == 0) {
    stall_since_ = since();
    window_stalls_ += 1;
    count(TraceCounter::WINDOW_FULL, 1);
    if (config_.window_mode == WindowMode::ABORT) {
      const bool records = config_.window_bytes == 0 || flow_->live() == config_.window;
      const std::string size = records ? std::to_string(config_.window) + " records"
                                       : std::to_string(config_.window_bytes) + " bytes";
      Error error = Error::make(Status::WINDOW_OVERFLOW,
                                "the task window of " + size + " is full and its mode is ABORT");
      const Cursor& c = flow_->cursor();
      error.at_task(c.site, c.task_id, c.vars, plan_->sites()[c.site].level);
      fail_now(std::move(error));
    }
  }
  // Nothing runs before the start, so nothing would ever make room: the policy has to let go.
  let_go(worker);
}

// Under the token.
void Run::note_stalls(Flow::Made made, bool progress) {
  last_made_ = made;
  const bool waits = made == Flow::Made::Waits;
  const bool drains = made == Flow::Made::Drains;
  const bool stood = control_stall_.since != 0 || workspace_stall_.since != 0;
  if (!waits && !drains && !stood) return;  // asking for the time costs as much as a short task
  const u64 now = since();
  if (progress) {  // whatever it waits for now is another thing
    control_stall_.set(false, now);
    workspace_stall_.set(false, now);
  }
  control_stall_.set(waits, now);
  workspace_stall_.set(drains, now);
}

// Under the token. What generation waits for comes from tasks, which have to be let go as well.
void Run::let_go(u32 worker) {
  if (config_.batch_deps > 0) flush_batches(worker);
  if (started_.load(std::memory_order_relaxed)) return;
  start_released_ += 1;
  start_held_ += held_.size();
  start_held(worker);
}

// --- workers -------------------------------------------------------------------------------------

u64 Run::total_done() const {
  u64 total = 0;
  for (const auto& w : workers_) total += w->done.load(std::memory_order_acquire);
  return total;
}

bool Run::nothing_ready() {
  if (issuer_) return issuer_->ready() == 0;
  if (fifo_) {
    const std::lock_guard lock(fifo_mutex_);
    return fifo_->size() == 0;
  }
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& w) { return w->deque->size() <= 0; });
}

// A worker without work spins a little, then naps, longer each time. It wakes up by itself as well,
// since slots that others free and a token that they leave wake nobody.
void Run::idle(u32 worker, u32* misses) {
  constexpr u32 kSpins = 64;
  constexpr u32 kSpinsAfterNap = 4;
  constexpr u32 kMostNaps = 4;  // the last one of 8 ms
  if (worker == 0) poll_interrupt();
  if (generated_all_.load(std::memory_order_acquire) &&
      total_done() == made_.load(std::memory_order_acquire)) {
    stop_workers();
    return;
  }
  *misses += 1;
  if (issuer_ && *misses == 1 && generated_all_.load(std::memory_order_acquire)) {
    after_issue(issuer_->release(issue_time()));
  }
  if (*misses < kSpins || *misses % kSpinsAfterNap != 0) {
    if (*misses > 8) std::this_thread::yield();
    return;
  }
  const u32 nap = std::min((*misses - kSpins) / kSpinsAfterNap, kMostNaps - 1);
  const u64 ticket = lot_.prepare();
  resting_.fetch_add(1, std::memory_order_acq_rel);
  if (all_rest() && check_stuck(worker)) {
    lot_.withdraw();
    return;
  }
  if (stop_ || !nothing_ready() || has_own(worker)) {
    lot_.withdraw();
  } else {
    workers_[worker]->parks += 1;
    std::chrono::nanoseconds longest = std::chrono::milliseconds(1u << nap);
    const u64 until = issuer_ ? issuer_->waits_until() : 0;
    const u64 now = clock_.since();
    if (until > 0)
      longest = std::min(longest, std::chrono::nanoseconds(until > now ? until - now : 0));
    lot_.wait(ticket, longest);
  }
  resting_.fetch_sub(1, std::memory_order_acq_rel);
}

bool Run::all_rest() const {
  return resting_.load(std::memory_order_acquire) == entered_.load(std::memory_order_acquire);
}

// All workers that have come rest. If nothing is ready, and neither generation nor a policy that
// holds tasks can go on, nothing ever will be. Who comes later has nothing to do either. But who
// comes, or wakes up, while this looks around may take the only task there is: then he does not
// rest, or rests again and has ended one more. True: this worker has a task now and rests no more.
// That has to be known before another one looks around, who does not see what it keeps.
bool Run::check_stuck(u32 worker) {
  if (!flow_->try_lock()) return false;
  const u64 done = total_done();
  flow_->collect();
  const auto steps = [&] { return flow_->made() + flow_->loads(); };
  const u64 before = steps();
  if (nothing_ready() && !generated_all_) generate_locked(worker);
  made_.store(flow_->made(), std::memory_order_release);
  const bool goes_on = stop_ || steps() != before || !nothing_ready() || has_own(worker) ||
                       (generated_all_ && total_done() == made_);
  if (!goes_on && issuer_ && (issuer_->waits_until() > 0 || issuer_->release(issue_time()))) {
    lot_.notify_all();
  } else if (!goes_on && all_rest() && total_done() == done) {
    fail_now(stuck());
  }
  const bool found = has_own(worker);
  if (found) resting_.fetch_sub(1, std::memory_order_acq_rel);
  flow_->unlock();
  return found;
}

// Who waits for what, and the directive that keeps them, if one does.
Error Run::stuck() {
  std::string text = flow_->waiting_report() + flow_->generation_report(last_made_);
  u32 gate = kNone;
  if (issuer_) text += issuer_->holding_report(&gate);
  if (!held_.empty()) text += ", start holds " + std::to_string(held_.size());
  Error error = Error::make(Status::DEADLOCK, std::move(text));
  for (u32 i = 0, gates = 0; i < plan_->plan().count(Section::SCHEDULE); ++i) {
    const auto id = static_cast<Directive>(plan_->plan().get<Section::SCHEDULE>(i).id);
    const bool full = id == Directive::WINDOW && last_made_ == Flow::Made::Full;
    const bool closed = id == Directive::PIPELINE_DEPTH && gates++ == gate;
    if (full || closed) error.at_record(Section::SCHEDULE, i, nullptr, 0);
  }
  return error;
}

}  // namespace ptowsp
