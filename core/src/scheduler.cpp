#include "ptowsp/scheduler.h"

#include <algorithm>

namespace ptowsp {

Scheduler::Scheduler(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, u64 seed)
    : plan_(plan),
      config_(config),
      ring_(config.window),
      map_(&plan, config.matching),
      fifo_(config.window),
      steal_(workers, seed),
      cursor_(Cursor::at_entry(plan, 0)),
      started_(config.start == StartPolicy::IMMEDIATE ||
               (config.start == StartPolicy::THRESHOLD && config.start_threshold == 0)),
      regions_(kMaxTensorArgs) {}

bool Scheduler::take(u32 worker, u32* slot, bool* stolen) {
  if (!started_) return false;
  u32 victim = worker;
  const bool got = config_.ready == ReadyPolicy::WORK_STEAL ? steal_.take(worker, slot, &victim)
                                                            : fifo_.take(slot);
  if (!got) return false;
  *stolen = config_.ready == ReadyPolicy::WORK_STEAL && victim != worker;
  stats_.stolen += *stolen ? 1u : 0u;
  ring_[*slot].running = true;
  return true;
}

bool Scheduler::generate(u32 worker, u32 burst, Error* error) {
  const auto released = [&](u32 slot) { release(slot, worker); };
  for (u32 made = 0; made < burst;) {
    if (pending_) {
      if (ring_.full()) {
        note_stall();
        if (config_.window_mode != WindowMode::ABORT) return true;
        *error = Error::make(Status::WINDOW_OVERFLOW, "the task window of " +
                                                          std::to_string(config_.window) +
                                                          " records is full and its mode is ABORT");
        error->at_task(cursor_.site, cursor_.task_id, cursor_.loops, cursor_.level);
        return false;
      }
      if (!submit(worker, error)) return false;
      pending_ = false;
      made += 1;
      continue;
    }
    switch (cursor_.advance(plan_, error)) {
      case Event::Task:
        pending_ = true;
        break;
      case Event::GroupOpen:
        phases_.open_group();
        break;
      case Event::PhaseNext:
        phases_.next_phase(released);
        break;
      case Event::GroupClose:
        phases_.close_group(released);
        break;
      case Event::Done:
        generated_all_ = true;
        started_ = true;
        return true;
      case Event::Error:
        return false;
    }
  }
  return true;
}

// Makes a record of the task at which the cursor stands, with all its dependences.
bool Scheduler::submit(u32 worker, Error* error) {
  const BoundSite& site = plan_.sites()[cursor_.site];
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 access = plan_.site_access(site, p);
    stats_.bounds_checked += plan_.access(access).checked ? 1u : 0u;
    if (plan_.region(access, cursor_.loops, &regions_[p], error)) continue;
    error->at_task(cursor_.site, cursor_.task_id, cursor_.loops, site.level);
    return false;
  }
  const u32 slot = ring_.acquire();
  TaskRecord& r = ring_[slot];
  r.seq = next_seq_++;
  r.task_id = cursor_.task_id;
  r.site = cursor_.site;
  r.fanin = 1;  // held until all edges are there
  r.phase = phases_.current();
  std::copy(cursor_.loops, cursor_.loops + site.level, r.loops);
  if (phases_.enter(slot)) {
    r.fanin += 1;
    stats_.edges += 1;
  }
  find_conflicts(slot);
  stats_.generated += 1;
  stats_.live_high = std::max<u64>(stats_.live_high, ring_.live());
  stats_.map_high = std::max<u64>(stats_.map_high, map_.live());
  const bool enough =
      config_.start == StartPolicy::THRESHOLD && stats_.generated >= config_.start_threshold;
  if (enough) started_ = true;
  release(slot, worker);
  return true;
}

void Scheduler::find_conflicts(u32 slot) {
  TaskRecord& r = ring_[slot];
  const BoundSite& site = plan_.sites()[r.site];
  const auto depend_on = [&](u32 other) {
    TaskRecord& before = ring_[other];
    if (before.marked == r.seq + 1) return;
    before.marked = r.seq + 1;
    edges_.add(&before.successors, slot);
    r.fanin += 1;
    stats_.edges += 1;
  };
  for (u32 p = 0; p < site.num_accesses; ++p) map_.query(regions_[p], depend_on);
  for (u32 p = 0; p < site.num_accesses; ++p) map_.insert(regions_[p], slot, &r.entries);
}

void Scheduler::release(u32 slot, u32 worker) {
  if (--ring_[slot].fanin == 0) push_ready(slot, worker);
}

void Scheduler::push_ready(u32 slot, u32 worker) {
  TaskRecord& r = ring_[slot];
  r.maker = worker;
  if (config_.trace != TracePolicy::NONE) r.ready_ticks = Clock::ticks();
  if (config_.ready == ReadyPolicy::WORK_STEAL) {
    steal_.push(slot, worker);
  } else {
    fifo_.push(slot, r.seq);
  }
  stats_.ready_high = std::max<u64>(stats_.ready_high, ready());
}

void Scheduler::finish(u32 slot, u32 worker) {
  TaskRecord& r = ring_[slot];
  map_.remove(&r.entries);
  const auto released = [&](u32 next) { release(next, worker); };
  edges_.drain(&r.successors, released);
  phases_.leave(r.phase, released);
  ring_.release(slot);
  stats_.tasks += 1;
  end_stall();
}

void Scheduler::note_stall() {
  if (stalled_) return;
  stalled_ = true;
  stall_since_ = clock_.since();
  stats_.window_stalls += 1;
  if (config_.window_mode == WindowMode::BENCHMARK) stats_.window_overflows += 1;
}

void Scheduler::end_stall() {
  if (!stalled_) return;
  stalled_ = false;
  stats_.window_stall_ns += clock_.since() - stall_since_;
}

bool Scheduler::quiesce(Error* error) {
  if (!started_) {
    started_ = true;
    stats_.start_released += 1;
    stats_.start_held += ready();
    if (ready() > 0) return true;
  }
  if (finished()) return true;
  *error = Error::make(Status::DEADLOCK, deadlock_report());
  return false;
}

std::string Scheduler::describe(u32 slot) const {
  return describe_task(plan_, ring_[slot].site, ring_[slot].task_id, ring_[slot].loops);
}

std::string Scheduler::deadlock_report() const {
  constexpr u32 kMostLines = 20;
  std::string text = "nothing can run: " + std::to_string(ring_.live()) + " tasks wait, window " +
                     std::to_string(ring_.live()) + " of " + std::to_string(ring_.window()) +
                     (generated_all_ ? ", all tasks generated" : ", generation not ended");
  std::vector<std::string> waits(ring_.slots());
  for (u32 s = 0; s < ring_.slots(); ++s) {
    if (!ring_[s].live) continue;
    edges_.each(ring_[s].successors, [&](u32 next) { waits[next] += "\n    " + describe(s); });
  }
  u32 lines = 0;
  for (u32 s = 0; s < ring_.slots(); ++s) {
    if (!ring_[s].live) continue;
    if (lines++ == kMostLines) return text + "\n  ...";
    text += "\n  " + describe(s) + " waits for " + std::to_string(ring_[s].fanin) + ":" + waits[s];
    if (ring_[s].phase == kNoSlot) continue;
    const PhaseRef gate = phases_.gate_of(ring_[s].phase);
    if (!phases_.alive(gate)) continue;
    text += "\n    the phase before it, with " + std::to_string(phases_.pending(gate.slot)) +
            " unfinished";
  }
  return text;
}

ptowsp_stats Scheduler::stats() const {
  ptowsp_stats out = stats_;
  out.phases = phases_.opened();
  out.memory_bytes = ring_.bytes() + edges_.bytes() + phases_.bytes() + map_.bytes();
  return out;
}

}  // namespace ptowsp
