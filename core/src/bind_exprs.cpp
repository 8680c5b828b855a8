// Binder, third part: what is known of expressions once symbols are numbers: which are constant or
// affine, what they need from around them, and between which values they lie.
#include <algorithm>

#include "binder.h"

namespace ptowsp {

void Binder::make_affine(u32 node) {
  const Expr e = plan_.expr(node);
  BoundExpr& out = out_.exprs_[node];
  Affine& form = out_.forms_[node];
  form = Affine{};
  out.node = node;
  out.kept = out_.facts_->keeps_at[node] != kNone;
  out.form = &form;
  const std::vector<u32>& register_of = out_.facts_->register_of;
  if (!register_of.empty() && register_of[node] != kNone) {
    out.affine = form.add_register(register_of[node], 1);
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
  if (op == ExprOp::BOUNDVAR ||
      (folds && (out_.facts_->open[node] != 0 || is_branch_[node] != 0))) {
    return false;
  }
  const bool leaf = op == ExprOp::CONST || op == ExprOp::SYMBOL || op == ExprOp::SHAPE;
  if (!leaf && !folds) {
    for (const u32 operand : operands_of(e)) {
      if (operand == kNone || out_.exprs_[operand].constant()) continue;
      if (operand == e.a || is_branch_[operand] == 0) return false;
    }
  }
  static constexpr i64 kNoLoops[kMaxVars] = {};
  Error ignored;
  return out_.eval_expr(e, BoundPlan::Env{kNoLoops, {}}, &out->base, &ignored);
}

Interval Binder::range_of_affine(const Affine& form) const {
  Interval sum = Interval::point(form.base);
  for (u32 l = 0; l < form.top; ++l) sum = sum + Interval::point(form.coef[l]) * ranges_[l];
  for (u32 r = 0; r < form.num_regs; ++r) {
    sum = sum + Interval::point(form.reg_coef[r]) * range_of_register(form.reg[r]);
  }
  return sum;
}

// Expressions share operands, and accesses expressions: each is looked at once.
const Binder::Known& Binder::known(u32 node) {
  Known& out = known_[node];
  if (out.when == now_) return out;
  const BoundExpr& bound = out_.exprs_[node];
  if (!bound.affine) {
    const Interval range = find_range_of(node);
    out = {now_, false, range};
    return out;
  }
  const Affine& form = *bound.form;
  Interval sum = Interval::point(form.base);
  bool exact = true;
  const auto add = [&](i64 factor, const Interval& of) {
    const Interval term = Interval::point(factor) * of;
    sum = sum + term;
    exact = exact && term.within_i64() && sum.within_i64();
  };
  for (u32 l = 0; l < form.top; ++l) add(form.coef[l], ranges_[l]);
  for (u32 r = 0; r < form.num_regs; ++r) add(form.reg_coef[r], range_of_register(form.reg[r]));
  out = {now_, exact, sum};
  return out;
}

// One that something else uses as well is worked out after all.
void Binder::work_out(u32 node) {
  if (is_branch_[node] == 0) return;
  is_branch_[node] = 0;
  out_.settled_ = true;
  make_affine(node);
}

Interval Binder::range_of(u32 node) {
  work_out(node);
  const BoundExpr& bound = out_.exprs_[node];
  return bound.constant() ? Interval::point(bound.form->base) : known(node).range;
}

Interval Binder::find_range_of(u32 node) {
  const Expr e = plan_.expr(node);
  const auto op = static_cast<ExprOp>(e.op);
  switch (op) {
    case ExprOp::LOAD:
      return range_of(out_.arrays_[e.a].expected.elements);
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
BoundExpr Binder::use(u32 node) {
  work_out(node);
  BoundExpr e = out_.exprs_[node];
  if (e.affine && !e.constant()) e.affine = known(node).exact;
  return e;
}

}  // namespace ptowsp
