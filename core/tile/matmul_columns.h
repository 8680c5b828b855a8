// Products with few rows whose b is given by columns: each element of c is a product of two
// vectors. b is read where it lies. What comes from memory, since something is known of what is
// read next, is walked column by column while rows of a stay in registers; what lies in a cache,
// some columns beside each other.
#pragma once

#include "matmul_pack.h"
#include "matmul_parts.h"
#include "vec.h"

namespace ptowsp::tile::detail {

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

// Lanes of two vectors, added to those that lie behind them, first(i) and first(i) + kApart: a lane
// number from kLanes on is one of y.
template <int kApart, class V, class F, int... i>
[[gnu::always_inline]] inline V add_lanes(V x, V y, F first, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(x, y, first(i)...) +
         __builtin_shufflevector(x, y, (first(i) + kApart)...);
}
// The sums of as many vectors as they have lanes, in the order of sum_of_lanes(). Each step puts
// two vectors together in a way that machines shuffle without a table: halves, quarters of 16
// bytes, and in these. Of x and y, 16 lanes in quarters 0 to 3, it adds
//   half      x0 x1 y0 y1  and  x2 x3 y2 y3
//   quarter   x0 x2 y0 y2  and  x1 x3 y1 y3
//   in_turn   x[0] y[0] x[1] y[1]  and  x[2] y[2] x[3] y[3]  in each quarter
//   in_pairs  x[0] x[1] y[0] y[1]  and  x[2] x[3] y[2] y[3]  in each quarter
template <class E, class V>
[[gnu::always_inline]] inline V sums_of_lanes(V* x) {
  constexpr int kLanes = kTileLanes<E>;
  constexpr int kEach = 16 / static_cast<int>(sizeof(E));  // lanes of a quarter
  constexpr int kParts = kLanes / kEach;
  constexpr std::make_integer_sequence<int, kLanes> lanes;
  if constexpr (kParts > 1) {
    constexpr auto half = [](int i) { return i < kLanes / 2 ? i : kLanes + i - kLanes / 2; };
    for (int i = 0; i < kLanes; ++i) {
      if (i % (2 * kEach) < kEach) x[i] = add_lanes<kLanes / 2>(x[i], x[i + kEach], half, lanes);
    }
  }
  if constexpr (kParts > 2) {
    constexpr auto quarter = [](int i) {
      const int part = i / kEach;
      return (part < 2 ? 0 : kLanes) + part % 2 * 2 * kEach + i % kEach;
    };
    for (int i = 0; i < kEach; ++i) {
      x[i] = add_lanes<kEach>(x[i], x[i + 2 * kEach], quarter, lanes);
    }
  }
  constexpr auto in_turn = [](int i) {
    return (i % 2 == 0 ? 0 : kLanes) + i / kEach * kEach + i % kEach / 2;
  };
  for (int i = 0; i < kEach; i += 2) {
    x[i] = add_lanes<kEach / 2>(x[i], x[i + 1], in_turn, lanes);
  }
  if constexpr (kEach > 2) {
    constexpr auto in_pairs = [](int i) { return (i % 4 < 2 ? 0 : kLanes) + i / 4 * 4 + i % 2; };
    x[0] = add_lanes<2>(x[0], x[2], in_pairs, lanes);
  }
  return x[0];
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
// of two vectors, of which this adds up all whole ones, lane by lane. Columns beside each other:
// each row is read once for all of them.
template <int kRows, int kColumns, class B, class E, class V>
[[gnu::always_inline]] inline void add_beside(i64 end, const E* a, i64 a_row, const B* b, i64 b_col,
                                              V* sum, i64 ahead) {
  constexpr i64 kLanes = kTileLanes<E>;
  constexpr i64 kLine = std::max<i64>(kLineBytes / i64{sizeof(B)}, kLanes);
  const auto add = [&](i64 p) __attribute__((always_inline)) {
    V column[std::size_t{kColumns}];
    for (int j = 0; j < kColumns; ++j) column[j] = in_register(load_as<V>(b + j * b_col + p));
    for (int i = 0; i < kRows; ++i) {
      const V row = in_register(load<V>(a + i * a_row + p));
      for (int j = 0; j < kColumns; ++j) sum[i * kColumns + j] += row * column[j];
    }
  };
  i64 p = 0;
  for (; p + kLine <= end; p += kLine) {
    for (int j = 0; j < kColumns; ++j) ask_for(b + j * b_col + p, ahead);
#pragma GCC unroll 4
    for (i64 q = 0; q < kLine; q += kLanes) add(p + q);
  }
  for (; p < end; p += kLanes) add(p);
}
template <int kRows, int kColumns, class B, class E>
[[gnu::always_inline]] inline void add_products(i64 k, const E* a, i64 a_row, const B* b, i64 b_col,
                                                E* c, i64 c_row, bool accumulate, i64 ahead) {
  constexpr int kCount = kRows * kColumns;
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kCount}] = {};
  const i64 p = k / kTileLanes<E> * kTileLanes<E>;
  add_beside<kRows, kColumns>(p, a, a_row, b, b_col, sum, ahead);
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

// ---- columns of b that come from memory -------------------------------------------------------

// Columns are walked one after the other, as memory likes it, while rows of a stay in registers.
// Each of the first kWalks walks asks for its share of what is read next, in its order.
template <int kWalks>
struct Walk {
  int number;
  i64 ahead;
};

// So many vectors of kRows rows of a, times those of kColumns columns. kFirst: sums begin here.
// In a walk, each step asks for as much of the columns, beginning at the walk's first one, as makes
// its share in the end.
template <int kRows, int kColumns, int kHeld, bool kFirst, int kWalks, class B, class E, class V>
[[gnu::always_inline]] inline void add_held(const E* a, i64 a_row, const B* b, i64 b_col, V* sum,
                                            const Walk<kWalks>& walk) {
  constexpr int kLanes = kTileLanes<E>;
  constexpr int kStep = kWalks > 0 ? kHeld * kLanes / kWalks : 0;
  V row[std::size_t{kRows}][std::size_t{kHeld}];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kHeld; ++v) row[i][v] = in_register(load<V>(a + i * a_row + v * kLanes));
  }
#pragma GCC unroll 1
  for (int j = 0; j < kColumns; ++j) {
    if constexpr (kWalks > 0) {
      const int share = walk.number * kColumns + j;
      const B* part = b + share / kWalks * b_col + share % kWalks * kStep;
      for (int q = 0; q < kStep; q += kLineBytes / int{sizeof(B)}) ask_for(part + q, walk.ahead);
    }
    V now[std::size_t{kRows}] = {};
    for (int i = 0; i < kRows && !kFirst; ++i) now[i] = sum[i * kColumns + j];
    for (int v = 0; v < kHeld; ++v) {
      const V x = load_as<V>(b + j * b_col + v * kLanes);
      for (int i = 0; i < kRows; ++i) now[i] += row[i][v] * x;
    }
    for (int i = 0; i < kRows; ++i) sum[i * kColumns + j] = now[i];
  }
}

// All of kRows rows times kColumns columns, as many as a vector has lanes.
template <int kRows, int kWalks, class B, class E>
[[gnu::always_inline]] inline void add_from_memory(i64 k, const E* a, i64 a_row, const B* b,
                                                   i64 b_col, E* c, i64 c_row, bool accumulate,
                                                   const Walk<kWalks>& walk) {
  constexpr i64 kLanes = kTileLanes<E>;
  constexpr int kColumns = kTileLanes<E>;
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kRows} * std::size_t{kColumns}];
  i64 p = 0;
  const auto add =
      [&]<int kHeld>(std::integral_constant<int, kHeld>) __attribute__((always_inline)) {
        if (p == 0 && kHeld * kLanes <= k) {
          add_held<kRows, kColumns, kHeld, true>(a, a_row, b, b_col, sum, walk);
          p += kHeld * kLanes;
        }
        for (; p + kHeld * kLanes <= k; p += kHeld * kLanes) {
          add_held<kRows, kColumns, kHeld, false>(a + p, a_row, b + p, b_col, sum, walk);
        }
      };
  add(std::integral_constant<int, 8>());
  add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 1>());
  if (p == 0) std::fill_n(sum, kRows * kColumns, V{});
  for (int i = 0; i < kRows; ++i) {
    E total[std::size_t{kColumns}];
    store(total, sums_of_lanes<E>(sum + i * kColumns));
    if (p < k) add_last<1, kColumns>(k - p, a + i * a_row + p, a_row, b + p, b_col, total);
    for (int j = 0; accumulate && j < kColumns; ++j) total[j] += c[i * c_row + j];
    std::memcpy(c + i * c_row, total, sizeof total);
  }
}

// As many columns as a vector has lanes, for all rows. Two columns at a time would wait less for
// their sums, but memory is read faster at one place than at two.
template <class B, class E>
PTOWSP_TILE_ONCE void add_columns_from_memory(i64 m, i64 k, const E* a, i64 a_row, const B* b,
                                              i64 ahead, i64 across, const Target<E>& to) {
  i64 i = 0;
  const auto add = [&]<int kRows, int kWalks>(std::integral_constant<int, kRows>,
                                              const Walk<kWalks>& walk) {
    add_from_memory<kRows>(k, a + i * a_row, a_row, b, across, to.c + i * to.row, to.row,
                           to.accumulate, walk);
    i += kRows;
  };
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 1> one;
  for (int walk = 0; walk < 2 && m >= 4; ++walk) add(two, Walk<2>{walk, ahead});
  if (m < 4 && m >= 2) add(two, Walk<1>{0, ahead});
  if (m == 1) add(one, Walk<1>{0, ahead});
  while (i + 2 <= m) add(two, Walk<0>{});
  while (i < m) add(one, Walk<0>{});
}

// ---- all columns ------------------------------------------------------------------------------

// Columns that are multiplied at a time by one row; by four, half of them.
template <class E>
inline constexpr int kFewColumns = std::max(4, kTileLanes<E> / 2);

// All rows times the columns of a run, `across` apart: some at a time, then one. Each part of
// `depth` elements is walked for all rows while it is in the first cache.
template <class B, class E>
[[gnu::always_inline]] inline void add_run(i64 m, i64 k, i64 depth, const E* a, i64 a_row,
                                           const Run<B>& run, i64 across, const Target<E>& to) {
  constexpr int kColumns = 2 * kFewColumns<E>;
  constexpr i64 kMostHeld = 256;  // elements of a column, of which one walk asks for the next
  // Where something is known of what is read next, b comes from memory.
  const bool from_memory = kManyRegisters && run.ahead != 0 && k <= kMostHeld;
  for (i64 j = 0; j < run.size;) {
    const bool group = j + kColumns <= run.size;
    if (from_memory && j + kTileLanes<E> <= run.size) {
      add_columns_from_memory(m, k, a, a_row, run.x + j * across, run.ahead, across,
                              Target<E>{to.c + j, to.row, to.accumulate});
      j += kTileLanes<E>;
      continue;
    }
    // Where the caller knows nothing better, what is read next are the columns behind these.
    const bool more = j + 2 * kColumns <= run.size;
    const i64 behind = more ? kColumns * across * i64{sizeof(B)} : 0;
    const i64 ahead = run.ahead != 0 ? run.ahead : behind;
    for (i64 q = 0; q < k; q += depth) {
      const Target<E> at{to.c + j, to.row, to.accumulate || q > 0};
      const B* columns = run.x + j * across + q;
      const i64 length = std::min(depth, k - q);
      if (group) {
        add_columns<kColumns, kFewColumns<E>>(m, length, a + q, a_row, columns, across, at, ahead);
      } else {
        add_columns<1, 1>(m, length, a + q, a_row, columns, across, at, ahead);
      }
    }
    j += group ? kColumns : 1;
  }
}

// `b` are columns of k elements, `across` apart.
template <class A, class B, class E>
PTOWSP_TILE_ONCE void multiply_few_columns(i64 k, const Sliver<A>& a, const Runs<B>& b, i64 across,
                                           const Target<E>& to, E* scratch) {
  if (k == 0) return multiply_nothing(a.count, b.size, to);
  const i64 m = a.count;
  // What the scratch memory holds of a; and of b what stays in the first cache from row to row.
  constexpr i64 kRoom = kBlockDepth * kStripColumns;
  const i64 depth = equal_part(k, k * m <= kRoom ? k : kRoom / m, 16);
  const i64 part = m == 1 ? depth : equal_part(depth, 2048 / kFewColumns<E>, 16);
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
    Target<E> at{to.c, to.row, to.accumulate || p > 0};
    for (const Run<B>& run : b) {
      add_run(m, deep, part, rows, row, Run<B>{run.x + p, run.size, run.ahead}, across, at);
      at.c += run.size;
    }
  }
}

}  // namespace ptowsp::tile::detail
