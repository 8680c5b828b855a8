// Whether two bound plans would make the same tasks, with the same proofs, on the same memory.
#pragma once

#include <algorithm>
#include <vector>

#include "harness.h"
#include "ptowsp/bind.h"

namespace ptowsp::test {

inline bool same_affine(const Affine& a, const Affine& b) {
  return a.base == b.base && a.top == b.top && a.num_regs == b.num_regs &&
         std::equal(a.coef, a.coef + kMaxLoops, b.coef);
}

inline bool same_expr(const BoundExpr& a, const BoundExpr& b) {
  return a.node == b.node && a.affine == b.affine && (!a.affine || same_affine(*a.form, *b.form));
}

inline bool same_tensor(const BoundTensor& a, const BoundTensor& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.geometry == b.geometry &&
         a.by_bytes == b.by_bytes && a.read_only == b.read_only &&
         std::equal(a.shape, a.shape + kMaxRank, b.shape) &&
         std::equal(a.stride, a.stride + kMaxRank, b.stride) &&
         std::equal(a.cell, a.cell + kMaxRank, b.cell);
}

inline bool same_region(const Region& a, const Region& b) {
  return a.geometry == b.geometry && a.by_bytes == b.by_bytes && a.empty == b.empty &&
         a.byte_lo == b.byte_lo && a.byte_hi == b.byte_hi &&
         std::equal(a.start, a.start + a.rank, b.start) &&
         std::equal(a.extent, a.extent + a.rank, b.extent);
}

// By SYMBOL.
inline std::vector<ArrayRange> expected_by(const BoundPlan& plan) {
  std::vector<ArrayRange> out;
  for (u32 s = 0; s < plan.plan().count(Section::SYMBOL); ++s) {
    out.push_back(plan.array(s).expected);
  }
  return out;
}

inline void check_same_site(const BoundPlan& x, const BoundPlan& y, u32 s, const i64* vars) {
  const BoundSite& a = x.sites()[s];
  const BoundSite& b = y.sites()[s];
  CHECK_EQ(a.simple, b.simple);
  CHECK_EQ(a.narrow, b.narrow);
  CHECK_EQ(a.num_checked, b.num_checked);
  CHECK(std::equal(a.reach, a.reach + kMaxLoops, b.reach));
  Error error;
  for (u32 p = 0; p < a.num_accesses; ++p) {
    const u32 i = x.site_access(a, p);
    const BoundAccess& access = x.access(i);
    CHECK_EQ(access.checked, y.access(i).checked);
    CHECK_EQ(access.limited, y.access(i).limited);
    CHECK(same_affine(x.offset(i), y.offset(i)));
    for (u32 d = 0; d < access.rank; ++d) {
      const BoundDim& mine = x.dim(access.dims + d);
      const BoundDim& other = y.dim(y.access(i).dims + d);
      CHECK(same_expr(mine.start, other.start) && same_expr(mine.extent, other.extent) &&
            same_expr(mine.step, other.step));
    }
    Region mine;
    Region other;
    const bool there = x.region(i, vars, &mine, &error);
    CHECK_EQ(there, y.region(i, vars, &other, &error));
    if (there) CHECK(same_region(mine, other));
  }
}

// Regions and extents are compared at the loop indices 2 and 1.
inline void check_same(const BoundPlan& x, const BoundPlan& y) {
  CHECK_EQ(x.num_storages(), y.num_storages());
  for (u32 t = 0; t < x.tensors().size(); ++t) {
    CHECK(same_tensor(x.tensors()[t], y.tensors()[t]));
    for (u32 u = 0; u < t; ++u) {
      CHECK_EQ(x.tensors()[t].storage == x.tensors()[u].storage,
               y.tensors()[t].storage == y.tensors()[u].storage);
    }
  }
  CHECK_EQ(x.independent_axis(), y.independent_axis());
  CHECK_EQ(x.accesses_checked(), y.accesses_checked());
  CHECK_EQ(x.accesses_proved(), y.accesses_proved());
  const i64 vars[kMaxVars] = {2, 1};
  for (u32 s = 0; s < x.sites().size(); ++s) check_same_site(x, y, s, vars);
  for (u32 axis = 0; axis < x.plan().count(Section::AXIS); ++axis) {
    CHECK(same_expr(x.loop(axis).start, y.loop(axis).start));
    CHECK(same_expr(x.loop(axis).extent, y.loop(axis).extent));
    i64 extents[2] = {};
    Error error;
    CHECK_EQ(x.eval(x.loop(axis).extent, vars, &extents[0], &error),
             y.eval(y.loop(axis).extent, vars, &extents[1], &error));
    CHECK_EQ(extents[0], extents[1]);
  }
  if (x.independent_axis() == kNone) return;
  const BoundLoop& outer = x.loop(x.independent_axis());
  for (i64 i = 0; i <= outer.extent.form->base; ++i) {
    const i64 index = outer.start.form->base + i;
    u64 before[2] = {};
    CHECK_EQ(x.tasks_before(index, &before[0]), y.tasks_before(index, &before[1]));
    CHECK_EQ(before[0], before[1]);
  }
}

}  // namespace ptowsp::test
