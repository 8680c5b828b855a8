// Bodies of reductions, for many values of their variable at a time: what tree walking costs is
// paid once a block.
#include <algorithm>
#include <bit>

#include "arithmetic.h"
#include "plan_facts.h"
#include "ptowsp/bind.h"

namespace ptowsp {

namespace {

template <typename Operator>
bool each(const i64* a, const i64* b, u32 count, i64* out, Operator op) {
  bool good = true;
  for (u32 k = 0; k < count; ++k) good &= op(a[k], b[k], &out[k]);
  return good;
}

// Quotients of numbers that are not negative, which is what sizes are; false: one of them is.
bool divide(const i64* a, const i64* b, u32 count, i64* out) {
  return each(a, b, count, out, [](i64 x, i64 y, i64* q) {
    if (x < 0 || y < 1) return false;
    const bool narrow = ((static_cast<u64>(x) | static_cast<u64>(y)) >> 32) == 0;
    *q = narrow ? static_cast<u32>(x) / static_cast<u32>(y) : x / y;
    return true;
  });
}

// The same of numbers by one that is positive.
bool divide_by(const i64* a, i64 by, u32 count, i64* out) {
  i64 all = 0;
  for (u32 k = 0; k < count; ++k) all |= a[k];
  if (all < 0 || by < 1) return false;
  if (std::has_single_bit(static_cast<u64>(by))) {
    const int bits = std::countr_zero(static_cast<u64>(by));
    for (u32 k = 0; k < count; ++k) out[k] = a[k] >> bits;
    return true;
  }
  if (((static_cast<u64>(all) | static_cast<u64>(by)) >> 32) != 0) {
    for (u32 k = 0; k < count; ++k) out[k] = a[k] / by;
    return true;
  }
  const u32 narrow = static_cast<u32>(by);
  for (u32 k = 0; k < count; ++k) out[k] = static_cast<u32>(a[k]) / narrow;
  return true;
}

bool apply_block(ExprOp op, const i64* a, const i64* b, u32 count, i64* out) {
  switch (op) {
    case ExprOp::ADD:
      return each(a, b, count, out,
                  [](i64 x, i64 y, i64* z) { return !__builtin_add_overflow(x, y, z); });
    case ExprOp::SUB:
      return each(a, b, count, out,
                  [](i64 x, i64 y, i64* z) { return !__builtin_sub_overflow(x, y, z); });
    case ExprOp::MUL:
      return each(a, b, count, out,
                  [](i64 x, i64 y, i64* z) { return !__builtin_mul_overflow(x, y, z); });
    case ExprOp::FLOORDIV:
      return divide(a, b, count, out);
    case ExprOp::MIN:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = std::min(x, y), true; });
    case ExprOp::MAX:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = std::max(x, y), true; });
    case ExprOp::LE:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = x <= y, true; });
    default: {
      Error ignored;
      for (u32 k = 0; k < count; ++k) {
        if (!apply(op, a[k], b[k], &out[k], &ignored)) return false;
      }
      return true;
    }
  }
}

}  // namespace

// Values of a node for env.bound[level], env.bound[level] + 1 ... False: not for all of them, or
// not in this way.
bool BoundPlan::eval_block(u32 node, const Env& env, u32 level, u32 count, i64* out) const {
  if ((facts_->open[node] & (1u << level)) == 0) {
    Error ignored;
    if (!eval_node(node, env, &out[0], &ignored)) return false;
    std::fill(out + 1, out + count, out[0]);
    return true;
  }
  const Expr& e = plan_->expr(node);
  const auto op = static_cast<ExprOp>(e.op);
  if (op == ExprOp::BOUNDVAR) {
    for (u32 k = 0; k < count; ++k) out[k] = env.bound[level] + k;
    return true;
  }
  if (op == ExprOp::LOAD) return block_load(e, env, level, count, out);
  i64 a[kBlock];
  i64 b[kBlock];
  if (op == ExprOp::SELECT) {  // both sides: where one fails, what is not chosen must not count
    if (!eval_block(e.a, env, level, count, out)) return false;
    const auto chosen =
        static_cast<u32>(std::count_if(out, out + count, [](i64 v) { return v != 0; }));
    if (chosen == count) return eval_block(e.b, env, level, count, out);
    if (chosen == 0) return eval_block(e.c, env, level, count, out);
    if (!eval_block(e.b, env, level, count, a) || !eval_block(e.c, env, level, count, b)) {
      return false;
    }
    for (u32 k = 0; k < count; ++k) out[k] = out[k] != 0 ? a[k] : b[k];
    return true;
  }
  const bool binary = op >= ExprOp::ADD && op <= ExprOp::OR && op != ExprOp::NEG;
  if (!binary || op == ExprOp::DIV) return false;
  if (op == ExprOp::FLOORDIV && (facts_->open[e.b] & (1u << level)) == 0) {
    Error ignored;
    return eval_node(e.b, env, &b[0], &ignored) && eval_block(e.a, env, level, count, a) &&
           divide_by(a, b[0], count, out);
  }
  return eval_block(e.a, env, level, count, a) && eval_block(e.b, env, level, count, b) &&
         apply_block(op, a, b, count, out);
}

bool BoundPlan::block_load(const Expr& e, const Env& env, u32 level, u32 count, i64* out) const {
  const BoundArray& array = arrays_[e.a];
  i64 index[kBlock];
  if (array.rank != 1 || !eval_block(e.b, env, level, count, index)) return false;
  for (u32 k = 0; k < count; ++k) {
    if (index[k] < 0 || index[k] >= array.shape[0]) return false;
  }
  for (u32 k = 0; k < count; ++k) out[k] = array.at(index[k], 0);
  return true;
}

}  // namespace ptowsp
