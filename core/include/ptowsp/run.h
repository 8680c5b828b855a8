// One run of a program: workers drive a Scheduler until all tasks have ended or something failed.
//
// Thread roles: any number of threads call work(id) once each, with different ids; id 0 also polls
// the interrupt. cancel() may come from anywhere. The lock is never held while a kernel or the
// interrupt is called, since both may take locks of their own (Python's).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "ptowsp/scheduler.h"
#include "ptowsp/trace.h"

namespace ptowsp {

// What a kernel returns to end the run as interrupted rather than failed.
inline constexpr i32 kKernelInterrupted = 2;

struct KernelSlot {
  ptowsp_kernel_fn fn = nullptr;
  void* user = nullptr;
};

class Run {
 public:
  Run(std::unique_ptr<BoundPlan> plan, const ScheduleConfig& config,
      const std::vector<KernelSlot>* kernels, u32 workers, u64 seed);

  void set_interrupt(ptowsp_interrupt_fn fn, void* user) {
    interrupt_ = fn;
    interrupt_user_ = user;
  }

  // Takes part until the run is over.
  void work(u32 worker);
  void cancel();
  // Ends a run that never began or whose threads are gone.
  void abandon(Error error) {
    if (error_.ok()) error_ = std::move(error);
  }
  // Calls the interrupt if it is due; true if the run was cancelled by it.
  bool poll_interrupt();

  // After the run has ended:
  const Error& error() const { return error_; }
  ptowsp_stats stats() const;
  u32 workers() const { return static_cast<u32>(workers_.size()); }
  u64 worker_tasks(u32 worker) const { return workers_[worker].tasks; }
  const TraceRing& trace(u32 worker) const { return workers_[worker].trace; }

 private:
  struct Worker {
    u64 tasks = 0;
    u64 parks = 0;
    TraceRing trace;
    std::vector<ptowsp_view> views;
    char message[4096] = {};
    explicit Worker(u64 capacity) : trace(capacity), views(kMaxTensorArgs) {}
  };

  using Lock = std::unique_lock<std::mutex>;
  void execute(Lock* lock, u32 worker, u32 slot, bool stolen);
  i32 call_kernel(u32 worker, const TaskRecord& task, Error* error);
  void generate(u32 worker);
  void settle();
  void park(Lock* lock, u32 worker);
  void fail(Error error);
  void wake();

  static constexpr u32 kBurst = 64;
  static constexpr std::chrono::milliseconds kPollEvery{20};

  const std::unique_ptr<BoundPlan> plan_;
  const ScheduleConfig config_;
  const std::vector<KernelSlot>& kernels_;
  ptowsp_interrupt_fn interrupt_ = nullptr;
  void* interrupt_user_ = nullptr;
  std::chrono::steady_clock::time_point next_poll_{};  // worker 0 only

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Scheduler scheduler_;
  std::vector<Worker> workers_;
  u64 takes_ = 0;
  u64 elapsed_ns_ = 0;
  u32 running_ = 0;  // tasks inside kernels
  u32 idle_ = 0;     // workers asleep
  bool stop_ = false;
  Error error_;
};

}  // namespace ptowsp
