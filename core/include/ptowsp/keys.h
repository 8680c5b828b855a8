// Keys of a schedule: pure expressions of a task's site, loop indices and number.
//
// Prepared once per run: names of loops become levels, site by site. Immutable afterwards; read by
// whoever generates.
#pragma once

#include <string_view>
#include <vector>

#include "ptowsp/bind.h"

namespace ptowsp {

// The level of the innermost loop of that name around a site, or kNone.
u32 loop_level(const PlanView& plan, u32 site, std::string_view name);

class Keys {
 public:
  // Most keys are base + factor * index: known once, and no walk for each task. All numbers on the
  // way are small, so nothing can overflow.
  static constexpr u32 kNoLine = kNone - 1;
  struct Line {
    i64 base = 0;
    i64 factor = 0;
    u32 level = kNoLine;  // of the index; kNone: a constant; kNoLine: not of that form

    // False: the walk has to find it.
    bool value(const i64* vars, i64* out) const {
      const i64 index = level < kNoLine ? vars[level] : 0;
      if (level == kNoLine || !is_small(index)) return false;
      *out = base + factor * index;
      return true;
    }
  };

  explicit Keys(const PlanView& plan);

  // The value of SCHEDULE_EXPR `node` for a task. False: overflow or division by zero.
  bool value(u32 node, u32 site, const i64* vars, u64 ordinal, i64* out, Error* error) const {
    return line(node, site).value(vars, out) || compute(node, site, vars, ordinal, out, error);
  }
  const Line& line(u32 node, u32 site) const { return lines_[node * sites_ + site]; }

  // False if a site lacks a loop that the key names and has no value for that: `error` says which.
  bool check(u32 node, Error* error) const;

 private:
  static bool is_small(i64 v) { return v >= -(1 << 30) && v <= (1 << 30); }
  Line find_line(u32 node, u32 site) const;
  bool compute(u32 node, u32 site, const i64* vars, u64 ordinal, i64* out, Error* error) const;
  u32 level(u32 node, u32 site) const { return levels_[node * sites_ + site]; }
  bool binary(const Expr& e, u32 site, const i64* vars, u64 ordinal, i64* out, Error* error) const;

  const PlanView& plan_;
  std::vector<Expr> nodes_;
  std::vector<u32> levels_;  // by node and site, of TASK_AXIS nodes: loop level, or kNone
  std::vector<Line> lines_;  // by node and site
  u32 sites_;
};

}  // namespace ptowsp
