// Evaluation of expressions and regions for one task: BoundPlan's run-time half.
#include <algorithm>
#include <atomic>
#include <bit>
#include <string>
#include <vector>

#include "arithmetic.h"
#include "plan_facts.h"
#include "ptowsp/bind.h"

namespace ptowsp {

namespace {

i64 fold_identity(ReduceOp op) {
  switch (op) {
    case ReduceOp::MIN:
      return INT64_MAX;
    case ReduceOp::MAX:
      return INT64_MIN;
    case ReduceOp::ALL:
      return 1;
    case ReduceOp::SUM:
    case ReduceOp::ANY:
      return 0;
  }
  return 0;
}

bool fold_step(ReduceOp op, i64 value, i64* total) {
  switch (op) {
    case ReduceOp::SUM:
      return !__builtin_add_overflow(*total, value, total);
    case ReduceOp::MIN:
      *total = std::min(*total, value);
      return true;
    case ReduceOp::MAX:
      *total = std::max(*total, value);
      return true;
    case ReduceOp::ANY:
      *total = (*total != 0 || value != 0) ? 1 : 0;
      return true;
    case ReduceOp::ALL:
      *total = (*total != 0 && value != 0) ? 1 : 0;
      return true;
  }
  return false;
}

}  // namespace

i64 BoundArray::at(i64 i, i64 j) const {
  const i64 k = i * stride[0] + j * stride[1];
  switch (dtype) {
    case DType::I64:
    case DType::U64:
      return static_cast<const i64*>(data)[k];
    case DType::I32:
      return static_cast<const i32*>(data)[k];
    case DType::U32:
      return static_cast<const u32*>(data)[k];
    case DType::I16:
      return static_cast<const std::int16_t*>(data)[k];
    case DType::U16:
      return static_cast<const u16*>(data)[k];
    case DType::I8:
      return static_cast<const std::int8_t*>(data)[k];
    default:
      return static_cast<const u8*>(data)[k];
  }
}

namespace {

// The last values of an expression, by the indices that it hangs on. Several, by the sum of these,
// since tasks of iterations that follow each other may come in turns.
struct KeptValue {
  u64 epoch = 0;  // of the binding; never 0
  i64 index[2] = {};
  i64 value = 0;
};
constexpr u32 kWays = 8;
thread_local std::vector<KeptValue> kept_values;

}  // namespace

// Chunk sizes and the like, which all tasks of an iteration ask for, several times each.
bool BoundPlan::eval_kept(u32 node, const Env& env, i64* out, Error* error) const {
  const u32 number = facts_->keeps_at[node];
  const PlanFacts::Keeps& keeps = facts_->keeps[number];
  const i64 first = env.vars[keeps.levels[0]];
  const i64 second = keeps.count > 1 ? env.vars[keeps.levels[1]] : 0;
  const std::size_t ways = facts_->keeps.size() * kWays;
  if (kept_values.size() < ways) kept_values.resize(ways);
  KeptValue& kept =
      kept_values[number * kWays + (static_cast<u64>(first) + static_cast<u64>(second)) % kWays];
  if (kept.epoch == epoch_ && kept.index[0] == first && kept.index[1] == second) {
    *out = kept.value;
    return true;
  }
  if (!eval_expr(plan_->expr(node), env, out, error)) return false;
  kept = {epoch_, {first, second}, *out};
  return true;
}

void BoundPlan::forget_values() {
  static std::atomic<u64> last{0};
  epoch_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool BoundPlan::eval_expr(const Expr& e, const Env& env, i64* out, Error* error) const {
  switch (static_cast<ExprOp>(e.op)) {
    case ExprOp::CONST:
      *out = constant_of(e);
      return true;
    case ExprOp::LOOPVAR:
      *out = env.vars[e.arg];
      return true;
    case ExprOp::BOUNDVAR:
      *out = env.bound[e.arg];
      return true;
    case ExprOp::SLOT:
      *out = env.vars[kFirstSlot + e.a];
      return true;
    case ExprOp::LETVAR:
      *out = env.vars[kFirstSlot + plan_->count(Section::SLOT) + e.a];
      return true;
    case ExprOp::SYMBOL:
      *out = symbols_[e.a];
      return true;
    case ExprOp::SHAPE:
      *out = tensors_[e.a].shape[e.arg];
      return true;
    case ExprOp::LOAD:
      return eval_load(e, env, out, error);
    case ExprOp::REDUCE:
    case ExprOp::SEARCH:
      return eval_fold(e, env, out, error);
    case ExprOp::SELECT: {
      i64 condition = 0;
      if (!eval_node(e.a, env, &condition, error)) return false;
      return eval_node(condition != 0 ? e.b : e.c, env, out, error);
    }
    case ExprOp::NOT: {
      if (!eval_node(e.a, env, out, error)) return false;
      *out = *out == 0 ? 1 : 0;
      return true;
    }
    case ExprOp::CAST: {
      if (!eval_node(e.a, env, out, error)) return false;
      if (static_cast<ScalarType>(e.type) == ScalarType::BOOL) *out = *out != 0 ? 1 : 0;
      return true;
    }
    case ExprOp::NEG: {
      if (!eval_node(e.a, env, out, error)) return false;
      if (__builtin_sub_overflow(i64{0}, *out, out))
        return fail(error, Status::ARITHMETIC, "integer overflow");
      return true;
    }
    default:
      return eval_binary(e, env, out, error);
  }
}

bool BoundPlan::eval_binary(const Expr& e, const Env& env, i64* out, Error* error) const {
  // Most operands are numbers and loop variables, for which a call costs more than they do.
  const auto eval_operand = [&](u32 node, i64* value) __attribute__((always_inline)) {
    const Expr operand = plan_->expr(node);
    switch (static_cast<ExprOp>(operand.op)) {
      case ExprOp::CONST:
        *value = constant_of(operand);
        return true;
      case ExprOp::LOOPVAR:
        *value = env.vars[operand.arg];
        return true;
      default:
        return eval_node(node, env, value, error);
    }
  };
  i64 a = 0;
  i64 b = 0;
  if (!eval_operand(e.a, &a) || !eval_operand(e.b, &b)) return false;
  return apply(static_cast<ExprOp>(e.op), a, b, out, error);
}

bool BoundPlan::eval_load(const Expr& e, const Env& env, i64* out, Error* error) const {
  const BoundArray& array = arrays_[e.a];
  i64 index[2] = {0, 0};
  if (!eval_node(e.b, env, &index[0], error)) return false;
  if (e.c != kNone && !eval_node(e.c, env, &index[1], error)) return false;
  for (u32 d = 0; d < array.rank; ++d) {
    if (index[d] >= 0 && index[d] < array.shape[d]) continue;
    const Symbol s = plan_->get<Section::SYMBOL>(e.a);
    fail(error, Status::OUT_OF_BOUNDS,
         "index " + std::to_string(index[d]) + " is outside array '" +
             std::string(plan_->string(s.name)) + "' of length " + std::to_string(array.shape[d]));
    error->symbol = e.a;
    return false;
  }
  *out = array.at(index[0], index[1]);
  return true;
}

bool BoundPlan::eval_fold(const Expr& e, const Env& env, i64* out, Error* error) const {
  i64 lo = 0;
  i64 hi = 0;
  if (!eval_node(e.a, env, &lo, error) || !eval_node(e.b, env, &hi, error)) return false;
  Env inner = env;
  i64& x = inner.bound[e.arg >> 8];
  i64 value = 0;
  if (static_cast<ExprOp>(e.op) == ExprOp::SEARCH) {  // the predicate is monotone: halve the range
    lo = std::min(lo, hi);
    while (lo < hi) {
      x = lo + static_cast<i64>((static_cast<u64>(hi) - static_cast<u64>(lo)) / 2);
      if (!eval_node(e.c, inner, &value, error)) return false;
      if (value != 0) {
        hi = x;
      } else {
        lo = x + 1;
      }
    }
    *out = lo;
    return true;
  }
  const auto op = static_cast<ReduceOp>(e.arg & 0xFF);
  i64 total = fold_identity(op);
  for (x = lo; x < hi;) {
    i64 room[kBlock];
    BlockValues values;
    const auto count =
        static_cast<u32>(std::min<u64>(kBlock, static_cast<u64>(hi) - static_cast<u64>(x)));
    const i64 before = total;
    bool whole = eval_block(e.c, inner, e.arg >> 8, count, room, &values);
    for (u32 k = 0; k < count && whole; ++k) {
      whole = fold_step(op, values.all_alike() ? values.value : values.values[k], &total);
    }
    if (!whole) {
      total = before;
      break;
    }
    x += count;
  }
  for (; x < hi; ++x) {  // where a block has failed: the element to blame
    if (!eval_node(e.c, inner, &value, error)) return false;
    if (!fold_step(op, value, &total))
      return fail(error, Status::ARITHMETIC, "integer overflow in a reduction");
  }
  *out = total;
  return true;
}

bool BoundPlan::region(u32 i, const i64* vars, Region* out, Error* error) const {
  const BoundAccess& a = accesses_[i];
  const BoundTensor& t = tensors_[a.tensor];
  out->tensor = a.tensor;
  out->storage = t.storage;
  out->geometry = t.geometry;
  out->by_bytes = t.by_bytes;
  out->mode = a.mode;
  out->rank = a.rank;
  out->empty = false;
  i64 lo = 0;
  i64 hi = 0;
  for (u32 d = 0; d < a.rank; ++d) {
    const BoundDim& dim = dims_[a.dims + d];
    if (!eval(dim.start, vars, &out->start[d], error)) return false;
    if (!eval(dim.extent, vars, &out->extent[d], error)) return false;
    if (!eval(dim.step, vars, &out->step[d], error)) return false;
    if (a.checked) {
      i64 shape = t.shape[d];
      const bool varies = t.alloc != kNone && d < a.plan_rank && t.shape_node[d] != kNone;
      if (varies && !value(t.shape_node[d], vars, &shape, error)) return false;
      if (out_of_bounds(a, d, *out, shape, error)) return false;
    }
    if (out->extent[d] <= 0) {
      out->empty = true;
      continue;
    }
    const i64 first = out->start[d] * t.stride[d];
    const i64 reach = (out->extent[d] - 1) * out->step[d] * t.stride[d];
    lo += first + std::min<i64>(reach, 0);
    hi += first + std::max<i64>(reach, 0);
  }
  if (a.limited && !fits_tile(a, *out, error)) return false;
  const u64 base = reinterpret_cast<u64>(t.data);
  const i64 item = static_cast<i64>(t.item);
  out->byte_lo = base + static_cast<u64>(lo * item);
  out->byte_hi = base + static_cast<u64>((hi + 1) * item);
  if (t.pool != kNone) {  // it may lie on any page
    out->byte_lo = tensors_[t.pool].byte_lo;
    out->byte_hi = tensors_[t.pool].byte_hi;
  }
  return true;
}

bool BoundPlan::regions(u32 site, u64 task_id, const i64* vars, Region* out, Error* error) const {
  const BoundSite& s = sites_[site];
  for (u32 p = 0; p < s.num_accesses; ++p) {
    if (region(site_access(s, p), vars, &out[p], error)) continue;
    error->at_task(site, task_id, vars, s.level);
    return false;
  }
  return true;
}

std::string BoundPlan::table_extent(const BoundAccess& a, u32 dim) const {
  const BoundTensor& t = tensors_[a.tensor];
  if (t.table == kNone || dim > 1) return "";
  if (dim == 0) return " (rows of its page table)";
  return " (" + std::to_string(tensors_[t.table].shape[1]) + " columns of " +
         std::to_string(t.page) + " tokens in its page table)";
}

bool BoundPlan::out_of_bounds(const BoundAccess& a, u32 dim, const Region& r, i64 shape,
                              Error* error) const {
  const i64 start = r.start[dim];
  const i64 extent = r.extent[dim];
  const i64 step = r.step[dim];
  i64 reach = 0;
  i64 last = 0;
  const bool overflow = __builtin_mul_overflow(extent - 1, step, &reach) ||
                        __builtin_add_overflow(start, reach, &last);
  if (extent >= 0 && step >= 1 && !overflow) {
    if (extent == 0) return false;
    if (start >= 0 && last < shape) return false;
  }
  const Tensor t = plan_->get<Section::TENSOR>(a.tensor);
  const std::string name(plan_->string(t.name));
  const std::string where = "dimension " + std::to_string(dim) + " of tensor '" + name + "'";
  if (extent < 0) {
    fail(error, Status::OUT_OF_BOUNDS,
         "a region of negative extent " + std::to_string(extent) + " in " + where);
  } else if (step < 1) {
    fail(error, Status::OUT_OF_BOUNDS, "a region of step " + std::to_string(step) + " in " + where);
  } else {
    fail(error, Status::OUT_OF_BOUNDS,
         "elements " + std::to_string(start) + " to " +
             (overflow ? std::string("(overflow)") : std::to_string(last)) + " of " + where +
             " are outside its extent " + std::to_string(shape) + table_extent(a, dim));
  }
  return true;
}

bool BoundPlan::fits_tile(const BoundAccess& a, const Region& r, Error* error) const {
  for (u32 d = 0, seen = 0; d < a.plan_rank; ++d) {
    const BoundDim& dim = dims_[a.dims + d];
    if (dim.dropped) continue;
    if (r.extent[d] > dim.limit) {
      const std::string name(plan_->string(plan_->get<Section::PARAM>(a.param).name));
      return fail(error, Status::TILE_MISFIT,
                  std::to_string(r.extent[d]) + " elements in dimension " + std::to_string(seen) +
                      " of parameter '" + name + "', whose tile holds " +
                      std::to_string(dim.limit));
    }
    seen += 1;
  }
  return true;
}

bool BoundPlan::hash_task(u32 site, const i64* vars, const Region* regions, TaskHash* hash,
                          Error* error) const {
  const HashKeys& keys = HashKeys::get();
  const BoundSite& s = sites_[site];
  HashSum sum = s.hash;
  for (u32 l = 0; l < s.level; ++l) sum.add(keys, kHashIndex + l, static_cast<u64>(vars[l]));
  for (u32 k = 0; k < s.num_scalars; ++k) {
    u64 bits = 0;
    if (!scalar_bits(s.scalars + k, vars, &bits, error)) return false;
    sum.add(keys, kHashScalar + k, bits);
  }
  for (u32 p = 0; p < s.num_accesses; ++p) {
    const Region& r = regions[p];
    const u32 rank = accesses_[site_access(s, p)].plan_rank;
    u32 at = kHashTensor + 32 * p + 4;
    for (u32 d = 0; d < rank; ++d, at += 3) {
      sum.add(keys, at, static_cast<u64>(r.start[d]));
      sum.add(keys, at + 1, static_cast<u64>(r.extent[d]));
      sum.add(keys, at + 2, static_cast<u64>(r.step[d]));
    }
  }
  hash->add(sum);
  return true;
}

namespace {

// Smallest and largest value of an integer dtype, as far as 64 signed bits go.
void range_of_dtype(DType dtype, i64* lo, i64* hi) {
  const u32 bits = dtype_size(dtype) * 8;
  const bool is_signed =
      dtype == DType::I8 || dtype == DType::I16 || dtype == DType::I32 || dtype == DType::I64;
  *lo = is_signed ? INT64_MIN >> (64 - bits) : 0;
  *hi = is_signed || bits == 64 ? INT64_MAX >> (is_signed ? 64 - bits : 0) : (i64{1} << bits) - 1;
  if (dtype == DType::BOOL) *hi = 1;
}

// A double as the bits of a smaller type, in the low end of the word.
u64 float_bits(DType dtype, double value) {
  if (dtype == DType::F32) return std::bit_cast<u32>(static_cast<float>(value));
  return std::bit_cast<u64>(value);
}

}  // namespace

bool BoundPlan::scalar_bits(u32 i, const i64* vars, u64* out, Error* error) const {
  const BoundScalar& s = scalars_[i];
  i64 value = 0;
  if (!eval(s.value, vars, &value, error)) return false;
  if (s.dtype == DType::F64 || s.dtype == DType::F32) {
    *out = float_bits(s.dtype, std::bit_cast<double>(value));
    return true;
  }
  i64 lo = 0;
  i64 hi = 0;
  range_of_dtype(s.dtype, &lo, &hi);
  if (value < lo || value > hi) {
    return fail(error, Status::ARITHMETIC,
                "a scalar argument is " + std::to_string(value) + ", which its type does not hold");
  }
  const u32 bits = dtype_size(s.dtype) * 8;
  *out = static_cast<u64>(value) & (~u64{0} >> (64 - bits));
  return true;
}

bool BoundPlan::column(const BoundLoop& loop, const i64* vars, i64 index, i64* out,
                       Error* error) const {
  // The extent of the loop has read the row's entry already, so it is there.
  i64 at = 0;
  const bool overflow = __builtin_add_overflow(loop.rows->at(vars[loop.row], 0), index, &at);
  if (!overflow && at >= 0 && at < loop.columns->shape[0]) {
    *out = loop.columns->at(at, 0);
    return true;
  }
  const u32 symbol = static_cast<u32>(loop.columns - arrays_.data());
  const Symbol s = plan_->get<Section::SYMBOL>(symbol);
  fail(error, Status::OUT_OF_BOUNDS,
       "index " + std::to_string(at) + " is outside array '" + std::string(plan_->string(s.name)) +
           "' of length " + std::to_string(loop.columns->shape[0]));
  error->symbol = symbol;
  return false;
}

bool BoundPlan::load(u32 site, const Region& region, i64* out, Error* error) const {
  BoundArray element;
  element.data = reinterpret_cast<const void*>(region.byte_lo);
  element.dtype = tensors_[region.tensor].dtype;
  *out = element.at(0, 0);
  if (element.dtype != DType::U64 || *out >= 0) return true;
  fail(error, Status::ARITHMETIC, "control reads a value beyond 64 signed bits");
  error->site = site;
  return false;
}

}  // namespace ptowsp
