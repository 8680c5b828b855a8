#include "ptowsp/prefetch.h"

#include <algorithm>
#include <cstdlib>

#include "ptowsp/keys.h"

namespace ptowsp {

namespace {

constexpr u64 kLine = 64;

// Elements in memory: the first byte, and how many there are how far apart, per dimension.
struct Box {
  struct Dim {
    i64 extent;
    u64 step;  // bytes
  };
  u64 lo = 0;
  u64 item = 0;
  u32 rank = 0;
  Dim dims[kMaxRank] = {};

  void add(i64 extent, i64 bytes) {
    if (extent > 1 && bytes != 0) dims[rank++] = {extent, static_cast<u64>(std::abs(bytes))};
  }
};

void fetch_run(u64 lo, u64 bytes) {
  for (u64 at = lo / kLine * kLine; at < lo + bytes; at += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(at));
  }
}

// Up to `most` bytes of a box; how many.
u64 fetch_box(Box* box, u64 most) {
  Box::Dim* const end = box->dims + box->rank;
  std::sort(box->dims, end, [](const Box::Dim& a, const Box::Dim& b) { return a.step < b.step; });
  // What lies close together is one run.
  u64 run = box->item;
  Box::Dim* outer = box->dims;
  while (outer != end && outer->step <= std::max(run, kLine)) {
    run += static_cast<u64>(outer->extent - 1) * outer->step;
    ++outer;
  }
  i64 index[kMaxRank] = {};
  u64 total = 0;
  u64 at = box->lo;
  while (true) {
    const u64 bytes = std::min(run, most - total);
    fetch_run(at, bytes);
    total += bytes;
    if (total == most) return total;
    Box::Dim* dim = outer;
    for (; dim != end; ++dim) {
      i64& i = index[dim - outer];
      at += dim->step;
      if (++i < dim->extent) break;
      at -= static_cast<u64>(dim->extent) * dim->step;
      i = 0;
    }
    if (dim == end) return total;
  }
}

}  // namespace

Prefetcher::Prefetcher(const BoundPlan& plan, const ScheduleConfig& config)
    : plan_(plan), changes_(plan.plan().count(Section::EXPR), 0) {
  const PlanView& view = plan.plan();
  for (u32 i = 0; i < changes_.size(); ++i) {  // operands come first
    const Expr e = view.expr(i);
    const auto op = static_cast<ExprOp>(e.op);
    if (op == ExprOp::SLOT || op == ExprOp::LETVAR) changes_[i] = 1;
    if (op == ExprOp::SHAPE && plan.tensors()[e.a].alloc != kNone) changes_[i] = 1;
    if (op < ExprOp::ADD && op != ExprOp::LOAD) continue;
    for (const u32 operand : {op == ExprOp::LOAD ? kNone : e.a, e.b, e.c}) {
      if (operand != kNone && changes_[operand] != 0) changes_[i] = 1;
    }
  }
  sites_.resize(plan.sites().size());
  for (u32 s = 0; s < sites_.size(); ++s) {
    const BoundSite& bound = plan.sites()[s];
    Site& site = sites_[s];
    if (bound.kind == TaskKind::LOAD) continue;
    site.loops.resize(bound.level, kNone);  // messages have a level and no loop
    for (u32 axis = view.get<Section::SITE>(s).axis; axis != kNone;) {
      const Axis a = view.get<Section::AXIS>(axis);
      site.loops[a.level] = axis;
      axis = a.outer;
    }
    for (u32 p = 0; p < bound.num_accesses; ++p) {
      const u32 access = plan.site_access(bound, p);
      if (foreseen(plan.access(access))) site.accesses.push_back(access);
    }
    for (const PrefetchConfig& wanted : config.prefetches) {
      const u32 level = loop_level(view, s, view.string(wanted.axis, Section::SCHEDULE_STRING));
      if (level != kNone && moves(site, level)) site.steps.push_back({level, wanted.depth});
    }
  }
}

// Whether one can say which iterations the loops from this one on have.
bool Prefetcher::moves(const Site& site, u32 level) const {
  for (u32 l = level; l < site.loops.size(); ++l) {
    if (site.loops[l] == kNone) return false;
    const BoundLoop& loop = plan_.loop(site.loops[l]);
    const Axis a = plan_.plan().get<Section::AXIS>(site.loops[l]);
    if (loop.repeats || changes_[a.start] != 0 || changes_[a.extent] != 0) return false;
  }
  return true;
}

// Whether one can say what a later task will read.
bool Prefetcher::foreseen(const BoundAccess& access) const {
  const BoundTensor& t = plan_.tensors()[access.tensor];
  if (!reads(access.mode) || t.alloc != kNone || t.storage_class == StorageClass::TOKEN) {
    return false;
  }
  for (u32 d = access.dims; d < access.dims + access.rank; ++d) {
    const BoundDim& dim = plan_.dim(d);
    if (changes_[dim.start.node] != 0 || changes_[dim.extent.node] != 0) return false;
    if (changes_[dim.step.node] != 0) return false;
  }
  if (t.pool == kNone) return true;
  const u32 table = plan_.tensors()[t.table].storage;
  for (const BoundSite& site : plan_.sites()) {
    for (u32 p = 0; p < site.num_accesses; ++p) {
      const BoundAccess& other = plan_.access(plan_.site_access(site, p));
      if (writes(other.mode) && plan_.tensors()[other.tensor].storage == table) return false;
    }
  }
  return true;
}

void Prefetcher::ahead(u32 s, const i64* loops, Prefetched* out) const {
  const Site& site = sites_[s];
  for (const Step& step : site.steps) {
    i64 vars[kMaxVars];
    std::copy(loops, loops + site.loops.size(), vars);
    if (__builtin_add_overflow(vars[step.level], step.depth, &vars[step.level])) continue;
    if (!exists(site, step.level, vars, &out->error)) continue;
    u64 left = kMostBytes;
    for (const u32 access : site.accesses) left -= fetch(access, vars, left, &out->error);
    out->tasks += left < kMostBytes ? 1u : 0u;
    out->bytes += kMostBytes - left;
  }
}

// Whether the loops have the iteration; sets the columns of sparse ones. Those outside of `level`
// have it, since this task is in it.
bool Prefetcher::exists(const Site& site, u32 level, i64* vars, Error* error) const {
  for (u32 l = 0; l < site.loops.size(); ++l) {
    if (site.loops[l] == kNone) continue;
    const BoundLoop& loop = plan_.loop(site.loops[l]);
    i64 start = 0;
    i64 extent = 0;
    if (l >= level) {
      if (!plan_.eval(loop.start, vars, &start, error)) return false;
      if (!plan_.eval(loop.extent, vars, &extent, error)) return false;
      if (vars[l] < start || vars[l] - start >= extent) return false;
    }
    if (loop.rows == nullptr) continue;
    if (!plan_.column(loop, vars, vars[l], &vars[kFirstColumn + l], error)) return false;
  }
  return true;
}

// Asks for the lines of an access, up to `most` bytes; how many.
u64 Prefetcher::fetch(u32 access, const i64* vars, u64 most, Error* error) const {
  Region region;
  if (most == 0 || !plan_.region(access, vars, &region, error) || region.empty) return 0;
  const BoundTensor& t = plan_.tensors()[region.tensor];
  if (t.pool != kNone) return fetch_pages(region, most, error);
  if (region.byte_lo < t.byte_lo || region.byte_hi > t.byte_hi) return 0;
  Box box;
  box.lo = region.byte_lo;
  box.item = t.item;
  for (u32 d = 0; d < region.rank; ++d) {
    box.add(region.extent[d], region.step[d] * t.stride[d] * static_cast<i64>(t.item));
  }
  return fetch_box(&box, most);
}

// The same for tokens of a sequence of a paged tensor, token by token.
u64 Prefetcher::fetch_pages(const Region& region, u64 most, Error* error) const {
  const BoundTensor& t = plan_.tensors()[region.tensor];
  const i64 item = static_cast<i64>(t.item);
  ptowsp_view view{};
  ptowsp_pages pages{};
  if (!plan_.find_pages(region, false, &view, &pages, error)) return 0;
  u64 total = 0;
  for (i64 i = 0; i < region.extent[1] && total < most; ++i) {
    const i64 token = pages.first + i * region.step[1];
    const i64 entry = token / pages.page * pages.table_stride;
    const i64 page = pages.wide != 0 ? static_cast<const i64*>(pages.table)[entry]
                                     : static_cast<const i32*>(pages.table)[entry];
    i64 offset = page * pages.page_stride + token % pages.page * t.stride[1];
    Box box;
    for (u32 d = 2; d < region.rank; ++d) {
      const i64 step = region.step[d] * t.stride[d];
      offset += region.start[d] * t.stride[d] + std::min<i64>((region.extent[d] - 1) * step, 0);
      box.add(region.extent[d], step * item);
    }
    box.lo = reinterpret_cast<u64>(t.data) + static_cast<u64>(offset * item);
    box.item = t.item;
    total += fetch_box(&box, most - total);
  }
  return total;
}

}  // namespace ptowsp
