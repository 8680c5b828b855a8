#include "ptowsp/tensor_map.h"

#include <deque>
#include <random>
#include <set>

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

// Two tensors over the same bytes (optionally), one apart; cells come from the accesses.
struct Tensors {
  PlanMaker m;
  std::vector<float> data = std::vector<float>(4096);
  std::unique_ptr<Loaded> loaded;

  explicit Tensors(bool alias) {
    const u32 a = m.tensor("A", 2);
    const u32 b = m.tensor("B", 2);
    const u32 k = m.kernel("k", {AccessMode::OUT}, 2);
    const u32 one = m.number(1);
    m.task(k, {{a, AccessMode::OUT, {{one, m.number(4), one}, {one, m.number(4), one}}}});
    float* second = data.data() + (alias ? 100 : 2048);
    loaded = std::make_unique<Loaded>(
        &m,
        std::vector<ptowsp_binding>{bind_data(m.symbol_of(a), data.data(), DType::F32, {32, 32}),
                                    bind_data(m.symbol_of(b), second, DType::F32, {32, 32})});
  }

  Region region(u32 tensor, u32 mode, const i64* start, const i64* extent, const i64* step) const {
    const BoundTensor& t = loaded->bound->tensors()[tensor];
    Region r;
    r.tensor = tensor;
    r.storage = t.storage;
    r.geometry = t.geometry;
    r.by_bytes = t.by_bytes;
    r.mode = mode;
    r.rank = 2;
    i64 lo = 0;
    i64 hi = 0;
    for (u32 d = 0; d < 2; ++d) {
      r.start[d] = start[d];
      r.extent[d] = extent[d];
      r.step[d] = step[d];
      r.empty = r.empty || extent[d] == 0;
      lo += start[d] * t.stride[d];
      hi += (start[d] + (extent[d] - 1) * step[d]) * t.stride[d];
    }
    r.byte_lo = reinterpret_cast<u64>(t.data) + static_cast<u64>(lo) * 4;
    r.byte_hi = reinterpret_cast<u64>(t.data) + static_cast<u64>(hi + 1) * 4;
    return r;
  }
};

// Everything that can be reached over recorded edges.
std::set<u32> reachable(const std::vector<std::set<u32>>& before, u32 task) {
  std::set<u32> seen;
  std::vector<u32> stack(before[task].begin(), before[task].end());
  while (!stack.empty()) {
    const u32 t = stack.back();
    stack.pop_back();
    if (!seen.insert(t).second) continue;
    stack.insert(stack.end(), before[t].begin(), before[t].end());
  }
  return seen;
}

// Random tasks with random lifetimes: each dependence that the oracle finds must be reachable over
// the edges of the fast map, and the fast map must find nothing that the oracle does not.
void compare(bool alias, Matching matching, u32 seed) {
  Tensors tensors(alias);
  std::mt19937 random(seed);
  const auto draw = [&](i64 lo, i64 hi) {
    return std::uniform_int_distribution<i64>(lo, hi)(random);
  };
  DynamicTensorMap oracle(matching);
  FixedTensorMap fast(tensors.loaded->bound.get(), matching);
  std::vector<u32> records(400, kNoSlot);
  std::vector<std::set<u32>> before(records.size());
  std::set<u32> live;
  for (u32 task = 0; task < records.size(); ++task) {
    std::vector<Region> regions;
    for (i64 n = draw(1, 3); n > 0; --n) {
      const i64 step[2] = {draw(1, 2), draw(1, 3)};
      const bool big = draw(0, 9) == 0;
      const i64 extent[2] = {big ? draw(0, 10) : draw(1, 4), big ? 8 : draw(1, 4)};
      const i64 room[2] = {31 - extent[0] * step[0], 31 - extent[1] * step[1]};
      const i64 start[2] = {draw(0, std::max<i64>(room[0], 0)), draw(0, std::max<i64>(room[1], 0))};
      regions.push_back(tensors.region(static_cast<u32>(draw(0, 1)), static_cast<u32>(draw(1, 3)),
                                       start, extent, step));
    }
    std::set<u32> wanted;
    for (const Region& r : regions) oracle.query(r, [&](u32 t) { wanted.insert(t); });
    for (const Region& r : regions) fast.query(r, [&](u32 t) { before[task].insert(t); });
    for (const Region& r : regions) {
      oracle.insert(r, task);
      fast.insert(r, task, &records[task]);
    }
    const std::set<u32> ordered = reachable(before, task);
    for (const u32 t : wanted) CHECK(ordered.count(t) != 0);
    for (const u32 t : before[task]) CHECK(wanted.count(t) != 0);
    live.insert(task);
    while (live.size() > 40) {
      const u32 ended = *live.begin();
      live.erase(live.begin());
      oracle.remove(ended);
      fast.remove(&records[ended]);
    }
  }
  for (const u32 t : live) fast.remove(&records[t]);
  CHECK_EQ(fast.live(), 0u);
}

}  // namespace

TEST(random_accesses_against_the_oracle) {
  for (u32 seed = 0; seed < 20; ++seed) {
    compare(false, Matching::Overlap, seed);
    compare(true, Matching::Overlap, seed);
    compare(false, Matching::Exact, seed);
  }
}

TEST(a_covered_access_leaves_early) {
  Tensors t(false);
  FixedTensorMap map(t.loaded->bound.get(), Matching::Overlap);
  std::vector<u32> records(3, kNoSlot);
  const i64 zero[2] = {0, 0};
  const i64 four[2] = {4, 4};
  const i64 one[2] = {1, 1};
  const Region read = t.region(0, 1, zero, four, one);
  const Region write = t.region(0, 2, zero, four, one);
  map.insert(read, 0, &records[0]);
  u32 hits = 0;
  map.query(write, [&](u32) { hits += 1; });
  CHECK_EQ(hits, 1u);
  map.insert(write, 1, &records[1]);
  map.query(write, [&](u32 slot) {
    hits += 1;
    CHECK_EQ(slot, 1u);  // the reader is ordered through the first writer
  });
  CHECK_EQ(hits, 2u);
  map.remove(&records[0]);
  map.remove(&records[1]);
  CHECK_EQ(map.live(), 0u);
}

TEST(memory_stays_flat_over_many_tasks) {
  Tensors t(false);
  FixedTensorMap map(t.loaded->bound.get(), Matching::Overlap);
  std::deque<u32> live;
  const i64 one[2] = {1, 1};
  const i64 four[2] = {4, 4};
  std::size_t early = 0;
  for (i64 i = 0; i < 20000; ++i) {
    const i64 start[2] = {i % 28, (i * 7) % 28};
    const Region r = t.region(0, 2, start, four, one);
    map.query(r, [](u32) {});
    live.push_back(kNoSlot);
    map.insert(r, static_cast<u32>(i), &live.back());
    if (live.size() > 64) {
      map.remove(&live.front());
      live.pop_front();
    }
    if (i == 1000) early = map.bytes();
  }
  CHECK_EQ(map.bytes(), early);
}

PTOWSP_TEST_MAIN
