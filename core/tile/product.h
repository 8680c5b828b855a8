// Products and sorting of tiles. A transposed operand is never moved: pass x.transposed().
#pragma once

#include <ptowsp_tile/matmul.h>
#include <ptowsp_tile/sort.h>
#include <ptowsp_tile/tile.h>

namespace ptowsp::tile {

template <class D, class A, class B>
PTOWSP_TILE void product(D& d, const A& a, const B& b, bool accumulate, std::byte* scratch) {
  const i64 inner = least(a.cols, b.rows);
  d.rows = accumulate ? least(d.rows, a.rows) : a.rows;
  d.cols = accumulate ? least(d.cols, b.cols) : b.cols;
  matmul(d.rows, d.cols, inner, a.data, a.row_stride, a.col_stride, b.data, b.row_stride,
         b.col_stride, d.data, d.row_stride, accumulate, scratch);
}
template <class D, class A, class B>
PTOWSP_TILE void TMATMUL(D& d, const A& a, const B& b, std::byte* scratch) {
  product(d, a, b, false, scratch);
}
// d is added to.
template <class D, class A, class B>
PTOWSP_TILE void TMATMUL_ACC(D& d, const A& a, const B& b, std::byte* scratch) {
  product(d, a, b, true, scratch);
}

// Of each row the k largest, in order, and where they were.
template <class V, class I, class A>
void TTOPK(V& values, I& indices, const A& a, i64 k, std::byte* scratch) {
  for (i64 i = 0; i < a.rows; ++i) {
    topk_row(a.at(i, 0), a.cols, k, values.at(i, 0), indices.at(i, 0), scratch);
  }
}
// Each row in order, and where its elements were.
template <class V, class I, class A>
void TSORT(V& values, I& indices, const A& a, bool descending, std::byte* scratch) {
  for (i64 i = 0; i < a.rows; ++i) {
    sort_row(a.at(i, 0), a.cols, descending, values.at(i, 0), indices.at(i, 0), scratch);
  }
}

}  // namespace ptowsp::tile
