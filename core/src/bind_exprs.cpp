// Binder, third part: what is known of expressions once symbols are numbers: which are constant or
// affine, what they need from around them, and between which values they lie.
#include <algorithm>

#include "binder.h"

namespace ptowsp {

// Slots, lets and the columns of sparse loops are kept in registers.
void Binder::find_registers() {
  const bool columns = plan_.has(Feature::SPARSE);
  if (!columns && !plan_.has(Feature::SLOT) && !plan_.has(Feature::ALLOC)) return;
  const u32 nodes = plan_.count(Section::EXPR);
  register_of_.assign(nodes, kNone);
  registers_in_.assign(nodes, 0);
  for (u32 i = 0; columns && i < plan_.count(Section::AXIS); ++i) {
    const Axis a = plan_.get<Section::AXIS>(i);
    if (a.value != kNone) register_of_[a.value] = kFirstColumn + a.level;
  }
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan_.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::SLOT) register_of_[i] = kFirstSlot + e.a;
    if (op == ExprOp::LETVAR) register_of_[i] = kFirstSlot + plan_.count(Section::SLOT) + e.a;
    if (register_of_[i] != kNone) {
      registers_in_[i] = u64{1} << register_of_[i];
      continue;
    }
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) registers_in_[i] |= registers_in_[operand];
    }
  }
}

// Reductions and searches over nothing but symbols and arrays have one value in a run.
void Binder::find_open() {
  const u32 nodes = plan_.count(Section::EXPR);
  out_.open_.assign(nodes, 0);
  for (u32 i = 0; i < nodes; ++i) {
    const Expr e = plan_.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::LOOPVAR || op == ExprOp::SLOT || op == ExprOp::LETVAR)
      out_.open_[i] = BoundPlan::kVaries;
    if (op == ExprOp::BOUNDVAR) out_.open_[i] = 1u << e.arg;
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) out_.open_[i] |= out_.open_[operand];
    }
    if (op == ExprOp::REDUCE || op == ExprOp::SEARCH) out_.open_[i] &= ~(1u << (e.arg >> 8));
  }
}

void Binder::make_affine(u32 node) {
  const Expr e = plan_.expr(node);
  BoundExpr& out = out_.exprs_[node];
  Affine& form = out_.forms_[node];
  form = Affine{};
  out.node = node;
  out.form = &form;
  if (!register_of_.empty() && register_of_[node] != kNone) {
    out.affine = form.add_register(register_of_[node], 1);
    return;
  }
  switch (static_cast<ExprOp>(e.op)) {
    case ExprOp::LOOPVAR:
      form.top = e.arg + 1u;
      form.coef[e.arg] = 1;
      out.affine = true;
      break;
    case ExprOp::ADD:
      out.affine = affine_sum(e, 1, &form);
      break;
    case ExprOp::SUB:
      out.affine = affine_sum(e, -1, &form);
      break;
    case ExprOp::MUL:
      out.affine = affine_product(e, &form);
      break;
    default:
      out.affine = affine_constant(node, e, &form);
  }
}

bool Binder::affine_sum(const Expr& e, i64 sign, Affine* out) const {
  const BoundExpr& a = out_.exprs_[e.a];
  const BoundExpr& b = out_.exprs_[e.b];
  if (!a.affine || !b.affine) return false;
  *out = *a.form;
  i64 term = 0;
  if (__builtin_mul_overflow(b.form->base, sign, &term)) return false;
  if (__builtin_add_overflow(out->base, term, &out->base)) return false;
  for (u32 l = 0; l < b.form->top; ++l) {
    if (__builtin_mul_overflow(b.form->coef[l], sign, &term)) return false;
    if (__builtin_add_overflow(out->coef[l], term, &out->coef[l])) return false;
  }
  for (u32 r = 0; r < b.form->num_regs; ++r) {
    if (__builtin_mul_overflow(b.form->reg_coef[r], sign, &term)) return false;
    if (!out->add_register(b.form->reg[r], term)) return false;
  }
  out->top = std::max(a.form->top, b.form->top);
  while (out->top > 0 && out->coef[out->top - 1] == 0) out->top -= 1;
  return true;
}

bool Binder::affine_product(const Expr& e, Affine* out) const {
  const BoundExpr* a = &out_.exprs_[e.a];
  const BoundExpr* b = &out_.exprs_[e.b];
  if (a->constant()) std::swap(a, b);
  if (!a->affine || !b->constant()) return false;
  const i64 factor = b->form->base;
  *out = *a->form;
  if (__builtin_mul_overflow(out->base, factor, &out->base)) return false;
  for (u32 l = 0; l < out->top; ++l) {
    if (__builtin_mul_overflow(out->coef[l], factor, &out->coef[l])) return false;
  }
  for (u32 r = 0; r < out->num_regs; ++r) {
    if (__builtin_mul_overflow(out->reg_coef[r], factor, &out->reg_coef[r])) return false;
  }
  while (out->top > 0 && out->coef[out->top - 1] == 0) out->top -= 1;
  return true;
}

// Nodes whose operands are all constants become constants themselves, and so do reductions that
// depend on nothing else.
bool Binder::affine_constant(u32 node, const Expr& e, Affine* out) const {
  const auto op = static_cast<ExprOp>(e.op);
  const bool folds = op == ExprOp::REDUCE || op == ExprOp::SEARCH;
  if (op == ExprOp::BOUNDVAR || (folds && out_.open_[node] != 0)) return false;
  const bool leaf = op == ExprOp::CONST || op == ExprOp::SYMBOL || op == ExprOp::SHAPE;
  if (!leaf && !folds) {
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone && !out_.exprs_[operand].constant()) return false;
    }
  }
  const i64 no_loops[kMaxVars] = {};
  Error ignored;
  return out_.eval_expr(e, BoundPlan::Env{no_loops, {}}, &out->base, &ignored);
}

Interval Binder::range_of_affine(const Affine& form) const {
  Interval sum = Interval::point(form.base);
  for (u32 l = 0; l < form.top; ++l) sum = sum + Interval::point(form.coef[l]) * ranges_[l];
  for (u32 r = 0; r < form.num_regs; ++r) {
    sum = sum + Interval::point(form.reg_coef[r]) * range_of_register(form.reg[r]);
  }
  return sum;
}

// Expressions share operands, and accesses expressions: each range is worked out once.
Interval Binder::range_of(u32 node) {
  const BoundExpr& bound = out_.exprs_[node];
  if (bound.constant()) return Interval::point(bound.form->base);
  if (known_[node].when != now_) {
    const Interval range = bound.affine ? range_of_affine(*bound.form) : find_range_of(node);
    known_[node] = {now_, range};
  }
  return known_[node].range;
}

Interval Binder::find_range_of(u32 node) {
  const Expr e = plan_.expr(node);
  const auto op = static_cast<ExprOp>(e.op);
  switch (op) {
    case ExprOp::LOAD: {
      const BoundArray& a = out_.arrays_[e.a];
      return {a.min, a.max};
    }
    case ExprOp::ADD:
      return range_of(e.a) + range_of(e.b);
    case ExprOp::SUB:
      return range_of(e.a) - range_of(e.b);
    case ExprOp::MUL:
      return range_of(e.a) * range_of(e.b);
    case ExprOp::SELECT: {
      const Interval a = range_of(e.b);
      const Interval b = range_of(e.c);
      return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case ExprOp::MIN:
    case ExprOp::MAX: {
      const Interval a = range_of(e.a);
      const Interval b = range_of(e.b);
      if (op == ExprOp::MIN) return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case ExprOp::FLOORDIV:
    case ExprOp::MOD: {
      Interval by = range_of(e.b);
      if (by.lo < 0 || by.hi < 1) return Interval::unknown();
      by.lo = std::max<i128>(by.lo, 1);  // dividing by 0 gives no value
      if (op == ExprOp::MOD) return {0, by.hi - 1};
      const Interval a = range_of(e.a);
      return {std::min(floor_div(a.lo, by.lo), floor_div(a.lo, by.hi)),
              std::max(floor_div(a.hi, by.lo), floor_div(a.hi, by.hi))};
    }
    case ExprOp::SEARCH: {
      const Interval lo = range_of(e.a);
      const Interval hi = range_of(e.b);
      return {std::min(lo.lo, hi.lo), hi.hi};
    }
    default:
      return Interval::unknown();
  }
}

// An expression as it is used below loops of these ranges. An affine form that might overflow there
// is left to the checked evaluator.
BoundExpr Binder::use(u32 node) const {
  BoundExpr e = out_.exprs_[node];
  if (!e.affine || e.constant()) return e;
  Interval partial = Interval::point(e.form->base);
  for (u32 l = 0; l < e.form->top && e.affine; ++l) {
    const Interval term = Interval::point(e.form->coef[l]) * ranges_[l];
    partial = partial + term;
    e.affine = term.within_i64() && partial.within_i64();
  }
  for (u32 r = 0; r < e.form->num_regs && e.affine; ++r) {
    const Interval term = Interval::point(e.form->reg_coef[r]) * range_of_register(e.form->reg[r]);
    partial = partial + term;
    e.affine = term.within_i64() && partial.within_i64();
  }
  return e;
}

}  // namespace ptowsp
