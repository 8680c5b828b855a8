// Which accesses of a bound plan have to be tracked, and how: decided once per run.
//
//   not at all  nothing in the plan writes the memory behind it, or no two tasks ever touch the
//   same
//               tile of it
//   tile        all accesses of its tensor are equal, aligned tiles: a tile number says everything
//   box         anything else: regions are compared
#pragma once

#include <vector>

#include "ptowsp/bind.h"

namespace ptowsp {

struct TrackedAccess {
  u32 argument = 0;  // position among the site's tensor arguments
  bool write = false;
  bool tile = false;
  bool affine = false;  // the tile number is affine; else it is made from the region
  u32 form = 0;         // affine: where its base and coefficients are
};

class Tracking {
 public:
  explicit Tracking(const BoundPlan& plan);

  const std::vector<TrackedAccess>& site(u32 s) const { return sites_[s]; }
  // The tile number of an affine access below that many loops.
  u64 number(const TrackedAccess& a, const i64* loops, u32 level) const {
    const i64* form = &forms_[a.form];
    i64 v = form[0];
    each_level(level, [&](u32 l) { v += form[1 + l] * loops[l]; });
    return static_cast<u64>(v);
  }
  // How far the tile number of an affine access moves with the innermost of `level` loops.
  i64 step(const TrackedAccess& a, u32 level) const {
    return level > 0 ? forms_[a.form + level] : 0;
  }
  // Whether the site's regions are needed to submit a task: to check bounds, or to compare boxes.
  bool needs_regions(u32 s) const { return needs_regions_[s] != 0; }
  u32 most_tiles() const { return most_tiles_; }  // tile accesses of one site
  u64 numbers() const { return numbers_; }        // all tile numbers are smaller
  bool any_box() const { return any_box_; }

  // The tile number of a region, for tile accesses that are not affine.
  u64 tile_of(const Region& r) const;

 private:
  // How a tensor is cut into tiles.
  struct Tiling {
    bool tiled = false;
    u64 first = 0;  // number of its first tile: tensors do not share numbers
    u64 count = 0;
    i64 offset[kMaxRank] = {};
    i64 size[kMaxRank] = {};
    i64 stride[kMaxRank] = {};  // of tile numbers
  };

  bool fits(u32 access, const BoundTensor& tensor, Tiling* tiling, bool first) const;
  void find_tilings();
  void number_tiles();
  bool is_tracked(const BoundSite& site, u32 access) const;
  void add_site(u32 s);
  bool make_number(const BoundAccess& a, const Tiling& t, Affine* out) const;
  bool touched_once(const BoundSite& site, const Affine& number) const;

  const BoundPlan& plan_;
  std::vector<u8> written_;      // by storage
  std::vector<u32> uses_;        // by storage: accesses of all sites
  std::vector<Tiling> tilings_;  // by geometry (a TENSOR index)
  std::vector<std::vector<TrackedAccess>> sites_;
  std::vector<i64> forms_;  // of each affine access: base, then a coefficient per level
  std::vector<u8> needs_regions_;
  u64 numbers_ = 0;
  u32 most_tiles_ = 0;
  bool any_box_ = false;
};

}  // namespace ptowsp
