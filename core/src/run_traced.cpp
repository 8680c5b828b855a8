// Tasks that are recorded. A look at the clock costs as much as a short task, so tasks that run
// one right after the other share one: the end of a task is the start of the next.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

// What is known of a task before it runs.
struct Run::TracedTask {
  u64 task_id = 0;
  u64 seq = 0;
  u64 ready = 0;
  u64 start = 0;
  u64 take = 0;
  u32 site = 0;
  u32 stream = 0;
  u16 pool = 0;
  u8 stolen = 0;
  u8 level = 0;  // loops around it
};

void Run::set_trace(std::unique_ptr<TraceMemory> memory, std::unique_ptr<TraceSpool> spool) {
  u32 levels = 0;
  for (const BoundSite& site : plan_->sites()) levels = std::max(levels, site.level);
  const bool serves = memory != nullptr && memory->fits(config_.trace_capacity, levels);
  trace_ = serves ? std::move(memory)
                  : std::make_unique<TraceMemory>(workers(), config_.trace_capacity, levels);
  spool_ = std::move(spool);
  trace_->each_ring([this](TraceRing& ring) { ring.restart(spool_.get()); });
  for (u32 w = 0; w < workers(); ++w) workers_[w]->trace = trace_->tasks[w].get();
}

void Run::begin_trace() {
  if (spool_ != nullptr && !spool_->is_open()) {
    fail_now(Error::make(Status::EXECUTION_ERROR, "the file for the trace cannot be written"));
  }
  if (!tracks()) return;
  ready_ticks_ = flow_->ready_ticks().data();
  notes_.emplace(trace_->edges.get(), trace_->samples.get());
  flow_->set_notes(&*notes_);
  if (mode_ == Mode::Virtual) keys_.emplace(plan_->plan());
}

// After the last task.
void Run::end_trace() {
  if (spool_ == nullptr) return;
  trace_->each_ring([](TraceRing& ring) { ring.flush(); });
  if (spool_->close() || !error_.ok()) return;
  error_ = Error::make(Status::EXECUTION_ERROR, "the trace could not be written to its file");
}

// Runs a task. Its worker's clock stands at the end of it afterwards.
inline bool Run::run_traced(u32 worker, const TracedTask& task, const i64* loops, Error* error) {
  Worker& me = *workers_[worker];
  const bool ok = me.runner.run(task.site, loops, task.task_id, error);
  me.now = Clock::ticks();
  // Field by field: a struct that is put together first goes through memory twice.
  std::byte* const at = me.trace->next();
  auto* const out = reinterpret_cast<ptowsp_traced*>(at);
  out->task_id = task.task_id;
  out->seq = task.seq;
  out->ready = task.ready;
  out->start = task.start;
  out->end = me.now;
  out->take = task.take;
  out->site = task.site;
  out->stream = task.stream;
  out->worker = worker;
  out->pool = task.pool;
  out->stolen = task.stolen;
  out->num_loops = task.level;
  auto* const indices = reinterpret_cast<i64*>(at + sizeof(ptowsp_traced));
  each_level(task.level, [&](u32 l) { indices[l] = loops[l]; });
  return ok;
}

// Flow: the tasks of a slot.
bool Run::run_traced_strip(u32 worker, u32 slot, bool stolen) {
  Worker& me = *workers_[worker];
  const TaskTable& table = flow_->table();
  const TaskTable::Record& r = table[slot];
  const u32 count = r.count();
  const BoundSite& site = plan_->sites()[r.site()];
  const u32 level = site.level;
  i64 loops[kMaxVars];
  table.get_loops(slot, loops, level + site.num_registers);
  TracedTask task{.task_id = r.task_id,
                  .seq = flow_->seq(slot),
                  .ready = ready_ticks_[slot],
                  .start = Clock::ticks(),
                  .take = me.take,
                  .site = r.site(),
                  .stolen = u8{stolen},
                  .level = static_cast<u8>(level)};
  if (issuer_) {
    task.stream = issuer_->stream(slot);
    task.pool = static_cast<u16>(issuer_->pool(slot));
  }
  for (u32 done = 0; done < count; ++done) {
    if (!run_traced(worker, task, loops, &me.error)) {
      fail_now(std::move(me.error));
      return false;
    }
    me.tasks += 1;
    if (!pace(worker, 1)) return false;
    task.task_id += 1;
    task.seq += 1;
    task.start = me.now;
    if (level > 0) loops[level - 1] += 1;
  }
  return true;
}

// Inline and Split: the cursor's task and further ones of its leaf loop. The number of tasks that
// ended.
i64 Run::run_traced_leaf(u32 worker, Cursor* cursor, i64 count, Error* error) {
  Worker& me = *workers_[worker];
  const BoundSite& site = plan_->sites()[cursor->site];
  i64 loops[kMaxVars];
  BoundPlan::pack(site, cursor->vars, loops);
  if (me.now == 0) me.now = Clock::ticks();
  const auto level = static_cast<u8>(site.level);
  TracedTask task{.task_id = cursor->task_id,
                  .seq = cursor->task_id,
                  .ready = me.now,
                  .start = me.now,
                  .site = cursor->site,
                  .level = level};
  for (i64 done = 0; done < count; ++done) {
    if (!run_traced(worker, task, loops, error)) return done;
    me.tasks += 1;
    task.task_id += 1;
    task.seq += 1;
    task.ready = task.start = me.now;
    if (site.level > 0) loops[site.level - 1] += 1;
  }
  return count;
}

u64 Run::trace_size() const {
  u64 total = 0;
  if (trace_ == nullptr) return 0;
  for (const auto& ring : trace_->tasks) total += ring->size();
  return total;
}

ptowsp_trace_info Run::trace_info() const {
  ptowsp_trace_info out{};
  if (trace_ == nullptr) return out;
  const bool is_virtual = mode_ == Mode::Virtual;
  out.first_tick = is_virtual ? 0 : clock_.first();
  out.ns_per_tick = is_virtual ? 1 : clock_.ns_per_tick();
  out.levels = static_cast<u32>((trace_->tasks[0]->entry() - sizeof(ptowsp_traced)) / sizeof(i64));
  out.ordered = is_ordered() ? 1 : 0;
  return out;
}

std::size_t Run::trace_block(u32 kind, void* out, std::size_t bytes) const {
  std::size_t size = 0;
  const auto copy = [&](const TraceRing& ring) {
    ring.each([&](const std::byte* entries, u64 count) {
      const std::size_t part = count * ring.entry();
      if (size + part <= bytes) std::memcpy(static_cast<std::byte*>(out) + size, entries, part);
      size += part;
    });
  };
  if (trace_ == nullptr) return 0;
  if (kind == PTOWSP_BLOCK_EDGES) copy(*trace_->edges);
  if (kind == PTOWSP_BLOCK_SAMPLES) copy(*trace_->samples);
  if (kind != PTOWSP_BLOCK_TASKS) return size;
  for (const auto& ring : trace_->tasks) copy(*ring);
  return size;
}

// In the order in which tasks started; that is their `take` unless it was recorded.
std::vector<ptowsp_event> Run::events() const {
  std::vector<ptowsp_event> out;
  if (trace_ == nullptr) return out;
  const ptowsp_trace_info info = trace_info();
  const auto ns = [&](u64 ticks) {
    const i64 passed = static_cast<i64>(ticks - info.first_tick);
    return static_cast<u64>(static_cast<double>(std::max<i64>(passed, 0)) * info.ns_per_tick);
  };
  for (const auto& ring : trace_->tasks) {
    ring->each([&](const std::byte* entries, u64 count) {
      for (u64 i = 0; i < count; ++i, entries += ring->entry()) {
        ptowsp_traced t;
        std::memcpy(&t, entries, sizeof(t));
        ptowsp_event e{t.task_id, t.seq,    t.take, ns(t.ready), ns(t.start), ns(t.end), t.site,
                       t.worker,  t.stream, t.pool, t.stolen,    t.num_loops, {}};
        std::memcpy(e.indices, entries + sizeof(t), t.num_loops * sizeof(i64));
        out.push_back(e);
      }
    });
  }
  std::sort(out.begin(), out.end(), [](const ptowsp_event& a, const ptowsp_event& b) {
    return std::tie(a.start_ns, a.worker, a.end_ns) < std::tie(b.start_ns, b.worker, b.end_ns);
  });
  for (std::size_t i = 0; info.ordered == 0 && i < out.size(); ++i) out[i].take = i;
  return out;
}

}  // namespace ptowsp
