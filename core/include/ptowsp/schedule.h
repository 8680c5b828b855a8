// The schedule section, decoded for the CPU target. Every directive is understood or refused.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "ptowsp/error.h"
#include "ptowsp/overlap.h"
#include "ptowsp/plan_view.h"

namespace ptowsp {

class Keys;

struct Dispatch {
  DispatchPolicy kind = DispatchPolicy::WORK_STEAL;
  u64 count = 1;            // ROUND_ROBIN
  u32 key = kNone;          // SCHEDULE_EXPR
  std::vector<i64> starts;  // STATIC_PARTITION: the first task of each worker
};

struct DispatchLevel {
  i64 threshold = 0;
  Dispatch dispatch;
};

struct GateConfig {
  u64 depth = 1;
  DepthScope scope = DepthScope::GLOBAL;
  OnFull on_full = OnFull::STALL;
  u32 key = kNone;
};

// ORDER, for one of the loops over the axis that it names.
struct LoopOrder {
  u32 axis = 0;
  OrderPolicy policy = OrderPolicy::SEQUENTIAL;
  u32 count = 0;
  u32 entry = 0;  // SCHEDULE

  // Iterations that are generated at a time.
  u32 lanes(u32 workers) const {
    if (policy == OrderPolicy::SEQUENTIAL) return 1;
    return policy == OrderPolicy::INTERLEAVED ? count : workers;
  }
};

struct PrefetchConfig {
  u32 axis = 0;  // SCHEDULE_STRING: the loop's name
  i64 depth = 1;
};

struct ScheduleConfig {
  static constexpr i64 kMostLanes = 1024;
  static constexpr u32 kMostGates = 4;
  static constexpr u32 kMostPools = 64;
  DepsPolicy deps = DepsPolicy::AUTO;
  Matching matching = Matching::Overlap;  // what that means for regions that are compared
  ReadyPolicy ready = ReadyPolicy::AUTO;
  StartPolicy start = StartPolicy::IMMEDIATE;
  u64 start_threshold = 0;
  u32 window = 8192;
  u64 window_bytes = 0;  // 0: only records are counted
  u64 batch_deps = 0;    // 0: successors are released at once
  std::vector<PrefetchConfig> prefetches;
  WindowMode window_mode = WindowMode::STALL;
  TracePolicy trace = TracePolicy::NONE;
  u64 trace_capacity = 1u << 16;  // tasks kept per worker
  u32 cycles_key = kNone;         // trace=cycles(key)
  // What needs an Issuer:
  u32 priority_key = kNone;  // ready=priority(key)
  Dispatch dispatch;
  u32 metric_key = kNone;             // of the levels; kNone: the number of tasks
  std::vector<DispatchLevel> levels;  // by growing threshold
  u32 affinity_axis = kNone;          // SCHEDULE_STRING: the loop's name; kNone: no affinity
  Affinity affinity = Affinity::CORE_LOCAL;
  i64 streams = 0;
  u32 stream_key = kNone;  // kNone: the task's number
#ifdef PTOWSP_MUTANTS
  bool streams_order = true;  // a task waits for the one before it in its stream
#endif
  TimingPolicy timing = TimingPolicy::IMMEDIATE;
  u64 timing_count = 0;
  PoolPolicy pool_kind = PoolPolicy::SINGLE;
  u32 pools = 1;
  u32 pool_key = kNone;
  u32 num_gates = 0;
  GateConfig gates[kMostGates];
  bool issued = false;  // some directive needs an Issuer
  std::vector<LoopOrder> orders;
  std::shared_ptr<const Keys> keys;  // of the plan, worked out once for all runs

  u32 most_lanes(u32 workers) const {
    u32 most = 1;
    for (const LoopOrder& order : orders) most = std::max(most, order.lanes(workers));
    return most;
  }

  // Whether what is proved of iterations decides how a run goes.
  bool may_split(u32 workers) const {
    return workers > 1 && ready == ReadyPolicy::AUTO && start == StartPolicy::IMMEDIATE &&
           !issued && orders.empty();
  }

  // False: a directive that this target cannot enforce, named in `error`.
  static bool decode(const PlanView& plan, ScheduleConfig* out, Error* error);
};

// False if the plan uses features or expressions that the CPU target does not run.
bool check_supported(const PlanView& plan, Error* error);

}  // namespace ptowsp
