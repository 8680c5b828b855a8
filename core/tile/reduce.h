// Reductions, with the elementwise work in front of them in the same pass.
//
//   const float s = TROWSUM<4>(cols, [&](auto at) { return vexp(x(at) - m); });
//
// adds up one row. Fold<4> keeps four partial results, for bodies that are shorter than the latency
// of an addition. Whole tiles: TROWSUM(d, a), TCOLSUM(d, a) and so on.
#pragma once

#include <ptowsp_tile/map.h>

namespace ptowsp::tile {

struct Sum {
  template <class T>
  static constexpr T start() {
    return T(0);
  }
  template <class V>
  PTOWSP_TILE static V join(V a, V b) {
    return vadd(a, b);
  }
};
struct Max {
  template <class T>
  static constexpr T start() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
  }
  template <class V>
  PTOWSP_TILE static V join(V a, V b) {
    return vmax(a, b);
  }
  template <class V>
  PTOWSP_TILE static V without_nan(V a, V b) {
    return b > a ? b : a;  // one instruction
  }
};
struct Min {
  template <class T>
  static constexpr T start() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::max();
  }
  template <class V>
  PTOWSP_TILE static V join(V a, V b) {
    return vmin(a, b);
  }
  template <class V>
  PTOWSP_TILE static V without_nan(V a, V b) {
    return b < a ? b : a;
  }
};

// Lanes that lie kApart from each other, joined; then those of half the distance.
template <class How, int kApart, class V, int... i>
PTOWSP_TILE V join_lanes(V v, std::integer_sequence<int, i...> lanes) {
  v = How::join(v, V(__builtin_shufflevector(v, v, (i ^ kApart)...)));
  if constexpr (kApart > 1) return join_lanes<How, kApart / 2>(v, lanes);
  return v;
}
// All lanes of a vector, halves first: the order does not depend on the data. In registers: what is
// written in lanes and read in other ones waits for memory.
template <class How, class V>
PTOWSP_TILE Element<V> across(V v) {
  if constexpr (kLanesOf<V> == 1) {
    return v[0];
  } else if constexpr (sizeof(V) > 16) {
    return across<How>(How::join(detail::low_half(v), detail::high_half(v)));
  } else {
    return join_lanes<How, kLanesOf<V> / 2>(v, std::make_integer_sequence<int, kLanesOf<V>>())[0];
  }
}

// Lanes that do not exist count as nothing.
template <class How, int L, class V>
PTOWSP_TILE V existing(V v, i64 count) {
  using T = Element<V>;
  using I = IntOf<static_cast<int>(sizeof(T))>;
  Vec<I, L> index;
  for (int k = 0; k < L; ++k) index[k] = static_cast<I>(k);
  return blend(index < static_cast<I>(count), v, splat<V>(How::template start<T>()));
}

// The vector that a scalar is spread over; a vector itself.
template <class R, int L>
struct SpreadOver {
  using type = Vec<R, L>;
};
template <Vector R, int L>
struct SpreadOver<R, L> {
  using type = R;
};
template <class R, int L>
using LanesOf = typename SpreadOver<R, L>::type;

// Joins lanes none of which is NaN; of two zeros the one that How would take.
template <class How>
struct WithoutNan {
  template <class V>
  PTOWSP_TILE static V join(V a, V b) {
    return How::without_nan(b, a);
  }
};

// A partial result. Largest and smallest floats are found without looking at NaN, which is noted
// beside them: that is shorter than asking each time.
template <class How, class V>
struct Part {
  static constexpr bool kNotes = !std::is_same_v<How, Sum> && kIsFloating<V>;
  V value = splat<V>(How::template start<Element<V>>());
  Vec<IntOf<static_cast<int>(sizeof(Element<V>))>, kLanesOf<V>> is_nan{};

  PTOWSP_TILE void add(V v) {
    if constexpr (kNotes) {
      is_nan |= v != v;
      value = How::without_nan(value, v);
    } else {
      value = How::join(value, v);
    }
  }
  PTOWSP_TILE void add(const Part& part) {
    if constexpr (kNotes) {
      is_nan |= part.is_nan;
      value = WithoutNan<How>::join(value, part.value);
    } else {
      value = How::join(value, part.value);
    }
  }
  PTOWSP_TILE V result() const {
    if constexpr (kNotes) {
      return is_nan ? splat<V>(std::numeric_limits<Element<V>>::quiet_NaN()) : value;
    } else {
      return value;
    }
  }
  // Of all lanes.
  PTOWSP_TILE Element<V> total() const {
    if constexpr (kNotes) {
      const Element<V> found = across<WithoutNan<How>>(value);
      return detail::any(is_nan) ? std::numeric_limits<Element<V>>::quiet_NaN() : found;
    } else {
      return across<How>(value);
    }
  }
};

template <class How, int Bytes, int Fold, class Extent, class F>
PTOWSP_TILE auto fold_row(Extent cols, F f) {
  constexpr int kL = kLanesFor<Bytes>;
  const i64 end = cols;
  if constexpr (kWholeVectors<Extent, kL>) {
    using Place = At<kL, true>;
    using V = LanesOf<decltype(f(Place{})), kL>;
    constexpr int kStep = kL * Fold;
    Part<How, V> a;
    [[maybe_unused]] Part<How, V> b, c, d;
    i64 j = 0;
    for (; j + kStep <= end; j += kStep) {
      a.add(spread<V>(f(Place{j, kL})));
      if constexpr (Fold == 4) {
        b.add(spread<V>(f(Place{j + kL, kL})));
        c.add(spread<V>(f(Place{j + 2 * kL, kL})));
        d.add(spread<V>(f(Place{j + 3 * kL, kL})));
      }
    }
    if constexpr (Extent() % kStep != 0) {
      for (; j < end; j += kL) a.add(spread<V>(f(Place{j, kL})));
    }
    if constexpr (Fold == 4) {
      a.add(b);
      c.add(d);
      a.add(c);
    }
    return a.total();
  } else {
    using Place = At<kL, false>;
    using V = LanesOf<decltype(f(Place{})), kL>;
    Part<How, V> part;
    for (i64 j = 0; j < end; j += kL) {
      const i64 count = end - j < kL ? end - j : kL;
      const V v = spread<V>(f(Place{j, count}));
      part.add(count == kL ? v : existing<How, kL>(v, count));
    }
    return part.total();
  }
}

#define PTOWSP_FOLD(NAME, How)                                                           \
  template <int Bytes, int Fold = 1, class Extent, class F>                              \
  PTOWSP_TILE auto TROW##NAME(Extent cols, F f) {                                        \
    return fold_row<How, Bytes, Fold>(cols, f);                                          \
  }                                                                                      \
  template <class D, class A>                                                            \
  void TROW##NAME(D& d, const A& a) {                                                    \
    fold_rows<How>(d, a);                                                                \
  }                                                                                      \
  template <class D, class A>                                                            \
  void TCOL##NAME(D& d, const A& a) {                                                    \
    using T = typename A::value_type;                                                    \
    d.cols = a.cols;                                                                     \
    const auto to = d.row(0);                                                            \
    TMAP<kWidest<T>>(a.cols, [&](auto at) {                                              \
      to.set(at, fold_columns<How, T>(a.rows, at, [&](i64 i) { return a.row(i)(at); })); \
    });                                                                                  \
  }

template <class How, class D, class A>
PTOWSP_TILE void fold_rows(D& d, const A& a) {
  d.rows = a.rows;
  for (i64 i = 0; i < a.rows; ++i) {
    const auto from = a.row(i);
    d.set(i, 0, fold_row<How, kWidest<typename A::value_type>, 1>(a.cols, [&](auto at) {
            return from(at);
          }));
  }
}
// Down the rows of a tile: f gives the vector of a row.
template <class How, class T, int L, bool Full, class F>
PTOWSP_TILE Lanes<T, L> fold_columns(i64 rows, At<L, Full>, F f) {
  Part<How, Lanes<T, L>> part;
  for (i64 i = 0; i < rows; ++i) part.add(f(i));
  return part.result();
}
PTOWSP_FOLD(SUM, Sum)
PTOWSP_FOLD(MAX, Max)
PTOWSP_FOLD(MIN, Min)
#undef PTOWSP_FOLD

template <class D, class A>
void TROWMEAN(D& d, const A& a) {
  d.rows = a.rows;
  for (i64 i = 0; i < a.rows; ++i) {
    using T = typename A::value_type;
    const auto from = a.row(i);
    const auto sum = fold_row<Sum, kWidest<T>, 1>(a.cols, [&](auto at) { return from(at); });
    d.set(i, 0, sum / static_cast<Register<T>>(a.cols));
  }
}
template <class D, class A>
void TCOLMEAN(D& d, const A& a) {
  using T = typename A::value_type;
  d.cols = a.cols;
  const auto to = d.row(0);
  TMAP<kWidest<T>>(a.cols, [&](auto at) {
    const auto sum = fold_columns<Sum, T>(a.rows, at, [&](i64 i) { return a.row(i)(at); });
    to.set(at, sum / static_cast<Register<T>>(a.rows));
  });
}

// Where the largest element of each row is: the first one, or the first NaN; 0 in an empty row.
template <class D, class A>
void TROWARGMAX(D& d, const A& a) {
  d.rows = a.rows;
  for (i64 i = 0; i < a.rows; ++i) {
    i64 best = 0;
    auto value = a.cols > 0 ? a.get(i, 0) : 0;
    for (i64 j = 1; j < a.cols && value == value; ++j) {
      const auto next = a.get(i, j);
      if (next > value || next != next) {
        value = next;
        best = j;
      }
    }
    d.set(i, 0, best);
  }
}
// The same down each column.
template <class D, class A>
void TCOLARGMAX(D& d, const A& a) {
  d.cols = a.cols;
  auto column = a.transposed();
  for (i64 j = 0; j < a.cols; ++j) {
    i64 best = 0;
    auto value = a.rows > 0 ? column.get(j, 0) : 0;
    for (i64 i = 1; i < a.rows && value == value; ++i) {
      const auto next = column.get(j, i);
      if (next > value || next != next) {
        value = next;
        best = i;
      }
    }
    d.set(0, j, best);
  }
}

}  // namespace ptowsp::tile
