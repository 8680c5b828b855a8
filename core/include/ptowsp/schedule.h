// The schedule section, decoded for the CPU target. Every directive is understood or refused.
#pragma once

#include "ptowsp/error.h"
#include "ptowsp/overlap.h"
#include "ptowsp/plan_view.h"

namespace ptowsp {

struct ScheduleConfig {
  Matching matching = Matching::Overlap;
  ReadyPolicy ready = ReadyPolicy::AUTO;
  StartPolicy start = StartPolicy::IMMEDIATE;
  u64 start_threshold = 0;
  u32 window = 8192;
  WindowMode window_mode = WindowMode::STALL;
  TracePolicy trace = TracePolicy::NONE;
  u64 trace_capacity = 1u << 20;  // events kept per worker

  // False: a directive that this target cannot enforce, named in `error`.
  static bool decode(const PlanView& plan, ScheduleConfig* out, Error* error);
};

// False if the plan uses features or expressions that the CPU target does not run.
bool check_supported(const PlanView& plan, Error* error);

}  // namespace ptowsp
