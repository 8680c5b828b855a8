// Elements in another place: copies, transposes, parts of tiles, rows by number.
#pragma once

#include <ptowsp_tile/map.h>

namespace ptowsp::tile {

// The row `i` of d from elements that lie `stride` apart.
template <class D, class T>
PTOWSP_TILE void copy_row(const D& d, i64 i, const T* from, i64 stride, i64 count) {
  T* to = d.at(i, 0);
  if (stride == 1 && d.col_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  for (i64 j = 0; j < count; ++j) to[j * d.col_stride] = from[j * stride];
}

// Copies what the source has.
template <class D, class A>
void TLOAD(D& d, const A& a) {
  d.rows = a.rows;
  d.cols = a.cols;
  for (i64 i = 0; i < a.rows; ++i) copy_row(d, i, a.at(i, 0), a.col_stride, a.cols);
}
// Copies what both have.
template <class D, class A>
void TSTORE(const D& d, const A& a) {
  const i64 rows = least(d.rows, a.rows);
  const i64 cols = least(d.cols, a.cols);
  for (i64 i = 0; i < rows; ++i) copy_row(d, i, a.at(i, 0), a.col_stride, cols);
}
// Through a page table: `row` gives the address of the first element of a row.
template <class A, class Row>
void TSTORE_ROWS(i64 rows, i64 cols, i64 col_stride, const A& a, Row row) {
  for (i64 i = 0; i < rows; ++i) {
    auto* to = row(i);
    const auto* from = a.at(i, 0);
    for (i64 j = 0; j < cols; ++j) to[j * col_stride] = from[j * a.col_stride];
  }
}

template <class D, class A>
void TTRANS(D& d, const A& a) {
  d.rows = a.cols;
  d.cols = a.rows;
  constexpr i64 kBlock = 16;  // of both, so that neither walks through memory in long steps
  for (i64 i0 = 0; i0 < a.rows; i0 += kBlock) {
    const i64 i1 = least(i0 + kBlock, a.rows);
    for (i64 j = 0; j < a.cols; ++j) {
      for (i64 i = i0; i < i1; ++i) *d.at(j, i) = *a.at(i, j);
    }
  }
}

// The same elements row by row; both tiles are whole.
template <class D, class A>
void TRESHAPE(D& d, const A& a) {
  i64 i = 0;
  i64 j = 0;
  for (i64 row = 0; row < a.rows; ++row) {
    for (i64 col = 0; col < a.cols; ++col) {
      *d.at(i, j) = *a.at(row, col);
      if (++j == d.cols) {
        j = 0;
        ++i;
      }
    }
  }
}

// A part of a tile, from that row and column on.
template <class D, class A>
void TSLICE(D& d, const A& a, i64 first_row, i64 first_col) {
  for (i64 i = 0; i < d.rows; ++i) {
    copy_row(d, i, a.at(first_row + i, first_col), a.col_stride, d.cols);
  }
}
// A tile into a part of another one.
template <class D, class A>
void TINSERT(D& d, const A& a, i64 first_row, i64 first_col) {
  for (i64 i = 0; i < a.rows; ++i) {
    auto* to = d.at(first_row + i, first_col);
    const auto* from = a.at(i, 0);
    for (i64 j = 0; j < a.cols; ++j) to[j * d.col_stride] = from[j * a.col_stride];
  }
}

// The whole tile: the scalar where the source has nothing.
template <class T, i64 R, i64 C, class A>
void TPAD(Tile<T, R, C>& d, const A& a, Register<T> s) {
  d.rows = R;
  d.cols = C;
  for (i64 i = 0; i < R; ++i) {
    const i64 count = i < a.rows ? a.cols : 0;
    copy_row(d, i, a.at(count > 0 ? i : 0, 0), a.col_stride, count);
    for (i64 j = count; j < C; ++j) d.set(i, j, s);
  }
}

// Whether there is a row of that number, of any type of integer.
template <class N>
PTOWSP_TILE bool is_row(N number, i64 rows) {
  return number >= 0 && static_cast<u64>(number) < static_cast<u64>(rows);
}

// Rows by number; one that does not exist is zeros. `row` gives the address of the first element of
// one of the `rows`.
template <class D, class I, class Row>
void TGATHER_ROWS(D& d, const I& numbers, i64 rows, i64 col_stride, Row row) {
  d.rows = numbers.rows;
  for (i64 i = 0; i < d.rows; ++i) {
    const auto number = numbers.get(i, 0);
    if (is_row(number, rows)) {
      copy_row(d, i, row(static_cast<i64>(number)), col_stride, d.cols);
    } else {
      for (i64 j = 0; j < d.cols; ++j) d.set(i, j, 0);
    }
  }
}
template <class D, class A, class I>
void TGATHER(D& d, const A& from, const I& numbers) {
  TGATHER_ROWS(d, numbers, from.rows, from.col_stride, [&](i64 i) { return from.at(i, 0); });
}
// Rows of `from` to places by number: of equal ones the last counts, others are left out.
template <class I, class A, class Row>
void TSCATTER_ROWS(const I& numbers, const A& from, i64 rows, i64 cols, i64 col_stride, Row row) {
  const i64 count = least(numbers.rows, from.rows);
  const i64 width = least(cols, from.cols);
  for (i64 i = 0; i < count; ++i) {
    const auto number = numbers.get(i, 0);
    if (!is_row(number, rows)) continue;
    auto* to = row(static_cast<i64>(number));
    const auto* source = from.at(i, 0);
    for (i64 j = 0; j < width; ++j) to[j * col_stride] = source[j * from.col_stride];
  }
}
template <class D, class I, class A>
void TSCATTER(const D& d, const I& numbers, const A& from) {
  const auto row = [&](i64 i) { return d.at(i, 0); };
  TSCATTER_ROWS(numbers, from, d.rows, d.cols, d.col_stride, row);
}

}  // namespace ptowsp::tile
