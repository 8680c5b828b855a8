// A loaded plan with kernels and worker threads; runs queue in call order.
//
// Threads: workers 1 .. n-1 are made when the first run needs them and sleep between runs, but stay
// awake for a while behind long ones. Worker 0
// is the thread that calls run(), or the driver thread for asynchronous runs. All of them are
// joined by close(); none outlives the program. After fork() the child has none of them:
// after_fork() leaves their handles behind and starts afresh.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ptowsp/clock.h"
#include "ptowsp/placement.h"
#include "ptowsp/run.h"

namespace ptowsp {

// The bytes of a plan and the view of them, shared by programs.
struct LoadedPlan {
  std::vector<u8> bytes;
  PlanView view;
};

class Program;

// A run and its place in the program's queue.
struct QueuedRun {
  Program* program = nullptr;
  std::unique_ptr<Run> run;
  std::string trace_file;  // or empty
  bool asynchronous = false;
  bool done = false;    // under the pool's lock
  bool orphan = false;  // its threads stayed in the parent of a fork, perhaps holding its locks

  ~QueuedRun();
};

class Program {
 public:
  static std::unique_ptr<Program> make(std::shared_ptr<const LoadedPlan> plan,
                                       const ptowsp_options& options, Error* error);
  ~Program() { close(); }

  const PlanView& plan() const { return plan_->view; }
  u32 workers() const { return workers_; }
  bool set_kernel(u32 kernel, KernelSlot slot);
  bool set_scratch(u32 kernel, u64 bytes);
  bool set_sharing(u32 kernel, u64 views);

  // A run with these bindings, not started. Null: `error` says what does not fit.
  std::unique_ptr<QueuedRun> prepare(const ptowsp_binding* bindings, std::size_t count, bool hashed,
                                     RunControl control, Error* error);
  // The plan with these values and the fields of its descriptors, for looking at; null: `error`.
  std::unique_ptr<BoundPlan> bind_fields(const ptowsp_binding* bindings, std::size_t count,
                                         Error* error) const {
    return BoundPlan::bind(plan(), bindings, count, error,
                           {workers_, config_.most_lanes(workers_), nullptr, true, 0});
  }
  // Waits for its turn, runs with the calling thread as worker 0, returns when it has ended.
  void run(QueuedRun* run);
  // Queues the run for the driver thread and returns.
  void start(QueuedRun* run);
  // False on time-out; a negative timeout waits for ever.
  bool wait(const QueuedRun& run, i64 timeout_ns);
  // Cancels what is queued or running, then joins all threads.
  void close();
  void after_fork();
  // Later runs write their traces there; empty: to memory.
  void set_trace_file(std::string path);
  // What a run that is not looked at any more has recorded its trace in.
  void recycle(std::unique_ptr<TraceMemory> memory);

 private:
  struct Pool {
    std::mutex mutex;
    std::condition_variable changed;
    std::condition_variable called;  // workers sleep here, where the end of a run wakes nobody
    std::deque<QueuedRun*> queue;    // the front one runs
    std::vector<std::thread> threads;
    std::thread driver;
    Run* current = nullptr;
    RunParts spare;  // of the last run that ended well
    std::vector<std::unique_ptr<TraceMemory>> spare_traces;
    std::string trace_file;
    u64 epoch = 0;  // counts runs; a worker takes part once in each
    u32 busy = 0;   // workers still inside the current run
    Placement placement;
    std::mutex closing;                 // held by whoever closes; taken before `mutex`
    u64 closed = 0;                     // counts close(): threads that were made before it go
    std::atomic<bool> has_run = false;  // one is at work
    // Counts what `called` is told. What workers that stay awake look at most of the time.
    alignas(64) std::atomic<u64> calls = 0;

    void call() {
      calls.fetch_add(1, std::memory_order_release);
      called.notify_all();
    }
  };

  Program() = default;
  RunParts bind(const ptowsp_binding* bindings, std::size_t count, Error* error);
  bool check_sharing(const BoundPlan& bound, Error* error) const;
  bool identify(const BoundPlan& bound, RunControl* control, bool* hashed, Error* error) const;
  void make_threads(Pool* pool);
  void run_front(QueuedRun* run);
  void give_trace(QueuedRun* run);
  void worker_main(Pool* pool, u32 worker, u64 closed);
  void stay_awake(const Pool& pool, u32 worker, u64 calls, const Clock& clock) const;
  void driver_main(Pool* pool, u64 closed);

  std::shared_ptr<const LoadedPlan> plan_;
  ScheduleConfig config_;
  u32 workers_ = 1;
  u64 seed_ = 0;
  u64 workspace_limit_ = 0;
  std::vector<KernelSlot> kernels_;
  std::shared_ptr<Workspace> workspace_;  // runs come one after the other, so they share it
  std::unique_ptr<Pool> pool_ = std::make_unique<Pool>();
};

}  // namespace ptowsp
