// Element types in memory and in registers, and the casts between them.
//
// f16 and bf16 lie in memory as two bytes and are floats in registers; bool is a byte 0 or 1 in
// memory and a mask, an integer vector of 0 and -1, in registers. Casts round as the operations of
// tile kernels say: to a float to nearest even; from a float to an integer as asked for, stopping
// at the ends of the range, NaN to 0; between integers the low bits stay.
#pragma once

#include <ptowsp_kernel/ptowsp_kernel.h>
#include <ptowsp_tile/math.h>
#include <ptowsp_tile/vec.h>

namespace ptowsp::tile {

using i8 = std::int8_t;
using i16 = std::int16_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;

// Everything here disappears into the loop around it.
#define PTOWSP_TILE inline __attribute__((always_inline))

template <class V>
concept Vector = requires(V v) {
  v[0];
  requires !std::is_pointer_v<V> && !std::is_class_v<V>;
};
template <class V>
using Element = std::remove_cvref_t<decltype(std::declval<V>()[0])>;
template <class V>
inline constexpr int kLanesOf = static_cast<int>(sizeof(V) / sizeof(Element<V>));

// What an element of memory is in a register.
template <class T>
struct RegisterOf {
  using type = T;
};
template <>
struct RegisterOf<f16> {
  using type = float;
};
template <>
struct RegisterOf<bf16> {
  using type = float;
};
template <>
struct RegisterOf<bool> {
  using type = i8;
};
template <class T>
using Register = typename RegisterOf<std::remove_const_t<T>>::type;
template <class T, int L>
using Lanes = Vec<Register<T>, L>;

// The same vector with elements of another type, number by number.
template <class T, class V>
PTOWSP_TILE auto convert(V v) {
  if constexpr (std::is_same_v<Element<V>, T>) {
    return v;
  } else {
    return __builtin_convertvector(v, Vec<T, kLanesOf<V>>);
  }
}
// The same bits as a vector of another type.
template <class To, class From>
PTOWSP_TILE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// ---- masks ------------------------------------------------------------------------------------

template <int Bytes>
using IntOf = std::conditional_t<
    Bytes == 1, i8, std::conditional_t<Bytes == 2, i16, std::conditional_t<Bytes == 4, i32, i64>>>;

// A mask for elements of that many bytes. -1 stays -1.
template <int Bytes, class M>
PTOWSP_TILE auto mask_for(M mask) {
  return convert<IntOf<Bytes>>(mask);
}
// a where the mask holds, else b. The mask may have elements of another size.
template <class M, class V>
PTOWSP_TILE V blend(M mask, V a, V b) {
  return mask_for<static_cast<int>(sizeof(Element<V>))>(mask) ? a : b;
}

// ---- half precision ---------------------------------------------------------------------------

template <int L>
PTOWSP_TILE Vec<u16, L> f16_from_float(Vec<float, L> v) {
#if defined(__F16C__)
  if constexpr (L >= 8) {
    Vec<u16, L> out;
    for (int k = 0; k < L; k += 8) {
      Vec<float, 8> part;
      std::memcpy(&part, reinterpret_cast<const char*>(&v) + k * 4, sizeof part);
      const auto half = __builtin_ia32_vcvtps2ph256(part, 0);
      std::memcpy(reinterpret_cast<char*>(&out) + k * 2, &half, sizeof half);
    }
    return out;
  } else if constexpr (L == 4) {
    const auto half = __builtin_ia32_vcvtps2ph(v, 0);
    Vec<u16, 4> out;
    std::memcpy(&out, &half, sizeof out);
    return out;
  }
#elif defined(__aarch64__)
  return bits_as<Vec<u16, L>>(__builtin_convertvector(v, Vec<__fp16, L>));
#endif
  using U = Vec<u32, L>;
  const U bits = bits_as<U>(v);
  const U sign = (bits >> 16) & 0x8000u;
  const U magnitude = bits & 0x7FFFFFFFu;
  const U quiet = 0x7E00u | ((magnitude >> 13) & 0x03FFu);
  // Adding 0.5 aligns the last bit of the sum with the last bit of a subnormal half.
  const U subnormal = bits_as<U>(bits_as<Vec<float, L>>(magnitude) + 0.5f) - 0x3F000000u;
  const U normal = (magnitude - 0x38000000u + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  U half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477FF000u ? U{} + 0x7C00u : half;  // 65520 and more: infinity
  half = magnitude > 0x7F800000u ? quiet : half;
  return convert<u16>(sign | half);
}

template <int L>
PTOWSP_TILE Vec<float, L> float_from_f16(Vec<u16, L> v) {
#if defined(__F16C__)
  if constexpr (L >= 8) {
    Vec<float, L> out;
    for (int k = 0; k < L; k += 8) {
      Vec<i16, 8> part;
      std::memcpy(&part, reinterpret_cast<const char*>(&v) + k * 2, sizeof part);
      const auto wide = __builtin_ia32_vcvtph2ps256(part);
      std::memcpy(reinterpret_cast<char*>(&out) + k * 4, &wide, sizeof wide);
    }
    return out;
  } else if constexpr (L == 4) {
    Vec<i16, 8> part{};
    std::memcpy(&part, &v, sizeof v);
    return __builtin_ia32_vcvtph2ps(part);
  }
#elif defined(__aarch64__)
  return __builtin_convertvector(bits_as<Vec<__fp16, L>>(v), Vec<float, L>);
#endif
  using U = Vec<u32, L>;
  using F = Vec<float, L>;
  const U half = convert<u32>(v);
  const U sign = (half & 0x8000u) << 16;
  const U magnitude = half & 0x7FFFu;
  const U special = 0x7F800000u | ((magnitude & 0x03FFu) << 13);
  const U subnormal = bits_as<U>(bits_as<F>((magnitude << 13) + 0x38800000u) - 0x1p-14f);
  U bits = (magnitude << 13) + 0x38000000u;
  bits = magnitude < 0x0400u ? subnormal : bits;
  bits = magnitude >= 0x7C00u ? special : bits;
  return bits_as<F>(sign | bits);
}

template <int L>
PTOWSP_TILE Vec<u16, L> bf16_from_float(Vec<float, L> v) {
  using U = Vec<u32, L>;
  const U bits = bits_as<U>(v);
  const U rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const U quiet = (bits >> 16) | 0x40u;
  return convert<u16>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

template <int L>
PTOWSP_TILE Vec<float, L> float_from_bf16(Vec<u16, L> v) {
  return bits_as<Vec<float, L>>(convert<u32>(v) << 16);
}

// ---- between memory and registers -------------------------------------------------------------

// Raw bytes of L elements, as registers.
template <class T, int L>
PTOWSP_TILE Lanes<T, L> load_lanes(const T* from) {
  using E = std::remove_const_t<T>;
  if constexpr (std::is_same_v<E, f16>) {
    return float_from_f16<L>(load<Vec<u16, L>>(from));
  } else if constexpr (std::is_same_v<E, bf16>) {
    return float_from_bf16<L>(load<Vec<u16, L>>(from));
  } else if constexpr (std::is_same_v<E, bool>) {
    return load<Vec<i8, L>>(from) != 0;
  } else {
    return load<Vec<E, L>>(from);
  }
}

// What T's bytes are for registers of T; masks may have any size.
template <class T, class V>
PTOWSP_TILE auto memory_lanes(V v) {
  if constexpr (std::is_same_v<T, f16>) {
    return f16_from_float<kLanesOf<V>>(v);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return bf16_from_float<kLanesOf<V>>(v);
  } else if constexpr (std::is_same_v<T, bool>) {
    return mask_for<1>(v) & 1;
  } else {
    static_assert(std::is_same_v<Element<V>, T>);
    return v;
  }
}

// One element as a scalar of the register type; bool stays bool.
template <class T>
PTOWSP_TILE auto scalar_of(T value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

// ---- casts ------------------------------------------------------------------------------------

enum class Rounding { kNearest, kDown, kUp, kZero };

// Whole numbers, still as floats.
template <Rounding Mode, class V>
PTOWSP_TILE V rounded(V v) {
  if constexpr (Mode == Rounding::kDown) {
    return vfloor(v);
  } else if constexpr (Mode == Rounding::kUp) {
    return vceil(v);
  } else if constexpr (Mode == Rounding::kZero) {
    return v < 0 ? vceil(v) : vfloor(v);
  } else {
    // Beyond this number there are no fractions, and adding it rounds them away.
    constexpr Element<V> kBig = sizeof(Element<V>) == 4 ? Element<V>(0x1p23) : Element<V>(0x1p52);
    const V size = v < 0 ? -v : v;
    const V whole = (size + kBig) - kBig;
    return size < kBig ? (v < 0 ? -whole : whole) : v;
  }
}

// A float vector as integers of type T.
template <class T, Rounding Mode, class V>
PTOWSP_TILE auto to_integer(V v) {
  using E = Element<V>;
  using Out = Vec<T, kLanesOf<V>>;
  constexpr T kLowest = std::numeric_limits<T>::min();
  constexpr T kHighest = std::numeric_limits<T>::max();
  // One above the highest: a power of two, so exact.
  constexpr E kEnd = static_cast<E>(kHighest / 2 + 1) * 2;
  const V whole = rounded<Mode>(v);
  const auto inside = (whole >= static_cast<E>(kLowest)) & (whole < kEnd);
  const V safe = inside ? whole : V{};
  Out out;
  if constexpr (sizeof(T) < 4) {
    out = convert<T>(convert<i32>(safe));
  } else if constexpr (std::is_same_v<T, u32>) {
    out = convert<u32>(convert<i64>(safe));
  } else if constexpr (std::is_same_v<T, u64>) {
    for (int k = 0; k < kLanesOf<V>; ++k) out[k] = static_cast<u64>(safe[k]);
  } else {
    out = convert<T>(safe);
  }
  out = blend(whole >= kEnd, splat<Out>(kHighest), out);
  return blend(whole < static_cast<E>(kLowest), splat<Out>(kLowest), out);
}

// Rounds a float, or a vector of them, to what f16 or bf16 can hold.
template <class T, class V>
PTOWSP_TILE V to_half(V v) {
  if constexpr (!Vector<V>) {
    return static_cast<float>(T(v));
  } else if constexpr (std::is_same_v<T, f16>) {
    return float_from_f16<kLanesOf<V>>(f16_from_float<kLanesOf<V>>(v));
  } else {
    return float_from_bf16<kLanesOf<V>>(bf16_from_float<kLanesOf<V>>(v));
  }
}

// A double that rounds to a half type as the number itself would: odd where bits are lost.
template <class T>
inline double sticky(T x) {
  if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
    const bool negative = x < 0;
    u64 size = negative ? u64{0} - static_cast<u64>(x) : static_cast<u64>(x);
    if (size >> 53 != 0) size = (size & ~u64{0xFFF}) | ((size & 0xFFF) != 0 ? u64{0x800} : u64{0});
    return negative ? -static_cast<double>(size) : static_cast<double>(size);
  } else {
    return static_cast<double>(x);
  }
}

template <class Half, class T>
inline float half_of(T x) {
  return static_cast<float>(Half(ptowsp::detail::round_to_odd(sticky(x))));
}

template <class T, Rounding Mode, class V>
PTOWSP_TILE auto vector_cast(V v) {
  using E = Element<V>;
  constexpr int kL = kLanesOf<V>;
  constexpr bool kHalf = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
  if constexpr (std::is_same_v<T, bool>) {
    return v != 0;
  } else if constexpr (kHalf && std::is_same_v<E, float>) {
    return to_half<T>(v);
  } else if constexpr (kHalf && sizeof(E) < 4) {
    return to_half<T>(convert<float>(v));
  } else if constexpr (kHalf) {
    Vec<float, kL> out;
    for (int k = 0; k < kL; ++k) out[k] = half_of<T>(v[k]);
    return out;
  } else if constexpr (std::is_floating_point_v<E> && std::is_integral_v<T>) {
    return to_integer<T, Mode>(v);
  } else {
    return convert<T>(v);
  }
}

// A cast to the dtype T of a register value of dtype From: a vector or a scalar.
template <class T, class From, Rounding Mode = Rounding::kZero, class V>
PTOWSP_TILE auto cast(V v) {
  if constexpr (std::is_same_v<V, bool>) {
    if constexpr (std::is_same_v<T, bool>) {
      return v;
    } else {
      return static_cast<Register<T>>(v ? 1 : 0);
    }
  } else if constexpr (!Vector<V>) {
    const auto out = cast<T, From, Mode>(splat<Vec<V, 16 / sizeof(V)>>(v));
    if constexpr (std::is_same_v<T, bool>) {
      return out[0] != 0;
    } else {
      return static_cast<Register<T>>(out[0]);
    }
  } else if constexpr (std::is_same_v<T, From>) {
    return v;
  } else if constexpr (std::is_same_v<From, bool>) {
    return convert<Register<T>>(v & 1);
  } else {
    return vector_cast<T, Mode>(v);
  }
}

}  // namespace ptowsp::tile
