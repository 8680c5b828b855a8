// Arithmetic of registers: vectors, masks and scalars, in any mixture.
//
// Where one operand is a scalar, it is spread over the lanes. Integers wrap around, division by
// zero gives 0, and max and min keep NaN. A bool is a mask in a vector and a bool as a scalar.
#pragma once

#include <ptowsp_tile/convert.h>

namespace ptowsp::tile {

// A scalar in every lane of a vector like V; masks take bools.
template <class V, class S>
PTOWSP_TILE V spread(S s) {
  if constexpr (Vector<S>) {
    return s;
  } else if constexpr (std::is_same_v<S, bool>) {
    return splat<V>(static_cast<Element<V>>(s ? -1 : 0));
  } else {
    return splat<V>(static_cast<Element<V>>(s));
  }
}

// Calls f with two operands of one type.
template <class F, class A, class B>
PTOWSP_TILE auto alike(F f, A a, B b) {
  if constexpr (Vector<A> && Vector<B>) {
    // Only masks may differ, in the size of their elements.
    if constexpr (sizeof(A) > sizeof(B)) {
      return f(a, convert<Element<A>>(b));
    } else if constexpr (sizeof(A) < sizeof(B)) {
      return f(convert<Element<B>>(a), b);
    } else {
      return f(a, b);
    }
  } else if constexpr (Vector<A>) {
    return f(a, spread<A>(b));
  } else if constexpr (Vector<B>) {
    return f(spread<B>(a), b);
  } else {
    return f(a, b);
  }
}

template <class V>
struct ElementOrSelf {
  using type = V;
};
template <Vector V>
struct ElementOrSelf<V> {
  using type = Element<V>;
};
template <class V>
inline constexpr bool kIsFloating = std::is_floating_point_v<typename ElementOrSelf<V>::type>;

// Integers of any width wrap around: they add up as unsigned numbers.
template <class F, class V>
PTOWSP_TILE V wrapping(F f, V a, V b) {
  if constexpr (kIsFloating<V>) {
    return f(a, b);
  } else if constexpr (Vector<V>) {
    using U = Vec<std::make_unsigned_t<Element<V>>, kLanesOf<V>>;
    return bits_as<V>(f(bits_as<U>(a), bits_as<U>(b)));
  } else {
    return static_cast<V>(f(static_cast<u64>(a), static_cast<u64>(b)));
  }
}

#define PTOWSP_WRAPPING(name, op)                                                                \
  template <class A, class B>                                                                    \
  PTOWSP_TILE auto name(A a, B b) {                                                              \
    return alike(                                                                                \
        [](auto x, auto y) { return wrapping([](auto p, auto q) { return p op q; }, x, y); }, a, \
        b);                                                                                      \
  }
PTOWSP_WRAPPING(vadd, +)
PTOWSP_WRAPPING(vsub, -)
PTOWSP_WRAPPING(vmul, *)
#undef PTOWSP_WRAPPING

#define PTOWSP_PLAIN(name, op)                                 \
  template <class A, class B>                                  \
  PTOWSP_TILE auto name(A a, B b) {                            \
    return alike([](auto x, auto y) { return x op y; }, a, b); \
  }
PTOWSP_PLAIN(vdiv, /)
PTOWSP_PLAIN(veq, ==)
PTOWSP_PLAIN(vne, !=)
PTOWSP_PLAIN(vlt, <)
PTOWSP_PLAIN(vle, <=)
PTOWSP_PLAIN(vgt, >)
PTOWSP_PLAIN(vge, >=)
#undef PTOWSP_PLAIN

// Scalars are promoted by these operators, and come back as what they were.
#define PTOWSP_BITS(name, op)                                                            \
  template <class A, class B>                                                            \
  PTOWSP_TILE auto name(A a, B b) {                                                      \
    return alike([](auto x, auto y) { return static_cast<decltype(x)>(x op y); }, a, b); \
  }
PTOWSP_BITS(vand, &)
PTOWSP_BITS(vor, |)
PTOWSP_BITS(vxor, ^)
#undef PTOWSP_BITS

template <class V>
PTOWSP_TILE V vnot(V a) {
  if constexpr (std::is_same_v<V, bool>) {
    return !a;
  } else {
    return static_cast<V>(~a);
  }
}

// a where the mask holds, else b.
template <class M, class A, class B>
PTOWSP_TILE auto vselect(M mask, A a, B b) {
  if constexpr (!Vector<M>) {
    return alike([&](auto x, auto y) { return mask ? x : y; }, a, b);
  } else if constexpr (!Vector<A> && !Vector<B>) {
    using S = std::conditional_t<std::is_same_v<A, bool>, i8, A>;
    using V = Vec<S, kLanesOf<M>>;
    return blend(mask, spread<V>(a), spread<V>(b));
  } else {
    return alike([&](auto x, auto y) { return blend(mask, x, y); }, a, b);
  }
}

template <class A, class B>
PTOWSP_TILE auto vmax(A a, B b) {
  return alike(
      [](auto x, auto y) {
        const auto larger = x > y ? x : y;
        if constexpr (kIsFloating<decltype(x)>) {
          return x != x ? x : larger;
        } else {
          return larger;
        }
      },
      a, b);
}
template <class A, class B>
PTOWSP_TILE auto vmin(A a, B b) {
  return alike(
      [](auto x, auto y) {
        const auto smaller = x < y ? x : y;
        if constexpr (kIsFloating<decltype(x)>) {
          return x != x ? x : smaller;
        } else {
          return smaller;
        }
      },
      a, b);
}

template <class T>
PTOWSP_TILE T floor_quotient(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<u64>(a));  // the lowest number wraps
    const bool inexact = a % b != 0 && (a < 0) != (b < 0);
    return static_cast<T>(a / b - (inexact ? 1 : 0));
  } else {
    return static_cast<T>(a / b);
  }
}
template <class T>
PTOWSP_TILE T floor_rest(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
    const T rest = static_cast<T>(a % b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  } else {
    return static_cast<T>(a % b);
  }
}
// No machine divides vectors of integers.
template <class F, class V>
PTOWSP_TILE V by_lane(F f, V a, V b) {
  if constexpr (Vector<V>) {
    V out;
    for (int k = 0; k < kLanesOf<V>; ++k) out[k] = f(a[k], b[k]);
    return out;
  } else {
    return f(a, b);
  }
}
template <class A, class B>
PTOWSP_TILE auto vfloordiv(A a, B b) {
  return alike(
      [](auto x, auto y) {
        return by_lane([](auto p, auto q) { return floor_quotient(p, q); }, x, y);
      },
      a, b);
}
template <class A, class B>
PTOWSP_TILE auto vmod(A a, B b) {
  return alike(
      [](auto x, auto y) { return by_lane([](auto p, auto q) { return floor_rest(p, q); }, x, y); },
      a, b);
}

template <class V>
PTOWSP_TILE V vneg(V a) {
  if constexpr (kIsFloating<V>) {
    return -a;
  } else {
    return vsub(V{}, a);
  }
}
template <class V>
PTOWSP_TILE V vabs(V a) {
  if constexpr (Vector<V> && kIsFloating<V>) {
    using U = Vec<std::conditional_t<sizeof(Element<V>) == 4, u32, u64>, kLanesOf<V>>;
    return bits_as<V>(bits_as<U>(a) << 1 >> 1);
  } else if constexpr (kIsFloating<V>) {
    return std::fabs(a);
  } else {
    return a < 0 ? vneg(a) : a;
  }
}
template <class V>
PTOWSP_TILE V vrelu(V a) {
  return vmax(a, V{});
}
template <class V>
PTOWSP_TILE V vrecip(V a) {
  return typename ElementOrSelf<V>::type(1) / a;
}
template <class V>
PTOWSP_TILE V vsilu(V a) {
  return a * vsigmoid(a);
}
template <class V>
PTOWSP_TILE V vgelu(V a) {
  using T = Element<V>;
  // Halved before a multiplies it: twice a may be too large.
  return a * ((T(1) + verf(a * T(0.70710678118654752440))) * T(0.5));
}

template <class A, class B>
PTOWSP_TILE auto vpower(A a, B b) {
  return alike([](auto x, auto y) { return vpow(x, y); }, a, b);
}

// A function of vectors, of scalars: it gives what a lane would get.
template <class F, class... S>
PTOWSP_TILE auto on_scalars(F f, S... s) {
  return f(splat<Vec<S, 16 / sizeof(S)>>(s)...)[0];
}

}  // namespace ptowsp::tile
