#ifdef PTOWSP_MUTANTS

#include "ptowsp/mutants.h"

#include <algorithm>

namespace ptowsp {

namespace {

std::string& disabled() {
  static std::string name;
  return name;
}

void undo_dispatch(ScheduleConfig* c, DispatchPolicy kind) {
  if (c->dispatch.kind == kind) c->dispatch = Dispatch{};
}

void undo_affinity(ScheduleConfig* c, Affinity affinity) {
  if (c->affinity == affinity) c->affinity_axis = kNone;
}

void undo_timing(ScheduleConfig* c, TimingPolicy timing) {
  if (c->timing == timing) c->timing = TimingPolicy::IMMEDIATE;
}

void undo_depth(ScheduleConfig* c, DepthScope scope) {
  for (GateConfig& gate : c->gates) {
    if (gate.scope == scope && gate.on_full == OnFull::STALL) gate.depth = UINT32_MAX;
  }
}

void undo_on_full(ScheduleConfig* c) {
  for (GateConfig& gate : c->gates) gate.on_full = OnFull::STALL;
}

void undo_order(ScheduleConfig* c, OrderPolicy policy) {
  std::erase_if(c->orders, [&](const LoopOrder& order) { return order.policy == policy; });
}

void undo_deps(ScheduleConfig* c, DepsPolicy policy) {
  if (c->deps != policy) return;
  const bool promise = policy == DepsPolicy::EXACT || policy == DepsPolicy::EXPLICIT;
  c->matching = promise ? Matching::Overlap : Matching::Explicit;
}

void undo_window_mode(ScheduleConfig* c, WindowMode mode) {
  if (c->window_mode == mode) c->window_mode = WindowMode::STALL;
}

void undo_pools(ScheduleConfig* c, PoolPolicy kind) {
  if (c->pool_kind != kind) return;
  c->pool_kind = PoolPolicy::SINGLE;
  c->pools = 1;
}

void undo_ready(ScheduleConfig* c, ReadyPolicy ready) {
  if (c->ready == ready) c->ready = ReadyPolicy::AUTO;
}

void undo_start(ScheduleConfig* c, StartPolicy start) {
  if (c->start == start) c->start = StartPolicy::IMMEDIATE;
}

}  // namespace

bool disable_directive(const std::string& name) {
  disabled() = name;
  bool known = name.empty();
#define PTOWSP_DIRECTIVE(id, form, meaning, ...) known = known || name == #id;
#include "ptowsp/directives.def"
#undef PTOWSP_DIRECTIVE
  return known;
}

void undo_disabled(ScheduleConfig* out) {
  ScheduleConfig& c = *out;
#define PTOWSP_DIRECTIVE(id, form, meaning, ...) \
  if (disabled() == #id) {                       \
    __VA_ARGS__;                                 \
  }
#include "ptowsp/directives.def"
#undef PTOWSP_DIRECTIVE
}

}  // namespace ptowsp

#endif
