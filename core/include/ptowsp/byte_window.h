// The window that counts bytes: the written regions of live tasks together never exceed a limit.
//
// What a task writes is added where its record is made and taken off where the record is collected,
// so room comes back in any order. Where the extents of all written regions of a site are known
// when the plan is bound, its tasks cost one addition; else their regions are looked at.
//
// Thread roles: everything by the holder of the generation token.
#pragma once

#include <algorithm>
#include <vector>

#include "ptowsp/bind.h"

namespace ptowsp {

class ByteWindow {
 public:
  ByteWindow(const BoundPlan& plan, u64 limit, u32 slots);

  // Whether the regions of the site's tasks are needed to say what one of them writes.
  bool needs_regions(u32 site) const { return varies_[site] != 0; }
  // What a task writes. `regions` are those of its accesses, if they are needed.
  u64 bytes(u32 site, const Region* regions) const {
    return needs_regions(site) ? written(site, regions) : fixed_[site];
  }

  // Whether such a task may be made now; else it is the one that waits.
  bool fits(u64 bytes) {
    waiting_ = bytes <= limit_ - live_ ? 0 : bytes;
    return waiting_ == 0;
  }
  // How many tasks of equal size there is room for, up to `most`.
  u32 room(u64 bytes, u32 most) const {
    return bytes == 0 ? most : static_cast<u32>(std::min<u64>((limit_ - live_) / bytes, most));
  }
  void take(u32 slot, u64 bytes) {
    taken_[slot] = bytes;
    live_ += bytes;
    high_ = std::max(high_, live_);
  }
  void give(u32 slot) { live_ -= taken_[slot]; }

  // Whether the task that was refused last would fit now.
  bool has_room() const { return waiting_ <= limit_ - live_; }
  // Whether it never will.
  bool never_fits() const { return waiting_ > limit_; }
  u64 waiting() const { return waiting_; }
  u64 limit() const { return limit_; }
  u64 high() const { return high_; }

 private:
  u64 written(u32 site, const Region* regions) const;

  const BoundPlan& plan_;
  const u64 limit_;
  std::vector<u64> fixed_;  // by site
  std::vector<u8> varies_;  // by site
  std::vector<u64> taken_;  // by slot
  u64 live_ = 0;
  u64 high_ = 0;
  u64 waiting_ = 0;
};

}  // namespace ptowsp
