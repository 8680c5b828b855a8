// Bodies of reductions, for many values of their variable at a time: what tree walking costs is
// paid once a block.
#include <algorithm>
#include <bit>

#include "arithmetic.h"
#include "plan_facts.h"
#include "ptowsp/bind.h"

namespace ptowsp {

namespace {

// The same operator on each element of a block and one of another.
template <typename Operator>
bool each(const i64* a, const BlockValues& b, u32 count, i64* out, Operator op) {
  bool good = true;
  if (b.all_alike()) {
    const i64 y = b.value;
    for (u32 k = 0; k < count; ++k) good &= op(a[k], y, &out[k]);
  } else {
    for (u32 k = 0; k < count; ++k) good &= op(a[k], b.values[k], &out[k]);
  }
  return good;
}

// Quotients of numbers that are not negative, which is what sizes are; false: one of them is.
bool divide(const i64* a, const i64* b, u32 count, i64* out) {
  bool good = true;
  for (u32 k = 0; k < count; ++k) {
    if (a[k] < 0 || b[k] < 1) {
      good = false;
      continue;
    }
    const bool narrow = ((static_cast<u64>(a[k]) | static_cast<u64>(b[k])) >> 32) == 0;
    out[k] = narrow ? static_cast<u32>(a[k]) / static_cast<u32>(b[k]) : a[k] / b[k];
  }
  return good;
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

// `out` may be where `a` lies.
bool apply_block(ExprOp op, const i64* a, const BlockValues& b, u32 count, i64* out) {
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
      return b.all_alike() ? divide_by(a, b.value, count, out) : divide(a, b.values, count, out);
    case ExprOp::MOD:  // of sizes, too; what has no rest makes an error, which is text, once
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) {
        Error never;
        return y > 0 && apply(ExprOp::MOD, x, y, z, &never);
      });
    case ExprOp::MIN:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = std::min(x, y), true; });
    case ExprOp::MAX:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = std::max(x, y), true; });
    case ExprOp::LE:
      return each(a, b, count, out, [](i64 x, i64 y, i64* z) { return *z = x <= y, true; });
    default: {
      Error ignored;
      return each(a, b, count, out,
                  [&](i64 x, i64 y, i64* z) { return apply(op, x, y, z, &ignored); });
    }
  }
}

// Elements of an array of one dimension; index(k) is within it.
template <typename Index>
void load_each(const BoundArray& array, u32 count, Index index, i64* out) {
  if (array.dtype == DType::I64 || array.dtype == DType::U64) {
    const auto* data = static_cast<const i64*>(array.data);
    for (u32 k = 0; k < count; ++k) out[k] = data[index(k) * array.stride[0]];
  } else if (array.dtype == DType::I32) {
    const auto* data = static_cast<const i32*>(array.data);
    for (u32 k = 0; k < count; ++k) out[k] = data[index(k) * array.stride[0]];
  } else {
    for (u32 k = 0; k < count; ++k) out[k] = array.at(index(k), 0);
  }
}

// All of them one by one, for whoever needs them so.
const i64* spread(const BlockValues& block, u32 count, i64* room) {
  if (!block.all_alike()) return block.values;
  std::fill(room, room + count, block.value);
  return room;
}

}  // namespace

// Values of a node for env.bound[level], env.bound[level] + 1 ... They lie in `room`, which has
// kBlock, or where they lay before. False: not for all of them, or not in this way.
bool BoundPlan::eval_block(u32 node, const Env& env, u32 level, u32 count, i64* room,
                           BlockValues* out) const {
  if ((facts_->open[node] & (1u << level)) == 0) {
    Error ignored;
    out->values = nullptr;
    return eval_node(node, env, &out->value, &ignored);
  }
  const Expr& e = plan_->expr(node);
  const auto op = static_cast<ExprOp>(e.op);
  out->values = room;
  if (op == ExprOp::BOUNDVAR) {
    for (u32 k = 0; k < count; ++k) room[k] = env.bound[level] + k;
    return true;
  }
  if (op == ExprOp::LOAD) return block_load(e, env, level, count, room, out);
  if (op == ExprOp::SELECT) return block_select(e, env, level, count, room, out);
  const bool binary = op >= ExprOp::ADD && op <= ExprOp::OR && op != ExprOp::NEG;
  if (!binary || op == ExprOp::DIV) return false;
  BlockValues a;
  BlockValues b;
  i64 more[kBlock];
  return eval_block(e.a, env, level, count, room, &a) &&
         eval_block(e.b, env, level, count, more, &b) &&
         apply_block(op, spread(a, count, room), b, count, room);
}

// Both sides: where one fails, what is not chosen must not count.
bool BoundPlan::block_select(const Expr& e, const Env& env, u32 level, u32 count, i64* room,
                             BlockValues* out) const {
  BlockValues chosen;
  if (!eval_block(e.a, env, level, count, room, &chosen)) return false;
  u32 first = chosen.all_alike() && chosen.value != 0 ? count : 0;
  for (u32 k = 0; k < count && !chosen.all_alike(); ++k) first += chosen.values[k] != 0 ? 1 : 0;
  if (first == count) return eval_block(e.b, env, level, count, room, out);
  if (first == 0) return eval_block(e.c, env, level, count, room, out);
  BlockValues a;
  BlockValues b;
  i64 more[2][kBlock];
  if (!eval_block(e.b, env, level, count, more[0], &a) ||
      !eval_block(e.c, env, level, count, more[1], &b)) {
    return false;
  }
  const i64* const yes = spread(a, count, more[0]);
  const i64* const no = spread(b, count, more[1]);
  for (u32 k = 0; k < count; ++k) {  // without a branch, which nobody could foresee
    const i64 mask = -static_cast<i64>(chosen.values[k] != 0);
    room[k] = (yes[k] & mask) | (no[k] & ~mask);
  }
  out->values = room;
  return true;
}

bool BoundPlan::block_load(const Expr& e, const Env& env, u32 level, u32 count, i64* room,
                           BlockValues* out) const {
  const BoundArray& array = arrays_[e.a];
  if (array.rank != 1) return false;
  const Expr& at = plan_->expr(e.b);
  if (static_cast<ExprOp>(at.op) == ExprOp::BOUNDVAR && at.arg == level) {
    const i64 first = env.bound[level];
    if (first < 0 || first > array.shape[0] - static_cast<i64>(count)) return false;
    if (array.dtype == DType::I64 && array.stride[0] == 1) {
      out->values = static_cast<const i64*>(array.data) + first;
    } else {
      load_each(array, count, [first](u32 k) { return first + k; }, room);
    }
    return true;
  }
  BlockValues index;
  if (!eval_block(e.b, env, level, count, room, &index)) return false;
  const i64* const each_index = spread(index, count, room);
  for (u32 k = 0; k < count; ++k) {
    if (each_index[k] < 0 || each_index[k] >= array.shape[0]) return false;
  }
  load_each(array, count, [each_index](u32 k) { return each_index[k]; }, room);
  return true;
}

}  // namespace ptowsp
