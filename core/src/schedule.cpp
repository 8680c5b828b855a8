#include "ptowsp/schedule.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ptowsp/keys.h"
#include "ptowsp/mutants.h"
#include "ptowsp/order.h"

namespace ptowsp {

namespace {

bool refuse(Error* error, Status status, std::string message) {
  *error = Error::make(status, std::move(message));
  return false;
}

// The arguments of one directive: numbers, keys, names, or nothing.
struct Args {
  struct Arg {
    ArgTag tag;
    i64 value;
  };
  std::vector<Arg> list;

  std::size_t count() const { return list.size(); }
  bool in(u32 i, i64 lo, i64 hi) const {
    return i < list.size() && list[i].tag == ArgTag::INT && list[i].value >= lo &&
           list[i].value <= hi;
  }
  i64 value(u32 i) const { return list[i].value; }
  bool is_key(u32 i) const { return i < list.size() && list[i].tag == ArgTag::EXPR; }
  bool is_string(u32 i) const { return i < list.size() && list[i].tag == ArgTag::STRING; }
  bool is_none(u32 i) const { return i < list.size() && list[i].tag == ArgTag::NONE; }
  u32 key(u32 i) const { return static_cast<u32>(list[i].value); }
};

bool read_args(const PlanView& plan, const ScheduleEntry& entry, Args* out) {
  for (u32 i = 0; i < entry.num_args; ++i) {
    const ScheduleArg arg = plan.get<Section::SCHEDULE_ARG>(entry.args + i);
    const auto tag = static_cast<ArgTag>(arg.tag);
    if (tag == ArgTag::FLOAT) return false;
    out->list.push_back({tag, static_cast<i64>(arg.bits)});
  }
  return true;
}

bool set_deps(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, static_cast<i64>(DepsPolicy::HYBRID))) return false;
  out->deps = static_cast<DepsPolicy>(a.value(0));
  switch (out->deps) {
    case DepsPolicy::EXACT:
      out->matching = Matching::Exact;
      return true;
    case DepsPolicy::EXPLICIT:
      out->matching = Matching::Explicit;
      return true;
    default:  // explicit dependences count under every policy, so HYBRID is overlap
      out->matching = Matching::Overlap;
      return true;
  }
}

bool set_ready(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 3)) return false;
  out->ready = static_cast<ReadyPolicy>(a.value(0));
  if (out->ready != ReadyPolicy::PRIORITY) return true;
  if (!a.is_key(1)) return false;
  out->priority_key = a.key(1);
  out->issued = true;
  return true;
}

// A dispatch policy from argument `i` on.
bool read_dispatch(const Args& a, u32 i, Dispatch* out) {
  if (!a.in(i, 0, static_cast<i64>(DispatchPolicy::STATIC_PARTITION))) return false;
  out->kind = static_cast<DispatchPolicy>(a.value(i));
  switch (out->kind) {
    case DispatchPolicy::WORK_STEAL:
      return a.count() == i + 1;
    case DispatchPolicy::ROUND_ROBIN:
      if (!a.in(i + 1, 1, INT32_MAX)) return false;
      out->count = static_cast<u64>(a.value(i + 1));
      return true;
    case DispatchPolicy::STATIC_PARTITION:
      for (u32 k = i + 1; k < a.count(); ++k) {
        const i64 least = out->starts.empty() ? 0 : out->starts.back();
        if (!a.in(k, least, out->starts.empty() ? 0 : INT64_MAX)) return false;
        out->starts.push_back(a.value(k));
      }
      return !out->starts.empty();
    default:
      if (!a.is_key(i + 1)) return false;
      out->key = a.key(i + 1);
      return true;
  }
}

bool set_dispatch(const Args& a, ScheduleConfig* out) {
  out->issued = true;
  return read_dispatch(a, 0, &out->dispatch);
}

bool add_level(const Args& a, ScheduleConfig* out) {
  DispatchLevel level;
  if (!a.is_key(0) && !a.is_none(0)) return false;
  const u32 key = a.is_key(0) ? a.key(0) : kNone;
  const i64 least = out->levels.empty() ? INT64_MIN : out->levels.back().threshold;
  if (!a.in(1, least, INT64_MAX) || !read_dispatch(a, 2, &level.dispatch)) return false;
  if (!out->levels.empty() && key != out->metric_key) return false;
  out->metric_key = key;
  level.threshold = a.value(1);
  out->levels.push_back(level);
  out->issued = true;
  return true;
}

bool set_streams(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 1, 1 << 20)) return false;
  out->streams = a.value(0);
  out->issued = true;
  return true;
}

bool set_stream_by(const Args& a, ScheduleConfig* out) {
  if (!a.is_key(0)) return false;
  out->stream_key = a.key(0);
  return true;
}

bool set_timing(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, static_cast<i64>(TimingPolicy::RATE_LIMIT))) return false;
  out->timing = static_cast<TimingPolicy>(a.value(0));
  if (out->timing == TimingPolicy::IMMEDIATE) return true;
  if (!a.in(1, 1, 1'000'000)) return false;
  out->timing_count = static_cast<u64>(a.value(1));
  out->issued = true;
  return true;
}

bool set_pools(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, static_cast<i64>(PoolPolicy::CUSTOM))) return false;
  out->pool_kind = static_cast<PoolPolicy>(a.value(0));
  if (out->pool_kind == PoolPolicy::SINGLE) return true;
  out->issued = true;
  out->pools = 2;
  if (out->pool_kind == PoolPolicy::BY_EXEC_UNIT) return true;
  if (!a.in(1, 1, ScheduleConfig::kMostPools) || !a.is_key(2)) return false;
  out->pools = static_cast<u32>(a.value(1));
  out->pool_key = a.key(2);
  return true;
}

bool add_gate(const Args& a, ScheduleConfig* out) {
  if (out->num_gates == ScheduleConfig::kMostGates) return false;
  GateConfig& gate = out->gates[out->num_gates];
  if (!a.in(0, 1, INT32_MAX) || !a.in(1, 0, static_cast<i64>(DepthScope::KEY)) ||
      !a.in(2, 0, static_cast<i64>(OnFull::ERROR))) {
    return false;
  }
  gate.depth = static_cast<u64>(a.value(0));
  gate.scope = static_cast<DepthScope>(a.value(1));
  gate.on_full = static_cast<OnFull>(a.value(2));
  if (gate.scope == DepthScope::KEY) {
    if (!a.is_key(3)) return false;
    gate.key = a.key(3);
  }
  out->num_gates += 1;
  out->issued = true;
  return true;
}

bool set_start(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, 2)) return false;
  out->start = static_cast<StartPolicy>(a.value(0));
  if (out->start != StartPolicy::THRESHOLD) return true;
  if (!a.in(1, 0, INT64_MAX)) return false;
  out->start_threshold = static_cast<u64>(a.value(1));
  return true;
}

bool set_window(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 1, INT64_MAX) || !a.in(1, 0, static_cast<i64>(WindowUnit::BYTES)) ||
      !a.in(2, 0, 2)) {
    return false;
  }
  if (static_cast<WindowUnit>(a.value(1)) == WindowUnit::BYTES) {  // beside the default of records
    out->window_bytes = static_cast<u64>(a.value(0));
  } else if (a.in(0, 1, 1 << 24)) {
    out->window = static_cast<u32>(a.value(0));
  } else {
    return false;
  }
  out->window_mode = static_cast<WindowMode>(a.value(2));
  return true;
}

bool set_batch_deps(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 1, INT32_MAX)) return false;
  out->batch_deps = static_cast<u64>(a.value(0));
  return true;
}

// Whether an argument names a loop of the plan.
bool names_loop(const PlanView& plan, const Args& a, u32 i) {
  if (!a.is_string(i)) return false;
  const std::string_view name = plan.string(a.key(i), Section::SCHEDULE_STRING);
  for (u32 k = 0; k < plan.count(Section::AXIS); ++k) {
    if (plan.string(plan.get<Section::AXIS>(k).name) == name) return true;
  }
  return false;
}

bool add_prefetch(const PlanView& plan, const Args& a, ScheduleConfig* out) {
  if (!names_loop(plan, a, 0) || !a.in(1, 1, INT32_MAX)) return false;
  out->prefetches.push_back({a.key(0), a.value(1)});
  return true;
}

bool set_affinity(const PlanView& plan, const Args& a, ScheduleConfig* out) {
  if (!names_loop(plan, a, 0) || !a.in(1, 0, static_cast<i64>(Affinity::SPREAD))) return false;
  out->affinity_axis = a.key(0);
  out->affinity = static_cast<Affinity>(a.value(1));
  out->issued = true;
  return true;
}

bool set_trace(const Args& a, ScheduleConfig* out) {
  if (!a.in(0, 0, static_cast<i64>(TracePolicy::CYCLES))) return false;
  out->trace = static_cast<TracePolicy>(a.value(0));
  if (out->trace == TracePolicy::NONE) return true;
  if (!a.in(1, 1, 1 << 28)) return false;
  out->trace_capacity = static_cast<u64>(a.value(1));
  if (out->trace != TracePolicy::CYCLES) return true;
  if (!a.is_key(2)) return false;
  out->cycles_key = a.key(2);
  return true;
}

// The order of all loops over an axis.
bool add_order(const PlanView& plan, u32 entry, const Args& a, ScheduleConfig* out, Error* error) {
  if (!a.is_string(0) || !a.in(1, 0, 2)) return false;
  LoopOrder order;
  order.entry = entry;
  order.policy = static_cast<OrderPolicy>(a.value(1));
  if (order.policy == OrderPolicy::INTERLEAVED) {
    if (!a.in(2, 1, ScheduleConfig::kMostLanes)) return false;
    order.count = static_cast<u32>(a.value(2));
  }
  const std::string_view name = plan.string(a.key(0), Section::SCHEDULE_STRING);
  bool found = false;
  for (order.axis = 0; order.axis < plan.count(Section::AXIS); ++order.axis) {
    if (plan.string(plan.get<Section::AXIS>(order.axis).name) != name) continue;
    out->orders.push_back(order);
    found = true;
  }
  if (!found) {
    std::string names;
    for (u32 i = 0; i < plan.count(Section::AXIS); ++i) {
      names += (i > 0 ? ", " : "") + std::string(plan.string(plan.get<Section::AXIS>(i).name));
    }
    *error = Error::make(Status::ORDER_REFUSED, "there is no loop over axis '" + std::string(name) +
                                                    "', only over " + names);
    error->at_record(Section::SCHEDULE, entry, nullptr, 0);
  }
  return found;
}

bool set_one(const PlanView& plan, Directive id, const Args& a, ScheduleConfig* out) {
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
    case Directive::DISPATCH:
      return set_dispatch(a, out);
    case Directive::DISPATCH_THRESHOLD:
      return add_level(a, out);
    case Directive::STREAMS:
      return set_streams(a, out);
    case Directive::STREAM_BY:
      return set_stream_by(a, out);
    case Directive::TIMING:
      return set_timing(a, out);
    case Directive::POOLS:
      return set_pools(a, out);
    case Directive::BATCH_DEPS:
      return set_batch_deps(a, out);
    case Directive::AFFINITY:
      return set_affinity(plan, a, out);
    case Directive::PREFETCH:
      return add_prefetch(plan, a, out);
    case Directive::PIPELINE_DEPTH:
      return add_gate(a, out);
    default:
      return false;
  }
}

// Every key has a value for every task.
bool check_keys(const PlanView& plan, const Keys& keys, Error* error) {
  for (u32 i = 0; i < plan.count(Section::SCHEDULE); ++i) {
    const ScheduleEntry entry = plan.get<Section::SCHEDULE>(i);
    for (u32 k = 0; k < entry.num_args; ++k) {
      const ScheduleArg arg = plan.get<Section::SCHEDULE_ARG>(entry.args + k);
      if (static_cast<ArgTag>(arg.tag) != ArgTag::EXPR) continue;
      if (keys.check(static_cast<u32>(arg.bits), error)) continue;
      error->section = static_cast<u32>(Section::SCHEDULE);
      error->record = i;
      return false;
    }
  }
  return true;
}

}  // namespace

bool ScheduleConfig::decode(const PlanView& plan, ScheduleConfig* out, Error* error) {
  out->keys = std::make_shared<const Keys>(plan);
  for (u32 i = 0; i < plan.count(Section::SCHEDULE); ++i) {
    const ScheduleEntry entry = plan.get<Section::SCHEDULE>(i);
    Args args;
    const auto id = static_cast<Directive>(entry.id);
    bool understood = entry.version == 1 && read_args(plan, entry, &args);
    if (understood && id == Directive::ORDER) {
      understood = add_order(plan, i, args, out, error);
    } else {
      understood = understood && set_one(plan, id, args, out);
    }
    if (understood) continue;
    if (!error->ok()) return false;
    refuse(error, Status::SCHEDULE_ERROR,
           "directive " + std::to_string(i) + " of the schedule (id " + std::to_string(entry.id) +
               ") cannot be enforced by cpu_sim");
    error->at_record(Section::SCHEDULE, i, nullptr, 0);
    return false;
  }
  const bool pins = out->dispatch.kind != DispatchPolicy::WORK_STEAL &&
                    out->dispatch.kind != DispatchPolicy::AFFINITY;
  const bool dispatched = out->dispatch.kind != DispatchPolicy::WORK_STEAL || !out->levels.empty();
  if (out->affinity_axis != kNone && dispatched) {
    return refuse(error, Status::SCHEDULE_ERROR,
                  "affinity and dispatch both say which worker runs a task");
  }
  if ((pins || out->affinity_axis != kNone) && out->ready == ReadyPolicy::WORK_STEAL) {
    return refuse(error, Status::SCHEDULE_ERROR,
                  "tasks that are dispatched to one worker cannot be stolen by others");
  }
#ifdef PTOWSP_MUTANTS
  undo_disabled(out);
#endif
  if (plan.has(Feature::CHANNEL) && out->matching != Matching::Overlap) {
    return refuse(error, Status::SCHEDULE_ERROR,
                  "messages are ordered by their regions: processes need a complete dependence "
                  "policy, such as hybrid()");
  }
  if (plan.has(Feature::CHANNEL) && !out->orders.empty()) {
    return refuse(error, Status::SCHEDULE_ERROR,
                  "processes take turns in generating tasks, which order() would change");
  }
  // The order of generation is that of running, too, unless the schedule says otherwise.
  const bool in_order = std::any_of(out->orders.begin(), out->orders.end(), [](const LoopOrder& o) {
    return o.policy != OrderPolicy::PARALLEL;
  });
  if (in_order && out->ready == ReadyPolicy::AUTO) out->ready = ReadyPolicy::FIFO;
  return check_order(plan, *out, error) && check_keys(plan, *out->keys, error);
}

bool check_supported(const PlanView& plan, Error* error) {
  const std::pair<Feature, const char*> missing[] = {{Feature::COLLECTIVE, "collectives"},
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
    return refuse(
        error, Status::UNSUPPORTED,
        "more than " + std::to_string(kMaxKept) + " slots, temporaries and channels in one plan");
  }
  for (u32 i = 0; i < plan.count(Section::STORAGE); ++i) {
    const auto found = static_cast<StorageClass>(plan.get<Section::STORAGE>(i).storage_class);
    if (found != StorageClass::WORKSPACE) continue;
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
