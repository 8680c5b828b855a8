// Elementary functions of vectors: distance from the true value, special values, equal lanes.
//
// Floats are sampled evenly over all their bit patterns, every kStride-th; compile with
// -DPTOWSP_MATH_STRIDE=1 to try each of the 2^32.
#include <ptowsp_tile/math.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include "harness.h"

#ifndef PTOWSP_MATH_STRIDE
#define PTOWSP_MATH_STRIDE 8191
#endif

namespace {

namespace tile = ptowsp::tile;
using tile::UlpBound;
using tile::Vec;

constexpr std::uint64_t kStride = PTOWSP_MATH_STRIDE;

// How far `got` is from `want`, in units of the last place. Infinity counts as the power of two
// that follows the largest number, so that rounding at the edge of the range is no exception.
template <class T, class Real>
double ulp_error(T got, Real want) {
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) && std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  }
  using Limits = std::numeric_limits<T>;
  const Real end = std::ldexp(Real(1), Limits::max_exponent);
  const Real real_got = std::isinf(got) ? std::copysign(end, Real(got)) : Real(got);
  const Real real_want = std::fabs(want) > end ? std::copysign(end, want) : want;
  if (real_got == real_want) return 0;
  int exponent = 0;
  std::frexp(real_want, &exponent);
  exponent = std::max(exponent, Limits::min_exponent) - Limits::digits;
  return static_cast<double>(std::ldexp(std::fabs(real_got - real_want), -exponent));
}

// The true value of a function of x, in a type with more bits.
#define FUNCTION(Name, function, bound, value)                                                \
  struct Name {                                                                               \
    static constexpr const char* kName = #function;                                           \
    static constexpr UlpBound kBound = bound;                                                 \
    [[gnu::always_inline]] static auto vector(const auto& x) { return tile::v##function(x); } \
    static auto real(auto x) { return value; }                                                \
  }
constexpr UlpBound kExact{0.5, 0.5};
FUNCTION(Exp, exp, tile::kExpUlp, std::exp(x));
FUNCTION(Exp2, exp2, tile::kExp2Ulp, std::exp2(x));
FUNCTION(Log, log, tile::kLogUlp, std::log(x));
FUNCTION(Tanh, tanh, tile::kTanhUlp, std::tanh(x));
FUNCTION(Sigmoid, sigmoid, tile::kSigmoidUlp, 1 / (1 + std::exp(-x)));
FUNCTION(Erf, erf, tile::kErfUlp, std::erf(x));
FUNCTION(Sine, sin, tile::kSinUlp, std::sin(x));
FUNCTION(Cosine, cos, tile::kCosUlp, std::cos(x));
FUNCTION(Sqrt, sqrt, kExact, std::sqrt(x));
FUNCTION(Rsqrt, rsqrt, tile::kRsqrtUlp, 1 / std::sqrt(x));
FUNCTION(Floor, floor, kExact, std::floor(x));
FUNCTION(Ceil, ceil, kExact, std::ceil(x));

template <class Check>
void for_each_function(Check check) {
  check(Exp{});
  check(Exp2{});
  check(Log{});
  check(Tanh{});
  check(Sigmoid{});
  check(Erf{});
  check(Sine{});
  check(Cosine{});
  check(Sqrt{});
  check(Rsqrt{});
  check(Floor{});
  check(Ceil{});
}

// The largest error seen so far, and where.
template <class T>
struct Worst {
  double error = 0;
  T at = 0;

  void see(double now, T x) {
    if (now > error) {
      error = now;
      at = x;
    }
  }
  void report(const char* name, const char* type, double bound) const {
    std::printf("  %-8s %s  %5.3f of %.1f ulp, at %a\n", name, type, error, bound, double(at));
    if (error > bound) {
      ptowsp::test::fail(name, 0, "error " + std::to_string(error) + " at " + std::to_string(at));
    }
  }
};

// A fixed sequence of 64-bit numbers.
struct Random {
  std::uint64_t state = 0x9E3779B97F4A7C15u;
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
};

constexpr int kLanes = 8;

template <class F, class T, class Real>
void measure(Worst<T>& worst, const T (&x)[kLanes]) {
  T y[kLanes];
  tile::store(y, F::vector(tile::load<Vec<T, kLanes>>(x)));
  for (int i = 0; i < kLanes; ++i) worst.see(ulp_error<T, Real>(y[i], F::real(Real(x[i]))), x[i]);
}

TEST(floats_are_within_the_bounds) {
  for_each_function([](auto function) {
    using F = decltype(function);
    Worst<float> worst;
    float x[kLanes];
    int filled = 0;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride) {
      x[filled++] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (filled < kLanes) continue;
      filled = 0;
      measure<F, float, double>(worst, x);
    }
    worst.report(F::kName, "f32", F::kBound.f32);
  });
}

TEST(doubles_are_within_the_bounds) {
  for_each_function([](auto function) {
    using F = decltype(function);
    Worst<double> worst;
    Random random;
    for (int round = 0; round < 4000; ++round) {
      double any[kLanes], usual[kLanes], wide[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        any[i] = std::bit_cast<double>(random.next());
        usual[i] = random.uniform(-2, 2);
        wide[i] = random.uniform(-1100, 1100);
      }
      measure<F, double, long double>(worst, any);
      measure<F, double, long double>(worst, usual);
      measure<F, double, long double>(worst, wide);
    }
    worst.report(F::kName, "f64", F::kBound.f64);
  });
}

TEST(sine_is_right_next_to_multiples_of_a_quarter_turn) {
  Worst<float> sine, cosine;
  for (int n = -80000; n < 80000; n += kLanes) {
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>((n + i) * 1.5707963267948966);
    measure<Sine, float, double>(sine, x);
    measure<Cosine, float, double>(cosine, x);
  }
  sine.report("sin n/2pi", "f32", tile::kSinUlp.f32);
  cosine.report("cos n/2pi", "f32", tile::kCosUlp.f32);
}

TEST(powers_are_within_the_bound) {
  Worst<float> worst;
  Random random;
  for (int round = 0; round < 20000; ++round) {
    float x[kLanes], y[kLanes], power[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      x[i] = static_cast<float>(std::exp2(random.uniform(-140, 127)));
      y[i] = static_cast<float>(random.uniform(-150, 150) / std::log2(x[i]));
    }
    using V = Vec<float, kLanes>;
    tile::store(power, tile::vpow(tile::load<V>(x), tile::load<V>(y)));
    for (int i = 0; i < kLanes; ++i) {
      worst.see(ulp_error<float, double>(power[i], std::pow(double(x[i]), double(y[i]))), x[i]);
    }
  }
  worst.report("pow", "f32", tile::kPowUlp.f32);
}

template <class T>
constexpr T kSpecial[] = {
    T(0),
    T(-0.0),
    std::numeric_limits<T>::denorm_min(),
    -std::numeric_limits<T>::denorm_min(),
    std::numeric_limits<T>::min(),
    -std::numeric_limits<T>::min(),
    T(0.3),
    T(-0.3),
    T(0.5),
    T(-0.5),
    T(1),
    T(-1),
    T(1.5),
    T(-1.5),
    T(2),
    T(-2),
    T(3),
    T(-3),
    T(-103.5),
    T(88.5),
    T(131073),
    T(1e9),
    T(-1e9),
    std::numeric_limits<T>::max(),
    -std::numeric_limits<T>::max(),
    std::numeric_limits<T>::infinity(),
    -std::numeric_limits<T>::infinity(),
    std::numeric_limits<T>::quiet_NaN(),
};

template <class T>
void check_special(const char* name, T got, T want, double bound, T x, T y = 0) {
  const bool exact = want == 0 || std::isinf(want) || std::isnan(want);
  const bool same =
      std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
  // <cmath> itself is up to one unit off.
  if (exact ? same : ulp_error<T, long double>(got, want) <= bound + 1) return;
  ptowsp::test::fail(name, 0,
                     "of " + std::to_string(x) + ", " + std::to_string(y) + " is " +
                         std::to_string(got) + ", not " + std::to_string(want));
}

template <class T, int N>
void check_special_values() {
  using V = Vec<T, N>;
  const auto bound_of = [](UlpBound bound) { return sizeof(T) == 4 ? bound.f32 : bound.f64; };
  for (const T x : kSpecial<T>) {
    for_each_function([&](auto function) {
      using F = decltype(function);
      const V y = F::vector(V{} + x);
      // A sum with zero loses the sign of zero.
      const V signed_y = x == 0 && std::signbit(x) ? F::vector(-V{}) : y;
      for (int i = 0; i < N; ++i) {
        check_special<T>(F::kName, signed_y[i],
                         static_cast<T>(F::real(static_cast<long double>(x))), bound_of(F::kBound),
                         x);
      }
    });
    for (const T y : kSpecial<T>) {
      V base, exponent;
      for (int i = 0; i < N; ++i) {
        base[i] = x;
        exponent[i] = y;
      }
      const V power = tile::vpow(base, exponent);
      check_special<T>("pow", power[N - 1], std::pow(x, y), bound_of(tile::kPowUlp), x, y);
    }
  }
}

TEST(special_values_give_what_cmath_gives) {
  check_special_values<float, 4>();
  check_special_values<float, 8>();
  check_special_values<double, 4>();
}

// A lane must not notice how many others there are, nor what they hold.
template <class T, int N, int M>
void check_lanes() {
  constexpr std::size_t kCount = 2 * M;
  Random random;
  T x[kCount], y[kCount], z[kCount];
  for (T& lane : x) lane = static_cast<T>(random.uniform(-20, 20));
  x[1] = std::numeric_limits<T>::quiet_NaN();
  x[M] = std::numeric_limits<T>::denorm_min();
  for_each_function([&](auto function) {
    using F = decltype(function);
    for (std::size_t i = 0; i < kCount; i += N) {
      tile::store(y + i, F::vector(tile::load<Vec<T, N>>(x + i)));
    }
    for (std::size_t i = 0; i < kCount; i += M) {
      tile::store(z + i, F::vector(tile::load<Vec<T, M>>(x + i)));
    }
    for (std::size_t i = 0; i < kCount; ++i) CHECK(y[i] == z[i] || (y[i] != y[i] && z[i] != z[i]));
  });
}

TEST(lanes_are_independent) {
  check_lanes<float, 4, 16>();
  check_lanes<float, 8, 16>();
  check_lanes<double, 2, 8>();
}

}  // namespace

PTOWSP_TEST_MAIN
