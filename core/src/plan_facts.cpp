#include "plan_facts.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>

namespace ptowsp {

namespace {

// Fields of records that name an expression, by their meaning; see records.def.
#define PTOWSP_SHOW_Ref(target, value) \
  if constexpr (Section::target == Section::EXPR) (*shown)[value] = 1;
#define PTOWSP_SHOW_Opt(target, value)              \
  if constexpr (Section::target == Section::EXPR) { \
    if ((value) != kNone) (*shown)[value] = 1;      \
  }
#define PTOWSP_SHOW_Plain(target, value)
#define PTOWSP_SHOW_Zero(target, value)
#define PTOWSP_SHOW_Bits(target, value)
#define PTOWSP_SHOW_Str(target, value)
#define PTOWSP_SHOW_OptStr(target, value)
#define PTOWSP_SHOW_DebugStr(target, value)
#define PTOWSP_SHOW_DepsStr(target, value)
#define PTOWSP_SHOW_Span(target, value)
#define PTOWSP_SHOW_Count(target, value)
#define PTOWSP_SHOW_Enum(target, value)

// show_fields(record, shown): marks the expressions that a record names.
#define PTOWSP_RECORD_BEGIN(record, doc)                              \
  [[maybe_unused]] void show_fields([[maybe_unused]] const record& r, \
                                    [[maybe_unused]] std::vector<u8>* shown) {
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc) \
  PTOWSP_SHOW_##meaning(target, r.name)
#define PTOWSP_RECORD_END(record) }
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END

template <Section S>
void show_section(const PlanView& plan, std::vector<u8>* shown) {
  if constexpr (!std::is_same_v<typename RecordOf<S>::type, Byte>) {
    for (u32 i = 0; i < plan.count(S); ++i) show_fields(plan.get<S>(i), shown);
  }
}

bool names_expression(Op op) {
  switch (op) {
#define PTOWSP_OP(name, number, place, operand1, operand2, doc) \
  case Op::name:                                                \
    return std::string_view(#operand2) == "Expr";
#include "ptowsp/opcodes.def"
#undef PTOWSP_OP
  }
  return false;
}

// By EXPR: records or instructions name it.
std::vector<u8> find_named(const PlanView& plan) {
  std::vector<u8> shown(plan.count(Section::EXPR), 0);
#define PTOWSP_SECTION(name, kind, record, cls, doc) show_section<Section::name>(plan, &shown);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const Instr instr = plan.code(pc);
    if (names_expression(static_cast<Op>(instr.opcode))) shown[instr.operand2] = 1;
  }
  return shown;
}

}  // namespace

PlanFacts::PlanFacts(const PlanView& plan) {
  find_registers(plan);
  find_open(plan);
  find_branches(plan);
  read_code(plan);
  find_reads(plan);
  find_keeps(plan);
  find_alike(plan);
  tensor_of.assign(plan.count(Section::SYMBOL), kNone);
  for (u32 t = 0; t < plan.count(Section::TENSOR); ++t) {
    const u32 symbol = plan.get<Section::TENSOR>(t).symbol;
    if (symbol != kNone) tensor_of[symbol] = t;
  }
}

// Slots, lets and the columns of sparse loops are kept in registers.
void PlanFacts::find_registers(const PlanView& plan) {
  const bool columns = plan.has(Feature::SPARSE);
  if (!columns && !plan.has(Feature::SLOT) && !plan.has(Feature::ALLOC)) return;
  const u32 nodes = plan.count(Section::EXPR);
  register_of.assign(nodes, kNone);
  registers_in.assign(nodes, 0);
  for (u32 i = 0; columns && i < plan.count(Section::AXIS); ++i) {
    const Axis a = plan.get<Section::AXIS>(i);
    if (a.value != kNone) register_of[a.value] = kFirstColumn + a.level;
  }
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::SLOT) register_of[i] = kFirstSlot + e.a;
    if (op == ExprOp::LETVAR) register_of[i] = kFirstSlot + plan.count(Section::SLOT) + e.a;
    if (register_of[i] != kNone) {
      registers_in[i] = u64{1} << register_of[i];
      continue;
    }
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) registers_in[i] |= registers_in[operand];
    }
  }
}

void PlanFacts::find_open(const PlanView& plan) {
  const u32 nodes = plan.count(Section::EXPR);
  open.assign(nodes, 0);
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::LOOPVAR || op == ExprOp::SLOT || op == ExprOp::LETVAR) open[i] = kVaries;
    if (op == ExprOp::BOUNDVAR) open[i] = 1u << e.arg;
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) open[i] |= open[operand];
    }
    if (op == ExprOp::REDUCE || op == ExprOp::SEARCH) open[i] &= ~(1u << (e.arg >> 8));
  }
}

void PlanFacts::find_branches(const PlanView& plan) {
  const u32 nodes = plan.count(Section::EXPR);
  std::vector<u8> used_otherwise(nodes, 0);
  branch.assign(nodes, 0);
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan.expr(i);
    const bool chooses = static_cast<ExprOp>(e.op) == ExprOp::SELECT && open[e.a] == 0;
    for (const u32 operand : operands_of(e)) {
      if (operand == kNone) continue;
      const auto op = static_cast<ExprOp>(plan.expr(operand).op);
      const bool folds = op == ExprOp::REDUCE || op == ExprOp::SEARCH;
      const bool chosen = chooses && operand != e.a && folds && open[operand] == 0;
      (chosen ? branch : used_otherwise)[operand] = 1;
    }
  }
  for (u32 i = 0; i < nodes; ++i) branch[i] = branch[i] != 0 && used_otherwise[i] == 0 ? 1 : 0;
}

void PlanFacts::read_code(const PlanView& plan) {
  setters.assign(plan.count(Section::SLOT), 0);
  begins_rows.assign(plan.count(Section::SYMBOL), 0);
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const Instr instr = plan.code(pc);
    const auto op = static_cast<Op>(instr.opcode);
    if (op == Op::LET) lets = std::max(lets, instr.operand1 + 1u);
    if (op == Op::SLOT_SET) setters[instr.operand1] += 1;
    if (op == Op::SLOT_LOAD) setters[instr.operand1] += 2;
    if (op == Op::SELECT) begins_rows[plan.get<Section::AXIS>(instr.operand1).lengths] = 1;
  }
}

// What lies inside of a reduction hangs on the reduction alone: nobody asks for its range.
void PlanFacts::find_reads(const PlanView& plan) {
  const u32 nodes = plan.count(Section::EXPR);
  std::vector<u8> shown = find_named(plan);
  std::vector<u8> loads(nodes, 0);
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan.expr(i);
    loads[i] = static_cast<ExprOp>(e.op) == ExprOp::LOAD ? 1 : 0;
    for (const u32 operand : operands_of(e)) {
      if (operand == kNone) continue;
      loads[i] |= loads[operand];
      if ((open[i] & kVaries) != 0) shown[operand] = 1;
    }
  }
  for (u32 i = 0; i < nodes; ++i) {
    if (loads[i] != 0 && open[i] == 0) reads.push_back({i, shown[i] != 0});
  }
}

void PlanFacts::find_keeps(const PlanView& plan) {
  constexpr u32 kCostly = 16;  // operations
  constexpr u32 kFound = 3;    // what finding a value again costs
  constexpr u32 kMostLevels = 2;
  constexpr u32 kMost = 64;
  constexpr u32 kDivision = 4;
  const u32 nodes = plan.count(Section::EXPR);
  std::vector<u32> cost(nodes, 0);
  loops_in.assign(nodes, 0);
  // Whoever stands in one other expression only is kept with that.
  const std::vector<u8> named = find_named(plan);
  std::vector<u32> users(nodes, 0);
  for (u32 i = 0; i < nodes; ++i) {
    for (const u32 operand : operands_of(plan.expr(i))) {
      if (operand != kNone) users[operand] += 1;
    }
  }
  keeps_at.assign(nodes, kNone);
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::LOOPVAR) loops_in[i] = 1u << e.arg;
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) loops_in[i] |= loops_in[operand];
    }
    if (open[i] == 0) continue;  // one value in a run
    cost[i] = op == ExprOp::FLOORDIV || op == ExprOp::MOD ? kDivision : 1;
    for (const u32 operand : operands_of(e)) {
      if (operand == kNone) continue;
      cost[i] = std::min(cost[i] + cost[operand], 1u << 16);
    }
    const bool fixed = open[i] == kVaries && (registers_in.empty() || registers_in[i] == 0);
    const auto count = static_cast<u32>(std::popcount(loops_in[i]));
    if (!fixed || cost[i] < kCostly || count > kMostLevels || keeps.size() == kMost) continue;
    if (named[i] == 0 && users[i] < 2) continue;
    Keeps found;
    for (u32 level = 0; level < kMaxLoops; ++level) {
      if ((loops_in[i] >> level & 1u) != 0) found.levels[found.count++] = static_cast<u8>(level);
    }
    keeps_at[i] = static_cast<u32>(keeps.size());
    keeps.push_back(found);
    cost[i] = kFound;  // for those that it stands in
  }
}

void PlanFacts::find_alike(const PlanView& plan) {
  alike.assign(plan.count(Section::AXIS), 0);
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const Instr instr = plan.code(pc);
    const auto op = static_cast<Op>(instr.opcode);
    if (op != Op::PARALLEL_FOR && op != Op::FOR_EACH) continue;
    u32 at = pc + 1;
    const u32 level = plan.get<Section::AXIS>(instr.operand1).level;
    alike[instr.operand1] = goes_alike(plan, level, &at) ? 1 : 0;
  }
}

// From `pc` to behind the END of the block that it stands in.
bool PlanFacts::goes_alike(const PlanView& plan, u32 level, u32* pc) const {
  bool is_over = false;  // behind a task or a condition comes nothing more
  while (true) {
    const Instr instr = plan.code(*pc);
    switch (static_cast<Op>(instr.opcode)) {
      case Op::END:
        *pc += 1;
        return true;
      case Op::ALLOC:
        if (is_over || !allocates_alike(plan, level, instr.operand1)) return false;
        *pc += 1;
        break;
      case Op::TASK:
        if (is_over) return false;
        is_over = true;
        *pc += 1 + instr.operand1;
        break;
      case Op::COND: {
        const u32 condition = plan.code(*pc + 1).operand2;
        if (is_over || (loops_in[condition] >> level & 1u) != 0) return false;
        is_over = true;
        *pc += 2;
        if (!goes_alike(plan, level, pc)) return false;
        break;
      }
      case Op::ELSE:  // stands behind a COND only
        *pc += 1;
        if (!goes_alike(plan, level, pc)) return false;
        break;
      default:
        return false;
    }
  }
}

// Whether a temporary has one shape in all iterations of the loop.
bool PlanFacts::allocates_alike(const PlanView& plan, u32 level, u32 alloc) const {
  for (u32 t = 0; t < plan.count(Section::TENSOR); ++t) {
    const Tensor tensor = plan.get<Section::TENSOR>(t);
    if (plan.get<Section::STORAGE>(tensor.storage).alloc != alloc) continue;
    for (u32 d = 0; d < tensor.rank; ++d) {
      const u32 extent = plan.get<Section::DIM>(tensor.dims + d).shape;
      if (extent != kNone && (loops_in[extent] >> level & 1u) != 0) return false;
    }
  }
  return true;
}

}  // namespace ptowsp
