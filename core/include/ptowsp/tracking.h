// Which accesses of a bound plan have to be tracked, and how: decided once per run.
//
//   not at all  nothing in the plan writes the memory behind it, no two tasks ever touch the same
//               tile of it, or the plan proves that those which touch it never meet
//   tile        all accesses of its tensor consist of a few tiles of one grid, the coarsest that
//               fits them all: tile numbers say everything. A row and a column of a tensor are such
//               accesses, and so are windows that overlap in part.
//               Where only equal regions match, an access must be one tile.
//   box         anything else: regions are compared
//
// Where dependences are explicit, only commutative updates are tracked.
#pragma once

#include <vector>

#include "ptowsp/bind.h"
#include "ptowsp/overlap.h"

namespace ptowsp {

struct TrackedAccess {
  u32 argument = 0;  // position among the site's tensor arguments
  bool write = false;
  bool tile = false;
  bool affine = false;  // the tile number is affine; else it is made from the region
  u32 form = 0;         // affine: where its base and coefficients are
  u32 deltas = 0;       // tile: where the distances of its tiles from the first one are
  u32 num_tiles = 1;
};

class Tracking {
 public:
  // `proofs`: what the plan proves independent is not tracked.
  Tracking(const BoundPlan& plan, Matching matching, bool proofs = false);

  const std::vector<TrackedAccess>& site(u32 s) const { return sites_[s]; }
  // The tile number of an affine access of a site.
  u64 number(const TrackedAccess& a, const i64* vars, const BoundSite& site) const {
    const i64* form = &forms_[a.form];
    i64 v = form[0];
    each_level(site.level, [&](u32 l) { v += form[1 + l] * vars[l]; });
    for (u32 r = 0; r < site.num_registers; ++r) {
      v += form[1 + site.level + r] * vars[site.registers[r]];
    }
    return static_cast<u64>(v);
  }
  // Distances of an access's tiles from its first one, num_tiles of them; the first is 0.
  const i64* deltas(const TrackedAccess& a) const { return &deltas_[a.deltas]; }
  // How far the tile number of an affine access moves with the innermost of `level` loops.
  i64 step(const TrackedAccess& a, u32 level) const {
    return level > 0 ? forms_[a.form + level] : 0;
  }
  // Entries of one task of the site in the maps.
  u32 entries(u32 s) const { return entries_[s]; }
  // Whether the site's regions are needed to submit a task: to check bounds, or to compare boxes.
  bool needs_regions(u32 s) const { return needs_regions_[s] != 0; }
  u32 most_tiles() const { return most_tiles_; }  // tile accesses of one site
  u64 numbers() const { return numbers_; }        // all tile numbers are smaller
  bool any_box() const { return any_box_; }

  // The number of a region's first tile, for tile accesses that are not affine.
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

  bool refine(u32 access, Tiling* tiling, bool first) const;
  bool fits(u32 access, const Tiling& tiling) const;
  void find_tilings();
  void number_tiles();
  void read_proofs();
  bool proved_apart(const BoundSite& site, u32 storage) const;
  bool is_tracked(const BoundSite& site, u32 access) const;
  void add_site(u32 s);
  bool make_number(const BoundAccess& a, const Tiling& t, Affine* out) const;
  void make_deltas(const BoundAccess& a, const Tiling& t, TrackedAccess* out);
  bool touched_once(const BoundSite& site, const Affine& number) const;

  const BoundPlan& plan_;
  const bool updates_only_;
  const i64 most_in_one_;    // tiles of one access
  std::vector<u8> written_;  // by storage
  std::vector<u32> uses_;    // by storage: accesses of all sites
  struct Use {
    u32 site;
    bool write;
  };
  std::vector<u8> independent_;          // by pair of sites: proved never to meet; empty: no proofs
  std::vector<std::vector<Use>> users_;  // by storage, with proofs; none where they do not count
  std::vector<Tiling> tilings_;          // by geometry (a TENSOR index)
  std::vector<std::vector<TrackedAccess>> sites_;
  // Of each affine access: base, then a coefficient per level, then one per register of the site.
  std::vector<i64> forms_;
  std::vector<i64> deltas_;
  std::vector<u8> needs_regions_;
  std::vector<u32> entries_;
  u64 numbers_ = 0;
  u32 most_tiles_ = 0;
  bool any_box_ = false;
};

}  // namespace ptowsp
