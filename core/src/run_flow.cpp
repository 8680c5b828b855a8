// Runs that track dependences with a deque per worker.
#include <algorithm>
#include <thread>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

void Run::work_flow(u32 worker) {
  Worker& me = *workers_[worker];
  u32 misses = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    u32 slot = kNil;
    bool stolen = false;
    if (find_task(worker, &slot, &stolen)) {
      misses = 0;
      run_slot(worker, slot, stolen);
      if (!pace(worker, 1)) return;
    } else if (generate_burst(worker)) {
      misses = 0;
    } else {
      give_back(&me);
      idle(worker, &misses);
    }
  }
}

bool Run::find_task(u32 worker, u32* slot, bool* stolen) {
  Worker& me = *workers_[worker];
  if (me.next != kNil) {
    *slot = std::exchange(me.next, kNil);
    return true;
  }
  if (me.deque.pop(slot)) return true;
  if (!steal(worker, slot)) return false;
  *stolen = true;
  me.stolen += 1;
  return true;
}

bool Run::steal(u32 worker, u32* slot) {
  const u32 n = workers();
  if (n == 1) return false;
  Worker& me = *workers_[worker];
  me.random += 0x9E3779B97F4A7C15ull;
  const u32 first = static_cast<u32>(splitmix(me.random) % n);
  for (u32 k = 0; k < n; ++k) {
    const u32 victim = (first + k) % n;
    if (victim != worker && workers_[victim]->deque.size() > 0 &&
        workers_[victim]->deque.steal(slot)) {
      return true;
    }
  }
  return false;
}

// A task that may start now. Where the order is open, the first one runs next on this worker and
// the others can be stolen; work_steal() promises that an owner takes its newest.
void Run::make_ready(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  if (config_.trace != TracePolicy::NONE) flow_->table()[slot].ready_ns = scheduler_.now();
  if (me.next == kNil && config_.ready == ReadyPolicy::AUTO) {
    me.next = slot;
    return;
  }
  me.deque.push(slot);
  me.ready_high = std::max<u64>(me.ready_high, static_cast<u64>(std::max<i64>(me.deque.size(), 0)));
  lot_.notify_one();
}

void Run::run_slot(u32 worker, u32 slot, bool stolen) {
  Worker& me = *workers_[worker];
  const TaskTable::Record& r = flow_->table()[slot];
  const i64* loops = flow_->table().loops(slot);
  const bool traced = config_.trace != TracePolicy::NONE;
  ptowsp_event event{};
  if (traced) {
    event.take = next_take_.fetch_add(1, std::memory_order_relaxed);
    event.start_ns = scheduler_.now();
  }
  Error error;
  const bool ok = me.runner.run(r.site, loops, r.task_id, &error);
  if (traced) {
    event.end_ns = scheduler_.now();
    event.ready_ns = r.ready_ns;
    event.task_id = event.seq = r.task_id;
    event.site = r.site;
    event.worker = worker;
    event.stolen = stolen ? 1 : 0;
    event.num_loops = plan_->sites()[r.site].level;
    std::copy(loops, loops + event.num_loops, event.indices);
    me.trace.add(event);
  }
  if (!ok) {
    fail_now(std::move(error));
    return;
  }
  me.tasks += 1;
  me.done.store(me.tasks, std::memory_order_release);
  flow_->finish(
      slot, [&](u32 ready) { make_ready(worker, ready); },
      [&](u32 ended) { free_slot(&me, ended); });
}

// Ended slots go back in batches: the list they go to is shared.
void Run::free_slot(Worker* me, u32 slot) {
  constexpr u32 kBatch = 32;
  flow_->table()[slot].free_next = me->free_first;
  if (me->free_first == kNil) me->free_last = slot;
  me->free_first = slot;
  me->free_count += 1;
  if (me->free_count >= kBatch) give_back(me);
}

void Run::give_back(Worker* me) {
  if (me->free_first == kNil) return;
  flow_->table().give_back(me->free_first, me->free_last);
  me->free_first = me->free_last = kNil;
  me->free_count = 0;
}

// False if somebody else generates, or nothing can be generated.
bool Run::generate_burst(u32 worker) {
  if (generated_all_.load(std::memory_order_relaxed) || !flow_->try_lock()) return false;
  give_back(workers_[worker].get());
  flow_->collect();
  const u64 before = made_.load(std::memory_order_relaxed);
  if (runs_serially()) {
    if (flow_->live() == 0) run_stretch(worker);
  } else {
    generate_locked(worker);
  }
  made_.store(flow_->made(), std::memory_order_release);
  const bool progress = flow_->made() != before;
  flow_->unlock();
  return progress || workers_[worker]->next != kNil || workers_[worker]->deque.size() > 0;
}

void Run::generate_locked(u32 worker) {
  Worker& me = *workers_[worker];
  const auto ready = [&](u32 slot) { make_ready(worker, slot); };
  const auto freed = [&](u32 slot) { free_slot(&me, slot); };
  Error error;
  for (u32 n = 0; n < kBurst; ++n) {
    u32 slot = kNil;
    bool is_ready = false;
    const Flow::Made made = flow_->make(&slot, &is_ready, ready, freed, &error);
    if (made == Flow::Made::Task) {
      if (stall_since_ != 0) window_stall_ns_ += scheduler_.now() - std::exchange(stall_since_, 0);
      if (!is_ready) continue;
      if (!started_.load(std::memory_order_relaxed)) {
        held_.push_back(slot);
      } else {
        make_ready(worker, slot);
      }
      continue;
    }
    if (made == Flow::Made::Failed) fail_now(std::move(error));
    if (made == Flow::Made::Full) window_full(worker);
    if (made == Flow::Made::Done) all_generated();
    break;
  }
  const bool enough =
      config_.start == StartPolicy::THRESHOLD && flow_->made() >= config_.start_threshold;
  if (!started_ && (enough || generated_all_)) start_held(worker);
}

// Under the token.
void Run::window_full(u32 worker) {
  if (stall_since_ == 0) {
    stall_since_ = scheduler_.now();
    window_stalls_ += 1;
    if (config_.window_mode == WindowMode::ABORT) {
      Error error = Error::make(Status::WINDOW_OVERFLOW,
                                "the task window of " + std::to_string(config_.window) +
                                    " records is full and its mode is ABORT");
      const Cursor& c = flow_->cursor();
      error.at_task(c.site, c.task_id, c.loops, plan_->sites()[c.site].level);
      fail_now(std::move(error));
    }
  }
  // Nothing runs before the start, so nothing would ever make room: the policy has to let go.
  if (started_.load(std::memory_order_relaxed)) return;
  start_released_ += 1;
  start_held_ += held_.size();
  start_held(worker);
}

// Under the token. The number of tasks is published first: who sees the end sees it, too.
void Run::all_generated() {
  made_.store(flow_->made(), std::memory_order_release);
  generated_all_.store(true, std::memory_order_release);
}

// The start policy lets go. Only the token holder calls this.
void Run::start_held(u32 worker) {
  started_.store(true, std::memory_order_release);
  for (const u32 slot : held_) make_ready(worker, slot);
  held_.clear();
}

// Whether nearly all tasks of the last window's worth ran on one worker, although others were there
// to take them.
bool Run::runs_serially() {
  const bool open_order =
      config_.ready == ReadyPolicy::AUTO && config_.start == StartPolicy::IMMEDIATE;
  if (serial_ || !open_order || workers() == 1) return serial_;
  u64 total = 0;
  u64 most = 0;
  for (u32 w = 0; w < workers(); ++w) {
    const u64 n = workers_[w]->done.load(std::memory_order_relaxed) - share_[w];
    total += n;
    most = std::max(most, n);
  }
  if (total < std::min<u64>(config_.window, 4096)) return false;
  for (u32 w = 0; w < workers(); ++w) share_[w] = workers_[w]->done.load(std::memory_order_relaxed);
  serial_ = most * 16 > total * 15;
  return serial_;
}

// Runs tasks where they are generated for a few milliseconds, while nothing else is alive.
void Run::run_stretch(u32 worker) {
  constexpr std::chrono::milliseconds kStretch{4};
  Worker& me = *workers_[worker];
  const auto until = std::chrono::steady_clock::now() + kStretch;
  const auto ready = [&](u32 slot) { make_ready(worker, slot); };
  const auto freed = [&](u32 slot) { free_slot(&me, slot); };
  Cursor& cursor = flow_->cursor();
  Error error;
  bool at_task = flow_->take_pending();
  serial_ = false;
  while (true) {
    const Event event = at_task ? Event::Task : cursor.advance(*plan_, &error);
    at_task = false;
    if (event == Event::Error) fail_now(std::move(error));
    if (event == Event::Done) all_generated();
    if (event == Event::Error || event == Event::Done) break;
    if (event != Event::Task) {
      flow_->on_group(event, ready, freed);
      continue;
    }
    const i64 count = run_here(worker, &cursor, &error);
    if (count == 0) fail_now(std::move(error));
    const bool look = static_cast<u64>(count) >= me.budget;
    if (count == 0 || !pace(worker, static_cast<u64>(count))) break;
    if (look && std::chrono::steady_clock::now() > until) break;
  }
  me.done.store(me.tasks, std::memory_order_release);
  for (u32 w = 0; w < workers(); ++w) share_[w] = workers_[w]->done.load(std::memory_order_relaxed);
}

u64 Run::total_done() const {
  u64 total = 0;
  for (const auto& w : workers_) total += w->done.load(std::memory_order_acquire);
  return total;
}

bool Run::all_deques_empty() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& w) { return w->deque.size() <= 0; });
}

// A worker without work spins a little, then naps. It wakes up by itself as well, since slots that
// others free and a token that they leave wake nobody.
void Run::idle(u32 worker, u32* misses) {
  constexpr u32 kSpins = 64;
  constexpr std::chrono::milliseconds kNap{1};
  if (worker == 0) poll_interrupt();
  if (generated_all_.load(std::memory_order_acquire) &&
      total_done() == made_.load(std::memory_order_acquire)) {
    stop_ = true;
    lot_.notify_all();
    return;
  }
  if (++*misses < kSpins) {
    if (*misses > 8) std::this_thread::yield();
    return;
  }
  *misses = 0;
  const u64 ticket = lot_.prepare();
  const u32 resting = resting_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (resting == workers()) check_stuck();
  if (stop_ || !all_deques_empty()) {
    lot_.withdraw();
  } else {
    workers_[worker]->parks += 1;
    lot_.wait(ticket, kNap);
  }
  resting_.fetch_sub(1, std::memory_order_acq_rel);
}

// All workers rest. If nothing is ready and nothing can be generated, nothing ever will be.
void Run::check_stuck() {
  if (!flow_->try_lock()) return;
  flow_->collect();
  const bool ended = generated_all_ && total_done() == made_;
  const bool can_go_on = flow_->can_make() && !generated_all_;
  if (!ended && !can_go_on && all_deques_empty()) {
    fail_now(Error::make(Status::DEADLOCK, flow_->waiting_report()));
  }
  flow_->unlock();
}

void Run::fail_now(Error error) {
  Lock lock(mutex_);
  fail(std::move(error));
}

}  // namespace ptowsp
