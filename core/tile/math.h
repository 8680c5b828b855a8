// Elementary functions of vectors: V is any Vec<float, N> or Vec<double, N>.
//
// Every lane is computed alike, whatever N is and whatever the other lanes hold. NaN, infinities,
// signed zeros and denormals give what the functions of <cmath> give; denormal results are not
// flushed. No function needs fused multiplication: where the compiler fuses, results may differ in
// the last bit, within the same bounds. Do not compile this with -ffast-math.
//
//   vexp vexp2 vlog vtanh vsigmoid   polynomials, for float and for double
//   verf vsin vcos vpow              polynomials for float; double asks <cmath>, lane by lane
//   vsqrt vfloor vceil               exact as in <cmath>
//   vrsqrt                           1 / vsqrt(x): two roundings
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "bounds.h"
#include "vec.h"

namespace ptowsp::tile {

namespace detail {

template <class V>
using Lane = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
template <class V>
inline constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(Lane<V>));
// The bits of a vector, lane by lane.
template <class V>
using Bits = Vec<std::conditional_t<sizeof(Lane<V>) == 4, u32, u64>, kLanes<V>>;
template <class V>
inline constexpr bool kIsFloat = std::is_same_v<Lane<V>, float>;

template <class T>
inline constexpr int kFractionBits = std::numeric_limits<T>::digits - 1;
// Adding it to a small number leaves that number, rounded to a whole one, in the lowest bits.
template <class T>
inline constexpr T kRound = T(std::uint64_t{3} << (kFractionBits<T> - 1));

template <class V>
[[gnu::always_inline]] inline Bits<V> bits_of(V x) {
  return reinterpret_cast<Bits<V>>(x);
}
template <class V>
[[gnu::always_inline]] inline V from_bits_of(Bits<V> x) {
  return reinterpret_cast<V>(x);
}
template <class V>
[[gnu::always_inline]] inline Bits<V> sign_of(V x) {
  using U = Lane<Bits<V>>;
  return bits_of(x) & (U{1} << (sizeof(U) * 8 - 1));
}
template <class V>
[[gnu::always_inline]] inline V magnitude_of(V x) {
  return from_bits_of<V>(bits_of(x) ^ sign_of(x));
}
// The magnitude of `x`, which is not negative, with the sign of `y`.
template <class V>
[[gnu::always_inline]] inline V with_sign(V x, V y) {
  return from_bits_of<V>(bits_of(x) | sign_of(y));
}

template <class V>
[[gnu::always_inline]] inline V constant(Lane<V> x) {
  return x - V{};
}
template <class V>
[[gnu::always_inline]] inline V nan_vector() {
  return constant<V>(std::numeric_limits<Lane<V>>::quiet_NaN());
}

// Coefficients from the highest power down.
template <class V, class... C>
[[gnu::always_inline]] inline V polynomial(V x, double highest, C... others) {
  V sum = constant<V>(static_cast<Lane<V>>(highest));
  ((sum = sum * x + static_cast<Lane<V>>(others)), ...);
  return sum;
}

// NaN stays NaN: it is neither below nor above.
template <class V>
[[gnu::always_inline]] inline V clamp(V x, Lane<V> low, Lane<V> high) {
  const V above = x < low ? constant<V>(low) : x;
  return above > high ? constant<V>(high) : above;
}

template <class V, class F>
[[gnu::always_inline]] inline V each_lane(V x, F f) {
  Lane<V> lane[kLanes<V>];  // an array, not subscripts of the vector: compilers vectorise its loop
  store(lane, x);
  for (int i = 0; i < kLanes<V>; ++i) lane[i] = f(lane[i]);
  return load<V>(lane);
}

// Lanes i... of two vectors behind each other. (Through memory, GCC would copy word by word.)
template <int kFirst, class V, int... i>
[[gnu::always_inline]] inline auto lanes_from(V x, V y, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(x, y, (kFirst + i)...);
}
template <class V>
[[gnu::always_inline]] inline auto low_half(V x) {
  return lanes_from<0>(x, x, std::make_integer_sequence<int, kLanes<V> / 2>());
}
template <class V>
[[gnu::always_inline]] inline auto high_half(V x) {
  return lanes_from<kLanes<V> / 2>(x, x, std::make_integer_sequence<int, kLanes<V> / 2>());
}

// Whether a lane of a mask, of four bytes or more, is set: one instruction for 32 bytes, to which
// longer ones are folded.
template <class M>
[[gnu::always_inline]] inline bool any(M mask) {
#if defined(__AVX__)
  if constexpr (sizeof(M) == 64) return any(low_half(mask) | high_half(mask));
  if constexpr (sizeof(M) == 32) {
    return __builtin_ia32_movmskps256(reinterpret_cast<Vec<float, 8>>(mask)) != 0;
  }
#endif
  u64 word[sizeof(M) / 8];
  std::memcpy(word, &mask, sizeof(M));
  u64 all = 0;
  for (const u64 w : word) all |= w;
  return all != 0;
}

template <class M>
[[gnu::always_inline]] inline bool all(M mask) {
#if defined(__AVX__)
  if constexpr (sizeof(M) == 64) return all(low_half(mask) & high_half(mask));
  if constexpr (sizeof(M) == 32) {
    return __builtin_ia32_movmskps256(reinterpret_cast<Vec<float, 8>>(mask)) == 0xff;
  }
#endif
  return !any(~mask);
}

// Whether |x| <= limit in all lanes; NaN is not.
template <class V>
[[gnu::always_inline]] inline bool all_within(V x, Lane<V> limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {  // one comparison; a mask of lanes would be read in six steps
    constexpr int kLessOrEqual = 18, kRounding = 4, kEach = (1 << kLanes<V>)-1;
    const V size = magnitude_of(x), most = constant<V>(limit);
    if constexpr (kIsFloat<V>) {
      return __builtin_ia32_cmpps512_mask(size, most, kLessOrEqual, kEach, kRounding) == kEach;
    } else {
      return __builtin_ia32_cmppd512_mask(size, most, kLessOrEqual, kEach, kRounding) == kEach;
    }
  }
#endif
  return all(magnitude_of(x) <= limit);
}

// Calls f with the halves of vectors and puts the results together.
template <class F, class V, class... Vs>
[[gnu::always_inline]] inline V in_halves(F f, V x, Vs... others) {
  const auto low = f(low_half(x), low_half(others)...);
  const auto high = f(high_half(x), high_half(others)...);
  return lanes_from<0>(low, high, std::make_integer_sequence<int, kLanes<V>>());
}

// Calls f with vectors that the machine has: of longer ones, compilers compute comparisons lane by
// lane.
template <class F, class V, class... Vs>
[[gnu::always_inline]] inline V in_registers(F f, V x, Vs... others) {
  if constexpr (sizeof(V) > kVectorBytes) {
    return in_halves([f](auto... half) { return in_registers(f, half...); }, x, others...);
  } else {
    return f(x, others...);
  }
}

// 2^n * e^r for a whole n, given as n + kRound, and |r| <= ln(2) / 2. Where some are `far`, n may
// be such that the result is near overflow or denormal: then the power of two is not a number by
// itself and is applied in two halves.
template <class V>
[[gnu::always_inline]] inline V scaled_exp(V n_rounded, V r, bool far) {
  using T = Lane<V>;
  using U = Lane<Bits<V>>;
  constexpr U kBias = std::numeric_limits<T>::max_exponent - 1;
  const V square = r * r;
  V p;
  if constexpr (kIsFloat<V>) {
    // In pairs: the chain of additions is what the time is spent on.
    const V low = r * 0x1.5554dcc72f691p-3f + 0.5f;
    const V high = r * 0x1.120ba1a05966cp-7f + 0x1.55551914b31dcp-5f;
    p = (square * 0x1.6d113c8ed96b6p-10f + high) * square + low;
  } else {
    p = polynomial(r, 0x1.af38d53857513p-26, 0x1.2891a8c1d838dp-22, 0x1.71de0d9c145d0p-19,
                   0x1.a019b8ef67c6cp-16, 0x1.a01a01a7c8d47p-13, 0x1.6c16c17893833p-10,
                   0x1.11111111109adp-7, 0x1.5555555553d4fp-5, 0x1.5555555555556p-3, 0.5);
  }
  const V above_one = square * p + r;
  if (!far) [[likely]] {  // the same bits in fewer steps
    return from_bits_of<V>(bits_of(above_one + T(1)) + (bits_of(n_rounded) << kFractionBits<T>));
  }
  const Bits<V> n = bits_of(n_rounded) - (bits_of(constant<V>(kRound<T>)) - 2 * kBias);
  const Bits<V> half = n >> 1;  // n is positive here: both halves carry their bias
  const V first = from_bits_of<V>(half << kFractionBits<T>);
  const V second = from_bits_of<V>((n - half) << kFractionBits<T>);
  return (above_one * first + first) * second;
}

// Up to there the result and its power of two are normal numbers.
template <class T>
inline constexpr T kExpNear = std::is_same_v<T, float> ? T(87) : T(708);
template <class T>
inline constexpr T kExp2Near = std::is_same_v<T, float> ? T(125) : T(1021);

// Where e^x and 2^x have left the range of T for good.
template <class T>
inline constexpr T kExpLow = std::is_same_v<T, float> ? T(-104) : T(-746);
template <class T>
inline constexpr T kExpHigh = std::is_same_v<T, float> ? T(89) : T(710);
template <class T>
inline constexpr T kExp2Low = std::is_same_v<T, float> ? T(-151) : T(-1076);
template <class T>
inline constexpr T kExp2High = T(std::numeric_limits<T>::max_exponent);

// ln(2) in two parts; the first has so few bits that its products with exponents are exact.
template <class T>
inline constexpr T kLn2High = std::is_same_v<T, float> ? T(0x1.63p-1) : T(0x1.62e42feep-1);
template <class T>
inline constexpr T kLn2Low =
    std::is_same_v<T, float> ? T(-0x1.bd0105c610ca8p-13) : T(0x1.a39ef35793c76p-33);

template <class V>
[[gnu::always_inline]] inline V exp_of(V x) {
  using T = Lane<V>;
  const bool far = !all_within(x, kExpNear<T>);  // of NaN as well
  if (far) [[unlikely]]
    x = clamp(x, kExpLow<T>, kExpHigh<T>);
  const V rounded = x * T(0x1.71547652b82fep+0) + kRound<T>;
  const V n = rounded - kRound<T>;
  return scaled_exp(rounded, (x - n * kLn2High<T>)-n * kLn2Low<T>, far);
}

template <class V>
[[gnu::always_inline]] inline V exp2_of(V x) {
  using T = Lane<V>;
  const bool far = !all_within(x, kExp2Near<T>);
  if (far) [[unlikely]]
    x = clamp(x, kExp2Low<T>, kExp2High<T>);
  const V rounded = x + kRound<T>;
  const V n = rounded - kRound<T>;
  return scaled_exp(rounded, (x - n) * T(0x1.62e42fefa39efp-1), far);
}

// log(x) = n * ln(2) + log(1 + f), with 1 + f between sqrt(1/2) and sqrt(2).
template <class V>
struct LogParts {
  V n;
  V f;
};

// x is positive and finite; for others the parts mean nothing.
template <class V>
[[gnu::always_inline]] inline LogParts<V> log_parts(V x) {
  using T = Lane<V>;
  using U = Lane<Bits<V>>;
  constexpr int kBits = kFractionBits<T>;
  const auto denormal = x < std::numeric_limits<T>::min();
  x = denormal ? x * T(u64{1} << kBits) : x;
  // Moves sqrt(1/2) to a power of two, so that the exponent field splits where 1 + f does.
  const U root = __builtin_bit_cast(U, T(0x1.6a09e667f3bcdp-1));
  const U one = __builtin_bit_cast(U, T(1));
  const Bits<V> moved = bits_of(x) + (one - root);
  const V f = from_bits_of<V>((moved & ((U{1} << kBits) - 1)) + root) - T(1);
  // The exponent field as a number, without the integer conversions that AVX2 lacks for 64 bits.
  const T base = T(u64{1} << kBits);
  const V field = from_bits_of<V>((moved >> kBits) | __builtin_bit_cast(U, base));
  const T bias = base + T(std::numeric_limits<T>::max_exponent - 1);
  const V n = field - (denormal ? constant<V>(bias + T(kBits)) : constant<V>(bias));
  return {n, f};
}

template <class V>
[[gnu::always_inline]] inline V log_sum(LogParts<V> parts) {
  using T = Lane<V>;
  const auto [n, f] = parts;
  if constexpr (kIsFloat<V>) {
    const V p = polynomial(f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                           1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                           3.3333331174e-1);
    const V square = f * f;
    const V tail = (f * square) * p + n * kLn2Low<T>;
    return (f - (square * T(0.5) - tail)) + n * kLn2High<T>;
  } else {
    // log(1 + f) = 2 atanh(s), s = f / (2 + f): half as many terms as a polynomial of f.
    const V s = f / (f + T(2));
    const V z = s * s;
    const V p =
        z * polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01,
                       1.818357216161805012e-01, 2.222219843214978396e-01, 2.857142874366239149e-01,
                       3.999999999940941908e-01, 6.666666666666735130e-01);
    const V half_square = f * f * T(0.5);
    const V tail = s * (half_square + p) + n * kLn2Low<T>;
    return (f - (half_square - tail)) + n * kLn2High<T>;
  }
}

template <class V>
[[gnu::always_inline]] inline V log_of(V x) {
  using T = Lane<V>;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const V y = log_sum(log_parts(x));
  const V finite = x < kInfinity ? y : x;  // infinity and NaN are their own logarithms
  const V positive = x == T(0) ? constant<V>(-kInfinity) : finite;
  return x < T(0) ? nan_vector<V>() : positive;
}

template <class V>
[[gnu::always_inline]] inline V tanh_of(V x) {
  using T = Lane<V>;
  const V size = magnitude_of(x);
  const V square = x * x;
  V small;
  if constexpr (kIsFloat<V>) {
    const V p = polynomial(square, -0x1.8f8de3f4a2dc9p-8, 0x1.58048d46fe240p-6,
                           -0x1.b9258aeffc6a2p-5, 0x1.110e1c9ed53bbp-3, -0x1.5555526346510p-2);
    small = (size * square) * p + size;
  } else {
    const V p = polynomial(square, -9.64399179425052238628e-1, -9.92877231001918586564e1,
                           -1.61468768441708447952e3);
    const V q = polynomial(square, 1.0, 1.12811678491632931402e2, 2.23548839060100448583e3,
                           4.84406305325125486048e3);
    small = (size * square) * (p / q) + size;
  }
  const V large = T(1) - T(2) / (exp_of(size + size) + T(1));
  // Squares of large x overflow, in the branch that is not taken for them.
  return with_sign(size < T(0.625) ? small : large, x);
}

template <class V>
[[gnu::always_inline]] inline V sigmoid_of(V x) {
  using T = Lane<V>;
  const V e = exp_of(-magnitude_of(x));  // at most 1: nothing overflows on the way
  const V sum = e + T(1);
  const V lost = e - (sum - T(1));
  const V y = (x < T(0) ? e : constant<V>(T(1))) / sum;
  return y - y * (lost / sum);
}

template <class V>
[[gnu::always_inline]] inline V erf_of(V x) {
  if constexpr (kIsFloat<V>) {
    const V size = magnitude_of(x);
    const V square = x * x;
    const V p = polynomial(square, 0x1.4a5690869c738p-14, -0x1.a45087f1a1bf5p-11,
                           0x1.541270c79c988p-8, -0x1.b7faba961c842p-6, 0x1.ce2d10ed44e07p-4,
                           -0x1.81273e7a02442p-2, 0x1.06eba7f673903p-3);
    const V small = size * p + size;
    // log(1 - erf(t)) is nearly a parabola; from 4 on, erf rounds to 1.
    const V t = clamp(size, 0.0f, 4.0f);
    const V tail =
        polynomial(t, 0x1.b7783044b6881p-20, -0x1.825ce4bea3989p-15, 0x1.38e5e5277d407p-11,
                   -0x1.37ecc66bf73f2p-8, 0x1.b0e246c451d48p-6, -0x1.c2e355434c642p-4,
                   -0x1.437eb4486a325p-1, -0x1.2156fa777dfb0p+0, 0x1.4fb06741d39a1p-12);
    const V large = 1.0f - exp_of(tail);
    return with_sign(size < 1.0f ? small : large, x);
  } else {
    return each_lane(x, [](double lane) { return std::erf(lane); });
  }
}

// Up to here whole multiples of pi/2 are subtracted exactly enough; more is left to <cmath>.
inline constexpr float kSineRange = 131072.0f;

// sin(x + quarters * pi/2) for |x| <= kSineRange.
template <class V>
[[gnu::always_inline]] inline V sine_of(V x, u32 quarters) {
  const V rounded = x * 0x1.45f306dc9c883p-1f + kRound<float>;
  // The difference needs more bits than a float has: near a multiple of pi/2 most of them cancel.
  const auto difference = [](auto part, auto turns) {
    using Part = decltype(part);
    using Wide = Vec<double, kLanes<Part>>;
    const Wide n = __builtin_convertvector(turns, Wide);
    const Wide wide = __builtin_convertvector(part, Wide);
    return __builtin_convertvector((wide - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, Part);
  };
  const V r = in_halves(difference, x, rounded - kRound<float>);
  const V z = r * r;
  const V sine =
      (r * z) * polynomial(z, -0x1.9aae858b91407p-13, 0x1.110bf5d9f4898p-7, -0x1.5555527a65f97p-3) +
      r;
  const V cosine =
      (z * z) * polynomial(z, 0x1.9bc2d42a583fdp-16, -0x1.6c12aa357fd64p-10, 0x1.555554308a76ap-5) +
      (1.0f - z * 0.5f);
  const Bits<V> quadrant = bits_of(rounded) + quarters;
  const auto odd = (quadrant & 1u) != 0u;
  const V y = odd ? cosine : sine;
  return from_bits_of<V>(bits_of(y) ^ ((quadrant & 2u) << 30));
}

template <class V>
[[gnu::always_inline]] inline V sin_of(V x) {
  if constexpr (kIsFloat<V>) {
    if (any(magnitude_of(x) > kSineRange)) [[unlikely]] {
      return each_lane(x, [](float lane) { return std::sin(lane); });
    }
    // The sum with kRound loses the sign of zero.
    return x == 0.0f ? x : sine_of(x, 0);
  } else {
    return each_lane(x, [](double lane) { return std::sin(lane); });
  }
}

template <class V>
[[gnu::always_inline]] inline V cos_of(V x) {
  if constexpr (kIsFloat<V>) {
    if (any(magnitude_of(x) > kSineRange)) [[unlikely]] {
      return each_lane(x, [](float lane) { return std::cos(lane); });
    }
    return sine_of(x, 1);
  } else {
    return each_lane(x, [](double lane) { return std::cos(lane); });
  }
}

template <class V>
[[gnu::always_inline]] inline V sqrt_of(V x) {
  return each_lane(x, [](auto lane) { return std::sqrt(lane); });
}

template <class V>
[[gnu::always_inline]] inline V rsqrt_of(V x) {
  return Lane<V>(1) / sqrt_of(x);
}

template <class V>
[[gnu::always_inline]] inline V floor_of(V x) {
  return each_lane(x, [](auto lane) { return std::floor(lane); });
}

template <class V>
[[gnu::always_inline]] inline V ceil_of(V x) {
  return each_lane(x, [](auto lane) { return std::ceil(lane); });
}

// x to the power of y, with the special cases of std::pow.
template <class V>
[[gnu::always_inline]] inline V pow_of(V x, V y) {
  if constexpr (kIsFloat<V>) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const V size = magnitude_of(x);
    // In double: y multiplies the error of the logarithm.
    const auto positive_power = [](auto base, auto exponent) {
      using Part = decltype(base);
      using Wide = Vec<double, kLanes<Part>>;
      const Wide log = log_of(__builtin_convertvector(base, Wide));
      return __builtin_convertvector(exp_of(__builtin_convertvector(exponent, Wide) * log), Part);
    };
    V power = in_halves(positive_power, size, y);
    // log(1) * infinity is NaN, and 1 to any power is 1.
    const auto unit = (x == 1.0f) | ((x == -1.0f) & (y == y));
    power = (unit | (y == 0.0f)) ? constant<V>(1.0f) : power;
    const V half = y * 0.5f;
    const auto whole = floor_of(y) == y;
    const auto odd = whole & (floor_of(half) != half);
    const V negated = from_bits_of<V>(bits_of(power) ^ sign_of(x));
    power = odd ? negated : power;
    const auto no_power = (x < 0.0f) & (x > -kInfinity) & (y == y) & ~whole;
    return no_power ? nan_vector<V>() : power;
  } else {
    Lane<V> base[kLanes<V>], exponent[kLanes<V>];
    store(base, x);
    store(exponent, y);
    for (int i = 0; i < kLanes<V>; ++i) base[i] = std::pow(base[i], exponent[i]);
    return load<V>(base);
  }
}

}  // namespace detail

template <class V>
[[gnu::always_inline]] inline V vexp(V x) {
  return detail::in_registers([](auto part) { return detail::exp_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vexp2(V x) {
  return detail::in_registers([](auto part) { return detail::exp2_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vlog(V x) {
  return detail::in_registers([](auto part) { return detail::log_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vtanh(V x) {
  return detail::in_registers([](auto part) { return detail::tanh_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vsigmoid(V x) {
  return detail::in_registers([](auto part) { return detail::sigmoid_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V verf(V x) {
  return detail::in_registers([](auto part) { return detail::erf_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vsin(V x) {
  return detail::in_registers([](auto part) { return detail::sin_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vcos(V x) {
  return detail::in_registers([](auto part) { return detail::cos_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vpow(V x, V y) {
  return detail::in_registers([](auto p, auto q) { return detail::pow_of(p, q); }, x, y);
}
template <class V>
[[gnu::always_inline]] inline V vsqrt(V x) {
  return detail::in_registers([](auto part) { return detail::sqrt_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vrsqrt(V x) {
  return detail::in_registers([](auto part) { return detail::rsqrt_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vfloor(V x) {
  return detail::in_registers([](auto part) { return detail::floor_of(part); }, x);
}
template <class V>
[[gnu::always_inline]] inline V vceil(V x) {
  return detail::in_registers([](auto part) { return detail::ceil_of(part); }, x);
}

}  // namespace ptowsp::tile
