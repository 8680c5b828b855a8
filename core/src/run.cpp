#include "ptowsp/run.h"

#include <algorithm>
#include <utility>

namespace ptowsp {

namespace {

// On a virtual clock a process is a machine of its own, unless the schedule says who runs what.
bool has_worker_each(const BoundPlan& plan, const ScheduleConfig& config) {
  return plan.is_network() && config.trace == TracePolicy::CYCLES && !config.issued &&
         config.ready == ReadyPolicy::AUTO;
}

}  // namespace

u32 Run::workers_for(const BoundPlan& plan, const ScheduleConfig& config, u32 workers) {
  if (!has_worker_each(plan, config)) return workers;
  u32 cursors = 0;
  for (const BoundProcess& process : plan.processes()) cursors += process.replicas;
  return cursors;
}

Run::Run(RunParts parts, const ScheduleConfig& config, const std::vector<KernelSlot>* kernels,
         u32 workers, u64 seed, bool hashed, RunControl control)
    : plan_(std::move(parts.plan)),
      tracking_(std::move(parts.tracking)),
      memory_(std::move(parts.memory)),
      config_(config),
      control_with_(std::move(control)),
      mode_(choose_mode(*plan_, config, workers, hashed, control_with_)),
      traced_(config.trace != TracePolicy::NONE),
      hashed_(hashed),
      alone_(workers == 1),
      pinned_(has_worker_each(*plan_, config)),
      seed_(seed),
      next_iteration_(0) {
  workers_.reserve(workers);
  for (TaskRunner& runner : parts.runners) {
    if (parts.anew) {
      runner.make(*kernels);
    } else {
      runner.restart(*kernels);
    }
    workers_.push_back(std::make_unique<Worker>(std::move(runner)));
  }
  while (workers_.size() < workers) {
    TaskRunner runner(*plan_, *kernels, static_cast<u32>(workers_.size()));
    workers_.push_back(std::make_unique<Worker>(std::move(runner)));
  }
  if (!config.prefetches.empty()) prefetcher_.emplace(*plan_, config);
  for (u32 w = 0; w < workers; ++w) {
    workers_[w]->random = seed + w;
    workers_[w]->runner.set_prefetcher(prefetcher_ ? &*prefetcher_ : nullptr,
                                       &workers_[w]->prefetched);
    if (hashed) workers_[w]->regions.resize(plan_->most_accesses());
  }
  if (control_with_.record && !control_with_.controlled()) recorder_.emplace(workers);
  for (const auto& w : workers_) w->runner.set_recorder(recorder_ ? &*recorder_ : nullptr);
  share_.assign(workers, 0);
  started_ = config.start == StartPolicy::IMMEDIATE ||
             (config.start == StartPolicy::THRESHOLD && config.start_threshold == 0);
  if (mode_ != Mode::Split) return;
  const BoundLoop& loop = plan_->loop(plan_->independent_axis());
  const i64 extent = loop.extent.form->base;
  next_iteration_ = loop.start.form->base;
  last_iteration_ = loop.start.form->base + extent;
  range_ = std::max<i64>(1, extent / (static_cast<i64>(workers) * 32));
}

void Run::begin(std::unique_ptr<FlowMemory> memory) {
  clock_ = Clock();
  next_poll_ = std::chrono::steady_clock::now() + kPollEvery;
  crew_called_ = mode_ == Mode::Virtual;  // nobody else takes part
  if (!tracks()) {
    if (traced_) begin_trace();
    return;
  }
  if (memory == nullptr) memory = std::move(memory_);
  flow_.emplace(*plan_, config_, workers(), hashed_, std::move(tracking_), std::move(memory));
  flow_->table().set_alone(alone_ || !started_);
  if (flow_->network() != nullptr) flow_->network()->clear_initial();
  set_forks();
  if (traced_) begin_trace();
  if (mode_ == Mode::Virtual) begin_virtual();
  if (config_.issued) {
    const u64 seed = control_with_.seed.value_or(seed_);
    issuer_.emplace(*plan_, config_, workers(), flow_->places(), seed);
    u32 streams = static_cast<u32>(config_.streams);
#ifdef PTOWSP_MUTANTS
    if (!config_.streams_order) streams = 0;
#endif
    flow_->set_issuer(&*issuer_, streams);
  } else if (config_.ready == ReadyPolicy::FIFO) {
    fifo_.emplace(config_.window);
  }
  for (u32 w = 0; w < workers(); ++w) {
    workers_[w]->deque = &flow_->queues(w)->shared;
    workers_[w]->own = &flow_->queues(w)->own;
  }
  if (control_with_.controlled()) begin_controlled();
}

// Where a loop has few iterations that are proved independent and the order is open, each worker's
// worth of them is generated at a time, so that one long chain does not fill the window.
void Run::set_forks() {
  std::vector<LoopOrder> orders = config_.orders;
  const bool open_order = config_.ready == ReadyPolicy::AUTO &&
                          config_.start == StartPolicy::IMMEDIATE && !config_.issued &&
                          !keeps_decisions();
  if (orders.empty() && open_order && workers() > 1 && plan_->independent_axis() != kNone) {
    orders.push_back({plan_->independent_axis(), OrderPolicy::PARALLEL});
  }
  std::vector<u32> axes;
  for (const LoopOrder& order : orders) {
    if (order.policy != OrderPolicy::SEQUENTIAL) axes.push_back(order.axis);
  }
  plan_->set_forks(axes);
  flow_->set_orders(orders, workers(), keeps_decisions());
}

RunParts Run::end() {
  RunParts parts;
  if (traced_) end_trace();
  final_hash_ = hash();
  const ptowsp_stats counted = stats();
  {
    Lock lock(mutex_);
    final_stats_ = counted;  // from here on nobody asks the parts
    stop_ = true;            // and nothing is left to cancel
  }
  if (!error_.ok()) {  // it leaves tasks behind that never end
    flow_.reset();
    return parts;
  }
  parts.tracking = std::move(tracking_);  // of an earlier run, if this one was not tracked
  parts.memory = std::move(memory_);
  if (flow_) {
    flow_->table().restart();
    parts.tracking = flow_->take_tracking();
    parts.memory = flow_->take_memory();
    flow_.reset();
  }
  plan_->set_forks({});  // whoever walks it next may be no Flow
  parts.plan = std::move(plan_);
  parts.runners.reserve(workers_.size());
  for (const auto& w : workers_) parts.runners.push_back(std::move(w->runner));
  return parts;
}

Run::Mode Run::choose_mode(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
                           bool hashed, const RunControl& control) {
  if (control.controlled()) return Mode::Flow;
  if (config.trace == TracePolicy::CYCLES) return Mode::Virtual;
  if (config.ready != ReadyPolicy::AUTO || config.start != StartPolicy::IMMEDIATE ||
      config.issued || !config.orders.empty() || config.window_bytes > 0 || config.batch_deps > 0) {
    return Mode::Flow;
  }
  if (workers == 1) return Mode::Inline;
  // What a split run does would not fit into the window of a run that repeats it.
  const u32 axis = hashed || control.record ? kNone : plan.independent_axis();
  // Each worker of a split run has a task in flight, and the window counts tasks in flight.
  if (axis == kNone || config.window < workers) return Mode::Flow;
  // With few iterations the work inside of them has to be shared, too.
  return plan.loop(axis).extent.form->base >= 4 * static_cast<i64>(workers) ? Mode::Split
                                                                            : Mode::Flow;
}

void Run::work(u32 worker) {
  entered_.fetch_add(1, std::memory_order_acq_rel);
  if (mode_ == Mode::Split) call_crew();
  switch (mode_) {
    case Mode::Flow:
      if (control_) {
        work_controlled(worker);
      } else if (issuer_) {
        work_issued(worker);
      } else {
        work_flow(worker);
      }
      break;
    case Mode::Virtual:
      if (worker == 0) work_virtual();
      break;
    case Mode::Inline:
    case Mode::Split:
      work_inline(worker);
      break;
  }
  Lock lock(mutex_);
  elapsed_ns_ = std::max(elapsed_ns_, clock_.since());
  if (traced_) clock_.calibrate();
}

// Under the lock.
void Run::fail(Error error) {
  if (error_.ok()) error_ = std::move(error);
  stop_workers();
  if (control_) control_->wake_all();
}

void Run::fail_now(Error error) {
  Lock lock(mutex_);
  fail(std::move(error));
}

void Run::cancel() {
  Lock lock(mutex_);
  if (stop_) return;
  fail(Error::make(Status::INTERRUPTED, "the run was cancelled"));
}

bool Run::poll_interrupt() {
  if (interrupt_ == nullptr) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_poll_) return false;
  next_poll_ = now + kPollEvery;
  if (interrupt_(interrupt_user_) == 0) return false;
  cancel();
  return true;
}

TaskHash Run::hash() const {
  if (final_stats_) return final_hash_;
  TaskHash total = flow_ ? flow_->hash() : TaskHash{};
  for (const auto& w : workers_) {
    for (u32 lane = 0; lane < 2; ++lane) total.lane[lane] += w->hash.lane[lane];
  }
  return total;
}

namespace {

void count_channels(const Network::Counters& counted, ptowsp_stats* out) {
  out->messages = counted.messages;
  out->channel_empty = counted.empty;
  out->channel_full = counted.full;
  out->channel_high = counted.high;
}

}  // namespace

ptowsp_stats Run::stats() const {
  Lock lock(mutex_);
  if (final_stats_) return *final_stats_;
  ptowsp_stats out{};
  out.bounds_proved = plan_->accesses_proved();
  out.workspace_bytes = plan_->workspace_bytes();
  out.elapsed_ns = elapsed_ns_;
  out.began_ns = clock_.began();
  out.came_awake = came_awake_.load(std::memory_order_relaxed);
  if (flow_) {
    out.edges = flow_->edges();
    out.phases = flow_->phases();
    out.live_high = flow_->live_high();
    out.map_high = flow_->map_high();
    out.window_bytes_high = flow_->bytes_high();
    out.bounds_checked = flow_->bounds_checked();
    out.memory_bytes = flow_->bytes();
    out.window_stalls = window_stalls_;
    out.window_stall_ns = window_stall_ns_;
    out.window_overflows = config_.window_mode == WindowMode::BENCHMARK ? window_stalls_ : 0;
    out.start_released = start_released_;
    out.loads = flow_->loads();
    if (flow_->network() != nullptr) count_channels(flow_->network()->counters(), &out);
    out.control_waits = control_stall_.count;
    out.control_wait_ns = control_stall_.ns;
    out.workspace_stalls = workspace_stall_.count;
    out.workspace_stall_ns = workspace_stall_.ns;
    out.edges_high = flow_->edges_high();
    out.start_held = start_held_;
    if (issuer_) {
      const Issuer::Counters counted = issuer_->counters();
      out.timing_released = counted.released;
      out.gate_stalls = counted.gate_stalls;
      out.ready_high = counted.ready_high;
    }
  }
  if (!flow_) count_channels(inline_counters_, &out);
  for (const auto& w : workers_) {
    out.parks += w->parks;
    out.trace_dropped += w->trace == nullptr ? 0 : w->trace->dropped();
    out.tasks += w->tasks;
    out.generated += w->tasks;
    out.bounds_checked += w->bounds_checked;
    out.stolen += w->stolen;
    out.prefetch_tasks += w->prefetched.tasks;
    out.prefetch_bytes += w->prefetched.bytes;
    out.dep_batches += w->batches;
    out.dep_flushes += w->early_flushes;
    out.loads += w->loads;
    out.ready_high = std::max<u64>(out.ready_high, w->ready_high);
    if (!tracks()) out.live_high += w->tasks > 0 ? 1u : 0u;
  }
  return out;
}

}  // namespace ptowsp
