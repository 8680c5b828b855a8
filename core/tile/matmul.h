// The product of two matrices: c = a b, or c += a b.
//
// a is m x k and b is k x n, with any distances between rows and between columns, so a transposed
// operand is one whose distances are swapped; the columns of c lie next to each other. Sums are
// made in Acc: float from float, f16 and bf16; double from double and float; i32, which wraps
// around, from i8, u8 and i32. In which order numbers are added depends on the shapes and on which
// distances are 1, never on addresses or contents. Nothing outside of the operands is read or
// written; `scratch` has matmul_scratch_bytes(m, n, k, sizeof(Acc)) bytes, aligned to 64. `ahead`
// is how many bytes behind b that lies which the caller reads next, of the same shape: with few
// rows, where memory is what takes time, it is asked for.
//
//   blocks    a block of a and a strip of b are copied into the order in which the innermost loop
//             reads them, which keeps a tile of c in registers
//   few rows  b is read once, where it lies: as many rows as m cost less than the copy
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "matmul_columns.h"
#include "matmul_few.h"
#include "matmul_pack.h"
#include "matmul_parts.h"
#include "vec.h"

namespace ptowsp::tile {

constexpr i64 matmul_scratch_bytes(i64 m, i64 n, i64 k, i64 element_size);

template <class A, class B, class Acc>
void matmul(i64 m, i64 n, i64 k, const A* a, i64 a_row, i64 a_col, const B* b, i64 b_row, i64 b_col,
            Acc* c, i64 c_row, bool accumulate, std::byte* scratch, i64 ahead = 0);

// The same where b lies in runs of rows, or of columns.
template <class A, class B, class Acc>
void matmul_rows(i64 m, i64 n, const A* a, i64 a_row, i64 a_col, const detail::Runs<B>& b,
                 i64 b_row, i64 b_col, Acc* c, i64 c_row, bool accumulate, std::byte* scratch);
template <class A, class B, class Acc>
void matmul_columns(i64 m, i64 k, const A* a, i64 a_row, i64 a_col, const detail::Runs<B>& b,
                    i64 b_row, i64 b_col, Acc* c, i64 c_row, bool accumulate, std::byte* scratch);

namespace detail {

// Unsigned integers wrap around; signed ones must not overflow.
template <class Acc>
using SumOf = std::conditional_t<std::is_same_v<Acc, i32>, u32, Acc>;

// ---- blocks -----------------------------------------------------------------------------------

// A tile of c, of which `rows` x `columns` are wanted, from packed slivers of a and b.
template <int kRows, class E>
PTOWSP_TILE_ONCE void multiply_tile(i64 k, const E* a, const E* b, Target<E> to, i64 rows,
                                    i64 columns) {
  constexpr int kLanes = kTileLanes<E>;
  using V = Vec<E, kLanes>;
  // The tile of c is needed when its sums are there.
  for (i64 i = 0; i < rows; ++i) __builtin_prefetch(to.c + i * to.row);
  V sum[std::size_t{kRows}][std::size_t{kTileVectors}];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kTileVectors; ++v) sum[i][v] = V{};
  }
#pragma GCC unroll 4
  for (i64 p = 0; p < k; ++p) {
    V row[std::size_t{kTileVectors}];
    for (int v = 0; v < kTileVectors; ++v) row[v] = load<V>(b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kTileVectors; ++v) sum[i][v] += a[i] * row[v];
    }
    a += kRows;
    b += kTileColumns<E>;
  }
  if (rows == kRows && columns == kTileColumns<E>) {
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kTileVectors; ++v) {
        E* c = to.c + i * to.row + v * kLanes;
        store(c, to.accumulate ? load<V>(c) + sum[i][v] : sum[i][v]);
      }
    }
    return;
  }
  E tile[std::size_t{kRows}][std::size_t{kTileColumns<E>}];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kTileVectors; ++v) store(&tile[i][v * kLanes], sum[i][v]);
  }
  write_sums(rows, columns, &tile[0][0], kTileColumns<E>, to);
}

// Rows of a, packed tile by tile, times a packed strip of b.
template <class E>
inline void multiply_strip(i64 m, i64 n, i64 k, const E* a, const E* b, Target<E> to, Ahead ahead) {
  constexpr i64 kColumns = kTileColumns<E>;
  for (i64 j = 0; j < n; j += kColumns) {
    const i64 columns = std::min(n - j, kColumns);
    for (i64 i = 0, height = 0; i < m; i += height) {
      height = tile_rows(m - i);
      ahead.step();
      const Target<E> tile{to.c + i * to.row + j, to.row, to.accumulate};
      const i64 rows = std::min(m - i, height);
      if (height == kTileRows) {
        multiply_tile<kTileRows>(k, a + i * k, b + j * k, tile, rows, columns);
      } else {
        multiply_tile<kShortTileRows>(k, a + i * k, b + j * k, tile, rows, columns);
      }
    }
  }
}

template <class E, class T>
inline void pack_rows(Sliver<T> a, i64 k, E* to, Ahead ahead) {
  for (i64 i = 0, height = 0; i < a.count; i += height) {
    ahead.step();
    height = tile_rows(a.count - i);
    const Sliver<T> tile{a.x + i * a.across, std::min(height, a.count - i), a.across, a.along};
    pack_sliver(tile, height, k, to + i * k);
  }
}

template <class E, class T>
PTOWSP_TILE_ONCE void pack_columns(Sliver<T> b, i64 k, E* to) {
  constexpr i64 kColumns = kTileColumns<E>;
  using V = Vec<E, kTileLanes<E>>;
  i64 j = 0;
  if (b.across == 1) {  // all slivers at once: rows may lie a page apart
    j = b.count / kColumns * kColumns;
    for (i64 p = 0; p < k; ++p) {
      for (i64 i = 0; i < j; i += kTileLanes<E>) {
        const i64 within = i % kColumns;
        store(to + (i - within) * k + p * kColumns + within, load_as<V>(b.x + p * b.along + i));
      }
    }
  }
  for (; j < b.count; j += kColumns) {
    const Sliver<T> tile{b.x + j * b.across, std::min(kColumns, b.count - j), b.across, b.along};
    pack_sliver(tile, kColumns, k, to + j * k);
  }
}

// `a` holds the rows and `b` the columns, both with their k elements along.
template <class A, class B, class E>
inline void multiply_block(i64 k, Sliver<A> a, Sliver<B> b, Target<E> to, E* scratch) {
  constexpr i64 kStrip = kStripColumns / kTileColumns<E> * kTileColumns<E>;
  const i64 tiles = a.count / kTileRows + 1;
  const auto strip_at = [&](i64 j) {
    return Sliver<B>{b.x + j * b.across, std::min(kStrip, b.count - j), b.across, b.along};
  };
  // In this order: what a copy writes too much falls on what is written later.
  E* block = scratch;
  E* strip = block + ((a.count + kTileRows) * k + kAligned - 1) / kAligned * kAligned;
  pack_rows(a, k, block, columns_ahead(strip_at(0), k, tiles));
  for (i64 j = 0; j < b.count; j += kStrip) {
    const Sliver<B> columns = strip_at(j);
    pack_columns(columns, k, strip);
    const i64 steps = tiles * (columns.count / kTileColumns<E> + 1);
    multiply_strip(a.count, columns.count, k, block, strip,
                   Target<E>{to.c + j, to.row, to.accumulate},
                   columns_ahead(strip_at(j + columns.count), k, steps));
  }
}

template <class A, class B, class E>
inline void multiply_blocks(i64 k, Sliver<A> a, Sliver<B> b, Target<E> to, E* scratch) {
  if (k == 0) return multiply_nothing(a.count, b.count, to);
  const i64 depth = equal_part(k, kBlockDepth, 1);
  const i64 height = equal_part(a.count, kBlockRows<E>, 1);
  for (i64 p = 0; p < k; p += depth) {
    const i64 deep = std::min(depth, k - p);
    const Sliver<B> b_part{b.x + p * b.along, b.count, b.across, b.along};
    for (i64 i = 0; i < a.count; i += height) {
      const A* rows = a.x + i * a.across + p * a.along;
      multiply_block(deep, Sliver<A>{rows, std::min(height, a.count - i), a.across, a.along},
                     b_part, Target<E>{to.c + i * to.row, to.row, to.accumulate || p > 0}, scratch);
    }
  }
}

// Which way a product goes; `b_col` and `b_row` are distances.
template <class B>
constexpr bool is_small(i64 m, i64 n, i64 k, i64 b_col) {
  return m <= kFewRows && b_col == 1 && k * n * i64{sizeof(B)} <= kSmallBytes;
}
constexpr bool is_few_columns(i64 m, i64 b_row) { return m <= kFewRows && b_row == 1; }

}  // namespace detail

constexpr i64 matmul_scratch_bytes(i64 m, i64 n, i64 k, i64 element_size) {
  const i64 depth = std::min(k, detail::kBlockDepth);
  const i64 rows = std::min(m, detail::kBlockRowBytes / element_size) + 16;
  const i64 columns = n > 0 ? detail::kStripColumns : 0;
  return element_size * (depth * (rows + columns) + detail::kTileElements + detail::kSlack);
}

template <class A, class B, class Acc>
PTOWSP_TILE_ONCE void matmul(i64 m, i64 n, i64 k, const A* a, i64 a_row, i64 a_col, const B* b,
                             i64 b_row, i64 b_col, Acc* c, i64 c_row, bool accumulate,
                             std::byte* scratch, i64 ahead) {
  if (m <= 0 || n <= 0) return;
  using E = detail::SumOf<Acc>;
  E* room = reinterpret_cast<E*>(scratch);
  const detail::Target<E> to{reinterpret_cast<E*>(c), c_row, accumulate};
  const detail::Sliver<A> rows{a, m, a_row, a_col};
  const detail::Sliver<B> columns{b, n, b_col, b_row};
  if (detail::is_small<B>(m, n, k, b_col)) {
    detail::Runs<B> all;
    all.add({b, k, ahead});
    return detail::multiply_small(n, rows, all, b_row, to);
  }
  if (m <= detail::kFewRows && b_col == 1) {
    return detail::multiply_few_rows(k, rows, columns, to, room);
  }
  if (detail::is_few_columns(m, b_row)) {
    detail::Runs<B> all;
    all.add({b, n, ahead});
    return detail::multiply_few_columns(k, rows, all, b_col, to, room);
  }
  detail::multiply_blocks(k, rows, columns, to, room);
}

template <class A, class B, class Acc>
PTOWSP_TILE_ONCE void matmul_rows(i64 m, i64 n, const A* a, i64 a_row, i64 a_col,
                                  const detail::Runs<B>& b, i64 b_row, i64 b_col, Acc* c, i64 c_row,
                                  bool accumulate, std::byte* scratch) {
  if (m <= 0 || n <= 0) return;
  using E = detail::SumOf<Acc>;
  const detail::Target<E> to{reinterpret_cast<E*>(c), c_row, accumulate};
  if (b.size == 0) return detail::multiply_nothing(m, n, to);
  if (detail::is_small<B>(m, n, b.size, b_col)) {
    return detail::multiply_small(n, detail::Sliver<A>{a, m, a_row, a_col}, b, b_row, to);
  }
  for (const detail::Run<B>& run : b) {
    matmul(m, n, run.size, a, a_row, a_col, run.x, b_row, b_col, c, c_row, accumulate, scratch,
           run.ahead);
    a += run.size * a_col;
    accumulate = true;
  }
}

template <class A, class B, class Acc>
PTOWSP_TILE_ONCE void matmul_columns(i64 m, i64 k, const A* a, i64 a_row, i64 a_col,
                                     const detail::Runs<B>& b, i64 b_row, i64 b_col, Acc* c,
                                     i64 c_row, bool accumulate, std::byte* scratch) {
  if (m <= 0 || b.size == 0) return;
  using E = detail::SumOf<Acc>;
  if (detail::is_few_columns(m, b_row)) {
    const detail::Target<E> to{reinterpret_cast<E*>(c), c_row, accumulate};
    return detail::multiply_few_columns(k, detail::Sliver<A>{a, m, a_row, a_col}, b, b_col, to,
                                        reinterpret_cast<E*>(scratch));
  }
  for (const detail::Run<B>& run : b) {
    matmul(m, run.size, k, a, a_row, a_col, run.x, b_row, b_col, c, c_row, accumulate, scratch,
           run.ahead);
    c += run.size;
  }
}

}  // namespace ptowsp::tile
