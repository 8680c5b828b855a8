#include "ptowsp/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ptowsp {

namespace {

bool refuse(Error* error, Status status, std::string message) {
  *error = Error::make(status, std::move(message));
  return false;
}

// The integer arguments of one directive.
struct Args {
  u32 count = 0;
  i64 value[4] = {};

  bool in(u32 i, i64 lo, i64 hi) const { return i < count && value[i] >= lo && value[i] <= hi; }
};

bool read_args(const PlanView& plan, const ScheduleEntry& entry, Args* out) {
  out->count = 0;
  for (u32 i = 0; i < entry.num_args; ++i) {
    const ScheduleArg arg = plan.get<Section::SCHEDULE_ARG>(entry.args + i);
    if (static_cast<ArgTag>(arg.tag) != ArgTag::INT || i >= 4) return false;
    out->value[out->count++] = static_cast<i64>(arg.bits);
  }
  return true;
}

bool set_deps(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 2)) return false;  // EXPLICIT and HYBRID are not enforced here
  const bool exact = a.value[0] == static_cast<i64>(DepsPolicy::EXACT);
  out->matching = exact ? Matching::Exact : Matching::Overlap;
  return true;
}

bool set_ready(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 2)) return false;
  out->ready = static_cast<ReadyPolicy>(a.value[0]);
  return true;
}

bool set_start(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 2)) return false;
  out->start = static_cast<StartPolicy>(a.value[0]);
  if (out->start != StartPolicy::THRESHOLD) return true;
  if (!a.in(1, 0, INT64_MAX)) return false;
  out->start_threshold = static_cast<u64>(a.value[1]);
  return true;
}

bool set_window(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 1, 1 << 24) || !a.in(1, 0, 0) || !a.in(2, 0, 2)) return false;
  out->window = static_cast<u32>(a.value[0]);
  out->window_mode = static_cast<WindowMode>(a.value[2]);
  return true;
}

bool set_trace(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 1)) return false;
  out->trace = static_cast<TracePolicy>(a.value[0]);
  if (out->trace == TracePolicy::NONE) return true;
  if (!a.in(1, 1, 1 << 28)) return false;
  out->trace_capacity = static_cast<u64>(a.value[1]);
  return true;
}

bool set_one(Directive id, const Args& a, ScheduleConfig* out) {
  switch (id) {
    case Directive::DEPS:
      return set_deps(a, out);
    case Directive::READY:
      return set_ready(a, out);
    case Directive::START:
      return set_start(a, out);
    case Directive::WINDOW:
      return set_window(a, out);
    case Directive::TRACE:
      return set_trace(a, out);
    default:
      return false;
  }
}

}  // namespace

bool ScheduleConfig::decode(const PlanView& plan, ScheduleConfig* out, Error* error) {
  for (u32 i = 0; i < plan.count(Section::SCHEDULE); ++i) {
    const ScheduleEntry entry = plan.get<Section::SCHEDULE>(i);
    Args args;
    const bool understood = entry.version == 1 && read_args(plan, entry, &args) &&
                            set_one(static_cast<Directive>(entry.id), args, out);
    if (understood) continue;
    refuse(error, Status::SCHEDULE_ERROR,
           "directive " + std::to_string(i) + " of the schedule (id " + std::to_string(entry.id) +
               ") cannot be enforced by cpu_sim");
    error->at_record(Section::SCHEDULE, i, nullptr, 0);
    return false;
  }
  return true;
}

bool check_supported(const PlanView& plan, Error* error) {
  const std::pair<Feature, const char*> missing[] = {{Feature::CHANNEL, "channels"},
                                                     {Feature::COLLECTIVE, "collectives"},
                                                     {Feature::MULTI_DOMAIN, "several domains"},
                                                     {Feature::TIER, "tiered kernels"}};
  for (const auto& [feature, name] : missing) {
    if (!plan.has(feature)) continue;
    return refuse(error, Status::UNSUPPORTED,
                  std::string("the plan uses ") + name + ", which cpu_sim does not run");
  }
  for (u32 i = 0; i < plan.count(Section::EXPR); ++i) {
    const auto op = static_cast<ExprOp>(plan.expr(i).op);
    const bool moves = op == ExprOp::CONST || op == ExprOp::SYMBOL || op == ExprOp::SELECT;
    if (static_cast<ScalarType>(plan.expr(i).type) != ScalarType::F64 || moves) continue;
    return refuse(error, Status::UNSUPPORTED, "cpu_sim does not compute with f64 expressions");
  }
  u32 lets = 0;
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const Instr instr = plan.code(pc);
    if (static_cast<Op>(instr.opcode) == Op::LET) lets = std::max(lets, instr.operand1 + 1u);
  }
  if (plan.count(Section::SLOT) + lets + plan.count(Section::ALLOC) > kMaxKept) {
    return refuse(error, Status::UNSUPPORTED,
                  "more than " + std::to_string(kMaxKept) + " slots and temporaries in one plan");
  }
  for (u32 i = 0; i < plan.count(Section::STORAGE); ++i) {
    const auto found = static_cast<StorageClass>(plan.get<Section::STORAGE>(i).storage_class);
    if (found != StorageClass::WORKSPACE && found != StorageClass::CHANNEL) continue;
    return refuse(error, Status::UNSUPPORTED, "cpu_sim does not make workspaces of tiers");
  }
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const auto op = static_cast<Op>(plan.code(pc).opcode);
    if (op != Op::BARRIER && op != Op::CALL && op != Op::BREAK) continue;
    return refuse(error, Status::UNSUPPORTED,
                  "instruction " + std::to_string(pc) + " is one that cpu_sim does not run");
  }
  return true;
}

}  // namespace ptowsp
