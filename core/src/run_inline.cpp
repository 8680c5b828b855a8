// Runs that need no records: Inline and Split.
#include <algorithm>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

void Run::work_inline(u32 worker) {
  Cursor cursor;
  Error error;
  while (!stop_.load(std::memory_order_relaxed) && next_range(&cursor)) {
    if (plan_->is_network() ? run_network(worker, &error) : run_range(worker, &cursor, &error)) {
      continue;
    }
    Lock lock(mutex_);
    fail(std::move(error));
    return;
  }
}

// The next part of the program that nobody works on; false if there is none.
bool Run::next_range(Cursor* cursor) {
  if (mode_ == Mode::Inline) {
    if (next_iteration_.fetch_add(1, std::memory_order_relaxed) != 0) return false;
    *cursor = Cursor::at_entry(*plan_, 0);
    return true;
  }
  const i64 lo = next_iteration_.fetch_add(range_, std::memory_order_relaxed);
  if (lo >= last_iteration_) return false;
  u64 before = 0;
  plan_->tasks_before(lo, &before);
  *cursor = Cursor::over_range(*plan_, 0, lo, std::min(lo + range_, last_iteration_), before);
  return true;
}

// Generates and runs tasks in program order. False: `error` says why it ended.
bool Run::run_range(u32 worker, Cursor* cursor, Error* error) {
  cursor->copy = worker;  // tasks of one worker come one after the other
  while (true) {
    const Event event = cursor->advance(*plan_, error);
    if (event == Event::Done) return true;
    if (event == Event::Error) return false;
    if (event == Event::Load && !load_here(worker, cursor, error)) return false;
    if (event != Event::Task) continue;
    const i64 count = run_here(worker, cursor, error);
    if (count == 0) return false;
    if (!pace(worker, static_cast<u64>(count))) return true;
  }
}

// The same with processes, in the order of their turns.
bool Run::run_network(u32 worker, Error* error) {
  Network network(*plan_);
  network.keep_copies();
  network.clear_initial();
  while (true) {
    const Event event = network.advance(error);
    inline_counters_ = network.counters();
    if (event == Event::Done) return true;
    if (event == Event::Error) return false;
    Cursor* const cursor = &network.cursor();
    if (event == Event::Load && !load_here(worker, cursor, error)) return false;
    if (event != Event::Task) continue;
    const i64 count = run_here(worker, cursor, error, network.budget());
    if (count == 0) return false;
    network.spend(static_cast<u32>(count));
    if (!pace(worker, static_cast<u64>(count))) return true;
  }
}

// Runs the task at which the cursor stands, and up to `most` of the same leaf loop. The number of
// tasks; 0: one failed.
i64 Run::run_here(u32 worker, Cursor* cursor, Error* error, i64 most) {
  Worker& me = *workers_[worker];
  const BoundSite& site = plan_->sites()[cursor->site];
  me.bounds_checked += site.num_checked;
  const u32 opener = cursor->depth > 0 ? cursor->frames[cursor->depth - 1].pc : 0;
  const bool leaf = site.simple && cursor->depth > 0 && plan_->is_leaf(opener, cursor->site);
  if (hashed_ && !hash_here(worker, *cursor, error)) return 0;
  if (site.checks_afters && !cursor->check_afters(*plan_, error)) return 0;
  const bool many = leaf && !hashed_ && !site.checks_afters;
  if (!many && !traced_) return run_task(worker, *cursor, error) ? 1 : 0;
  const i64 count = many ? std::min({cursor->leaf_left(), i64{me.budget}, most}) : 1;
  if (traced_) {
    if (run_traced_leaf(worker, cursor, count, error) != count) return 0;
    if (many) cursor->leaf_skip(count);
    return count;
  }
  i64 packed[kMaxVars];
  BoundPlan::pack(site, cursor->vars, packed);
  if (!me.runner.run_leaf(cursor->site, packed, cursor->task_id, count, &me.tasks, error)) return 0;
  cursor->leaf_skip(count);
  return count;
}

bool Run::hash_here(u32 worker, const Cursor& cursor, Error* error) {
  Worker& me = *workers_[worker];
  Region* regions = me.regions.data();
  if (!plan_->regions(cursor.site, cursor.task_id, cursor.vars, regions, error)) return false;
  if (plan_->hash_task(cursor.site, cursor.vars, regions, &me.hash, error)) return true;
  const u32 level = plan_->sites()[cursor.site].level;
  error->at_task(cursor.site, cursor.task_id, cursor.vars, level);
  return false;
}

// Everything before the load has ended.
bool Run::load_here(u32 worker, Cursor* cursor, Error* error) {
  const BoundSite& site = plan_->sites()[cursor->site];
  Region region;
  i64 value = 0;
  workers_[worker]->bounds_checked += site.num_checked;
  if (!plan_->region(plan_->site_access(site, 0), cursor->vars, &region, error) ||
      !plan_->load(cursor->site, region, &value, error)) {
    error->at_task(cursor->site, cursor->next_task, cursor->vars, site.level);
    return false;
  }
  workers_[worker]->loads += 1;
  cursor->loaded(*plan_, value);
  return true;
}

bool Run::run_task(u32 worker, const Cursor& cursor, Error* error) {
  Worker& me = *workers_[worker];
  i64 packed[kMaxVars];
  BoundPlan::pack(plan_->sites()[cursor.site], cursor.vars, packed);
  if (!me.runner.run(cursor.site, packed, cursor.task_id, error)) return false;
  me.tasks += 1;
  return true;
}

// The budget is spent: looks at the clock and sets the next one.
bool Run::look_at_clock(u32 worker) {
  constexpr u32 kMost = 1u << 16;
  Worker& me = *workers_[worker];
  const auto now = std::chrono::steady_clock::now();
  const bool soon = now - me.looked < kPollEvery / 4;
  me.looked = now;
  me.interval = soon ? std::min(me.interval * 2, kMost) : std::max(me.interval / 2, 1u);
  me.budget = me.interval;
  if (worker == 0) poll_interrupt();
  if (traced_) me.now = this->now();  // looking took its time
  return !stop_.load(std::memory_order_relaxed);
}

}  // namespace ptowsp
