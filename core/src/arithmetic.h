// Operators of expressions on 64-bit integers, every error defined. Private to the core's sources.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "ptowsp/error.h"
#include "ptowsp/plan.h"

namespace ptowsp {

inline bool fail(Error* error, Status status, std::string message) {
  *error = Error::make(status, std::move(message));
  return false;
}

inline bool floor_div(i64 a, i64 b, i64* quotient, i64* remainder, Error* error) {
  if (b == 0) return fail(error, Status::ARITHMETIC, "division by zero in an index expression");
  if (b == -1) {  // INT64_MIN / -1 overflows
    if (__builtin_sub_overflow(i64{0}, a, quotient))
      return fail(error, Status::ARITHMETIC, "integer overflow");
    *remainder = 0;
    return true;
  }
  *quotient = a / b;
  *remainder = a % b;
  if (*remainder != 0 && ((*remainder < 0) != (b < 0))) {
    *quotient -= 1;
    *remainder += b;
  }
  return true;
}

inline i64 compare(ExprOp op, i64 a, i64 b) {
  switch (op) {
    case ExprOp::EQ:
      return a == b ? 1 : 0;
    case ExprOp::NE:
      return a != b ? 1 : 0;
    case ExprOp::LT:
      return a < b ? 1 : 0;
    case ExprOp::LE:
      return a <= b ? 1 : 0;
    case ExprOp::GT:
      return a > b ? 1 : 0;
    default:
      return a >= b ? 1 : 0;
  }
}

// The value of a binary operator.
inline bool apply(ExprOp op, i64 a, i64 b, i64* out, Error* error) {
  i64 other = 0;
  bool overflow = false;
  switch (op) {
    case ExprOp::ADD:
      overflow = __builtin_add_overflow(a, b, out);
      break;
    case ExprOp::SUB:
      overflow = __builtin_sub_overflow(a, b, out);
      break;
    case ExprOp::MUL:
      overflow = __builtin_mul_overflow(a, b, out);
      break;
    case ExprOp::FLOORDIV:
      return floor_div(a, b, out, &other, error);
    case ExprOp::MOD:
      return floor_div(a, b, &other, out, error);
    case ExprOp::MIN:
      *out = std::min(a, b);
      break;
    case ExprOp::MAX:
      *out = std::max(a, b);
      break;
    case ExprOp::AND:
      *out = (a != 0 && b != 0) ? 1 : 0;
      break;
    case ExprOp::OR:
      *out = (a != 0 || b != 0) ? 1 : 0;
      break;
    case ExprOp::EQ:
    case ExprOp::NE:
    case ExprOp::LT:
    case ExprOp::LE:
    case ExprOp::GT:
    case ExprOp::GE:
      *out = compare(op, a, b);
      break;
    default:
      return fail(error, Status::UNSUPPORTED, "an expression that this target does not evaluate");
  }
  if (overflow) return fail(error, Status::ARITHMETIC, "integer overflow in an index expression");
  return true;
}

// The remainder with the sign of the divisor, which is positive.
inline i64 floor_mod(i64 a, i64 b) {
  const i64 r = a % b;
  return r < 0 ? r + b : r;
}

}  // namespace ptowsp
