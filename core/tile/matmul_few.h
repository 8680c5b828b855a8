// Products with few rows: b is read where it lies.
//
//   small b       its rows are walked for a few rows of c at a time, whose sums are in registers,
//                 while what is read next is asked for. Sums go on where those of c end, so a
//                 product in parts adds the same numbers in the same order as in one.
//   rows of b     of a large b long stretches are read, into sums in the first cache
#pragma once

#include "matmul_pack.h"
#include "matmul_parts.h"
#include "vec.h"

namespace ptowsp::tile::detail {

// Up to here reading b where it lies is faster than copying it first.
inline constexpr i64 kFewRows = 16;

// ---- rows of b --------------------------------------------------------------------------------

// Rows of b lie in memory: each group of them, times all rows of a, is added to the tile. Long
// stretches of a few rows are read, as memory likes it.
template <int kDeep, class B, class E>
PTOWSP_TILE_ONCE void add_rows(i64 m, i64 n, const E* a, const B* b, i64 b_row, E* tile) {
  constexpr i64 kLanes = kTileLanes<E>;
  using V = Vec<E, kTileLanes<E>>;
  i64 j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    V low[std::size_t{kDeep}], high[std::size_t{kDeep}];
    for (int p = 0; p < kDeep; ++p) {
      const B* row = b + p * b_row + j;
      __builtin_prefetch(row + kDeep * b_row);
      low[p] = load_as<V>(row);
      high[p] = load_as<V>(row + kLanes);
    }
    for (i64 i = 0; i < m; ++i) {
      E* at = tile + i * n + j;
      V sum_low = load<V>(at), sum_high = load<V>(at + kLanes);
      for (int p = 0; p < kDeep; ++p) {
        sum_low += a[p * m + i] * low[p];
        sum_high += a[p * m + i] * high[p];
      }
      store(at, sum_low);
      store(at + kLanes, sum_high);
    }
  }
  for (; j < n; ++j) {
    for (int p = 0; p < kDeep; ++p) {
      const E x = element<E>(b[p * b_row + j]);
      for (i64 i = 0; i < m; ++i) tile[i * n + j] += a[p * m + i] * x;
    }
  }
}

// Packed rows of a times a block of b.
template <class B, class E>
inline void multiply_long_rows(i64 m, i64 n, i64 k, const E* a, const B* b, i64 b_row, E* tile,
                               Target<E> to) {
  constexpr i64 kDeep = 4;
  std::fill_n(tile, m * n, E{});
  i64 p = 0;
  for (; p + kDeep <= k; p += kDeep) add_rows<kDeep>(m, n, a + p * m, b + p * b_row, b_row, tile);
  for (; p < k; ++p) add_rows<1>(m, n, a + p * m, b + p * b_row, b_row, tile);
  write_sums(m, n, tile, n, to);
}

template <class A, class B, class E>
inline void multiply_few_rows(i64 k, Sliver<A> a, Sliver<B> b, Target<E> to, E* scratch) {
  constexpr i64 kUnit = 2 * kTileLanes<E>;
  if (k == 0) return multiply_nothing(a.count, b.count, to);
  const i64 m = a.count;
  // Sums are made beside c, whose rows often fall on the same few places of the first cache.
  E* tile = scratch;
  E* packed = tile + kTileElements;
  const i64 width = equal_part(b.count, kTileElements / m / kUnit * kUnit, kUnit);
  const i64 depth = equal_part(k, kBlockDepth, 4);
  for (i64 p = 0; p < k; p += depth) {
    const i64 deep = std::min(depth, k - p);
    pack_sliver(Sliver<A>{a.x + p * a.along, m, a.across, a.along}, m, deep, packed);
    for (i64 j = 0; j < b.count; j += width) {
      multiply_long_rows(m, std::min(width, b.count - j), deep, packed, b.x + p * b.along + j,
                         b.along, tile, Target<E>{to.c + j, to.row, to.accumulate || p > 0});
    }
  }
}

// ---- a small b, by rows -----------------------------------------------------------------------

// Bytes of b that stay in the second cache, beside what is asked for next.
inline constexpr i64 kSmallBytes = i64{1} << 16;

// Each of the first kWalks walks over the rows of b asks for its part of those that lie `ahead`:
// whole ones in their order, as memory likes it, and one in as many steps, since many lines asked
// for at once wait for each other.
template <int kElements, int kWalks, class B>
class Asking {
 public:
  Asking(const Run<B>& run, i64 offset, i64 stride, i64 walk, bool asks)
      : part_(walk * run.size),
        at_(run.x + offset + part_ / kWalks * stride + part_ % kWalks * kLines * kLine),
        stride_(stride),
        ahead_(asks ? run.ahead : 0) {}
  [[gnu::always_inline]] void step() {
    for (i64 line = 0; line < kLines; ++line) ask_for(at_ + line * kLine, ahead_);
    // The other half of that row, then the next one.
    const bool is_last = part_ % kWalks == kWalks - 1;
    at_ += is_last ? stride_ - (kWalks - 1) * kLines * kLine : kLines * kLine;
    part_ += 1;
  }

 private:
  static constexpr i64 kLine = kLineBytes / i64{sizeof(B)};
  static constexpr i64 kLines = (kElements + kWalks * kLine - 1) / (kWalks * kLine);
  i64 part_;  // of a row, counted through
  const B* at_;
  i64 stride_;
  i64 ahead_;
};

// Calls f for some rows at a time, then for one: how many they are, where they begin, which walk
// that is, and whether it asks: those behind the first kWalks do not.
template <int kRows, int kWalks, class F>
[[gnu::always_inline]] inline void walk_rows(i64 count, F f) {
  i64 i = 0, walk = 0;
  const auto add = [&]<int kNow>(std::integral_constant<int, kNow> rows) {
    const bool asks = walk < kWalks;
    f(rows, i, asks ? walk : 0, asks);
    i += kNow;
    walk += 1;
  };
  while (i + kRows <= count) add(std::integral_constant<int, kRows>());
  if constexpr (kRows > 1) {
    while (i < count) add(std::integral_constant<int, 1>());
  }
}

// Some vectors of some rows of c, from registers.
template <int kRows, int kVectors, int kWalks, class A, class B, class E>
[[gnu::always_inline]] inline void add_strip(const A* a, i64 a_row, i64 a_col, const Runs<B>& b,
                                             i64 b_row, i64 j, E* c, i64 c_row, bool accumulate,
                                             i64 walk, bool asks) {
  constexpr i64 kLanes = kTileLanes<E>;
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kRows}][std::size_t{kVectors}] = {};
  if (accumulate) {
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kVectors; ++v) sum[i][v] = load<V>(c + i * c_row + v * kLanes);
    }
  }
  for (const Run<B>& run : b) {
    const B* at = run.x + j;
    Asking<kVectors * kTileLanes<E>, kWalks, B> asking(run, j, b_row, walk, asks);
#pragma GCC unroll 1
    for (i64 p = 0; p < run.size; ++p) {
      asking.step();
      V row[std::size_t{kVectors}];
      for (int v = 0; v < kVectors; ++v) {
        row[v] = load_as<V>(at + v * kLanes);
        // Two rows may read it twice: fewer instructions, so that more of them are under way.
        if constexpr (kRows > 2) row[v] = in_register(row[v]);
      }
      for (int i = 0; i < kRows; ++i) {
        const E x = element<E>(a[i * a_row]);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = in_register(sum[i][v] + x * row[v]);
      }
      at += b_row;
      a += a_col;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) store(c + i * c_row + v * kLanes, sum[i][v]);
  }
}

// The same for all rows.
template <int kRows, int kVectors, int kWalks, class A, class B, class E>
[[gnu::always_inline]] inline void add_strips(const Sliver<A>& a, const Runs<B>& b, i64 b_row,
                                              i64 j, const Target<E>& to) {
  walk_rows<kRows, kWalks>(
      a.count, [&]<int kNow>(std::integral_constant<int, kNow>, i64 i, i64 walk, bool asks) {
        add_strip<kNow, kVectors, kWalks>(a.x + i * a.across, a.across, a.along, b, b_row, j,
                                          to.c + i * to.row + j, to.row, to.accumulate, walk, asks);
      });
}

// `b` are rows of n elements that lie b_row apart.
template <class A, class B, class E>
PTOWSP_TILE_ONCE void multiply_small(i64 n, const Sliver<A>& a, const Runs<B>& b, i64 b_row,
                                     const Target<E>& to) {
  constexpr i64 kLanes = kTileLanes<E>;
  if (b.size == 0) return multiply_nothing(a.count, n, to);
  i64 j = 0;
  // Of 32 registers eight vectors of two rows take most: long stretches of b are read at a time,
  // and read once more for the next two rows. Three vectors of four rows fill 16 registers; four
  // are two and two, as one alone would wait for its own sums.
  for (i64 left = n / kLanes; left > 0;) {
    i64 vectors = left == 3 || left > 4 ? 3 : std::min<i64>(left, 2);
    if (kManyRegisters && left >= 8) vectors = 8;
    if (vectors == 8) {
      if constexpr (kManyRegisters) {
        if (a.count > 2) {
          add_strips<2, 8, 2>(a, b, b_row, j, to);
        } else {
          add_strips<2, 8, 1>(a, b, b_row, j, to);
        }
      }
    } else if (vectors == 3) {
      add_strips<4, 3, 1>(a, b, b_row, j, to);
    } else if (vectors == 2) {
      add_strips<4, 2, 1>(a, b, b_row, j, to);
    } else {
      add_strips<1, 1, 1>(a, b, b_row, j, to);
    }
    j += vectors * kLanes;
    left -= vectors;
  }
  for (; j < n; ++j) {
    for (i64 i = 0; i < a.count; ++i) {
      E* c = to.c + i * to.row + j;
      E sum = to.accumulate ? *c : E{};
      const A* x = a.x + i * a.across;
      for (const Run<B>& run : b) {
        for (i64 p = 0; p < run.size; ++p, x += a.along) {
          sum += element<E>(*x) * element<E>(run.x[p * b_row + j]);
        }
      }
      *c = sum;
    }
  }
}

}  // namespace ptowsp::tile::detail
