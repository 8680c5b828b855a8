// Kernels: signatures, variants and bodies.
#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "ptowsp/hash.h"
#include "validate_context.h"

namespace ptowsp::check {
namespace {

bool is_region(const Param& p) {
  return is(p.kind, ParamKind::TENSOR) || is(p.kind, ParamKind::TILE) ||
         is(p.kind, ParamKind::PAGED) || is(p.kind, ParamKind::TOKEN);
}

bool is_mode(u32 mode) {
  return is(mode, AccessMode::IN) || is(mode, AccessMode::OUT) || is(mode, AccessMode::INOUT) ||
         is(mode, AccessMode::ACCUM);
}

void check_tile_shape(const Context& c, u32 index, const Param& p) {
  const u32 expected = is(p.kind, ParamKind::TILE) ? p.rank : 0;
  if (p.shape_rank != expected) {
    Context::fail(c.at(Section::PARAM, index, offsetof(Param, shape_rank)),
                  "Param.shape_rank must be the rank of a TILE, and 0 for the others");
  }
  for (u32 i = p.shape; i < p.shape + p.shape_rank; ++i) {
    c.use(c.get<Section::EXPR_LIST>(i).expr, ScalarType::I64, Scope{}, c.at(Section::EXPR_LIST, i),
          "Param.shape");
  }
}

void check_param(const Context& c, u32 index, const Param& p) {
  const auto fail = [&](std::size_t field, const char* what) {
    Context::fail(c.at(Section::PARAM, index, field),
                  "parameter '" + std::string(c.view.string(p.name)) + "' " + what);
  };
  if (is_region(p) ? !is_mode(p.mode) : p.mode != 0) {
    fail(offsetof(Param, mode), "must have an access mode exactly if it is a region");
  }
  if (p.rank > kMaxRank) fail(offsetof(Param, rank), "has too many dimensions");
  if (!is_region(p) && p.rank != 0) fail(offsetof(Param, rank), "is a value and must have rank 0");
  if (!is(p.kind, ParamKind::CONSTEXPR) && p.value != 0) {
    fail(offsetof(Param, value), "has a value and is not CONSTEXPR");
  }
  check_tile_shape(c, index, p);
}

u64 hash_number(u32 value, u64 hash) {
  char digits[12];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  return fnv1a({digits, static_cast<std::size_t>(end.ptr - digits)}, hash);
}

// FNV-1a of "name:kind:dtype:mode:rank;..." as docs/bytecode.md defines it.
u64 abi_hash(const Context& c, const Kernel& k) {
  u64 hash = fnv1a("");
  for (u32 i = k.params; i < k.params + k.num_params; ++i) {
    const Param p = c.get<Section::PARAM>(i);
    if (i != k.params) hash = fnv1a(";", hash);
    hash = fnv1a(c.view.string(p.name), hash);
    for (const u32 number : {p.kind, p.dtype, p.mode, p.rank}) {
      hash = hash_number(number, fnv1a(":", hash));
    }
  }
  return hash;
}

void check_params(const Context& c, u32 index, const Kernel& k) {
  u32 regions = 0;
  u32 scalars = 0;
  std::vector<std::string_view> names;
  for (u32 i = k.params; i < k.params + k.num_params; ++i) {
    const Param p = c.get<Section::PARAM>(i);
    check_param(c, i, p);
    regions += is_region(p) ? 1u : 0u;
    scalars += is(p.kind, ParamKind::SCALAR) ? 1u : 0u;
    names.push_back(c.view.string(p.name));
  }
  const u64 at = c.at(Section::KERNEL, index, offsetof(Kernel, num_params));
  if (regions > kMaxTensorArgs) Context::fail(at, "a kernel has too many tensor parameters");
  if (scalars > kMaxScalarArgs) Context::fail(at, "a kernel has too many scalar parameters");
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
    Context::fail(at, "two parameters of a kernel have the same name");
  }
}

void check_kernel(const Context& c, u32 i) {
  const Kernel k = c.get<Section::KERNEL>(i);
  const auto at = [&](std::size_t field) { return c.at(Section::KERNEL, i, field); };
  if (k.name_hash != fnv1a(c.view.string(k.name))) {
    Context::fail(at(offsetof(Kernel, name_hash)), "Kernel.name_hash is not that of its name");
  }
  if (k.num_params > kMaxArgWords) {
    Context::fail(at(offsetof(Kernel, num_params)), "a kernel has too many parameters");
  }
  check_params(c, i, k);
  if (k.abi_hash != abi_hash(c, k)) {
    Context::fail(at(offsetof(Kernel, abi_hash)), "Kernel.abi_hash is not that of its parameters");
  }
  if (k.block_dim == 0) Context::fail(at(offsetof(Kernel, block_dim)), "Kernel.block_dim is 0");
  if (k.scratch != kNone) {
    c.use(k.scratch, ScalarType::I64, Scope{}, at(offsetof(Kernel, scratch)), "Kernel.scratch");
  }
  if (k.cost != kNone) {
    c.use(k.cost, ScalarType::I64, Scope{}, at(offsetof(Kernel, cost)), "Kernel.cost");
  }
}

// --- variants ---

// The next parameter at or after `i` that a task passes; the end of the run if there is none.
u32 next_passed(const Context& c, u32 i, u32 end) {
  while (i < end && is(c.get<Section::PARAM>(i).kind, ParamKind::CONSTEXPR)) ++i;
  return i;
}

// Whether tasks pass the same arguments to both kernels.
bool takes_same_arguments(const Context& c, const Kernel& a, const Kernel& b) {
  const u32 end_a = a.params + a.num_params;
  const u32 end_b = b.params + b.num_params;
  u32 i = next_passed(c, a.params, end_a);
  u32 j = next_passed(c, b.params, end_b);
  while (i < end_a && j < end_b) {
    const Param p = c.get<Section::PARAM>(i);
    const Param q = c.get<Section::PARAM>(j);
    const bool one_view = is(p.kind, ParamKind::TILE) || is(p.kind, ParamKind::TENSOR)
                              ? is(q.kind, ParamKind::TILE) || is(q.kind, ParamKind::TENSOR)
                              : p.kind == q.kind;
    const bool same_kind = one_view && p.dtype == q.dtype;
    if (!same_kind || p.mode != q.mode || p.rank != q.rank) return false;
    i = next_passed(c, i + 1, end_a);
    j = next_passed(c, j + 1, end_b);
  }
  return i == end_a && j == end_b;
}

// What the predicates and workspaces of a tier set need of the sites that use it.
Needs check_tiers(const Context& c, const TierSet& set) {
  // The scope is that of the TASK; here only what the predicate needs can be known.
  const Scope any{.loops = kMaxLoops, .lets = ~u64{0}, .slots = true};
  const Kernel first = c.get<Section::KERNEL>(c.get<Section::TIER>(set.tiers).kernel);
  Needs needs;
  for (u32 i = set.tiers; i < set.tiers + set.num_tiers; ++i) {
    const Tier t = c.get<Section::TIER>(i);
    const u64 predicate_at = c.at(Section::TIER, i, offsetof(Tier, predicate));
    if (t.predicate != kNone) {
      c.use(t.predicate, ScalarType::BOOL, any, predicate_at, "Tier.predicate");
      needs.add(c.exprs[t.predicate]);
    } else if (i + 1 != set.tiers + set.num_tiers) {
      Context::fail(predicate_at, "only the last tier may do without a predicate");
    }
    if (t.workspace != kNone) {
      needs.loops = std::max(needs.loops, c.get<Section::ALLOC>(t.workspace).level);
    }
    if (!takes_same_arguments(c, first, c.get<Section::KERNEL>(t.kernel))) {
      Context::fail(c.at(Section::TIER, i, offsetof(Tier, kernel)),
                    "the kernels of a tier set must take the same arguments");
    }
  }
  return needs;
}

// --- bodies ---

void check_bodies(const Context& c) {
  std::vector<bool> seen(c.count(Section::KERNEL), false);
  std::vector<std::pair<u32, u32>> runs;  // (first byte, record)
  for (u32 i = 0; i < c.count(Section::KERNEL_BODY); ++i) {
    const KernelBody b = c.get<Section::KERNEL_BODY>(i);
    if (seen[b.kernel]) Context::fail(c.at(Section::KERNEL_BODY, i), "the kernel has two bodies");
    seen[b.kernel] = true;
    if (b.num_bytes != 0) runs.emplace_back(b.bytes, i);
  }
  std::sort(runs.begin(), runs.end());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const KernelBody a = c.get<Section::KERNEL_BODY>(runs[i - 1].second);
    const KernelBody b = c.get<Section::KERNEL_BODY>(runs[i].second);
    const bool same = a.bytes == b.bytes && a.num_bytes == b.num_bytes;
    if (same || b.bytes - a.bytes >= a.num_bytes) continue;
    Context::fail(c.at(Section::KERNEL_BODY, runs[i].second, offsetof(KernelBody, bytes)),
                  "the bytes of two kernel bodies overlap without being the same");
  }
}

}  // namespace

void check_kernels(Context& c) {
  check_unique<Section::KERNEL>(c, "kernels");
  for (u32 i = 0; i < c.count(Section::KERNEL); ++i) check_kernel(c, i);
  for (u32 i = 0; i < c.count(Section::TIER_SET); ++i) {
    const TierSet set = c.get<Section::TIER_SET>(i);
    if (set.num_tiers == 0) {
      Context::fail(c.at(Section::TIER_SET, i, offsetof(TierSet, num_tiers)),
                    "a tier set is empty");
    }
    c.tier_sets.push_back(check_tiers(c, set));
  }
  check_bodies(c);
}

}  // namespace ptowsp::check
