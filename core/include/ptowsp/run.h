// One run of a program, driven by its workers until all tasks have ended or something failed.
//
// How a run goes is decided when it is made, from the schedule and from what is proved about the
// plan; every way gives the results of program order:
//   Inline   one worker and nothing held back: tasks run as they are generated, in program order,
//            without records.
//   Split    the program is one parallel loop whose iterations are proved independent: workers take
//            ranges of iterations and run each inline, with a cursor of their own.
//   Flow     dependences are tracked; each worker keeps the tasks that it made ready, offers the
//            last of them in a deque, and steals or generates when it has none. Where the order is
//            open it takes its own in the order of generation; work_steal() takes the newest, and
//            fifo() keeps one set for all workers, always the smallest seq first.
//   Virtual  a Flow whose workers are simulated by one thread, in the order of a virtual clock.
//            Processes have a worker each there, unless the schedule places tasks.
// Inline and Split serve only the default ready and start policies, which leave the order open. A
// Flow under the default policies whose tasks turn out to run one after the other anyway goes on
// inline for a while, since handing them around costs more than running them. A recorded run is
// Inline or a Flow; one that repeats a recording or draws its order from a seed is a Flow with a
// Controller.
//
// Thread roles: any number of threads call work(id) once each, with different ids; id 0 also polls
// the interrupt. cancel() may come from anywhere. The lock is never held while a kernel or the
// interrupt is called, since both may take locks of their own (Python's).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ptowsp/clock.h"
#include "ptowsp/controller.h"
#include "ptowsp/deque.h"
#include "ptowsp/end_batch.h"
#include "ptowsp/flow.h"
#include "ptowsp/park.h"
#include "ptowsp/ready_set.h"
#include "ptowsp/task_runner.h"
#include "ptowsp/trace.h"

namespace ptowsp {

// What a run is made of. A run that ended well leaves it to the next one, which may have it as it
// is if its plan could be bound again (BoundPlan::rebind). If the plan is bound anew in the same
// place, its runners have to be made anew in theirs, and the tracking is gone.
struct RunParts {
  std::unique_ptr<BoundPlan> plan;
  bool anew = false;                   // runners are of what the plan was before
  std::vector<TaskRunner> runners;     // of this plan, by worker; or none
  std::unique_ptr<Tracking> tracking;  // of this plan, if it was tracked; or null
  std::unique_ptr<FlowMemory> memory;  // or null
};

class Run {
 public:
  // `parts` has at least a plan.
  Run(RunParts parts, const ScheduleConfig& config, const std::vector<KernelSlot>* kernels,
      u32 workers, u64 seed, bool hashed = false, RunControl control = {});

  void set_interrupt(ptowsp_interrupt_fn fn, void* user) {
    interrupt_ = fn;
    interrupt_user_ = user;
  }

  // Called once, when there is something for workers other than 0 to do.
  void set_crew(void (*call)(void* user), void* user) {
    crew_ = call;
    crew_user_ = user;
  }
  // Whether begin() has use for memory.
  bool needs_memory() const { return tracks() && memory_ == nullptr; }
  // Comes before work(). `memory` is what an earlier run has left, or null.
  void begin(std::unique_ptr<FlowMemory> memory);
  // Comes after all work(). What the next run may use; nothing, if this one failed.
  RunParts end();
  // How many workers a run of this plan has where the program has `workers`.
  static u32 workers_for(const BoundPlan& plan, const ScheduleConfig& config, u32 workers);
  // Before begin(). Whatever is recorded goes there.
  void set_trace(std::unique_ptr<TraceMemory> memory, std::unique_ptr<TraceSpool> spool);
  bool is_traced() const { return traced_; }
  // After everybody has looked at the trace.
  std::unique_ptr<TraceMemory> take_trace() { return std::move(trace_); }
  // Takes part until the run is over.
  void work(u32 worker);
  // A worker comes that did not have to be woken.
  void note_awake() { came_awake_.fetch_add(1, std::memory_order_relaxed); }
  void cancel();
  // Ends a run that never began or whose threads are gone.
  void abandon(Error error) {
    if (error_.ok()) error_ = std::move(error);
  }
  // Ends a run early, with this error unless it has one.
  void fail_now(Error error);
  // Calls the interrupt if it is due; true if the run was cancelled by it.
  bool poll_interrupt();

  // For tests that plant a task which never becomes ready; null unless the run is a Flow.
  Flow* flow_for_test() { return flow_ ? &*flow_ : nullptr; }

  // After the run has ended:
  const Error& error() const { return error_; }
  ptowsp_stats stats() const;
  u32 workers() const { return static_cast<u32>(workers_.size()); }
  TaskHash hash() const;
  u64 worker_tasks(u32 worker) const { return workers_[worker]->tasks; }
  bool keeps_decisions() const { return control_with_.record || control_with_.controlled(); }
  Recording recording() const;
  u64 trace_size() const;
  std::vector<ptowsp_event> events() const;
  ptowsp_trace_info trace_info() const;
  std::size_t trace_block(u32 kind, void* out, std::size_t bytes) const;

 private:
  enum class Mode : u8 { Inline, Split, Flow, Virtual };

  // What belongs to one worker, on lines of its own.
  struct alignas(kCacheLine) Worker {
    TaskRunner runner;
    TraceRing* trace = nullptr;
    u64 now = 0;  // if traced: the last time it looked at the clock
    u64 tasks = 0;
    u64 parks = 0;
    u64 bounds_checked = 0;
    u64 loads = 0;
    TaskHash hash;  // of tasks that it ran where it generated them
    std::vector<Region> regions;
    Prefetched prefetched;
    u32 budget = 1;    // inline tasks until the next look at the clock
    u32 interval = 1;  // what budget is set to then
    std::chrono::steady_clock::time_point looked{};
    // Flow:
    Deque* deque = nullptr;  // ready tasks that others may take
    SlotSet* own = nullptr;  // the other ready tasks, in order; see `closed`
    u32 next = kNil;         // a ready task while `own` is empty
    u32 patience = 0;        // tasks to run before it looks again whether to generate
    u32 place = 0;           // the slot from which `own` goes on
    u32 free_first = kNil;   // ended slots not given back yet
    u32 free_last = kNil;
    u32 free_count = 0;
    std::vector<u32> arrived;  // Issuer: tasks that the one that ended made ready
    u64 take = 0;              // fifo() and Issuer: number of the take
    static constexpr u32 kCrowd = 16;
    u32 crowded = 0;     // Issuer: how often another worker took a task in between,
    u32 crowd = kCrowd;  // and how often it may
    u64 random = 0;
    u64 stolen = 0;
    u64 ready_high = 0;
    std::atomic<u64> done{0};    // `tasks`, for others to read
    EndBatch batch;              // batch_deps
    std::vector<u32> committed;  // being committed; empty otherwise
    u64 batches = 0;
    u64 early_flushes = 0;
    // Guards `own` and `place`. Their worker holds it except while it is inside a kernel and has
    // tasks to spare, so that a long task never keeps others from those behind it.
    alignas(kCacheLine) std::atomic<bool> closed{true};
    Error error;  // of the task being run; kept here because clearing one costs more than a task
    explicit Worker(TaskRunner with) : runner(std::move(with)) {}
  };

  using Lock = std::unique_lock<std::mutex>;
  static Mode choose_mode(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
                          bool hashed, const RunControl& control);

  void set_forks();
  // run_inline.cpp
  void work_inline(u32 worker);
  bool next_range(Cursor* cursor);
  bool run_range(u32 worker, Cursor* cursor, Error* error);
  bool run_network(u32 worker, Error* error);
  i64 run_here(u32 worker, Cursor* cursor, Error* error, i64 most = INT64_MAX);
  bool load_here(u32 worker, Cursor* cursor, Error* error);
  bool hash_here(u32 worker, const Cursor& cursor, Error* error);
  bool run_task(u32 worker, const Cursor& cursor, Error* error);
  bool look_at_clock(u32 worker);
  // Looks at the clock about every kPollEvery, whatever the length of tasks: the number of tasks
  // between two looks follows from the time the last ones took. False: the run is to end.
  bool pace(u32 worker, u64 tasks) {
    Worker& me = *workers_[worker];
    if (tasks >= me.budget) return look_at_clock(worker);
    me.budget -= static_cast<u32>(tasks);
    return true;
  }

  // run_traced.cpp
  void begin_trace();
  void end_trace();
  struct TracedTask;
  bool run_traced(u32 worker, const TracedTask& task, const i64* loops, Error* error);
  bool run_traced_strip(u32 worker, u32 slot, bool stolen);
  i64 run_traced_leaf(u32 worker, Cursor* cursor, i64 count, Error* error);
  bool cycles_of(u32 site, const i64* loops, u64 task_id, u64* out, Error* error) const;
  void count(TraceCounter counter, u64 value) {
    if (notes_) notes_->sample(now(), static_cast<u32>(counter), value);
  }
  // Ticks of the clock that the trace is in.
  u64 now() const { return mode_ == Mode::Virtual ? virtual_now_ : Clock::ticks(); }
  // Nanoseconds, or cycles, since the run began.
  u64 since() const { return mode_ == Mode::Virtual ? virtual_now_ : clock_.since(); }
  // Whether the order in which tasks are taken is decided in one place.
  bool is_ordered() const {
    return config_.issued || config_.ready == ReadyPolicy::FIFO || control_.has_value();
  }

  // run_virtual.cpp
  struct Ending;
  // A task whose message has not arrived yet, though the task that wrote it has ended.
  struct UnderWay {
    u64 at = 0;
    u64 order = 0;
    u32 worker = 0;
    u32 slot = 0;
    bool operator>(const UnderWay& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  void work_virtual();
  void begin_virtual();
  bool is_under_way(u32 worker, u32 slot);
  void note_message(u32 slot);
  void deliver();
  template <class Fn>
  void each_message(u32 slot, Fn fn);
  bool start_virtual(u32 worker, Ending* out);
  void end_virtual(const Ending& task);
  void generate_virtual(u32 worker);
  bool take_any(u32 worker, u32* slot, bool* stolen);
  void end_any(u32 worker, u32 slot);

  // run_flow.cpp
  void work_flow(u32 worker);
  bool find_task(u32 worker, u32* slot, bool* stolen);
  void push_ready(u32 worker, u32 slot);
  bool take_ready(u32 worker, u32* slot, bool* stolen);
  bool steal(u32 worker, u32* slot);
  bool steal_shared(Worker* me, Worker* victim, u32* slot);
  bool steal_own(Worker* me, Worker* victim, u32* slot);
  void share(Worker* me);
  void keep(Worker* me, u32 slot);
  bool runs_low(u32 worker);
  bool run_single(u32 worker, u32 slot);
  bool run_strip(u32 worker, u32 slot);
  bool run_one(u32 worker, u32 slot, bool stolen);
  bool run_slot(u32 worker, u32 slot, bool stolen);
  bool generate_burst(u32 worker);
  void generate_locked(u32 worker, u32 burst = kBurst);
  void make_ready(u32 worker, u32 slot);
  void end_slot(u32 worker, u32 slot);
  // Calls ready(slot) for the tasks that waited only for this one.
  template <class Ready>
  void finish_slot(Worker* me, u32 slot, Ready ready) {
    if (generated_all_.load(std::memory_order_acquire)) {
      flow_->finish(slot, true, ready, [](u32) {});  // nobody needs slots any more
    } else {
      flow_->finish(slot, alone_, ready, [&](u32 ended) { free_slot(me, ended); });
    }
  }
  void free_slot(Worker* me, u32 slot);
  void give_back(Worker* me);
  void start_held(u32 worker);
  bool runs_serially();
  void run_stretch(u32 worker);
  void look_for_more(u32 worker, u32* misses);
  void leave_work(u32 worker);
  void all_generated();
  bool has_own(u32 worker) const;
  void push_fifo(Worker* me, u32 slot);
  bool take_fifo(Worker* me, u32* slot);

  // run_wait.cpp
  void window_full(u32 worker);
  void note_stalls(Flow::Made made, bool progress);
  void let_go(u32 worker);
  u64 total_done() const;
  bool nothing_ready();
  void idle(u32 worker, u32* misses);
  bool all_rest() const;
  bool check_stuck(u32 worker);
  Error stuck();

  // run_batch.cpp
  void end_in_batch(u32 worker, u32 slot);
  bool flush_batches(u32 worker);
  void commit(u32 worker);

  // run_issue.cpp
  void work_issued(u32 worker);
  bool take_issued(u32 worker, Issuer::Taken* task);
  bool end_issued(u32 worker, u32 slot, Issuer::Taken* task);
  bool is_crowded(Worker* me, u32 worker, const Issuer::Taken& task);
  bool run_and_step_back(u32 worker, u32 slot);
  bool stay_back(u32 worker);
  void end_without_taking(u32 worker, u32 slot);
  void commit_issued(u32 worker);
  void collect_arrivals(Worker* me, u32 slot);
  void issue_held(u32 worker);
  void after_issue(bool some);
  void wake_others();
  void gate_overflowed();
  // Only one policy asks for the time, and asking costs as much as a short task.
  u64 issue_time() const {
    if (config_.timing != TimingPolicy::RATE_LIMIT) return 0;
    return control_ ? control_->now_ns : since();
  }

  // run_controlled.cpp
  void begin_controlled();
  void work_controlled(u32 worker);
  bool wait_for_turn(u32 worker);
  void end_controlled(u32 worker, u32 slot);
  void make_ready_controlled(u32 worker, u32 slot);
  void decide();
  Error misfit(const std::string& what) const;
  bool decide_again(Controller::Next* next, Error* error);
  bool make_until(u64 task, Error* error);
  bool decide_behind(Controller::Next* next, Error* error);
  bool draw(Controller::Next* next, Error* error);
  void collect_all();
  void generate_controlled();
  bool draw_event(Controller::Next* next);
  bool take_controlled(Controller::Next* next);
  bool let_go_controlled();

  void call_crew() {
    if (crew_ == nullptr || crew_called_.load(std::memory_order_relaxed)) return;
    if (!crew_called_.exchange(true, std::memory_order_relaxed)) crew_(crew_user_);
  }

  void stop_workers() {
    stop_ = true;
    lot_.notify_all();
    aside_.notify_all();
  }
  void fail(Error error);
  bool tracks() const { return mode_ == Mode::Flow || mode_ == Mode::Virtual; }

  static constexpr u32 kBurst = 64;
  static constexpr std::chrono::milliseconds kPollEvery{20};

  std::unique_ptr<BoundPlan> plan_;     // until end()
  std::unique_ptr<Tracking> tracking_;  // this and the memory: until begin()
  std::unique_ptr<FlowMemory> memory_;
  const ScheduleConfig config_;
  const RunControl control_with_;
  const Mode mode_;
  const bool traced_;
  const bool hashed_;  // the task hash is added up
  const bool alone_;   // one worker: nobody adds edges while it ends a task
  const bool pinned_;  // Virtual: each process has a worker of its own
  const u64 seed_;
  std::optional<Prefetcher> prefetcher_;
  Clock clock_;
  ptowsp_interrupt_fn interrupt_ = nullptr;
  void* interrupt_user_ = nullptr;
  std::chrono::steady_clock::time_point next_poll_{};  // worker 0 only
  void (*crew_)(void* user) = nullptr;
  void* crew_user_ = nullptr;

  // What workers look at for every task lies apart from what is written often.
  alignas(kCacheLine) std::atomic<bool> stop_{false};  // no more tasks are started
  std::atomic<bool> generated_all_{false};             // Flow
  std::atomic<bool> started_{true};                    // Flow: the start policy has let go
  std::atomic<bool> crew_called_{false};
  std::optional<Flow> flow_;
  Network::Counters inline_counters_;  // Inline: of channels
  std::optional<Issuer> issuer_;       // where the schedule says more than an order
  std::atomic<u32> leader_{kNone};     // Issuer: the worker for which others have stepped back
  std::optional<Controller> control_;  // where something else decides
  std::optional<Recorder> recorder_;   // where workers decide and that is to be known
  alignas(kCacheLine) std::atomic<i64> next_iteration_;  // Split: first one nobody has taken yet
  u64 next_take_ = 0;                                    // of fifo(), under its lock
  // Flow:
  std::mutex fifo_mutex_;
  std::optional<FifoReady> fifo_;  // the ready tasks, for fifo()
  ParkingLot lot_;
  ParkingLot aside_;             // Issuer: where workers rest that have stepped back
  std::atomic<u64> made_{0};     // tasks generated so far
  std::atomic<u32> entered_{0};  // workers that have come
  std::atomic<u32> resting_{0};  // those of them that found nothing to do
  std::atomic<u32> came_awake_{0};
  u64* ready_ticks_ = nullptr;  // by slot, if traced: when the task became ready
  std::vector<u32> held_;       // token holder: ready tasks that the start policy holds
  std::vector<u64> share_;      // token holder: tasks by worker at the last look
  bool serial_ = false;         // token holder: tasks run one after the other anyway
  u64 window_stalls_ = 0;       // token holder
  u64 window_stall_ns_ = 0;
  u64 stall_since_ = 0;
  // Why generation stands still, how often and how long.
  struct Stall {
    u64 count = 0;
    u64 ns = 0;
    u64 since = 0;  // 0: it does not

    void set(bool stands, u64 now) {
      if (stands && since == 0) {
        count += 1;
        since = std::max<u64>(now, 1);
      } else if (!stands && since != 0) {
        ns += now - std::exchange(since, 0);
      }
    }
  };
  Stall control_stall_;                      // token holder: for a value
  Stall workspace_stall_;                    // token holder: for a copy of temporaries
  Flow::Made last_made_ = Flow::Made::Some;  // token holder
  bool control_waiting_ = false;             // as the trace shows it
  u64 start_released_ = 0;
  u64 start_held_ = 0;

  std::unique_ptr<TraceSpool> spool_;  // if the trace goes to a file
  std::unique_ptr<TraceMemory> trace_;
  std::optional<GeneratorTrace> notes_;  // of the token holder
  std::optional<Keys> keys_;             // Virtual
  u64 virtual_now_ = 0;                  // Virtual: cycles since the run began
  // Virtual, where messages take time: by channel and buffer, when the last one arrives.
  std::vector<std::vector<u64>> arrivals_;
  std::vector<UnderWay> under_way_;  // a heap
  u64 under_way_order_ = 0;

  i64 last_iteration_ = 0;  // Split: past the loop
  i64 range_ = 1;           // Split: iterations a worker takes at once

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Worker>> workers_;
  u64 elapsed_ns_ = 0;
  Error error_;
  std::optional<ptowsp_stats> final_stats_;
  TaskHash final_hash_;
};

}  // namespace ptowsp
