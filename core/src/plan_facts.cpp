#include "plan_facts.h"

#include <algorithm>

namespace ptowsp {

PlanFacts::PlanFacts(const PlanView& plan) {
  find_registers(plan);
  find_open(plan);
  find_branches(plan);
  count_setters(plan);
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

void PlanFacts::count_setters(const PlanView& plan) {
  setters.assign(plan.count(Section::SLOT), 0);
  for (u32 pc = 0; pc < plan.count(Section::CODE); ++pc) {
    const Instr instr = plan.code(pc);
    const auto op = static_cast<Op>(instr.opcode);
    if (op == Op::LET) lets = std::max(lets, instr.operand1 + 1u);
    if (op == Op::SLOT_SET) setters[instr.operand1] += 1;
    if (op == Op::SLOT_LOAD) setters[instr.operand1] += 2;
  }
}

}  // namespace ptowsp
