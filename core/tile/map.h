// Elementwise work on tiles, and its named instructions.
//
//   TMAP<4>(cols, [&](auto at) { y.set(at, vexp(x(at)) * s); });
//
// is a loop over the vectors of a row, x and y being rows; 4 is the size of the largest element in
// it, in bytes, and decides the number of lanes. TMAPS(d, f, a, b ...) is that for all rows of
// tiles, f being a function of vectors.
#pragma once

#include <ptowsp_tile/tile.h>

namespace ptowsp::tile {

template <int Bytes>
inline constexpr int kLanesFor = kVectorBytes / Bytes;

template <class Extent, int L>
inline constexpr bool kWholeVectors = false;
template <i64 N, int L>
inline constexpr bool kWholeVectors<Const<N>, L> = N % L == 0;

template <int Bytes, class Extent, class F>
PTOWSP_TILE void TMAP(Extent cols, F f) {
  constexpr int kL = kLanesFor<Bytes>;
  constexpr bool kFull = kWholeVectors<Extent, kL>;
  const i64 end = cols;
  for (i64 j = 0; j < end; j += kL) {
    f(At<kL, kFull>{j, kFull || end - j > kL ? kL : end - j});
  }
}

// The index along a row, in the lanes of a vector, plus a start.
template <class T, int L, bool Full>
PTOWSP_TILE Lanes<T, L> columns_from(Register<T> start, At<L, Full> at) {
  Vec<Register<T>, L> index;
  for (int k = 0; k < L; ++k) index[k] = static_cast<Register<T>>(k);
  return vadd(vadd(index, static_cast<Register<T>>(at.column)), start);
}

template <class... T>
inline constexpr int kWidest = [] {
  int widest = 1;
  ((widest = static_cast<int>(sizeof(Register<T>)) > widest ? static_cast<int>(sizeof(Register<T>))
                                                            : widest),
   ...);
  return widest;
}();

// f of each element of the sources, which have the shape of d. d gets the extents of the first.
template <class D, class F, class A, class... More>
PTOWSP_TILE void TMAPS(D& d, F f, const A& a, const More&... more) {
  constexpr int kBytes =
      kWidest<typename D::value_type, typename A::value_type, typename More::value_type...>;
  d.rows = a.rows;
  d.cols = a.cols;
  for (i64 i = 0; i < d.rows; ++i) {
    const auto to = d.row(i);
    const auto lines = [&](auto... line) {
      TMAP<kBytes>(d.cols, [&](auto at) { to.set(at, f(line(at)...)); });
    };
    lines(a.row(i), more.row(i)...);
  }
}

#define PTOWSP_UNARY(NAME, expression)              \
  template <class D, class A>                       \
  void NAME(D& d, const A& a) {                     \
    TMAPS(d, [](auto x) { return expression; }, a); \
  }
PTOWSP_UNARY(TMOV, x)
PTOWSP_UNARY(TEXP, vexp(x))
PTOWSP_UNARY(TEXP2, vexp2(x))
PTOWSP_UNARY(TLOG, vlog(x))
PTOWSP_UNARY(TSQRT, vsqrt(x))
PTOWSP_UNARY(TRSQRT, vrsqrt(x))
PTOWSP_UNARY(TRECIP, vrecip(x))
PTOWSP_UNARY(TTANH, vtanh(x))
PTOWSP_UNARY(TABS, vabs(x))
PTOWSP_UNARY(TNEG, vneg(x))
PTOWSP_UNARY(TNOT, vnot(x))
PTOWSP_UNARY(TRELU, vrelu(x))
#undef PTOWSP_UNARY

// Of two tiles; of a tile and a scalar (...S); of a tile and one element per row (TROWEXPAND...)
// or per column (TCOLEXPAND...).
#define PTOWSP_BINARY(NAME, function)                                                          \
  template <class D, class A, class B>                                                         \
  void T##NAME(D& d, const A& a, const B& b) {                                                 \
    TMAPS(d, [](auto x, auto y) { return function(x, y); }, a, b);                             \
  }                                                                                            \
  template <class D, class A>                                                                  \
  void T##NAME##S(D& d, const A& a, Register<typename A::value_type> s) {                      \
    TMAPS(d, [&](auto x) { return function(x, s); }, a);                                       \
  }                                                                                            \
  template <class D, class A, class B>                                                         \
  void TROWEXPAND##NAME(D& d, const A& a, const B& column) {                                   \
    expand_map(                                                                                \
        d, [](auto x, auto y) { return function(x, y); }, a,                                   \
        [&](i64 i) { return [s = column.get(i, 0)](auto) { return s; }; });                    \
  }                                                                                            \
  template <class D, class A, class B>                                                         \
  void TCOLEXPAND##NAME(D& d, const A& a, const B& row) {                                      \
    expand_map(                                                                                \
        d, [](auto x, auto y) { return function(x, y); }, a, [&](i64) { return row.row(0); }); \
  }
template <class D, class F, class A, class Other>
PTOWSP_TILE void expand_map(D& d, F f, const A& a, Other other) {
  d.rows = a.rows;
  d.cols = a.cols;
  for (i64 i = 0; i < d.rows; ++i) {
    const auto to = d.row(i);
    const auto from = a.row(i);
    const auto line = other(i);
    TMAP<kWidest<typename D::value_type, typename A::value_type>>(
        d.cols, [&](auto at) { to.set(at, f(from(at), line(at))); });
  }
}
PTOWSP_BINARY(ADD, vadd)
PTOWSP_BINARY(SUB, vsub)
PTOWSP_BINARY(MUL, vmul)
PTOWSP_BINARY(DIV, vdiv)
PTOWSP_BINARY(MAX, vmax)
PTOWSP_BINARY(MIN, vmin)
#undef PTOWSP_BINARY

// Every element is the scalar.
template <class D>
void TEXPANDS(D& d, Register<typename D::value_type> s) {
  for (i64 i = 0; i < d.rows; ++i) {
    const auto to = d.row(i);
    TMAP<kWidest<typename D::value_type>>(d.cols, [&](auto at) { to.set(at, s); });
  }
}
// The element of each row, in all of its columns.
template <class D, class B>
void TROWEXPAND(D& d, const B& column) {
  for (i64 i = 0; i < d.rows; ++i) {
    const auto to = d.row(i);
    const auto s = column.get(i, 0);
    TMAP<kWidest<typename D::value_type>>(d.cols, [&](auto at) { to.set(at, s); });
  }
}

template <Rounding Mode = Rounding::kZero, class D, class A>
void TCVT(D& d, const A& a) {
  TMAPS(d, [](auto x) { return cast<typename D::value_type, typename A::value_type, Mode>(x); }, a);
}

enum class CmpMode { EQ, NE, LT, LE, GT, GE };
template <CmpMode Mode, class A, class B>
PTOWSP_TILE auto compared(A a, B b) {
  if constexpr (Mode == CmpMode::EQ) return veq(a, b);
  if constexpr (Mode == CmpMode::NE) return vne(a, b);
  if constexpr (Mode == CmpMode::LT) return vlt(a, b);
  if constexpr (Mode == CmpMode::LE) return vle(a, b);
  if constexpr (Mode == CmpMode::GT) return vgt(a, b);
  if constexpr (Mode == CmpMode::GE) return vge(a, b);
}
template <CmpMode Mode, class D, class A, class B>
void TCMP(D& mask, const A& a, const B& b) {
  TMAPS(mask, [](auto x, auto y) { return compared<Mode>(x, y); }, a, b);
}
template <CmpMode Mode, class D, class A>
void TCMPS(D& mask, const A& a, Register<typename A::value_type> s) {
  TMAPS(mask, [&](auto x) { return compared<Mode>(x, s); }, a);
}
template <class D, class M, class A, class B>
void TSEL(D& d, const M& mask, const A& a, const B& b) {
  TMAPS(d, [](auto m, auto x, auto y) { return vselect(m, x, y); }, mask, a, b);
}

}  // namespace ptowsp::tile
