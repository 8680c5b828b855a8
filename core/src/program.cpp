#include "ptowsp/program.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "ptowsp/generate.h"
#include "ptowsp/order.h"
#include "ptowsp/spin_lock.h"
#include "ptowsp/warmth.h"

namespace ptowsp {

// In nanoseconds: a run of this length may have driven everything else out of the caches, and
// reading a few megabytes after it does not count.
constexpr u64 kLongRun = 2'000'000;

namespace {

// Of all programs. Only a hint for workers that have nothing to do.
std::atomic<u32> runs_at_work = 0;

}  // namespace

QueuedRun::~QueuedRun() {
  if (orphan) {
    static_cast<void>(run.release());  // waiters that do not exist never leave it
  } else if (run != nullptr) {
    program->recycle(run->take_trace());
  }
}

std::unique_ptr<Program> Program::make(std::shared_ptr<const LoadedPlan> plan,
                                       const ptowsp_options& options, Error* error) {
  if (!check_supported(plan->view, error)) return nullptr;
  std::unique_ptr<Program> p(new Program());
  if (!ScheduleConfig::decode(plan->view, &p->config_, error)) return nullptr;
  p->workers_ = std::max<u32>(options.num_workers, 1);
  p->seed_ = options.seed;
  p->workspace_limit_ = options.workspace_limit;
  p->kernels_.resize(plan->view.count(Section::KERNEL));
  p->plan_ = std::move(plan);
  return p;
}

bool Program::set_kernel(u32 kernel, KernelSlot slot) {
  if (kernel >= kernels_.size()) return false;
  kernels_[kernel].fn = slot.fn;
  kernels_[kernel].user = slot.user;
  return true;
}

bool Program::set_scratch(u32 kernel, u64 bytes) {
  if (kernel >= kernels_.size()) return false;
  kernels_[kernel].scratch = bytes;
  return true;
}

bool Program::set_sharing(u32 kernel, u64 views) {
  if (kernel >= kernels_.size()) return false;
  kernels_[kernel].sharing = views;
  const std::lock_guard lock(pool_->mutex);
  pool_->spare = {};  // what it was checked for
  return true;
}

// Whether each kernel has been made for regions that share memory, where its own do.
bool Program::check_sharing(const BoundPlan& bound, Error* error) const {
  const auto may = [](u64 views, u32 i) { return i >= 64 || (views >> i & 1) != 0; };
  const std::vector<BoundSite>& sites = bound.sites();
  for (u32 s = 0; s < sites.size(); ++s) {
    const BoundSite& site = sites[s];
    if (site.kind != TaskKind::KERNEL || site.kernel >= kernels_.size()) continue;
    const u64 views = kernels_[site.kernel].sharing;
    if (views == ~u64{0}) continue;
    for (u32 i = 0; i < site.num_accesses; ++i) {
      const BoundAccess& a = bound.access(bound.site_access(site, i));
      const BoundTensor& x = bound.tensors()[a.tensor];
      if (x.storage_class == StorageClass::TOKEN) continue;
      for (u32 j = 0; j < i; ++j) {
        const BoundAccess& b = bound.access(bound.site_access(site, j));
        if (bound.tensors()[b.tensor].storage != x.storage || (may(views, i) && may(views, j)) ||
            (!writes(a.mode) && !writes(b.mode))) {
          continue;
        }
        const Kernel kernel = plan().get<Section::KERNEL>(site.kernel);
        *error = Error::make(
            Status::SHARED_MEMORY,
            "regions of kernel '" + std::string(plan().string(kernel.name)) + "' share memory");
        error->site = s;
        error->section = static_cast<u32>(Section::KERNEL);
        error->record = site.kernel;
        return false;
      }
    }
  }
  return true;
}

std::unique_ptr<QueuedRun> Program::prepare(const ptowsp_binding* bindings, std::size_t count,
                                            bool hashed, RunControl control, Error* error) {
  for (u32 k = 0; k < kernels_.size(); ++k) {
    if (kernels_[k].fn != nullptr) continue;
    const Kernel kernel = plan().get<Section::KERNEL>(k);
    *error = Error::make(Status::BIND_ERROR,
                         "kernel '" + std::string(plan().string(kernel.name)) + "' has no body");
    return nullptr;
  }
  if ((control.record || control.controlled()) && config_.trace == TracePolicy::CYCLES) {
    *error = Error::make(Status::SCHEDULE_ERROR,
                         "a run on a virtual clock is the same each time: it is neither recorded "
                         "nor replayed, and draws nothing from a seed");
    return nullptr;
  }
  RunParts parts = bind(bindings, count, error);
  if (parts.plan == nullptr) return nullptr;
  // A plan that serves again has the same tensors sharing memory.
  if (parts.anew && !check_sharing(*parts.plan, error)) return nullptr;
  if ((control.record || control.controlled()) &&
      !identify(*parts.plan, &control, &hashed, error)) {
    return nullptr;
  }
  auto out = std::make_unique<QueuedRun>();
  out->program = this;
  const u32 workers = Run::workers_for(*parts.plan, config_, workers_);
  out->run = std::make_unique<Run>(std::move(parts), config_, &kernels_, workers, seed_, hashed,
                                   std::move(control));
  const std::lock_guard lock(pool_->mutex);
  out->trace_file = pool_->trace_file;
  return out;
}

// What a recording of this run says of it. False: the one that it is to repeat is of another run.
bool Program::identify(const BoundPlan& bound, RunControl* control, bool* hashed,
                       Error* error) const {
  Recording& head = control->head;
  head.plan[0] = plan().header().plan_id_lo;
  head.plan[1] = plan().header().plan_id_hi;
  head.schedule = schedule_identity(plan());
  Generator generator(bound);
  Error unknown;
  if (generator.run(nullptr, nullptr, &unknown)) {
    head.hashed = true;
    head.tasks = generator.tasks();
    head.task_hash = generator.hash();
  } else if (unknown.status == Status::DATA_DEPENDENT) {
    *hashed = true;  // known at the end of the run
  }  // else the run will find the same error
  if (!control->replay) return true;
  const Recording& found = *control->replay;
  std::string why;
  if (found.plan[0] != head.plan[0] || found.plan[1] != head.plan[1]) {
    why = "it was made with another plan";
  } else if (found.schedule != head.schedule) {
    why = "it was made under another schedule";
  } else if (found.workers != workers_) {
    why = "it was made with " + std::to_string(found.workers) + " workers, here are " +
          std::to_string(workers_);
  } else if (head.hashed && found.hashed &&
             (found.tasks != head.tasks || !(found.task_hash == head.task_hash))) {
    why = "it was made with values that give other tasks: " + std::to_string(found.tasks) +
          " of them, here are " + std::to_string(head.tasks);
  }
  if (why.empty()) return true;
  *error = Error::make(Status::RECORDING_MISFIT, "the recording does not fit: " + why);
  return false;
}

// A plan with these values: that of an earlier run if it serves. Without one, `error` says why.
RunParts Program::bind(const ptowsp_binding* bindings, std::size_t count, Error* error) {
  RunParts parts;
  {
    const std::lock_guard lock(pool_->mutex);
    parts = std::exchange(pool_->spare, {});
  }
  if (parts.plan != nullptr && parts.plan->rebind(bindings, count)) return parts;
  parts.anew = true;
  parts.tracking.reset();
  std::shared_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(pool_->mutex);
    workspace = workspace_;
  }
  BindOptions options{workers_,         config_.most_lanes(workers_), &workspace, false,
                      workspace_limit_, config_.may_split(workers_),  {}};
  u64 proved = 0;
  if (parts.plan != nullptr) {
    options.expected = parts.plan->take_expected();
    proved = parts.plan->accesses_proved();
  }
  parts.plan = BoundPlan::bind(plan(), bindings, count, error, options, std::move(parts.plan));
  const bool more = !options.expected.empty();
  if (more && (parts.plan == nullptr || parts.plan->accesses_proved() < proved)) {
    options.expected.clear();
    *error = {};
    parts.plan = BoundPlan::bind(plan(), bindings, count, error, options, std::move(parts.plan));
    if (parts.plan != nullptr) parts.plan->expect_nothing();
  }
  if (workspace != nullptr) {
    const std::lock_guard lock(pool_->mutex);
    workspace_ = std::move(workspace);
  }
  if (parts.plan != nullptr && !check_bound_order(*parts.plan, config_, workers_, error)) {
    parts.plan.reset();
  }
  if (parts.plan != nullptr) {
    parts.plan->remember(bindings, count);
  } else if (parts.memory != nullptr) {
    const std::lock_guard lock(pool_->mutex);
    pool_->spare.memory = std::move(parts.memory);
  }
  return parts;
}

// Under the pool's lock, before a run is queued: what it throws must not leave a run behind.
void Program::make_threads(Pool* pool) {
  if (config_.trace == TracePolicy::CYCLES) return;  // one thread plays all workers
  while (pool->threads.size() + 1 < workers_) {
    const u32 id = static_cast<u32>(pool->threads.size()) + 1;
    pool->threads.emplace_back(&Program::worker_main, this, pool, id, pool->closed);
  }
}

void Program::run(QueuedRun* run) {
  Pool& pool = *pool_;
  std::unique_lock lock(pool.mutex);
  make_threads(&pool);
  pool.queue.push_back(run);
  while (pool.queue.front() != run) {
    pool.changed.wait_for(lock, std::chrono::milliseconds(20));
    lock.unlock();
    const bool interrupted = run->run->poll_interrupt();
    lock.lock();
    if (!interrupted || pool.queue.front() == run) continue;
    std::erase(pool.queue, run);
    run->done = true;
    pool.changed.notify_all();
    return;
  }
  lock.unlock();
  run_front(run);
}

void Program::start(QueuedRun* run) {
  Pool& pool = *pool_;
  std::unique_lock lock(pool.mutex);
  make_threads(&pool);
  if (!pool.driver.joinable()) {
    pool.driver = std::thread(&Program::driver_main, this, &pool, pool.closed);
  }
  run->asynchronous = true;
  pool.queue.push_back(run);
  pool.changed.notify_all();
}

void Program::set_trace_file(std::string path) {
  const std::lock_guard lock(pool_->mutex);
  pool_->trace_file = std::move(path);
}

void Program::recycle(std::unique_ptr<TraceMemory> memory) {
  constexpr std::size_t kMost = 2;  // of the run that is looked at and of the one after it
  const std::lock_guard lock(pool_->mutex);
  if (memory == nullptr || pool_->spare_traces.size() >= kMost) return;
  pool_->spare_traces.push_back(std::move(memory));
}

void Program::give_trace(QueuedRun* run) {
  std::unique_ptr<TraceMemory> memory;
  std::unique_ptr<TraceSpool> spool;
  {
    const std::lock_guard lock(pool_->mutex);
    if (!pool_->spare_traces.empty()) {
      memory = std::move(pool_->spare_traces.back());
      pool_->spare_traces.pop_back();
    }
  }
  if (!run->trace_file.empty()) spool = std::make_unique<TraceSpool>(run->trace_file);
  run->run->set_trace(std::move(memory), std::move(spool));
}

// Runs the front of the queue with this thread as worker 0.
void Program::run_front(QueuedRun* run) {
  Pool& pool = *pool_;
  std::unique_ptr<FlowMemory> memory;
  if (run->run->needs_memory()) {
    const std::lock_guard lock(pool.mutex);
    memory = std::move(pool.spare.memory);
  }
  try {
    if (run->run->is_traced()) give_trace(run);
    run->run->begin(std::move(memory));
    run->run->set_crew([](void* user) { static_cast<Pool*>(user)->call(); }, &pool);
    {
      std::unique_lock lock(pool.mutex);
      pool.current = run->run.get();
      pool.epoch += 1;
      pool.has_run = true;  // first, so that workers of this program never take it for another's
      runs_at_work += 1;
      pool.placement.enter(0, workers_);  // the caller's own thread stays where it is
    }
    run->run->work(0);
  } catch (const std::exception& e) {  // no memory: the run ends, those behind it go on
    run->run->fail_now(Error::make(Status::EXECUTION_ERROR, e.what()));
  }
  RunParts left;  // freed without the lock
  std::unique_lock lock(pool.mutex);
  pool.current = nullptr;  // whoever has not come yet need not come any more
  if (pool.has_run) {
    runs_at_work -= 1;
    pool.has_run = false;
  }
  pool.changed.wait(lock, [&pool] { return pool.busy == 0; });
  pool.placement.leave(0);
  left = run->run->end();
  if (left.plan != nullptr) std::swap(left, pool.spare);
  pool.queue.pop_front();
  run->done = true;
  pool.changed.notify_all();
}

void Program::worker_main(Pool* pool, u32 worker, u64 closed) {
  std::unique_lock lock(pool->mutex);
  // A thread that wakes up late still takes part in the run that waits for it.
  u64 seen = pool->epoch - (pool->current != nullptr ? 1 : 0);
  bool was_awake = false;
  while (true) {
    pool->called.wait(lock, [&] { return pool->closed != closed || pool->epoch != seen; });
    if (pool->closed != closed) return;
    seen = pool->epoch;
    Run* run = pool->current;
    const bool came_awake = std::exchange(was_awake, false);
    if (run == nullptr) continue;
    if (came_awake) run->note_awake();
    pool->busy += 1;
    pool->placement.enter(worker, workers_);
    lock.unlock();
    const Clock clock;
    run->work(worker);
    const u64 calls = pool->calls.load(std::memory_order_acquire);
    const bool was_long = clock.since() > kLongRun;
    lock.lock();
    const bool has_room = pool->placement.has_room(worker, workers_);
    pool->placement.leave(worker);
    pool->busy -= 1;
    if (pool->busy == 0) pool->changed.notify_all();
    if (!was_long || !has_room) continue;
    lock.unlock();
    stay_awake(*pool, worker, calls, clock);
    was_awake = pool->calls.load(std::memory_order_relaxed) != calls;
    lock.lock();
  }
}

// Behind a run that has taken as long as `clock`, until somebody calls or an eighth of that time
// is over, half a millisecond at most: where one step follows the other, waking a thread takes
// longer than all else that a start does, and whoever starts has to do it first. Longer would be at
// the cost of what the caller does between steps on threads of its own, to which a system gives the
// processor late. Not where a run of another program could use it.
void Program::stay_awake(const Pool& pool, u32 worker, u64 calls, const Clock& clock) const {
  constexpr u64 kShare = 8;
  constexpr u64 kLongest = 500'000;
  constexpr u32 kLooks = 64;  // before others may have the processor
  constexpr u32 kReader = 1;  // the worker that every program with workers has
  const u64 ended = clock.since();
  const u64 until = ended + std::min(ended / kShare, kLongest);
  const auto is_called = [&] { return pool.calls.load(std::memory_order_acquire) != calls; };
  const auto is_over = [&] {
    return is_called() || clock.since() >= until || runs_at_work > (pool.has_run ? 1u : 0u);
  };
  if (worker == kReader) read_start_code(std::cref(is_over));
  while (!is_over()) {
    for (u32 i = 0; i < kLooks && !is_called(); ++i) pause_briefly();
    std::this_thread::yield();
  }
}

void Program::driver_main(Pool* pool, u64 closed) {
  std::unique_lock lock(pool->mutex);
  const auto due = [pool] {
    return !pool->queue.empty() && pool->queue.front()->asynchronous && pool->current == nullptr;
  };
  while (true) {
    pool->changed.wait(lock, [&] { return due() || pool->closed != closed; });
    if (pool->closed != closed) return;
    QueuedRun* run = pool->queue.front();
    lock.unlock();
    run_front(run);
    lock.lock();
  }
}

bool Program::wait(const QueuedRun& run, i64 timeout_ns) {
  Pool& pool = *pool_;
  std::unique_lock lock(pool.mutex);
  const auto done = [&run] { return run.done; };
  if (timeout_ns >= 0) {
    return pool.changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), done);
  }
  pool.changed.wait(lock, done);
  return true;
}

void Program::close() {
  Pool& pool = *pool_;
  const std::lock_guard one_after_the_other(pool.closing);
  std::vector<std::thread> threads;  // runs that come from now on have others
  std::thread driver;
  {
    std::unique_lock lock(pool.mutex);
    for (QueuedRun* run : pool.queue) run->run->cancel();
    pool.changed.wait(lock, [&pool] { return pool.queue.empty(); });
    pool.closed += 1;
    threads.swap(pool.threads);
    driver.swap(pool.driver);
    pool.changed.notify_all();
    pool.call();
  }
  for (std::thread& t : threads) t.join();
  if (driver.joinable()) driver.join();
}

void Program::after_fork() {
  Pool* old = pool_.release();  // its threads and the state of its locks belong to the parent
  pool_ = std::make_unique<Pool>();
  pool_->trace_file = old->trace_file;
  if (old->has_run.exchange(false)) runs_at_work -= 1;
  for (QueuedRun* run : old->queue) {
    run->run->abandon(Error::make(Status::INTERRUPTED,
                                  "the process was forked while this run was in flight; it goes on "
                                  "in the parent only"));
    run->done = true;
    run->orphan = true;
  }
}

}  // namespace ptowsp
