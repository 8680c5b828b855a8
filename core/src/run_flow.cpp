// Runs that track dependences.
#include <algorithm>
#include <thread>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

// What every task goes through comes first and has no calls but the kernel's.

// A task that may start now. If it is the only one, it needs no place in order.
inline void Run::make_ready(u32 worker, u32 slot) {
  if (pinned_) worker = flow_->process_of(slot);
  if (!arrivals_.empty() && is_under_way(worker, slot)) return;
  Worker& me = *workers_[worker];
  if (traced_) ready_ticks_[slot] = pinned_ ? virtual_now_ : me.now;
  if (config_.ready == ReadyPolicy::AUTO) {
    if (me.own->size() == 0 && me.next == kNil) {
      me.next = slot;
      return;
    }
    if (me.next != kNil) keep(&me, std::exchange(me.next, kNil));
    keep(&me, slot);
    return;
  }
  if (fifo_) {
    push_fifo(&me, slot);
    return;
  }
  me.deque->push(slot);
  me.ready_high =
      std::max<u64>(me.ready_high, static_cast<u64>(std::max<i64>(me.deque->size(), 0)));
  lot_.notify_one();
}

inline bool Run::run_single(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  const TaskTable& table = flow_->table();
  const TaskTable::Record& r = table[slot];
  const BoundSite& site = plan_->sites()[r.site()];
  i64 loops[kMaxVars];
  table.get_loops(slot, loops, site.level + site.num_registers);
  if (!me.runner.run(r.site(), loops, r.task_id, &me.error)) {
    fail_now(std::move(me.error));
    return false;
  }
  me.tasks += 1;
  return pace(worker, 1);
}

inline void Run::end_slot(u32 worker, u32 slot) {
  if (config_.batch_deps > 0) {
    end_in_batch(worker, slot);
  } else {
    finish_slot(workers_[worker].get(), slot, [&](u32 next) { make_ready(worker, next); });
  }
}

// Runs the task or strip of a slot. False: the run is to end.
bool Run::run_one(u32 worker, u32 slot, bool stolen) {
  Worker& me = *workers_[worker];
  TaskTable& table = flow_->table();
  table.prefetch_successor(slot);
  const bool ok = traced_                    ? run_traced_strip(worker, slot, stolen)
                  : table[slot].count() == 1 ? run_single(worker, slot)
                                             : run_strip(worker, slot);
  if (ok) me.done.store(me.tasks, std::memory_order_release);
  return ok;
}

// The same, and ends it. Meanwhile others may take what this worker keeps for itself.
inline bool Run::run_slot(u32 worker, u32 slot, bool stolen) {
  Worker& me = *workers_[worker];
  const bool spare = me.own->size() > 0;
  if (spare) me.closed.store(false, std::memory_order_release);
  const bool ok = run_one(worker, slot, stolen);
  while (spare && me.closed.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  if (ok) end_slot(worker, slot);
  return ok;
}

inline bool Run::find_task(u32 worker, u32* slot, bool* stolen) {
  Worker& me = *workers_[worker];
  if (fifo_) return take_fifo(&me, slot);
  if (me.next != kNil) {
    *slot = std::exchange(me.next, kNil);
    return true;
  }
  if (me.own->size() > 0) {
    *slot = me.place = me.own->take_next(me.place);
    return true;
  }
  if (me.deque->pop(slot)) return true;
  if (pinned_ || !steal(worker, slot)) return false;
  *stolen = true;
  me.stolen += 1;
  return true;
}

// For controlled and virtual runs, which call them seldom.
void Run::push_ready(u32 worker, u32 slot) { make_ready(worker, slot); }
bool Run::take_ready(u32 worker, u32* slot, bool* stolen) {
  return find_task(worker, slot, stolen);
}

void Run::work_flow(u32 worker) {
  Worker& me = *workers_[worker];
  u32 misses = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    u32 slot = kNil;
    bool stolen = false;
    if (runs_low(worker)) generate_burst(worker);
    if (find_task(worker, &slot, &stolen)) {
      misses = 0;
      if (me.own->size() > 0 && me.deque->size() <= 0 && workers() > 1) share(&me);
      if (!run_slot(worker, slot, stolen)) return;
    } else {
      look_for_more(worker, &misses);
    }
  }
  leave_work(worker);
}

// There is nothing to take: generates, commits what batches keep back, or rests.
void Run::look_for_more(u32 worker, u32* misses) {
  if (generate_burst(worker) || (config_.batch_deps > 0 && flush_batches(worker))) {
    *misses = 0;
    return;
  }
  give_back(workers_[worker].get());
  idle(worker, misses);
}

// The next run must find every task ended.
void Run::leave_work(u32 worker) {
  if (config_.batch_deps > 0 && total_done() == made_) flush_batches(worker);
}

// Whether this worker should generate now, although it has something to run: so that the others,
// who will look for more at about the same time, need not wait for it.
bool Run::runs_low(u32 worker) {
  constexpr u32 kLow = 8;
  Worker& me = *workers_[worker];
  if (workers() == 1 || generated_all_.load(std::memory_order_relaxed) ||
      leader_.load(std::memory_order_relaxed) == worker) {
    return false;
  }
  if (issuer_ ? issuer_->ready() >= u64{kLow} * workers()
              : me.own->size() >= kLow || config_.ready == ReadyPolicy::FIFO) {
    return false;
  }
  if (me.patience > 0) {
    me.patience -= 1;
    return false;
  }
  me.patience = kLow;
  return true;
}

// Tries each other worker once, beginning with a random one.
bool Run::steal(u32 worker, u32* slot) {
  const u32 n = workers();
  if (n == 1) return false;
  Worker& me = *workers_[worker];
  me.random += 0x9E3779B97F4A7C15ull;
  const u32 first = static_cast<u32>(splitmix(me.random) % n);
  for (u32 k = 0; k < n; ++k) {
    Worker& victim = *workers_[(first + k) % n];
    if (&victim != &me && (steal_own(&me, &victim, slot) || steal_shared(&me, &victim, slot))) {
      return true;
    }
  }
  return false;
}

// Takes the oldest task that the victim offers and, where the order is open, some that follow.
bool Run::steal_shared(Worker* me, Worker* victim, u32* slot) {
  constexpr u32 kMost = 16;
  const i64 there = victim->deque->size();
  if (there <= 0 || !victim->deque->steal(slot)) return false;
  if (config_.ready == ReadyPolicy::WORK_STEAL) return true;
  u32 more = 0;
  for (u32 i = 1; i < kMost && i < there / 2 && victim->deque->steal(&more); ++i) {
    me->own->insert(more);
  }
  return true;
}

// Takes half of what a worker that is inside a kernel keeps for itself.
bool Run::steal_own(Worker* me, Worker* victim, u32* slot) {
  if (victim->closed.load(std::memory_order_relaxed) ||
      victim->closed.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  const u32 count = (victim->own->size() + 1) / 2;
  victim->own->move_last(me->own, victim->place, count);
  const u32 place = victim->place;
  victim->closed.store(false, std::memory_order_release);
  if (count > 0) *slot = me->place = me->own->take_next(place);
  return count > 0;
}

// Offers tasks to others: the last in order, which this worker would reach last.
void Run::share(Worker* me) {
  constexpr u32 kMost = 32;
  const u32 count = std::min((me->own->size() + 1) / 2, kMost);
  for (u32 i = 0; i < count; ++i) me->deque->push(me->own->take_last(me->place));
  lot_.notify_one();
  call_crew();
}

void Run::keep(Worker* me, u32 slot) {
  me->own->insert(slot);
  // Slots go round: one that lies a little behind is earlier, not later.
  const u32 slots = flow_->table().capacity();
  const u32 behind = me->place >= slot ? me->place - slot : me->place + slots - slot;
  if (behind < slots / 2) me->place = slot;
  me->ready_high = std::max<u64>(me->ready_high, me->own->size());
}

bool Run::run_strip(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  const TaskTable& table = flow_->table();
  const TaskTable::Record& r = table[slot];
  const BoundSite& site = plan_->sites()[r.site()];
  const u32 level = site.level;
  i64 loops[kMaxVars];
  table.get_loops(slot, loops, level + site.num_registers);
  for (u32 done = 0; done < r.count();) {
    const u32 count = std::min<u32>(r.count() - done, me.budget);
    const u64 first = r.task_id + done;
    if (!me.runner.run_leaf(r.site(), loops, first, count, &me.tasks, &me.error)) {
      fail_now(std::move(me.error));
      return false;
    }
    if (!pace(worker, count)) return false;
    done += count;
    if (level > 0) loops[level - 1] += 1;
  }
  return true;
}

// Ended slots go back in batches: the list they go to is shared.
void Run::free_slot(Worker* me, u32 slot) {
  constexpr u32 kBatch = 32;
  flow_->table()[slot].join = me->free_first;
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
  // Whoever had the token in between may have come to the end, behind which there is no loop.
  if (generated_all_.load(std::memory_order_relaxed)) {
    flow_->unlock();
    return false;
  }
  give_back(workers_[worker].get());
  flow_->collect();
  const u64 before = made_.load(std::memory_order_relaxed);
  if (runs_serially()) {
    if (flow_->live() == 0) run_stretch(worker);
  } else {
    // Nobody has anything to do yet; but where tasks are chosen or held, it is among many.
    constexpr u32 kFirst = 8;
    const bool hurry = before == 0 && config_.ready != ReadyPolicy::PRIORITY &&
                       config_.timing == TimingPolicy::IMMEDIATE;
    // What fills the window is told by modes that look at it: they have some more at a time. With a
    // schedule, whoever comes generates the next ones.
    const u32 few = issuer_ ? 1 : std::max(workers(), 2u);
    const u32 first = config_.window_mode == WindowMode::STALL ? few : kFirst;
    // What several cursors need fills tens of cache lines, which whoever generates next has to
    // fetch.
    constexpr u32 kTurns = 1024;
    const u32 burst = flow_->network() != nullptr ? kTurns : kBurst;
    generate_locked(worker, hurry ? first : burst);
  }
  if (worker == 0) poll_interrupt();
  made_.store(flow_->made(), std::memory_order_release);
  const bool progress = flow_->made() != before;
  flow_->unlock();
  return progress || has_own(worker);
}

bool Run::has_own(u32 worker) const {
  const Worker& me = *workers_[worker];
  return me.next != kNil || me.own->size() > 0 || me.deque->size() > 0;
}

void Run::generate_locked(u32 worker, u32 burst) {
  Worker& me = *workers_[worker];
  const bool started = started_.load(std::memory_order_relaxed);
  const auto ready = [&](u32 slot) {
    if (traced_) me.now = now();
    if (started && control_ && !issuer_) {
      make_ready_controlled(worker, slot);
    } else if (started && !issuer_) {
      make_ready(worker, slot);
    } else {
      held_.push_back(slot);
    }
  };
  const auto freed = [&](u32 slot) { free_slot(&me, slot); };
  Error error;
  const u64 before = flow_->made();
  const u64 steps = before + flow_->loads();
  // Before the start nobody waits for what is made.
  const Flow::Made made = flow_->make(started ? burst : 64 * burst, ready, freed, &error);
  if (issuer_ && started) issue_held(worker);  // one lock for all of them
  if (stall_since_ != 0 && flow_->made() != before) {
    window_stall_ns_ += since() - std::exchange(stall_since_, 0);
    count(TraceCounter::WINDOW_FULL, 0);
  }
  const bool waits = made == Flow::Made::Waits;
  if (std::exchange(control_waiting_, waits) != waits) {
    count(TraceCounter::CONTROL_WAITS, waits ? 1 : 0);
  }
  count(TraceCounter::WINDOW, flow_->live());
  if (made == Flow::Made::Failed) fail_now(std::move(error));
  if (made == Flow::Made::Full) window_full(worker);
  if (made == Flow::Made::Full) me.patience = kBurst;  // a few slots are not worth another look
  note_stalls(made, flow_->made() + flow_->loads() != steps);
  if (made == Flow::Made::Waits || made == Flow::Made::Drains) let_go(worker);
  if (made == Flow::Made::Done) all_generated();
  if (issuer_ && made != Flow::Made::Some) after_issue(issuer_->release(issue_time()));
  const bool enough =
      config_.start == StartPolicy::THRESHOLD && flow_->made() >= config_.start_threshold;
  if (!started_ && (enough || generated_all_)) start_held(worker);
  // One task alone is not worth waking somebody up.
  if (started_ && (!generated_all_ || me.own->size() > 0 || me.deque->size() > 0)) call_crew();
}

// Under the token. The number of tasks is published first: who sees the end sees it, too.
void Run::all_generated() {
  made_.store(flow_->made(), std::memory_order_release);
  generated_all_.store(true, std::memory_order_release);
}

// The start policy lets go. Only the token holder calls this.
void Run::start_held(u32 worker) {
  flow_->table().set_alone(alone_);
  started_.store(true, std::memory_order_release);
  if (issuer_) {
    issue_held(worker);
    return;
  }
  workers_[worker]->now = traced_ ? now() : 0;
  for (const u32 slot : held_) {
    if (control_) {
      make_ready_controlled(worker, slot);
    } else {
      make_ready(worker, slot);
    }
  }
  held_.clear();
}

// For a virtual clock.
bool Run::take_any(u32 worker, u32* slot, bool* stolen) {
  Worker& me = *workers_[worker];
  Issuer::Taken task;
  if (!issuer_) return find_task(worker, slot, stolen);
  if (!take_issued(worker, &task)) return false;
  *slot = task.slot;
  *stolen = task.stolen;
  me.take = task.take;
  me.stolen += task.stolen ? 1 : 0;
  return true;
}
void Run::end_any(u32 worker, u32 slot) {
  if (issuer_) {
    end_without_taking(worker, slot);
  } else {
    end_slot(worker, slot);
  }
}

// Whether nearly all tasks of the last window's worth ran on one worker, although others were there
// to take them.
bool Run::runs_serially() {
  const bool open_order = config_.ready == ReadyPolicy::AUTO &&
                          config_.start == StartPolicy::IMMEDIATE && !issuer_ &&
                          !flow_->has_lanes() && config_.window_bytes == 0 &&
                          config_.batch_deps == 0 && mode_ == Mode::Flow;
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
  Error error;
  bool at_task = flow_->take_pending();
  serial_ = false;
  me.now = 0;
  while (true) {
    const Event event = at_task ? Event::Task : flow_->next_event(&error);
    Cursor& cursor = flow_->cursor();
    at_task = false;
    if (event == Event::Error) fail_now(std::move(error));
    if (event == Event::Done) all_generated();
    if (event == Event::Error || event == Event::Done) break;
    if (event == Event::Load) {
      if (load_here(worker, &cursor, &error)) continue;
      fail_now(std::move(error));
      break;
    }
    if (event == Event::Drain) {  // nothing is alive
      cursor.drained = 1;
      continue;
    }
    if (event != Event::Task) {
      flow_->on_group(event, ready, freed);
      continue;
    }
    const i64 count = run_here(worker, &cursor, &error, flow_->turn());
    flow_->spend(count);
    if (count == 0) fail_now(std::move(error));
    const bool look = static_cast<u64>(count) >= me.budget;
    if (count == 0 || !pace(worker, static_cast<u64>(count))) break;
    if (look && std::chrono::steady_clock::now() > until) break;
  }
  me.done.store(me.tasks, std::memory_order_release);
  for (u32 w = 0; w < workers(); ++w) share_[w] = workers_[w]->done.load(std::memory_order_relaxed);
}

void Run::push_fifo(Worker* me, u32 slot) {
  u64 size = 0;
  {
    const std::lock_guard lock(fifo_mutex_);
    fifo_->push(slot, flow_->seq(slot));
    size = fifo_->size();
  }
  me->ready_high = std::max(me->ready_high, size);
  if (size > 1) call_crew();
  lot_.notify_one();
}

bool Run::take_fifo(Worker* me, u32* slot) {
  const std::lock_guard lock(fifo_mutex_);
  if (!fifo_->take(slot)) return false;
  me->take = next_take_++;
  return true;
}

}  // namespace ptowsp
