#include "ptowsp/tracking.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace ptowsp {

Tracking::Tracking(const BoundPlan& plan, Matching matching, bool proofs)
    : plan_(plan),
      updates_only_(matching == Matching::Explicit),
      most_in_one_(matching == Matching::Exact ? 1 : 128),
      written_(plan.num_storages(), 0),
      uses_(plan.num_storages(), 0),
      tilings_(plan.tensors().size()) {
  for (const BoundSite& site : plan.sites()) {
    for (u32 p = 0; p < site.num_accesses; ++p) {
      const BoundAccess& a = plan.access(plan.site_access(site, p));
      const u32 storage = plan.tensors()[a.tensor].storage;
      if (writes(a.mode)) written_[storage] = 1;
      uses_[storage] += 1;
    }
  }
  if (proofs) read_proofs();
  find_tilings();
  number_tiles();
  sites_.resize(plan.sites().size());
  needs_regions_.resize(plan.sites().size());
  entries_.resize(plan.sites().size());
  for (u32 s = 0; s < sites_.size(); ++s) add_site(s);
}

// Makes the grid as fine as the access needs: every tile boundary of it must be one of the grid.
// False if it is not made of whole tiles of any grid.
bool Tracking::refine(u32 access, Tiling* tiling, bool first) const {
  const BoundAccess& a = plan_.access(access);
  for (u32 d = 0; d < a.rank; ++d) {
    const BoundDim& dim = plan_.dim(a.dims + d);
    if (!dim.extent.constant() || !dim.step.constant()) return false;
    const i64 extent = dim.extent.form->base;
    if (extent < 1 || (extent > 1 && dim.step.form->base != 1)) return false;
    if (first) {
      tiling->size[d] = extent;
      tiling->offset[d] = dim.start.affine ? dim.start.form->base : 0;
    }
    i64 size = std::gcd(tiling->size[d], extent);
    if (!dim.start.affine) size = 1;  // it may begin anywhere
    if (dim.start.affine) size = std::gcd(size, dim.start.form->base - tiling->offset[d]);
    for (u32 l = 0; dim.start.affine && l < dim.start.form->top; ++l) {
      size = std::gcd(size, dim.start.form->coef[l]);
    }
    for (u32 r = 0; dim.start.affine && r < dim.start.form->num_regs; ++r) {
      size = std::gcd(size, dim.start.form->reg_coef[r]);
    }
    tiling->size[d] = size;
  }
  return true;
}

// Whether the access is few enough tiles of the grid.
bool Tracking::fits(u32 access, const Tiling& tiling) const {
  const BoundAccess& a = plan_.access(access);
  i64 tiles = 1;
  for (u32 d = 0; d < a.rank; ++d) {
    tiles *= plan_.dim(a.dims + d).extent.form->base / tiling.size[d];
    if (tiles > most_in_one_) return false;
  }
  return true;
}

void Tracking::find_tilings() {
  std::vector<u32> geometry(plan_.num_storages(), kNone);  // the only one of each storage
  std::vector<u8> mixed(plan_.num_storages(), 0);
  const auto each_access = [this](auto fn) {
    for (const BoundSite& site : plan_.sites()) {
      for (u32 p = 0; p < site.num_accesses; ++p) {
        const u32 access = plan_.site_access(site, p);
        fn(access, plan_.tensors()[plan_.access(access).tensor]);
      }
    }
  };
  each_access([&](u32, const BoundTensor& t) {
    if (geometry[t.storage] == kNone) geometry[t.storage] = t.geometry;
    if (geometry[t.storage] != t.geometry || t.by_bytes) mixed[t.storage] = 1;
  });
  std::vector<u8> seen(tilings_.size(), 0);
  each_access([&](u32 access, const BoundTensor& t) {
    Tiling& tiling = tilings_[t.geometry];
    const bool first = seen[t.geometry] == 0;
    const bool ok = mixed[t.storage] == 0 && refine(access, &tiling, first);
    tiling.tiled = ok && (first || tiling.tiled);
    seen[t.geometry] = 1;
  });
  each_access([&](u32 access, const BoundTensor& t) {
    Tiling& tiling = tilings_[t.geometry];
    tiling.tiled = tiling.tiled && fits(access, tiling);
  });
  for (u32 g = 0; g < tilings_.size(); ++g) {
    Tiling& tiling = tilings_[g];
    if (!tiling.tiled) continue;
    const BoundTensor& t = plan_.tensors()[g];
    i64 count = 1;
    for (u32 d = t.rank; d-- > 0;) {
      const i64 size = tiling.size[d];
      tiling.offset[d] = ((tiling.offset[d] % size) + size) % size;
      tiling.stride[d] = count;
      count *= t.shape[d] / size + 2;  // a partial tile at either end
    }
    tiling.count = static_cast<u64>(count);
  }
}

// Tile numbers are dense, so only tensors that are tracked get some.
void Tracking::number_tiles() {
  std::vector<u8> done(tilings_.size(), 0);
  for (const BoundSite& site : plan_.sites()) {
    for (u32 p = 0; p < site.num_accesses; ++p) {
      const u32 access = plan_.site_access(site, p);
      const u32 g = plan_.tensors()[plan_.access(access).tensor].geometry;
      if (done[g] != 0 || !tilings_[g].tiled || !is_tracked(site, access)) continue;
      tilings_[g].first = numbers_;
      numbers_ += tilings_[g].count;
      done[g] = 1;
    }
  }
}

// What DEPS says of pairs of sites, and who uses each storage. A program that is too large for a
// square of its sites has fewer proofs than sites anyway. Proofs take tensors for different memory,
// and know nothing of copies of temporaries that come round.
void Tracking::read_proofs() {
  constexpr std::size_t kMostSites = 1024;
  const PlanView& plan = plan_.plan();
  const std::size_t n = plan_.sites().size();
  if (n > kMostSites || plan.count(Section::DEPS) == 0) return;
  independent_.assign(n * n, 0);
  for (u32 i = 0; i < plan.count(Section::DEPS); ++i) {
    const Deps d = plan.get<Section::DEPS>(i);
    const bool apart = static_cast<ProofKind>(d.proof) == ProofKind::INDEPENDENT;
    independent_[d.source * n + d.sink] = independent_[d.sink * n + d.source] = apart ? 1 : 0;
  }
  users_.resize(plan_.num_storages());
  std::vector<u32> only(plan_.num_storages(), kNone);  // the tensor of each storage
  std::vector<u8> mixed(plan_.num_storages(), 0);
  for (u32 s = 0; s < n; ++s) {
    for (u32 p = 0; p < plan_.sites()[s].num_accesses; ++p) {
      const BoundAccess& a = plan_.access(plan_.site_access(plan_.sites()[s], p));
      const BoundTensor& t = plan_.tensors()[a.tensor];
      if (only[t.storage] == kNone) only[t.storage] = a.tensor;
      if (only[t.storage] != a.tensor || t.by_bytes || t.alloc != kNone) mixed[t.storage] = 1;
      users_[t.storage].push_back({s, writes(a.mode)});
    }
  }
  for (u32 i = 0; i < users_.size(); ++i) {
    if (mixed[i] != 0) users_[i].clear();
  }
}

// Whether tasks of the site never meet others in this storage.
bool Tracking::proved_apart(const BoundSite& site, u32 storage) const {
  if (independent_.empty() || users_[storage].empty()) return false;
  const std::vector<Use>& users = users_[storage];
  const std::size_t n = plan_.sites().size();
  const auto s = static_cast<u32>(&site - plan_.sites().data());
  const bool own_writes =
      std::any_of(users.begin(), users.end(), [&](Use u) { return u.site == s && u.write; });
  return std::all_of(users.begin(), users.end(), [&](Use u) {
    return (!own_writes && !u.write) || independent_[s * n + u.site] != 0;
  });
}

bool Tracking::is_tracked(const BoundSite& site, u32 access) const {
  const BoundAccess& a = plan_.access(access);
  const BoundTensor& t = plan_.tensors()[a.tensor];
  if (written_[t.storage] == 0) return false;
  if (updates_only_ && a.mode != static_cast<u32>(AccessMode::ACCUM)) return false;
  if (proved_apart(site, t.storage)) return false;
  Affine number;
  const bool alone = uses_[t.storage] == 1 && tilings_[t.geometry].tiled &&
                     make_number(a, tilings_[t.geometry], &number);
  if (!alone || !touched_once(site, number)) return true;
  for (u32 d = 0; d < a.rank; ++d) {  // several tiles, of which others may have some
    if (plan_.dim(a.dims + d).extent.form->base != tilings_[t.geometry].size[d]) return true;
  }
  return false;
}

void Tracking::add_site(u32 s) {
  const BoundSite& site = plan_.sites()[s];
  u32 tiles = 0;
  needs_regions_[s] = site.num_checked > 0 ? 1 : 0;
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 access = plan_.site_access(site, p);
    const BoundAccess& a = plan_.access(access);
    const BoundTensor& t = plan_.tensors()[a.tensor];
    if (!is_tracked(site, access)) continue;
    TrackedAccess out;
    Affine number;
    out.argument = p;
    out.write = writes(a.mode);
    out.tile = tilings_[t.geometry].tiled;
    out.affine = out.tile && make_number(a, tilings_[t.geometry], &number);
    if (out.affine) {
      out.form = static_cast<u32>(forms_.size());
      forms_.push_back(number.base);
      forms_.insert(forms_.end(), number.coef, number.coef + site.level);
      for (u32 r = 0; r < site.num_registers; ++r) {
        forms_.push_back(number.coef_of(site.registers[r]));
      }
    }
    if (out.tile) make_deltas(a, tilings_[t.geometry], &out);
    tiles += out.tile ? out.num_tiles : 0;
    entries_[s] += out.tile ? out.num_tiles : 1;
    if (!out.affine) needs_regions_[s] = 1;
    any_box_ = any_box_ || !out.tile;
    sites_[s].push_back(out);
  }
  most_tiles_ = std::max(most_tiles_, tiles);
}

// The tile number as an affine form of the loop indices.
bool Tracking::make_number(const BoundAccess& a, const Tiling& t, Affine* out) const {
  out->base = static_cast<i64>(t.first);
  for (u32 d = 0; d < a.rank; ++d) {
    const BoundExpr& start = plan_.dim(a.dims + d).start;
    if (!start.affine) return false;
    out->base += (start.form->base - t.offset[d]) / t.size[d] * t.stride[d] + t.stride[d];
    for (u32 l = 0; l < start.form->top; ++l) {
      out->coef[l] += start.form->coef[l] / t.size[d] * t.stride[d];
    }
    out->top = std::max(out->top, start.form->top);
    for (u32 r = 0; r < start.form->num_regs; ++r) {
      const i64 factor = start.form->reg_coef[r] / t.size[d] * t.stride[d];
      if (!out->add_register(start.form->reg[r], factor)) return false;
    }
  }
  return true;
}

void Tracking::make_deltas(const BoundAccess& a, const Tiling& t, TrackedAccess* out) {
  std::vector<i64> deltas{0};
  for (u32 d = 0; d < a.rank; ++d) {
    const i64 tiles = plan_.dim(a.dims + d).extent.form->base / t.size[d];
    const std::size_t before = deltas.size();
    for (i64 k = 1; k < tiles; ++k) {
      for (std::size_t i = 0; i < before; ++i) deltas.push_back(deltas[i] + k * t.stride[d]);
    }
  }
  out->deltas = static_cast<u32>(deltas_.size());
  out->num_tiles = static_cast<u32>(deltas.size());
  deltas_.insert(deltas_.end(), deltas.begin(), deltas.end());
}

// True if no two tasks of the site have the same tile number: sorted by size, each coefficient
// outruns all that the smaller ones together can add.
bool Tracking::touched_once(const BoundSite& site, const Affine& number) const {
  if (number.num_regs > 0) return false;   // who knows what a register holds
  std::vector<std::pair<i64, i64>> terms;  // |coefficient|, reach
  for (u32 l = 0; l < site.level; ++l) {
    if (site.reach[l] < 0) return false;
    if (site.reach[l] > 0) terms.emplace_back(std::abs(number.coef[l]), site.reach[l]);
  }
  std::sort(terms.begin(), terms.end());
  i64 sum = 0;
  for (const auto& [coef, reach] : terms) {
    i64 term = 0;
    if (coef <= sum || __builtin_mul_overflow(coef, reach, &term)) return false;
    if (__builtin_add_overflow(sum, term, &sum)) return false;
  }
  return true;
}

u64 Tracking::tile_of(const Region& r) const {
  const Tiling& t = tilings_[r.geometry];
  i64 number = static_cast<i64>(t.first);
  for (u32 d = 0; d < r.rank; ++d) {
    number += (r.start[d] - t.offset[d]) / t.size[d] * t.stride[d] + t.stride[d];
  }
  return static_cast<u64>(number);
}

}  // namespace ptowsp
