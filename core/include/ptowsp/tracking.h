// Which accesses of a bound plan have to be tracked, and how: decided once per run.
//
//   not at all  nothing in the plan writes the memory behind it
//   tile        all accesses of its tensor are equal, aligned tiles: a tile number says everything
//   box         anything else: regions are compared
#pragma once

#include <vector>

#include "ptowsp/bind.h"

namespace ptowsp {

struct TrackedAccess {
  u32 access = 0;    // in BoundPlan
  u32 argument = 0;  // position among the site's tensor arguments
  bool write = false;
  bool tile = false;
  bool affine = false;  // the tile number is `number`; else it is made from the region
  Affine number;
};

class Tracking {
 public:
  explicit Tracking(const BoundPlan& plan);

  const std::vector<TrackedAccess>& site(u32 s) const { return sites_[s]; }
  // Whether the site's regions are needed to submit a task: to check bounds, or to compare boxes.
  bool needs_regions(u32 s) const { return needs_regions_[s] != 0; }
  u32 most_tiles() const { return most_tiles_; }  // tile accesses of one site
  bool any_box() const { return any_box_; }

  // The tile number of a region, for tile accesses that are not affine.
  u64 tile_of(const Region& r) const;

 private:
  // How a tensor is cut into tiles.
  struct Tiling {
    bool tiled = false;
    u64 first = 0;  // number of its first tile: tensors do not share numbers
    i64 offset[kMaxRank] = {};
    i64 size[kMaxRank] = {};
    i64 stride[kMaxRank] = {};  // of tile numbers
  };

  bool fits(u32 access, const BoundTensor& tensor, Tiling* tiling, bool first) const;
  void find_tilings();
  void add_site(u32 s);
  bool make_number(const BoundAccess& a, const Tiling& t, Affine* out) const;

  const BoundPlan& plan_;
  std::vector<u8> written_;      // by storage
  std::vector<Tiling> tilings_;  // by geometry (a TENSOR index)
  std::vector<std::vector<TrackedAccess>> sites_;
  std::vector<u8> needs_regions_;
  u32 most_tiles_ = 0;
  bool any_box_ = false;
};

}  // namespace ptowsp
