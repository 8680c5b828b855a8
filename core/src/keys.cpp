#include "ptowsp/keys.h"

#include <string>

#include "arithmetic.h"

namespace ptowsp {

namespace {

ExprOp op_of(const Expr& e) { return static_cast<ExprOp>(e.op); }

}  // namespace

u32 loop_level(const PlanView& plan, u32 site, std::string_view name) {
  u32 axis = plan.get<Section::SITE>(site).axis;
  while (axis != kNone) {
    const Axis a = plan.get<Section::AXIS>(axis);
    if (plan.string(a.name) == name) return a.level;
    axis = a.outer;
  }
  return kNone;
}

Keys::Keys(const PlanView& plan) : plan_(plan), sites_(plan.count(Section::SITE)) {
  for (u32 n = 0; n < plan.count(Section::SCHEDULE_EXPR); ++n) {
    nodes_.push_back(plan.get<Section::SCHEDULE_EXPR>(n));
    for (u32 s = 0; s < sites_; ++s) {
      const bool axis = op_of(nodes_[n]) == ExprOp::TASK_AXIS;
      levels_.push_back(
          axis ? loop_level(plan, s, plan.string(nodes_[n].a, Section::SCHEDULE_STRING)) : kNone);
    }
  }
  lines_.resize(levels_.size());
  for (u32 n = 0; n < nodes_.size(); ++n) {
    for (u32 s = 0; s < sites_; ++s) lines_[n * sites_ + s] = find_line(n, s);
  }
}

// Operands come before what uses them.
Keys::Line Keys::find_line(u32 node, u32 site) const {
  const Expr& e = nodes_[node];
  const auto of = [&](u32 operand) {
    return operand < node ? lines_[operand * sites_ + site] : Line{};
  };
  Line out;
  switch (op_of(e)) {
    case ExprOp::CONST:
      out.base = constant_of(e);
      out.level = is_small(out.base) ? kNone : kNoLine;
      return out;
    case ExprOp::TASK_SITE:
      return {site, 0, kNone};
    case ExprOp::TASK_AXIS:
      if (level(node, site) == kNone) return e.b == kNone ? out : of(e.b);
      return {0, 1, level(node, site)};
    case ExprOp::ADD:
    case ExprOp::SUB:
    case ExprOp::MUL:
      break;
    default:
      return out;
  }
  const Line a = of(e.a);
  const Line b = of(e.b);
  if (a.level == kNoLine || b.level == kNoLine) return out;
  if (a.level != kNone && b.level != kNone) return out;  // two indices
  const u32 level = a.level != kNone ? a.level : b.level;
  // Of a product, one side is a constant and scales the other.
  const bool product = op_of(e) == ExprOp::MUL;
  const i64 left = product && a.level == kNone ? b.factor : a.factor;
  const i64 right = product ? (a.level == kNone ? a.base : b.base) : b.factor;
  Error error;
  const bool exact = apply(op_of(e), a.base, b.base, &out.base, &error) &&
                     apply(op_of(e), left, right, &out.factor, &error);
  return exact && is_small(out.base) && is_small(out.factor) ? Line{out.base, out.factor, level}
                                                             : Line{};
}

bool Keys::check(u32 node, Error* error) const {
  const Expr& e = nodes_[node];
  if (op_of(e) == ExprOp::TASK_AXIS) {
    for (u32 s = 0; s < sites_ && e.b == kNone; ++s) {
      const bool is_task =
          static_cast<TaskKind>(plan_.get<Section::SITE>(s).kind) != TaskKind::LOAD;
      if (!is_task || level(node, s) != kNone) continue;
      *error = Error::make(Status::SCHEDULE_ERROR,
                           "a key names the loop '" +
                               std::string(plan_.string(e.a, Section::SCHEDULE_STRING)) +
                               "', which this call does not stand in");
      error->site = s;
      return false;
    }
    return true;
  }
  const bool is_leaf = op_of(e) == ExprOp::CONST || op_of(e) == ExprOp::TASK_SITE ||
                       op_of(e) == ExprOp::TASK_ORDINAL;
  if (is_leaf) return true;
  const bool computes = op_of(e) >= ExprOp::ADD && op_of(e) <= ExprOp::SELECT &&
                        op_of(e) != ExprOp::NEG && op_of(e) != ExprOp::DIV;
  if (!computes) {
    *error = Error::make(Status::SCHEDULE_ERROR, "a key reads more than the task");
    return false;
  }
  for (const u32 operand : {e.a, e.b, e.c}) {
    if (operand != kNone && !check(operand, error)) return false;
  }
  return true;
}

bool Keys::compute(u32 node, u32 site, const i64* vars, u64 ordinal, i64* out, Error* error) const {
  const Expr& e = nodes_[node];
  switch (op_of(e)) {
    case ExprOp::CONST:
      *out = constant_of(e);
      return true;
    case ExprOp::TASK_AXIS:
      if (level(node, site) == kNone) return value(e.b, site, vars, ordinal, out, error);
      *out = vars[level(node, site)];
      return true;
    case ExprOp::TASK_SITE:
      *out = site;
      return true;
    case ExprOp::TASK_ORDINAL:
      *out = static_cast<i64>(ordinal);
      return true;
    case ExprOp::NOT:
      if (!value(e.a, site, vars, ordinal, out, error)) return false;
      *out = *out == 0 ? 1 : 0;
      return true;
    case ExprOp::SELECT: {
      i64 condition = 0;
      if (!value(e.a, site, vars, ordinal, &condition, error)) return false;
      return value(condition != 0 ? e.b : e.c, site, vars, ordinal, out, error);
    }
    default:
      return binary(e, site, vars, ordinal, out, error);
  }
}

bool Keys::binary(const Expr& e, u32 site, const i64* vars, u64 ordinal, i64* out,
                  Error* error) const {
  i64 a = 0;
  i64 b = 0;
  if (!value(e.a, site, vars, ordinal, &a, error) || !value(e.b, site, vars, ordinal, &b, error)) {
    return false;
  }
  return apply(op_of(e), a, b, out, error);
}

}  // namespace ptowsp
