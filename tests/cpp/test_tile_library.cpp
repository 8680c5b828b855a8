// The tile library by hand: bounds, tails, strided windows, reductions, moves, casts.
#include <ptowsp_tile/map.h>
#include <ptowsp_tile/move.h>
#include <ptowsp_tile/reduce.h>

#include "harness.h"

namespace {

using namespace ptowsp::tile;

constexpr i64 kRows = 5;
constexpr i64 kCols = 21;

// A tensor with something around it that must stay.
struct Framed {
  float memory[9][64];
  Framed() {
    for (auto& row : memory) {
      for (float& x : row) x = -7;
    }
  }
  Window<float> window(i64 rows, i64 cols, i64 step) {
    return {&memory[2][3], 64, step, rows, cols};
  }
  bool frame_is_whole(i64 rows, i64 cols, i64 step) {
    for (i64 i = 0; i < 9; ++i) {
      for (i64 j = 0; j < 64; ++j) {
        const bool inside =
            i >= 2 && i < 2 + rows && j >= 3 && j < 3 + cols * step && (j - 3) % step == 0;
        if (!inside && memory[i][j] != -7) return false;
      }
    }
    return true;
  }
};

float number(i64 i, i64 j) { return static_cast<float>(i * 100 + j) - 50.0f; }

TEST(map_touches_what_there_is) {
  const i64 extents[][2] = {{kRows, kCols}, {2, 8}, {3, 1}, {1, 17}, {0, 4}};
  for (const auto& extent : extents) {
    for (const i64 step : {1, 2}) {
      Framed from;
      Framed to;
      auto a = from.window(extent[0], extent[1], step);
      auto d = to.window(extent[0], extent[1], step);
      for (i64 i = 0; i < a.rows; ++i) {
        for (i64 j = 0; j < a.cols; ++j) a.set(i, j, number(i, j));
      }
      TADDS(d, a, 1.5f);
      for (i64 i = 0; i < a.rows; ++i) {
        for (i64 j = 0; j < a.cols; ++j) CHECK_EQ(d.get(i, j), number(i, j) + 1.5f);
      }
      CHECK(to.frame_is_whole(extent[0], extent[1], step));
    }
  }
}

TEST(reductions_count_what_there_is) {
  Framed from;
  for (const i64 cols : {i64{1}, i64{7}, i64{8}, kCols}) {
    auto a = from.window(kRows, cols, 1);
    for (i64 i = 0; i < kRows; ++i) {
      for (i64 j = 0; j < cols; ++j) a.set(i, j, number(i, j));
    }
    alignas(64) std::byte column[Tile<float, kRows, 1>::kBytes];
    Tile<float, kRows, 1> d(column);
    TROWSUM(d, a);
    CHECK_EQ(d.get(1, 0), static_cast<float>(cols * 50 + cols * (cols - 1) / 2));
    TROWMAX(d, a);
    CHECK_EQ(d.get(2, 0), number(2, cols - 1));
    TROWMIN(d, a);
    CHECK_EQ(d.get(2, 0), number(2, 0));
    a.set(3, cols - 1, std::numeric_limits<float>::quiet_NaN());
    TROWMAX(d, a);
    CHECK(d.get(3, 0) != d.get(3, 0));
    CHECK_EQ(d.get(4, 0), number(4, cols - 1));
    alignas(64) std::byte row[Tile<float, 1, kCols>::kBytes];
    Tile<float, 1, kCols> top(row);
    TCOLMAX(top, a);
    CHECK_EQ(top.cols, cols);
    if (cols > 1) CHECK_EQ(top.get(0, 0), number(4, 0));
  }
}

TEST(moves) {
  Framed from;
  auto a = from.window(4, 10, 1);
  for (i64 i = 0; i < 4; ++i) {
    for (i64 j = 0; j < 10; ++j) a.set(i, j, number(i, j));
  }
  alignas(64) std::byte place[Tile<float, 16, 16>::kBytes];
  Tile<float, 16, 16> t(place);
  TTRANS(t, a);
  CHECK_EQ(t.rows, 10);
  CHECK_EQ(t.get(9, 3), number(3, 9));
  CHECK_EQ(t.transposed().get(3, 9), number(3, 9));
  TPAD(t, a, 4.5f);
  CHECK_EQ(t.get(3, 9), number(3, 9));
  CHECK_EQ(t.get(3, 10), 4.5f);
  CHECK_EQ(t.get(15, 0), 4.5f);
}

TEST(half_precision_rounds_once) {
  for (u32 k = 0; k < 200000; ++k) {
    const float x = std::bit_cast<float>(k * 21475u + 12345u);
    const auto v = splat<Vec<float, 8>>(x);
    const auto half = memory_lanes<ptowsp::f16>(v);
    const auto short_float = memory_lanes<ptowsp::bf16>(v);
    const bool is_number = x == x;
    if (is_number && half[3] != ptowsp::f16(x).bits) CHECK_EQ(half[3], ptowsp::f16(x).bits);
    if (is_number && short_float[5] != ptowsp::bf16(x).bits) CHECK_EQ(short_float[5], 0);
  }
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    ptowsp::f16 half;
    half.bits = static_cast<u16>(bits);
    const ptowsp::f16 eight[8] = {half, half, half, half, half, half, half, half};
    const float value = load_lanes<ptowsp::f16, 8>(eight)[2];
    const float expected = half;
    if (expected == expected && value != expected) CHECK_EQ(value, expected);
  }
}

TEST(casts_stop_at_the_ends) {
  const float numbers[8] = {
      3e9f,          -3e9f, 2.5f, -2.5f, std::numeric_limits<float>::quiet_NaN(),
      2147483520.0f, -0.0f, 3.5f};
  const auto v = load<Vec<float, 8>>(numbers);
  const auto nearest = cast<i32, float, Rounding::kNearest>(v);
  const i32 expected[8] = {2147483647, -2147483647 - 1, 2, -2, 0, 2147483520, 0, 4};
  for (int k = 0; k < 8; ++k) CHECK_EQ(nearest[k], expected[k]);
  const auto bytes = cast<u8, float>(v);
  CHECK_EQ(bytes[0], 255);
  CHECK_EQ(bytes[1], 0);
  CHECK_EQ(bytes[7], 3);
}

// Numbers at which casts change their ways, as elements of type T.
constexpr u32 kNumbers = 32;
template <class T>
void fill(T (&x)[kNumbers]) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kHard[kNumbers] = {
      0.0,       -0.0,       1.5,        2.5,          -0.5,   -2.5,         127.5,
      -128.5,    255.5,      32767.5,    65519,        65520,  6e-8,         1e-8,
      1e-40,     -1e-40,     16777217.0, 2147483647.0, 3e38,   -2147483649., 4294967295.0,
      9.3e18,    -9.3e18,    1.85e19,    1e300,        -1e300, -1.0,         5e-324,
      kInfinity, -kInfinity, kNan,       4294967296.0};
  for (u32 k = 0; k < kNumbers; ++k) {
    if constexpr (std::is_same_v<T, bool>) {
      x[k] = k % 3 == 1;
    } else if constexpr (std::is_integral_v<T>) {
      const u64 bits = u64{k} * 0x9E3779B97F4A7C15u;
      x[k] = k == 15 ? std::numeric_limits<T>::min() : static_cast<T>(k < 16 ? bits : bits >> 57);
    } else if constexpr (std::is_same_v<T, double>) {
      x[k] = kHard[k];
    } else {  // what no float holds is infinity
      x[k] = T(std::fabs(kHard[k]) == 1e300 ? std::numeric_limits<float>::infinity()
                                            : static_cast<float>(kHard[k]));
    }
  }
}

// A lane gets what a scalar gets, and no number is beyond what a conversion is defined for.
template <class To, class From, Rounding Mode>
void check_cast() {
  From x[kNumbers];
  fill(x);
  for (u32 first = 0; first < kNumbers; first += 8) {
    To y[8];
    const auto lanes = memory_lanes<To>(cast<To, From, Mode>(load_lanes<From, 8>(x + first)));
    static_assert(sizeof lanes == sizeof y);
    std::memcpy(y, &lanes, sizeof y);
    for (u32 k = 0; k < 8; ++k) {
      const auto lane = scalar_of(y[k]);
      const auto one = scalar_of(To(cast<To, From, Mode>(scalar_of(x[first + k]))));
      CHECK(lane == one || (lane != lane && one != one));
    }
  }
}
template <class To, class From>
void check_roundings() {
  check_cast<To, From, Rounding::kNearest>();
  if constexpr (!std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    check_cast<To, From, Rounding::kZero>();
    check_cast<To, From, Rounding::kDown>();
    check_cast<To, From, Rounding::kUp>();
  }
}
template <class From, class... To>
void check_casts_of() {
  (check_roundings<To, From>(), ...);
}
template <class... T>
void check_casts() {
  (check_casts_of<T, T...>(), ...);
}

TEST(lanes_are_cast_like_scalars) {
  check_casts<double, float, ptowsp::f16, ptowsp::bf16, bool>();
  check_casts<double, float, i8, i16, i32, i64>();
  check_casts<ptowsp::f16, ptowsp::bf16, u8, u16, u32, u64>();
}

TEST(integers_wrap_and_divide_down) {
  const i32 lowest = std::numeric_limits<i32>::min();
  CHECK_EQ(vfloordiv(lowest, i32{-1}), lowest);
  CHECK_EQ(vmod(lowest, i32{-1}), 0);
  CHECK_EQ(vfloordiv(i32{-7}, i32{2}), -4);
  CHECK_EQ(vmod(i32{-7}, i32{2}), 1);
  CHECK_EQ(vmod(i32{7}, i32{-2}), -1);
  CHECK_EQ(vfloordiv(i32{7}, i32{0}), 0);
  CHECK_EQ(vadd(std::numeric_limits<i64>::max(), i64{1}), std::numeric_limits<i64>::min());
  CHECK_EQ(vmul(i8{100}, i8{3}), i8{44});
}

}  // namespace

PTOWSP_TEST_MAIN
