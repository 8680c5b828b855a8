// Whether two regions share an element. Boxes of one tensor are compared exactly, strides included;
// regions of different tensors over the same bytes conservatively, by byte interval.
#pragma once

#include <algorithm>
#include <numeric>

#include "ptowsp/bind.h"

namespace ptowsp {

// Whether {a, a+p, ...} (n terms) and {b, b+q, ...} (m terms) have a common element; p, q >= 1.
inline bool progressions_meet(i64 a, i64 n, i64 p, i64 b, i64 m, i64 q) {
  if (n <= 0 || m <= 0) return false;
  const i64 a_last = a + (n - 1) * p;
  const i64 b_last = b + (m - 1) * q;
  const i64 lo = std::max(a, b);
  const i64 hi = std::min(a_last, b_last);
  if (lo > hi) return false;
  if (p == 1 && q == 1) return true;
  const i64 g = std::gcd(p, q);
  if ((b - a) % g != 0) return false;
  // Smallest common element at or above lo: step through the coarser progression, whose residues
  // modulo the finer one repeat after finer / g terms.
  const i64 coarse = std::max(p, q);
  const i64 fine = std::min(p, q);
  const i64 coarse_start = p >= q ? a : b;
  const i64 fine_start = p >= q ? b : a;
  const i64 skip = lo > coarse_start ? (lo - coarse_start + coarse - 1) / coarse : 0;
  i64 x = coarse_start + skip * coarse;
  for (i64 k = 0; k < fine / g && x <= hi; ++k, x += coarse) {
    if ((x - fine_start) % fine == 0) return true;
  }
  return false;
}

inline bool same_box(const Region& a, const Region& b) {
  if (a.geometry != b.geometry || a.rank != b.rank) return false;
  for (u32 d = 0; d < a.rank; ++d) {
    if (a.start[d] != b.start[d] || a.extent[d] != b.extent[d]) return false;
    if (a.step[d] != b.step[d] && a.extent[d] > 1) return false;
  }
  return true;
}

// Overlap of two regions that are both not empty.
inline bool overlap(const Region& a, const Region& b) {
  if (a.storage != b.storage) return false;
  if (a.geometry != b.geometry || a.by_bytes) {
    return a.byte_lo < b.byte_hi && b.byte_lo < a.byte_hi;
  }
  for (u32 d = 0; d < a.rank; ++d) {
    if (!progressions_meet(a.start[d], a.extent[d], a.step[d], b.start[d], b.extent[d], b.step[d]))
      return false;
  }
  return true;
}

// Whether every element of `inner` is one of `outer`, as far as a simple test can tell.
inline bool covers(const Region& outer, const Region& inner) {
  if (outer.geometry != inner.geometry) return false;
  for (u32 d = 0; d < outer.rank; ++d) {
    const i64 inner_last = inner.start[d] + (inner.extent[d] - 1) * inner.step[d];
    const i64 outer_last = outer.start[d] + (outer.extent[d] - 1) * outer.step[d];
    if (inner.start[d] < outer.start[d] || inner_last > outer_last) return false;
    if (outer.step[d] == 1) continue;
    if ((inner.start[d] - outer.start[d]) % outer.step[d] != 0) return false;
    if (inner.extent[d] > 1 && inner.step[d] % outer.step[d] != 0) return false;
  }
  return true;
}

// What makes two accesses depend on each other. Explicit: nothing, but that updates of one place
// are kept apart: their order is free, so no program could say it.
enum class Matching : u8 { Exact, Overlap, Explicit };

inline bool conflicts(const Region& a, const Region& b, Matching matching) {
  if (!writes(a.mode) && !writes(b.mode)) return false;
  // Two ACCUM accesses may come in any order, but never at the same time: both read and write. Here
  // they keep program order, so that floating-point sums have the same bits in every run.
  return matching == Matching::Exact ? same_box(a, b) : overlap(a, b);
}

}  // namespace ptowsp
