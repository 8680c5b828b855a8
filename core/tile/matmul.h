// The product of two matrices: c = a b, or c += a b.
//
// a is m x k and b is k x n, with any distances between rows and between columns, so a transposed
// operand is one whose distances are swapped; the columns of c lie next to each other. Sums are
// made in Acc: float from float, f16 and bf16; double from double and float; i32, which wraps
// around, from i8, u8 and i32. In which order numbers are added depends on the shapes and on which
// distances are 1, never on addresses or contents. Nothing outside of the operands is read or
// written; `scratch` has matmul_scratch_bytes(m, n, k, sizeof(Acc)) bytes, aligned to 64.
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

#include "matmul_pack.h"
#include "vec.h"

namespace ptowsp::tile {

constexpr i64 matmul_scratch_bytes(i64 m, i64 n, i64 k, i64 element_size);

template <class A, class B, class Acc>
void matmul(i64 m, i64 n, i64 k, const A* a, i64 a_row, i64 a_col, const B* b, i64 b_row, i64 b_col,
            Acc* c, i64 c_row, bool accumulate, std::byte* scratch);

namespace detail {

// ---- sizes ------------------------------------------------------------------------------------

// A tile of c that fits into the registers, beside one row of b and an element of a. The short
// tile is for the last rows: most m are a sum of both heights.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14, kShortTileRows = 8, kTileVectors = 2;
#elif defined(__aarch64__)
inline constexpr int kTileRows = 8, kShortTileRows = 4, kTileVectors = 3;
#else
inline constexpr int kTileRows = 6, kShortTileRows = 4, kTileVectors = 2;
#endif
template <class E>
inline constexpr int kTileLanes = kVectorBytes / static_cast<int>(sizeof(E));
template <class E>
inline constexpr int kTileColumns = kTileVectors * kTileLanes<E>;

// The block of a stays in the second-level cache, a tile's columns of b in the first.
inline constexpr i64 kBlockDepth = 256;
inline constexpr i64 kBlockRowBytes = 1024;
inline constexpr i64 kStripColumns = 64;
template <class E>
inline constexpr i64 kBlockRows = kBlockRowBytes / i64{sizeof(E)};
// In elements: where the strip may begin, and room for that and for what copies write too much.
inline constexpr i64 kAligned = 16;
inline constexpr i64 kSlack = 64;
// Sums of a product with few rows, which stay in the first cache.
inline constexpr i64 kTileElements = 4096;

// `size` in equal parts of at most `most`, each a multiple of `unit` but the last.
constexpr i64 equal_part(i64 size, i64 most, i64 unit) {
  const i64 parts = std::max<i64>((size + most - 1) / most, 1);
  const i64 part = (size + parts - 1) / parts;
  return std::min((part + unit - 1) / unit * unit, most);
}

// How high the tile of the next rows is, of which `left` are left.
constexpr i64 tile_rows(i64 left) {
  const bool two_short = left > kTileRows && left <= 2 * kShortTileRows;
  return left <= kShortTileRows || two_short ? kShortTileRows : kTileRows;
}

// ---- what is read next ----------------------------------------------------------------------

// Memory that is read next: lines of it are asked for while tiles are computed. Its rows often lie
// a page apart, which no machine foresees by itself.
class Ahead {
 public:
  Ahead(const void* from, i64 rows, i64 row_bytes, i64 stride_bytes, i64 steps)
      : row_(static_cast<const std::byte*>(from)),
        rows_(rows),
        bytes_(row_bytes),
        stride_(stride_bytes) {
    const i64 lines = rows * ((row_bytes + kLine - 1) / kLine);
    each_ = (lines + steps - 1) / steps;
  }
  void step() {
    for (i64 i = 0; i < each_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + done_);
      done_ += kLine;
      if (done_ < bytes_) continue;
      done_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr i64 kLine = 64;
  const std::byte* row_;
  i64 rows_, bytes_, stride_, each_ = 0, done_ = 0;
};

// What pack_columns() of the same columns reads.
template <class T>
inline Ahead columns_ahead(Sliver<T> b, i64 k, i64 steps) {
  if (b.count <= 0) return Ahead(b.x, 0, 0, 0, 1);
  constexpr i64 kSize = sizeof(T);
  if (b.across == 1) return Ahead(b.x, k, b.count * kSize, b.along * kSize, steps);
  if (b.along == 1) return Ahead(b.x, b.count, k * kSize, b.across * kSize, steps);
  return Ahead(b.x, 0, 0, 0, 1);
}

// ---- blocks -----------------------------------------------------------------------------------

template <class E>
struct Target {
  E* c;
  i64 row;
  bool accumulate;
};

// A sum of no products.
template <class E>
inline void multiply_nothing(i64 m, i64 n, Target<E> to) {
  if (to.accumulate) return;
  for (i64 i = 0; i < m; ++i) std::fill_n(to.c + i * to.row, n, E{});
}

template <class E>
PTOWSP_TILE_ONCE void write_sums(i64 m, i64 n, const E* sums, i64 sums_row, Target<E> to) {
  for (i64 i = 0; i < m; ++i) {
    E* c = to.c + i * to.row;
    const E* from = sums + i * sums_row;
    for (i64 j = 0; j < n; ++j) c[j] = to.accumulate ? c[j] + from[j] : from[j];
  }
}

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

// ---- few rows ---------------------------------------------------------------------------------

// Up to here reading b where it lies is faster than copying it first.
inline constexpr i64 kFewRows = 16;

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

// Columns of b lie in memory: each element of c is a product of two vectors. Some rows of a, which
// are packed, times some columns.
template <int kRows, int kColumns, class B, class E>
inline void add_products(i64 k, const E* a, i64 a_row, Sliver<B> b, E* c, i64 c_row) {
  constexpr i64 kLanes = kTileLanes<E>;
  using V = Vec<E, kTileLanes<E>>;
  V sum[std::size_t{kRows}][std::size_t{kColumns}] = {};
  const i64 end = k / kLanes * kLanes;
  for (i64 p = 0; p < end; p += kLanes) {
    for (int j = 0; j < kColumns; ++j) {
      const V column = load_as<V>(b.x + j * b.across + p);
      for (int i = 0; i < kRows; ++i) sum[i][j] += load<V>(a + i * a_row + p) * column;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      E total = sum_of_lanes<E>(sum[i][j]);
      for (i64 p = end; p < k; ++p) total += a[i * a_row + p] * element<E>(b.x[j * b.across + p]);
      c[i * c_row + j] += total;
    }
  }
}

// As above, for all rows.
template <int kColumns, class B, class E>
PTOWSP_TILE_ONCE void add_columns(i64 m, i64 k, const E* a, i64 a_row, Sliver<B> b, E* c,
                                  i64 c_row) {
  i64 i = 0;
  if constexpr (kColumns > 1) {  // the last columns are few
    for (; i + 2 <= m; i += 2) {
      add_products<2, kColumns>(k, a + i * a_row, a_row, b, c + i * c_row, c_row);
    }
  }
  for (; i < m; ++i) {
    add_products<1, kColumns>(k, a + i * a_row, a_row, b, c + i * c_row, c_row);
  }
}

template <class A, class B, class E>
inline void multiply_few_columns(i64 k, Sliver<A> a, Sliver<B> b, Target<E> to, E* scratch) {
  constexpr i64 kColumns = 4;
  const i64 m = a.count;
  multiply_nothing(m, b.count, to);
  // What the scratch memory holds of a; and of b what stays in the first cache from row to row.
  const i64 depth = equal_part(k, kBlockDepth * kStripColumns / m, 16);
  const i64 part = m == 1 ? depth : equal_part(depth, 2048 / kColumns, 16);
  for (i64 p = 0; p < k; p += depth) {
    const i64 deep = std::min(depth, k - p);
    for (i64 i = 0; i < m; ++i) {
      const A* row = a.x + i * a.across + p * a.along;
      for (i64 q = 0; q < deep; ++q) scratch[i * depth + q] = element<E>(row[q * a.along]);
    }
    for (i64 j = 0; j < b.count;) {
      const bool group = j + kColumns <= b.count;
      const auto add = group ? add_columns<kColumns, B, E> : add_columns<1, B, E>;
      for (i64 q = 0; q < deep; q += part) {
        const Sliver<B> columns{b.x + j * b.across + p + q, kColumns, b.across, 1};
        add(m, std::min(part, deep - q), scratch + q, depth, columns, to.c + j, to.row);
      }
      j += group ? kColumns : 1;
    }
  }
}

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
                             std::byte* scratch) {
  if (m <= 0 || n <= 0) return;
  // Unsigned integers wrap around; signed ones must not overflow.
  using E = std::conditional_t<std::is_same_v<Acc, i32>, u32, Acc>;
  E* room = reinterpret_cast<E*>(scratch);
  const detail::Target<E> to{reinterpret_cast<E*>(c), c_row, accumulate};
  const detail::Sliver<A> rows{a, m, a_row, a_col};
  const detail::Sliver<B> columns{b, n, b_col, b_row};
  if (m <= detail::kFewRows && b_col == 1) {
    return detail::multiply_few_rows(k, rows, columns, to, room);
  }
  if (m <= detail::kFewRows && b_row == 1) {
    return detail::multiply_few_columns(k, rows, columns, to, room);
  }
  detail::multiply_blocks(k, rows, columns, to, room);
}

}  // namespace ptowsp::tile
