#include "ptowsp/run.h"

#include <utility>

namespace ptowsp {

Run::Run(std::unique_ptr<BoundPlan> plan, const ScheduleConfig& config,
         const std::vector<KernelSlot>* kernels, u32 workers, u64 seed)
    : plan_(std::move(plan)),
      config_(config),
      kernels_(*kernels),
      scheduler_(*plan_, config, workers, seed) {
  workers_.reserve(workers);
  for (u32 w = 0; w < workers; ++w) workers_.emplace_back(config.trace_capacity);
}

void Run::work(u32 worker) {
  Lock lock(mutex_);
  while (!stop_) {
    if (worker == 0 && interrupt_ != nullptr) {
      lock.unlock();
      poll_interrupt();
      lock.lock();
      if (stop_) break;
    }
    u32 slot = 0;
    bool stolen = false;
    if (scheduler_.take(worker, &slot, &stolen)) {
      execute(&lock, worker, slot, stolen);
    } else if (scheduler_.can_generate()) {
      generate(worker);
    } else if (running_ == 0) {
      settle();
    } else {
      park(&lock, worker);
    }
  }
  elapsed_ns_ = std::max(elapsed_ns_, scheduler_.now());
  changed_.notify_all();
}

void Run::generate(u32 worker) {
  Error error;
  if (!scheduler_.generate(worker, kBurst, &error)) fail(std::move(error));
  wake();
}

// Nothing runs, nothing may start, nothing can be generated.
void Run::settle() {
  Error error;
  if (scheduler_.finished()) {
    stop_ = true;
  } else if (!scheduler_.quiesce(&error)) {
    fail(std::move(error));
  }
  changed_.notify_all();
}

void Run::execute(Lock* lock, u32 worker, u32 slot, bool stolen) {
  const TaskRecord task = scheduler_.record(slot);
  const u64 take = takes_++;
  running_ += 1;
  lock->unlock();

  const bool traced = config_.trace != TracePolicy::NONE;
  const u64 start = traced ? scheduler_.now() : 0;
  Error error;
  const i32 result = call_kernel(worker, task, &error);
  if (traced) {
    ptowsp_event event{};
    event.task_id = task.task_id;
    event.seq = task.seq;
    event.take = take;
    event.ready_ns = task.ready_ns;
    event.start_ns = start;
    event.end_ns = scheduler_.now();
    event.site = task.site;
    event.worker = worker;
    event.stolen = stolen ? 1 : 0;
    event.num_loops = plan_->sites()[task.site].level;
    std::copy(task.loops, task.loops + event.num_loops, event.indices);
    workers_[worker].trace.add(event);
  }

  lock->lock();
  running_ -= 1;
  workers_[worker].tasks += 1;
  if (result != 0) {
    fail(std::move(error));
    return;
  }
  scheduler_.finish(slot, worker);
  wake();
}

i32 Run::call_kernel(u32 worker, const TaskRecord& task, Error* error) {
  Worker& me = workers_[worker];
  const BoundSite& site = plan_->sites()[task.site];
  Region region;
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const BoundAccess& access = plan_->access(plan_->site_access(site, p));
    plan_->region(plan_->site_access(site, p), task.loops, &region, error);
    const BoundTensor& t = plan_->tensors()[access.tensor];
    ptowsp_view& view = me.views[p];
    view.rank = access.seen_rank;
    view.dtype = static_cast<u32>(t.dtype);
    i64 offset = 0;
    for (u32 d = 0, seen = 0; d < access.rank; ++d) {
      offset += region.start[d] * t.stride[d];
      if (plan_->dim(access.dims + d).dropped) continue;
      view.shape[seen] = region.extent[d];
      view.stride[seen] = region.step[d] * t.stride[d];
      seen += 1;
    }
    // An empty region may start anywhere; its pointer must not leave the tensor.
    view.data = region.empty ? t.data : t.data + offset * static_cast<i64>(t.item);
  }
  me.message[0] = '\0';
  ptowsp_call call{};
  call.views = me.views.data();
  call.indices = task.loops;
  call.num_views = site.num_accesses;
  call.num_indices = site.level;
  call.site = task.site;
  call.worker = worker;
  call.task_id = task.task_id;
  call.error = me.message;
  call.error_size = sizeof(me.message);
  const KernelSlot& kernel = kernels_[site.kernel];
  const i32 result = kernel.fn(&call, kernel.user);
  if (result == 0) return 0;
  *error = Error::make(result == kKernelInterrupted ? Status::INTERRUPTED : Status::KERNEL_ERROR,
                       me.message);
  error->at_task(task.site, task.task_id, task.loops, site.level);
  return result;
}

void Run::park(Lock* lock, u32 worker) {
  workers_[worker].parks += 1;
  idle_ += 1;
  if (worker == 0 && interrupt_ != nullptr) {
    changed_.wait_for(*lock, kPollEvery);
  } else {
    changed_.wait(*lock);
  }
  idle_ -= 1;
}

void Run::wake() {
  if (idle_ == 0) return;
  if (stop_ || scheduler_.ready() > 1) {
    changed_.notify_all();
  } else if (scheduler_.ready() == 1 || scheduler_.can_generate()) {
    changed_.notify_one();
  }
}

void Run::fail(Error error) {
  if (error_.ok()) error_ = std::move(error);
  stop_ = true;
  changed_.notify_all();
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

ptowsp_stats Run::stats() const {
  Lock lock(mutex_);
  ptowsp_stats out = scheduler_.stats();
  out.elapsed_ns = elapsed_ns_;
  for (const Worker& w : workers_) {
    out.parks += w.parks;
    out.trace_dropped += w.trace.dropped();
  }
  return out;
}

}  // namespace ptowsp
