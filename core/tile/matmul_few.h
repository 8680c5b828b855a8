// Products with few rows: b is read where it lies.
//
//   small b       its rows, or columns, are walked once or twice for all rows of c, whose sums are
//                 in registers; what is read next is asked for meanwhile. Sums go on where those of
//                 c end, so a product in parts adds the same numbers in the same order as in one.
//   rows of b     of a large b long stretches are read, into sums in the first cache
//   columns of b  products of two vectors
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

// Some vectors of some rows of c, from registers. Rows of b are walked kWalks times for all rows of
// c: each time a part of the rows that lie `ahead` is asked for, whole rows in their order, as
// memory likes it, and a row in as many steps, since many lines asked for at once wait for each
// other.
template <int kRows, int kVectors, int kWalks, class A, class B, class E>
[[gnu::always_inline]] inline void add_strip(i64 k, const A* a, i64 a_row, i64 a_col, const B* b,
                                             i64 b_row, E* c, i64 c_row, bool accumulate, i64 walk,
                                             i64 ahead) {
  constexpr i64 kLanes = kTileLanes<E>;
  constexpr i64 kLine = kLineBytes / i64{sizeof(B)};
  constexpr i64 kLines = (kVectors * kLanes + kWalks * kLine - 1) / (kWalks * kLine);
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kRows}][std::size_t{kVectors}] = {};
  if (accumulate) {
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kVectors; ++v) sum[i][v] = load<V>(c + i * c_row + v * kLanes);
    }
  }
  const B* asked = b + walk * (k / kWalks) * b_row;
#pragma GCC unroll 1
  for (i64 p = 0; p < k; ++p) {
    for (i64 line = 0; line < kLines; ++line) ask_for(asked + line * kLine, ahead);
    // The other half of that row, then the next one.
    asked += kWalks == 2 && p % 2 == 0 ? kLines * kLine : b_row - (kWalks - 1) * kLines * kLine;
    V row[std::size_t{kVectors}];
    for (int v = 0; v < kVectors; ++v) {
      row[v] = load_as<V>(b + p * b_row + v * kLanes);
      // Two rows may read it twice: fewer instructions, so that more of them are under way.
      if constexpr (kRows > 2) row[v] = in_register(row[v]);
    }
    for (int i = 0; i < kRows; ++i) {
      const E x = element<E>(a[i * a_row + p * a_col]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = in_register(sum[i][v] + x * row[v]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) store(c + i * c_row + v * kLanes, sum[i][v]);
  }
}

// The same for all rows: some at a time, then one.
template <int kRows, int kVectors, int kWalks, class A, class B, class E>
[[gnu::always_inline]] inline void add_strips(i64 k, const Sliver<A>& a, const Sliver<B>& b, i64 j,
                                              const Target<E>& to, i64 ahead) {
  i64 i = 0, walk = 0;
  const auto add = [&]<int kNow>(std::integral_constant<int, kNow>) {
    const bool asks = walk < kWalks;
    add_strip<kNow, kVectors, kWalks>(k, a.x + i * a.across, a.across, a.along, b.x + j, b.along,
                                      to.c + i * to.row + j, to.row, to.accumulate, asks ? walk : 0,
                                      asks ? ahead : 0);
    i += kNow;
    walk += 1;
  };
  while (i + kRows <= a.count) add(std::integral_constant<int, kRows>());
  if constexpr (kRows > 1) {
    while (i < a.count) add(std::integral_constant<int, 1>());
  }
}

template <class A, class B, class E>
PTOWSP_TILE_ONCE void multiply_small(i64 k, const Sliver<A>& a, const Sliver<B>& b,
                                     const Target<E>& to, i64 ahead) {
  constexpr i64 kLanes = kTileLanes<E>;
  if (k == 0) return multiply_nothing(a.count, b.count, to);
  i64 j = 0;
  // Of 32 registers eight vectors of two rows take most: long stretches of b are read at a time,
  // and read once more for the next two rows. Three vectors of four rows fill 16 registers; four
  // are two and two, as one alone would wait for its own sums.
  for (i64 left = b.count / kLanes; left > 0;) {
    i64 vectors = left == 3 || left > 4 ? 3 : std::min<i64>(left, 2);
    if (kManyRegisters && left >= 8) vectors = 8;
    if (vectors == 8) {
      if constexpr (kManyRegisters) {
        if (a.count > 2) {
          add_strips<2, 8, 2>(k, a, b, j, to, ahead);
        } else {
          add_strips<2, 8, 1>(k, a, b, j, to, ahead);
        }
      }
    } else if (vectors == 3) {
      add_strips<4, 3, 1>(k, a, b, j, to, ahead);
    } else if (vectors == 2) {
      add_strips<4, 2, 1>(k, a, b, j, to, ahead);
    } else {
      add_strips<1, 1, 1>(k, a, b, j, to, ahead);
    }
    j += vectors * kLanes;
    left -= vectors;
  }
  for (; j < b.count; ++j) {
    for (i64 i = 0; i < a.count; ++i) {
      E* c = to.c + i * to.row + j;
      E sum = to.accumulate ? *c : E{};
      for (i64 p = 0; p < k; ++p) {
        sum += element<E>(a.x[i * a.across + p * a.along]) * element<E>(b.x[p * b.along + j]);
      }
      *c = sum;
    }
  }
}

// ---- columns of b -----------------------------------------------------------------------------

template <int kApart, class V, int... i>
[[gnu::always_inline]] inline V add_lanes_apart(V x, std::integer_sequence<int, i...>) {
  return x + __builtin_shufflevector(x, x, (i ^ kApart)...);
}
template <class E, class V>
[[gnu::always_inline]] inline E sum_of_lanes(V x) {
  constexpr std::make_integer_sequence<int, kTileLanes<E>> lanes;
  if constexpr (kTileLanes<E> >= 16) x = add_lanes_apart<8>(x, lanes);
  if constexpr (kTileLanes<E> >= 8) x = add_lanes_apart<4>(x, lanes);
  if constexpr (kTileLanes<E> >= 4) x = add_lanes_apart<2>(x, lanes);
  return add_lanes_apart<1>(x, lanes)[0];
}

// Lanes of x that lie kApart from each other, added, beside those of y.
template <int kApart, int kLanes, class V, int... i>
[[gnu::always_inline]] inline V add_pairs(V x, V y, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(x, y, ((i & kApart) != 0 ? kLanes + i - kApart : i)...) +
         __builtin_shufflevector(x, y, ((i & kApart) != 0 ? kLanes + i : i + kApart)...);
}
// The sums of as many vectors as they have lanes, in the order of sum_of_lanes().
template <class E, int kApart = kTileLanes<E> / 2, class V>
[[gnu::always_inline]] inline V sums_of_lanes(V* x) {
  constexpr std::make_integer_sequence<int, kTileLanes<E>> lanes;
  for (int i = 0; i < kApart; ++i)
    x[i] = add_pairs<kApart, kTileLanes<E>>(x[i], x[i + kApart], lanes);
  if constexpr (kApart == 1) {
    return x[0];
  } else {
    return sums_of_lanes<E, kApart / 2>(x);
  }
}

// What is left of products of vectors, element by element.
template <int kRows, int kColumns, class B, class E>
PTOWSP_TILE_ONCE void add_last(i64 k, const E* a, i64 a_row, const B* b, i64 b_col, E* total) {
  for (int n = 0; n < kRows * kColumns; ++n) {
    const E* x = a + n / kColumns * a_row;
    const B* y = b + n % kColumns * b_col;
#pragma GCC unroll 1
    for (i64 p = 0; p < k; ++p) total[n] += x[p] * element<E>(y[p]);
  }
}

// Some rows of a, whose elements are adjacent, times some columns: each element of c is a product
// of two vectors.
template <int kRows, int kColumns, class B, class E>
[[gnu::always_inline]] inline void add_products(i64 k, const E* a, i64 a_row, const B* b, i64 b_col,
                                                E* c, i64 c_row, bool accumulate, i64 ahead) {
  constexpr i64 kLanes = kTileLanes<E>;
  constexpr i64 kLine = std::max<i64>(kLineBytes / i64{sizeof(B)}, kLanes);
  constexpr int kCount = kRows * kColumns;
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kCount}] = {};
  const auto add = [&](i64 p) __attribute__((always_inline)) {
    V column[std::size_t{kColumns}];
    for (int j = 0; j < kColumns; ++j) column[j] = in_register(load_as<V>(b + j * b_col + p));
    for (int i = 0; i < kRows; ++i) {
      const V row = in_register(load<V>(a + i * a_row + p));
      for (int j = 0; j < kColumns; ++j) sum[i * kColumns + j] += row * column[j];
    }
  };
  const i64 end = k / kLanes * kLanes;
  i64 p = 0;
  for (; p + kLine <= end; p += kLine) {
    for (int j = 0; j < kColumns; ++j) ask_for(b + j * b_col + p, ahead);
#pragma GCC unroll 4
    for (i64 q = 0; q < kLine; q += kLanes) add(p + q);
  }
  for (; p < end; p += kLanes) add(p);
  E total[std::size_t{kCount}];
  if constexpr (kCount % kTileLanes<E> == 0) {
    for (int n = 0; n < kCount; n += kTileLanes<E>) store(total + n, sums_of_lanes<E>(sum + n));
  } else {
    for (int n = 0; n < kCount; ++n) total[n] = sum_of_lanes<E>(sum[n]);
  }
  if (p < k) add_last<kRows, kColumns>(k - p, a + p, a_row, b + p, b_col, total);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; accumulate && j < kColumns; ++j) total[i * kColumns + j] += c[i * c_row + j];
    std::memcpy(c + i * c_row, total + i * kColumns, kColumns * sizeof(E));
  }
}

// As above, for all rows: four at a time, then one.
template <int kWide, int kEach, class B, class E>
PTOWSP_TILE_ONCE void add_columns(i64 m, i64 k, const E* a, i64 a_row, const B* b, i64 b_col,
                                  const Target<E>& to, i64 ahead) {
  i64 i = 0;
  const auto add = [&]<int kRows>(std::integral_constant<int, kRows>) {
    constexpr int kColumns = kWide == 1 ? 1 : kRows == 4 ? kEach / 2 : kEach;
#pragma GCC unroll 1
    for (int j = 0; j < kWide; j += kColumns) {
      add_products<kRows, kColumns>(k, a + i * a_row, a_row, b + j * b_col, b_col,
                                    to.c + i * to.row + j, to.row, to.accumulate,
                                    i == 0 ? ahead : 0);
    }
    i += kRows;
  };
  if constexpr (kWide > 1) {
    while (i + 4 <= m) add(std::integral_constant<int, 4>());
  }
  while (i < m) add(std::integral_constant<int, 1>());
}

template <class A, class B, class E>
PTOWSP_TILE_ONCE void multiply_few_columns(i64 k, const Sliver<A>& a, const Sliver<B>& b,
                                           const Target<E>& to, E* scratch, i64 ahead) {
  constexpr int kEach = std::max(4, kTileLanes<E> / 2);
  constexpr int kColumns = 2 * kEach;
  if (k == 0) return multiply_nothing(a.count, b.count, to);
  const i64 m = a.count;
  // What the scratch memory holds of a; and of b what stays in the first cache from row to row.
  constexpr i64 kRoom = kBlockDepth * kStripColumns;
  const i64 depth = equal_part(k, k * m <= kRoom ? k : kRoom / m, 16);
  const i64 part = m == 1 ? depth : equal_part(depth, 2048 / kEach, 16);
  for (i64 p = 0; p < k; p += depth) {
    const i64 deep = std::min(depth, k - p);
    const E* rows = scratch;
    i64 row = depth;
    if constexpr (std::is_same_v<A, E>) {  // where it lies, if its elements are adjacent
      if (a.along == 1) {
        rows = a.x + p;
        row = a.across;
      }
    }
    for (i64 i = 0; i < m && rows == scratch; ++i) {
      const A* from = a.x + i * a.across + p * a.along;
      for (i64 q = 0; q < deep; ++q) scratch[i * depth + q] = element<E>(from[q * a.along]);
    }
    for (i64 j = 0; j < b.count;) {
      const bool group = j + kColumns <= b.count;
      // Where the caller knows nothing better, what is read next are the columns behind these.
      const bool more = j + 2 * kColumns <= b.count;
      const i64 behind = more ? kColumns * b.across * i64{sizeof(B)} : 0;
      const i64 asked = ahead != 0 ? ahead : behind;
      for (i64 q = 0; q < deep; q += part) {
        const Target<E> at{to.c + j, to.row, to.accumulate || p + q > 0};
        const B* columns = b.x + j * b.across + p + q;
        const i64 length = std::min(part, deep - q);
        if (group) {
          add_columns<kColumns, kEach>(m, length, rows + q, row, columns, b.across, at, asked);
        } else {
          add_columns<1, 1>(m, length, rows + q, row, columns, b.across, at, asked);
        }
      }
      j += group ? kColumns : 1;
    }
  }
}

}  // namespace ptowsp::tile::detail
