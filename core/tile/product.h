// Products of tiles. A transposed operand is never moved: pass x.transposed().
#pragma once

#include <ptowsp_tile/matmul.h>
#include <ptowsp_tile/paged.h>
#include <ptowsp_tile/tile.h>

namespace ptowsp::tile {

// One copy for all products of these types: what is inside is large, and gcc likes to copy it for
// the constants of each call.
#if defined(__clang__)
#define PTOWSP_ONE_COPY __attribute__((noinline))
#else
#define PTOWSP_ONE_COPY __attribute__((noinline, noclone))
#endif
template <class A, class B, class Acc>
PTOWSP_ONE_COPY void multiply(i64 m, i64 n, i64 k, const A* a, i64 a_row, i64 a_col, const B* b,
                              i64 b_row, i64 b_col, Acc* c, i64 c_row, bool accumulate,
                              std::byte* scratch, [[maybe_unused]] i64 ahead = 0) {
  constexpr bool kBlocked = std::is_same_v<Acc, float> || std::is_same_v<Acc, double> ||
                            (std::is_same_v<Acc, i32> && sizeof(A) != 2);
  if constexpr (kBlocked) {
    matmul(m, n, k, a, a_row, a_col, b, b_row, b_col, c, c_row, accumulate, scratch, ahead);
  } else {  // integers that no machine multiplies in vectors
    for (i64 i = 0; i < m; ++i) {
      for (i64 j = 0; j < n; ++j) {
        Acc sum = accumulate ? c[i * c_row + j] : Acc{};
        for (i64 p = 0; p < k; ++p) {
          sum = vadd(sum, vmul(a[i * a_row + p * a_col], b[p * b_row + j * b_col]));
        }
        c[i * c_row + j] = sum;
      }
    }
  }
}

template <class D, class A, class B, class Next>
PTOWSP_TILE void product(D& d, const A& a, const B& b, bool accumulate, std::byte* scratch,
                         const Next&) {
  const i64 inner = least(a.cols, b.rows);
  d.rows = accumulate ? least(d.rows, a.rows) : a.rows;
  d.cols = accumulate ? least(d.cols, b.cols) : b.cols;
  multiply(d.rows, d.cols, inner, a.data, a.row_stride, a.col_stride, b.data, b.row_stride,
           b.col_stride, d.data, d.row_stride, accumulate, scratch);
}
// Rows of b that lie on pages: the parts of the sums. `next` is the window that is read next.
template <class D, class A, class T, int Rank, class Next>
PTOWSP_TILE void product(D& d, const A& a, const PagedWindow<T, Rank>& b, bool accumulate,
                         std::byte* scratch, const Next& next) {
  const i64 inner = least(a.cols, b.rows);
  d.rows = accumulate ? least(d.rows, a.rows) : a.rows;
  d.cols = accumulate ? least(d.cols, b.cols) : b.cols;
  Pieces<T, Rank> pieces(b, inner), later = pieces_ahead(pieces, next);
  i64 done = 0, rows = 0;
  do {
    const Window<T> part = pieces.take();
    rows = part.rows;
    multiply(d.rows, d.cols, part.rows, a.data + done * a.col_stride, a.row_stride, a.col_stride,
             part.data, part.row_stride, part.col_stride, d.data, d.row_stride,
             accumulate || done > 0, scratch, bytes_between(part, later.take()));
    done += rows;
  } while (done < inner && rows > 0);
}
// Columns of b that lie on pages: columns of d.
template <class D, class A, class T, int Rank, class Next>
PTOWSP_TILE void product(D& d, const A& a, const PagedColumns<T, Rank>& b, bool accumulate,
                         std::byte* scratch, const Next& next) {
  const auto& keys = b.window;
  const i64 inner = least(a.cols, keys.cols);
  d.rows = accumulate ? least(d.rows, a.rows) : a.rows;
  d.cols = accumulate ? least(d.cols, keys.rows) : keys.rows;
  const i64 columns = d.cols;
  Pieces<T, Rank> pieces(keys, columns), later = pieces_ahead(pieces, next);
  for (i64 done = 0; done < columns;) {
    const Window<T> part = pieces.take();
    multiply(d.rows, part.rows, inner, a.data, a.row_stride, a.col_stride, part.data,
             part.col_stride, part.row_stride, d.data + done, d.row_stride, accumulate, scratch,
             bytes_between(part, later.take()));
    if (part.rows == 0) return;  // nothing is there
    done += part.rows;
  }
}
template <class D, class A, class B, class Next = NotKnown>
PTOWSP_TILE void TMATMUL(D& d, const A& a, const B& b, std::byte* scratch, const Next& next = {}) {
  product(d, a, b, false, scratch, next);
}
// d is added to.
template <class D, class A, class B, class Next = NotKnown>
PTOWSP_TILE void TMATMUL_ACC(D& d, const A& a, const B& b, std::byte* scratch,
                             const Next& next = {}) {
  product(d, a, b, true, scratch, next);
}

}  // namespace ptowsp::tile
