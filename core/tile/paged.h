// Rows that lie on pages: a window in pieces, each of which is one.
#pragma once

#include <ptowsp_tile/matmul_parts.h>
#include <ptowsp_tile/move.h>

namespace ptowsp::tile {

template <class T, int Rank>
struct PagedColumns;

// Tokens of a paged parameter from `first` on, and in them the elements from `offset` on.
template <class T, int Rank>
struct PagedWindow {
  using value_type = std::remove_const_t<T>;
  const PagedView<T, Rank>& view;
  i64 first;
  i64 offset;
  i64 col_stride;
  i64 rows;
  i64 cols;

  // The rows from `row` on, up to `end`, as far as they lie on one page.
  Window<T> piece(i64 row, i64 end) const {
    if (row >= end) return {nullptr, 0, col_stride, 0, cols};
    const auto page = view.rest_of_page(first + row);
    return {page.data() + offset, page.stride(0), col_stride, least(page.shape(0), end - row),
            cols};
  }
  // What is read behind the rows before `row`: the next piece, or what follows all of them.
  NextRows next(i64 row, i64 end, const NextRows& behind) const {
    if (row >= end) return behind;
    return next_rows(piece(row, end));
  }
  PagedColumns<T, Rank> transposed() const { return {*this}; }
};

template <class T, int Rank>
struct PagedColumns {
  PagedWindow<T, Rank> window;
  PagedWindow<T, Rank> transposed() const { return window; }
};

template <class T, bool Unit>
NextRows next_rows(const Window<T, Unit>& window) {
  constexpr i64 kSize = sizeof(T);
  if (window.col_stride != 1) return {};
  return {window.data, window.rows, window.cols * kSize, window.row_stride * kSize};
}
// The first page of what a window will be, if there is anything.
template <class T, int Rank>
NextRows next_rows(const PagedWindow<T, Rank>& window) {
  const i64 rows = least(window.rows, window.view.shape(0) - window.first);
  return window.first < 0 || rows <= 0 ? NextRows{} : next_rows(window.piece(0, rows));
}

template <class D, class T, int Rank>
void TLOAD(D& d, const PagedWindow<T, Rank>& from) {
  for (i64 done = 0; done < from.rows;) {
    const Window<T> part = from.piece(done, from.rows);
    for (i64 i = 0; i < part.rows; ++i) {
      copy_row(d, done + i, part.at(i, 0), part.col_stride, part.cols);
    }
    done += part.rows;
  }
}

}  // namespace ptowsp::tile
