// Whether the iterations of loops may be generated in another order than the program's.
#pragma once

#include "ptowsp/bind.h"
#include "ptowsp/schedule.h"

namespace ptowsp {

// False: `error` names two calls whose tasks may conflict, or what else forbids it. Goes by what
// the plan's DEPS section proves.
bool check_order(const PlanView& plan, const ScheduleConfig& config, Error* error);

// The same for what only values tell: the proofs take tensors for different memory, and each
// iteration under way needs temporaries of its own.
bool check_bound_order(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
                       Error* error);

}  // namespace ptowsp
