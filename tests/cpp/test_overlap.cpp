#include "ptowsp/overlap.h"

#include <random>
#include <set>

#include "harness.h"

using namespace ptowsp;

namespace {

bool brute_force(i64 a, i64 n, i64 p, i64 b, i64 m, i64 q) {
  std::set<i64> first;
  for (i64 k = 0; k < n; ++k) first.insert(a + k * p);
  for (i64 k = 0; k < m; ++k) {
    if (first.count(b + k * q) != 0) return true;
  }
  return false;
}

Region box(std::initializer_list<std::array<i64, 3>> dims, AccessMode mode) {
  Region r;
  r.mode = static_cast<u32>(mode);
  for (const auto& [start, extent, step] : dims) {
    r.start[r.rank] = start;
    r.extent[r.rank] = extent;
    r.step[r.rank] = step;
    r.rank += 1;
  }
  return r;
}

constexpr auto kIn = AccessMode::IN;
constexpr auto kOut = AccessMode::OUT;

}  // namespace

TEST(progressions_against_brute_force) {
  std::mt19937 random(1);
  const auto draw = [&](i64 lo, i64 hi) {
    return std::uniform_int_distribution<i64>(lo, hi)(random);
  };
  for (int i = 0; i < 20000; ++i) {
    const i64 a = draw(0, 30), n = draw(0, 8), p = draw(1, 9);
    const i64 b = draw(0, 30), m = draw(0, 8), q = draw(1, 9);
    CHECK_EQ(progressions_meet(a, n, p, b, m, q), brute_force(a, n, p, b, m, q));
  }
}

TEST(boxes_overlap_only_if_every_dimension_does) {
  CHECK(overlap(box({{0, 4, 1}, {0, 4, 1}}, kOut), box({{3, 4, 1}, {3, 1, 1}}, kIn)));
  CHECK(!overlap(box({{0, 4, 1}, {0, 4, 1}}, kOut), box({{4, 4, 1}, {0, 4, 1}}, kIn)));
  CHECK(!overlap(box({{0, 4, 2}}, kOut), box({{1, 4, 2}}, kIn)));
}

TEST(storages_and_byte_intervals) {
  Region a = box({{0, 4, 1}}, kOut);
  Region b = box({{0, 4, 1}}, kIn);
  b.storage = 1;
  CHECK(!overlap(a, b));
  b.storage = 0;
  b.geometry = 1;  // another view of the same bytes
  a.byte_lo = 100;
  a.byte_hi = 116;
  b.byte_lo = 115;
  b.byte_hi = 131;
  CHECK(overlap(a, b));
  b.byte_lo = 116;
  CHECK(!overlap(a, b));
}

TEST(exact_matching_wants_equal_boxes) {
  const Region w = box({{0, 4, 1}}, kOut);
  CHECK(conflicts(box({{0, 4, 1}}, kIn), w, Matching::Exact));
  CHECK(!conflicts(box({{1, 4, 1}}, kIn), w, Matching::Exact));
  CHECK(conflicts(box({{1, 4, 1}}, kIn), w, Matching::Overlap));
  CHECK(!conflicts(box({{0, 4, 1}}, kIn), box({{0, 4, 1}}, kIn), Matching::Overlap));
}

TEST(covering) {
  const Region all = box({{0, 16, 1}}, kOut);
  CHECK(covers(all, box({{3, 4, 3}}, kIn)));
  CHECK(!covers(all, box({{13, 4, 1}}, kIn)));
  const Region even = box({{0, 8, 2}}, kOut);
  CHECK(covers(even, box({{2, 3, 4}}, kIn)));
  CHECK(!covers(even, box({{2, 3, 3}}, kIn)));
  CHECK(!covers(even, box({{1, 1, 1}}, kIn)));
}

PTOWSP_TEST_MAIN
