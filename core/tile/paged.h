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

  PagedColumns<T, Rank> transposed() const { return {*this}; }
};

template <class T, int Rank>
struct PagedColumns {
  PagedWindow<T, Rank> window;
  PagedWindow<T, Rank> transposed() const { return window; }
};

// The pieces of a window, each on one page, up to so many rows: one after the other, which takes a
// division for the first of them only.
template <class T, int Rank>
class Pieces {
 public:
  Pieces(const PagedWindow<T, Rank>& window, i64 rows)
      : window_(window),
        left_(window.first < 0 ? 0 : least(rows, window.view.shape(0) - window.first)) {
    if (left_ > 0) at_ = window.view.place(window.first);
  }
  const PagedView<T, Rank>& view() const { return window_.view; }
  Pieces none() const { return Pieces(window_, 0); }
  // Without rows, when all are taken.
  Window<T> take() {
    const PagedView<T, Rank>& view = window_.view;
    if (left_ <= 0) return {nullptr, 0, window_.col_stride, 0, window_.cols};
    const i64 rows = least(view.page_size() - at_.token, left_);
    T* data = view.data(at_) + window_.offset;
    left_ -= rows;
    at_ = {at_.page + 1, 0};
    return {data, view.stride(0), window_.col_stride, rows, window_.cols};
  }

 private:
  PagedWindow<T, Rank> window_;
  i64 left_;
  typename PagedView<T, Rank>::Place at_{};
};

template <class T, int Rank>
bool lie_alike(const PagedView<T, Rank>& a, const PagedView<T, Rank>& b) {
  bool alike = a.page_size() == b.page_size();
  for (int dim = 0; dim < Rank; ++dim) alike = alike && a.stride(dim) == b.stride(dim);
  return alike;
}

// What is read behind a window: the one that is read next, if it lies as this one does, perhaps in
// another parameter. Nothing where that is not known.
struct NotKnown {};
template <class T, int Rank>
Pieces<T, Rank> pieces_behind(const Pieces<T, Rank>& now, const PagedWindow<T, Rank>& next) {
  return Pieces<T, Rank>(next, lie_alike(now.view(), next.view) ? next.rows : 0);
}
template <class T, int Rank>
Pieces<T, Rank> pieces_behind(const Pieces<T, Rank>& now, NotKnown) {
  return now.none();
}

// As many pieces as are multiplied at a time.
template <class T, int Rank>
detail::Runs<std::remove_const_t<T>> take_runs(Pieces<T, Rank>& pieces) {
  detail::Runs<std::remove_const_t<T>> runs;
  while (!runs.full()) {
    const Window<T> part = pieces.take();
    if (part.rows == 0) break;
    runs.add({part.data, part.rows, 0});
  }
  return runs;
}

template <class D, class T, int Rank>
void TLOAD(D& d, const PagedWindow<T, Rank>& from) {
  Pieces<T, Rank> pieces(from, from.rows);
  for (i64 done = 0; done < from.rows;) {
    const Window<T> part = pieces.take();
    if (part.rows == 0) return;  // nothing is there
    for (i64 i = 0; i < part.rows; ++i) {
      copy_row(d, done + i, part.at(i, 0), part.col_stride, part.cols);
    }
    done += part.rows;
  }
}

}  // namespace ptowsp::tile
