// prefetch(axis, depth): before a task runs, the lines that the task `depth` iterations further
// along an axis will read are asked for.
//
// What is known of that task are its loop indices: those of this one but for the axis. If the loops
// have such an iteration, its read regions are worked out and prefetched as far as they lie in
// their tensors. Regions that depend on what control computes in that iteration (slots, lets,
// temporaries), and pages whose table tasks write, are left out.
//
// Thread roles: immutable, read by all workers; each has a Prefetched of its own.
#pragma once

#include <vector>

#include "ptowsp/bind.h"
#include "ptowsp/schedule.h"

namespace ptowsp {

struct Prefetched {
  u64 tasks = 0;  // tasks before which something was prefetched
  u64 bytes = 0;
  Error error;  // why a region has no value, which nobody asks; made once, as that costs time
};

class Prefetcher {
 public:
  // Per task; more would push out what the task itself needs.
  static constexpr u64 kMostBytes = 16 * 1024;

  Prefetcher(const BoundPlan& plan, const ScheduleConfig& config);

  // Before a task with these loop indices and registers.
  void ahead(u32 site, const i64* loops, Prefetched* out) const;

 private:
  struct Step {
    u32 level;
    i64 depth;
  };
  struct Site {
    std::vector<Step> steps;
    std::vector<u32> loops;     // by level: AXIS
    std::vector<u32> accesses;  // that can be prefetched
  };

  bool moves(const Site& site, u32 level) const;
  bool foreseen(const BoundAccess& access) const;
  bool exists(const Site& site, u32 level, i64* vars, Error* error) const;
  u64 fetch(u32 access, const i64* vars, u64 most, Error* error) const;
  u64 fetch_pages(const Region& region, u64 most, Error* error) const;

  const BoundPlan& plan_;
  std::vector<u8> changes_;  // by EXPR: its value may differ from iteration to iteration
  std::vector<Site> sites_;  // by SITE
};

}  // namespace ptowsp
