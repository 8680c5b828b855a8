// Ranges of integers, used to prove bounds before a run. Private to the binder.
#pragma once

#include <algorithm>

#include "ptowsp/plan.h"

namespace ptowsp {

__extension__ using i128 = __int128;

// Every value lies in [lo, hi]; lo > hi says that there is no value at all. Limits are kept inside
// what i128 can multiply without overflow by saturating far outside the i64 range.
struct Interval {
  i128 lo = -kFar;
  i128 hi = kFar;

  static constexpr i128 kFar = static_cast<i128>(1) << 100;
  static constexpr i128 kSmall = static_cast<i128>(1) << 26;

  static Interval point(i128 v) { return {v, v}; }
  static Interval unknown() { return {}; }
  bool empty() const { return lo > hi; }
  // Its product with any interval fits.
  bool small() const { return lo >= -kSmall && hi <= kSmall; }
  bool within_i64() const { return lo >= INT64_MIN && hi <= INT64_MAX; }

  Interval clamped() const { return {std::clamp(lo, -kFar, kFar), std::clamp(hi, -kFar, kFar)}; }
};

inline Interval operator+(Interval a, Interval b) {
  return Interval{a.lo + b.lo, a.hi + b.hi}.clamped();
}

inline Interval operator-(Interval a, Interval b) {
  return Interval{a.lo - b.hi, a.hi - b.lo}.clamped();
}

inline Interval operator*(Interval a, Interval b) {
  const bool fits = (a.within_i64() && b.within_i64()) || a.small() || b.small();
  if (!fits) return Interval::unknown();
  const i128 c[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  const auto [lo, hi] = std::minmax_element(c, c + 4);
  return Interval{*lo, *hi}.clamped();
}

inline i128 floor_div(i128 a, i128 b) {
  const i128 q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

}  // namespace ptowsp
