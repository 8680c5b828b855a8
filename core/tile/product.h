// Products of tiles. A transposed operand is never moved: pass x.transposed().
#pragma once

#include <ptowsp_tile/matmul.h>
#include <ptowsp_tile/paged.h>
#include <ptowsp_tile/tile.h>

#include <array>

namespace ptowsp::tile {

// One copy for all products of these types: what is inside is large, and gcc likes to copy it for
// the constants of each call.
#if defined(__clang__)
#define PTOWSP_ONE_COPY __attribute__((noinline))
#else
#define PTOWSP_ONE_COPY __attribute__((noinline, noclone))
#endif
// Others are multiplied one by one.
template <class A, class Acc>
inline constexpr bool kInVectors = std::is_same_v<Acc, float> || std::is_same_v<Acc, double> ||
                                   (std::is_same_v<Acc, i32> && sizeof(A) != 2);
template <class A, class B, class Acc>
PTOWSP_ONE_COPY void multiply(i64 m, i64 n, i64 k, const A* a, i64 a_row, i64 a_col, const B* b,
                              i64 b_row, i64 b_col, Acc* c, i64 c_row, bool accumulate,
                              [[maybe_unused]] std::byte* scratch) {
  if constexpr (kInVectors<A, Acc>) {
    matmul(m, n, k, a, a_row, a_col, b, b_row, b_col, c, c_row, accumulate, scratch);
  } else {
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
// The same where b lies in runs: of rows, which are parts of the sums, or of columns, which are
// columns of c.
enum class RunsOf { kRows, kColumns };
template <RunsOf Which, class A, class B, class Acc>
PTOWSP_ONE_COPY void multiply_runs(i64 m, i64 other, const A* a, i64 a_row, i64 a_col,
                                   const detail::Runs<B>& b, i64 b_row, i64 b_col, Acc* c,
                                   i64 c_row, bool accumulate, std::byte* scratch) {
  if constexpr (kInVectors<A, Acc> && Which == RunsOf::kRows) {
    matmul_rows(m, other, a, a_row, a_col, b, b_row, b_col, c, c_row, accumulate, scratch);
  } else if constexpr (kInVectors<A, Acc>) {
    matmul_columns(m, other, a, a_row, a_col, b, b_row, b_col, c, c_row, accumulate, scratch);
  } else if constexpr (Which == RunsOf::kRows) {
    if (b.size == 0) {
      const B* none = nullptr;
      multiply(m, other, 0, a, a_row, a_col, none, b_row, b_col, c, c_row, accumulate, scratch);
    }
    for (const detail::Run<B>& run : b) {
      multiply(m, other, run.size, a, a_row, a_col, run.x, b_row, b_col, c, c_row, accumulate,
               scratch);
      a += run.size * a_col;
      accumulate = true;
    }
  } else {
    for (const detail::Run<B>& run : b) {
      multiply(m, run.size, other, a, a_row, a_col, run.x, b_row, b_col, c, c_row, accumulate,
               scratch);
      c += run.size;
    }
  }
}

// ---- b on pages -------------------------------------------------------------------------------

// Products whose second operands lie on the same pages, as the heads of a cache do, are computed
// together: page by page, so that memory is read about in its order.
template <class D, class A, class B>
struct Product {
  D& d;
  const A& a;
  const B& b;
};
template <class D, class A, class B>
Product<D, A, B> by(D& d, const A& a, const B& b) {
  return {d, a, b};
}

template <class T, int Rank>
const PagedWindow<T, Rank>& window_of(const PagedWindow<T, Rank>& b) {
  return b;
}
template <class T, int Rank>
const PagedWindow<T, Rank>& window_of(const PagedColumns<T, Rank>& b) {
  return b.window;
}
template <class B>
inline constexpr RunsOf kRunsOf = RunsOf::kRows;
template <class T, int Rank>
inline constexpr RunsOf kRunsOf<PagedColumns<T, Rank>> = RunsOf::kColumns;

// One of them. Tokens are rows of b, along which numbers are added up, or columns, which are those
// of c; `others` is how many there are of the other kind. `offset` is how many elements its b lies
// behind that of the first product.
template <class A, class Acc>
struct Factors {
  i64 m, tokens, others;
  const A* a;
  i64 a_row, a_col;
  Acc* c;
  i64 c_row;
  i64 offset;

  template <RunsOf Which>
  void pass(i64 size) {
    if constexpr (Which == RunsOf::kRows) {
      a += size * a_col;
    } else {
      c += size;
    }
  }
};
template <bool Accumulate, class D, class A, class B>
PTOWSP_TILE auto factors_of(const Product<D, A, B>& product, i64 first) {
  auto& [d, a, b] = product;
  const auto& window = window_of(b);
  constexpr bool kRows = kRunsOf<B> == RunsOf::kRows;
  const i64 cols = kRows ? window.cols : window.rows;
  d.rows = Accumulate ? least(d.rows, a.rows) : a.rows;
  d.cols = Accumulate ? least(d.cols, cols) : cols;
  const i64 inner = least(a.cols, kRows ? window.rows : window.cols);
  return Factors<std::remove_cvref_t<decltype(*a.data)>, std::remove_cvref_t<decltype(*d.data)>>{
      d.rows, kRows ? inner : d.cols, kRows ? d.cols : inner, a.data, a.row_stride, a.col_stride,
      d.data, d.row_stride,           window.offset - first};
}

// How far ahead memory is asked for: what comes while that much is computed, and what the first
// cache has room for.
inline constexpr i64 kBytesAhead = i64{1} << 13;

// The pieces of all products, page by page, those of `later` behind those of `now`.
template <std::size_t Count, class B>
class Order {
 public:
  Order(const detail::Runs<B>& now, const detail::Runs<B>& later) : now_(now), later_(later) {}
  // How many bytes a piece lies behind another one, so many pieces before it; 0 if it is not known.
  template <class All>
  i64 ahead(const All& factors, i64 run, i64 one, i64 pieces) const {
    const i64 number = run * kCount + one + pieces;
    const B* x = begin(number / kCount);
    if (x == nullptr) return 0;
    const i64 elements = factors[static_cast<std::size_t>(number % kCount)].offset -
                         factors[static_cast<std::size_t>(one)].offset;
    const auto place = [](const B* at) { return reinterpret_cast<std::uintptr_t>(at); };
    return static_cast<i64>(place(x) - place(now_.run[run].x)) + elements * i64{sizeof(B)};
  }

 private:
  static constexpr i64 kCount = Count;
  const B* begin(i64 run) const {
    if (run < now_.count) return now_.run[run].x;
    return run - now_.count < later_.count ? later_.run[run - now_.count].x : nullptr;
  }
  const detail::Runs<B>& now_;
  const detail::Runs<B>& later_;
};

template <RunsOf Which, class A, class B, class Acc, std::size_t Count>
PTOWSP_ONE_COPY void multiply_pages(std::array<Factors<A, Acc>, Count>& factors,
                                    detail::Runs<B>& runs, const detail::Runs<B>& later, i64 b_row,
                                    i64 b_col, bool accumulate, std::byte* scratch) {
  const auto multiply_some = [&](Factors<A, Acc>& s, const detail::Runs<B>& some, bool add) {
    multiply_runs<Which>(s.m, s.others, s.a, s.a_row, s.a_col, some, b_row, b_col, s.c, s.c_row,
                         accumulate || add, scratch);
    s.template pass<Which>(some.size);
  };
  const Order<Count, B> order(runs, later);
  const i64 row_bytes = factors[0].others * i64{sizeof(B)};
  const auto ahead = [&](i64 run, i64 one) {
    const i64 bytes = std::max<i64>(runs.run[run].size * row_bytes, 1);
    return order.ahead(factors, run, one, std::max<i64>(kBytesAhead / bytes, 1));
  };
  // One product of a b that is small, or of columns, adds in the same order at once as in parts.
  const bool is_small = Which == RunsOf::kColumns || runs.size * row_bytes <= detail::kSmallBytes;
  if ((Count == 1 && is_small) || runs.count == 0) {
    for (i64 run = 0; run < runs.count; ++run) runs.run[run].ahead = ahead(run, 0);
    for (Factors<A, Acc>& each : factors) multiply_some(each, runs, false);
    return;
  }
  // Pieces are multiplied in parts, each while the next is asked for: such that stay in the first
  // cache where tokens are adjacent, and otherwise in the second one.
  const i64 token = Which == RunsOf::kRows ? b_row : b_col;
  const i64 token_bytes = token * i64{sizeof(B)};
  const i64 part_bytes = token == factors[0].others ? kBytesAhead : detail::kSmallBytes;
  const i64 most = std::max<i64>(part_bytes / std::max<i64>(row_bytes, 1), 1);
  const auto multiply_piece = [&](Factors<A, Acc>& s, const detail::Run<B>& piece, bool add) {
    for (i64 done = 0; done < piece.size; done += most) {
      const i64 size = std::min(most, piece.size - done);
      const bool last = done + size == piece.size;
      const i64 behind = piece.ahead == 0 ? 0 : piece.ahead - done * token_bytes;
      detail::Runs<B> one;
      one.add({piece.x + done * token, size, last ? behind : size * token_bytes});
      multiply_some(s, one, add || (done > 0 && Which == RunsOf::kRows));
    }
  };
  for (i64 run = 0; run < runs.count; ++run) {
    for (std::size_t i = 0; i < Count; ++i) {
      const detail::Run<B> piece{runs.run[run].x + factors[i].offset, runs.run[run].size,
                                 ahead(run, static_cast<i64>(i))};
      multiply_piece(factors[i], piece, run > 0 && Which == RunsOf::kRows);
    }
  }
}

// `next` is the window that is read behind that of the first product.
template <bool Accumulate, class Next, class First, class... More>
PTOWSP_TILE void products(std::byte* scratch, const Next& next, const First& first,
                          const More&... more) {
  const auto& window = window_of(first.b);
  constexpr RunsOf kWhich = kRunsOf<std::remove_cvref_t<decltype(first.b)>>;
  constexpr bool kRows = kWhich == RunsOf::kRows;
  std::array factors{factors_of<Accumulate>(first, window.offset),
                     factors_of<Accumulate>(more, window.offset)...};
  const i64 tokens = factors[0].tokens;
  if constexpr (sizeof...(More) > 0) {
    if (std::any_of(factors.begin(), factors.end(), [&](auto& s) { return s.tokens != tokens; })) {
      products<Accumulate>(scratch, next, first);
      (products<Accumulate>(scratch, next, more), ...);
      return;
    }
  }
  Pieces pieces(window, tokens);
  auto behind = pieces_behind(pieces, next);
  auto runs = take_runs(pieces);
  const i64 stride = window.view.stride(0);
  for (bool accumulate = Accumulate;; accumulate = Accumulate || kRows) {
    auto later = take_runs(pieces);
    const bool last = later.size == 0;
    if (last) later = take_runs(behind);
    multiply_pages<kWhich>(factors, runs, later, kRows ? stride : window.col_stride,
                           kRows ? window.col_stride : stride, accumulate, scratch);
    if (last) return;
    runs = later;
  }
}

template <class D, class A, class T, int Rank, class Next>
PTOWSP_TILE void product(D& d, const A& a, const PagedWindow<T, Rank>& b, bool accumulate,
                         std::byte* scratch, const Next& next) {
  if (accumulate) return products<true>(scratch, next, by(d, a, b));
  products<false>(scratch, next, by(d, a, b));
}
template <class D, class A, class T, int Rank, class Next>
PTOWSP_TILE void product(D& d, const A& a, const PagedColumns<T, Rank>& b, bool accumulate,
                         std::byte* scratch, const Next& next) {
  if (accumulate) return products<true>(scratch, next, by(d, a, b));
  products<false>(scratch, next, by(d, a, b));
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
template <class Next, class... Products>
PTOWSP_TILE void TMATMUL_EACH(std::byte* scratch, const Next& next, const Products&... each) {
  products<false>(scratch, next, each...);
}
template <class Next, class... Products>
PTOWSP_TILE void TMATMUL_ACC_EACH(std::byte* scratch, const Next& next, const Products&... each) {
  products<true>(scratch, next, each...);
}

}  // namespace ptowsp::tile
