// The header that kernel bodies are compiled against: indexing, half precision, the error boundary.
#include <ptowsp_kernel/ptowsp_kernel.h>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "harness.h"

namespace {

using ptowsp::bf16;
using ptowsp::f16;
using ptowsp::View;

// 2 x 3 elements of a 4 x 6 matrix: rows 1 and 2, columns 0, 2 and 4.
struct Matrix {
  float data[24];
  ptowsp_view view{};

  Matrix() {
    std::iota(data, data + 24, 0.0f);
    view.data = data + 6;
    view.rank = 2;
    view.shape[0] = 2;
    view.shape[1] = 3;
    view.stride[0] = 6;
    view.stride[1] = 2;
  }
};

TEST(element_access_follows_strides) {
  Matrix m;
  const View<float, 2> x(m.view);
  CHECK_EQ(x(0, 0), 6.0f);
  CHECK_EQ(x(1, 2), 16.0f);
  x(1, 1) = -1.0f;
  CHECK_EQ(m.data[14], -1.0f);
  CHECK_EQ(x.size(), 6);
  CHECK_EQ(x.shape(1), 3);
  CHECK_EQ(x.stride(0), 6);
  CHECK(x.data() == m.data + 6);
}

TEST(index_of_a_matrix_is_a_row) {
  Matrix m;
  const View<float, 2> x(m.view);
  static_assert(std::is_same_v<decltype(x[1]), View<float, 1>>);
  CHECK_EQ(x[1].shape(0), 3);
  CHECK_EQ(x[1][2], 16.0f);
  x[0][1] += 0.5f;
  CHECK_EQ(m.data[8], 8.5f);
}

TEST(rank_zero_has_one_element) {
  float value = 3.0f;
  const View<float, 0> x(&value, nullptr, nullptr);
  x[0] = x[0] + 1.0f;
  CHECK_EQ(value, 4.0f);
  CHECK_EQ(x(), 4.0f);
  CHECK_EQ(x.size(), 1);
}

TEST(range_loop_visits_each_element_once) {
  Matrix m;
  const View<float, 2> x(m.view);
  float sum = 0;
  for (const float v : x[1]) sum += v;
  CHECK_EQ(sum, 12.0f + 14.0f + 16.0f);
  for (float& v : x[0]) v = 0;
  CHECK_EQ(m.data[10], 0.0f);

  float one = 7.0f;
  const std::int64_t shape[] = {3};
  const std::int64_t stride[] = {0};  // a broadcast dimension
  int visits = 0;
  for (const float v : View<const float, 1>(&one, shape, stride)) visits += v == 7.0f ? 1 : 0;
  CHECK_EQ(visits, 3);

  const std::int64_t empty[] = {0};
  for (const float v : View<const float, 1>(nullptr, empty, stride)) CHECK(v == 0 && false);
}

TEST(inputs_are_const) {
  Matrix m;
  const View<float, 2> x(m.view);
  const View<const float, 2> readable = x;
  static_assert(std::is_same_v<decltype(readable(0, 0)), const float&>);
  static_assert(std::is_same_v<decltype(readable[0][0]), const float&>);
  static_assert(!std::is_convertible_v<View<const float, 2>, View<float, 2>>);
  static_assert(!std::is_convertible_v<View<float, 2>, View<const float, 1>>);
  CHECK_EQ(readable(1, 0), 12.0f);
}

// The value of half bits from the definition, in double.
double f16_by_definition(unsigned bits) {
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const double mantissa = static_cast<double>(bits & 1023u);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa == 0.0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

f16 f16_from(unsigned bits) {
  f16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

bf16 bf16_from(unsigned bits) {
  bf16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TEST(f16_reads_every_pattern) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = f16_from(bits);
    const double expected = f16_by_definition(bits);
    if (std::isnan(expected)) {
      CHECK(std::isnan(value));
      CHECK(std::isnan(static_cast<float>(f16(value))));
      continue;
    }
    CHECK(static_cast<double>(value) == expected);
    CHECK_EQ(std::signbit(value), (bits & 0x8000u) != 0);
    CHECK_EQ(f16(value).bits, bits);
  }
}

// Between two neighbours: the midpoint goes to the even one, anything beside it to the nearer one.
TEST(f16_rounds_to_nearest_even) {
  for (unsigned bits = 0; bits < 0x7BFFu; ++bits) {
    const double low = f16_by_definition(bits);
    const double high = f16_by_definition(bits + 1);
    const double middle = (low + high) / 2;
    CHECK_EQ(f16(middle).bits, (bits & 1u) == 0 ? bits : bits + 1);
    CHECK_EQ(f16(static_cast<float>(middle)).bits, (bits & 1u) == 0 ? bits : bits + 1);
    // The closest doubles to a midpoint become midpoints as float: they show double rounding.
    CHECK_EQ(f16(std::nextafter(middle, 0.0)).bits, bits);
    CHECK_EQ(f16(std::nextafter(middle, 1e9)).bits, bits + 1);
    CHECK_EQ(f16(std::nextafter(static_cast<float>(middle), 0.0f)).bits, bits);
    CHECK_EQ(f16(-std::nextafter(static_cast<float>(middle), 1e9f)).bits, 0x8000u | (bits + 1));
  }
  CHECK_EQ(f16(65519.99f).bits, 0x7BFF);
  CHECK_EQ(f16(65520.0f).bits, 0x7C00);
  CHECK_EQ(f16(-1e300).bits, 0xFC00);
  CHECK_EQ(f16(1e-300).bits, 0);
  CHECK_EQ(f16(-0.0f).bits, 0x8000);
}

TEST(bf16_reads_every_pattern_and_rounds_to_nearest_even) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = bf16_from(bits);
    if (std::isnan(value)) {
      CHECK(std::isnan(static_cast<float>(bf16(value))));
      continue;
    }
    CHECK_EQ(bf16(value).bits, bits);
    if ((bits & 0x7FFFu) >= 0x7F7Fu) continue;  // the last finite number has no finite neighbour
    const double middle =
        (static_cast<double>(value) + static_cast<double>(bf16_from(bits + 1))) / 2;
    CHECK_EQ(bf16(middle).bits, (bits & 1u) == 0 ? bits : bits + 1);
    CHECK_EQ(bf16(std::nextafter(middle, 0.0)).bits, bits);
    CHECK_EQ(bf16(std::nextafter(middle, 2 * middle)).bits, middle == 0 ? bits : bits + 1);
  }
  CHECK_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(halves_compute_as_float) {
  f16 x = 1.5f;
  x += 2;
  x *= 2.0f;
  CHECK_EQ(static_cast<float>(x), 7.0f);
  const bf16 y = 3;
  static_assert(std::is_same_v<decltype(y * x), float>);
  CHECK_EQ(y * x, 21.0f);
  CHECK(y < x);
  CHECK_EQ(static_cast<float>(f16(2049)), 2048.0f);
}

ptowsp_call call_with(char* error, std::uint32_t size) {
  ptowsp_call call{};
  call.error = error;
  call.error_size = size;
  return call;
}

TEST(exceptions_become_messages) {
  char error[64] = "untouched";
  const ptowsp_call call = call_with(error, sizeof error);
  CHECK_EQ(ptowsp::run_body(&call, [] {}), 0);
  CHECK_EQ(std::string(error), "untouched");
  CHECK_EQ(ptowsp::run_body(&call, [] { throw std::out_of_range("row 3"); }), 1);
  CHECK_EQ(std::string(error), "row 3");
  CHECK_EQ(ptowsp::run_body(&call, [] { ptowsp_fail("no page"); }), 1);
  CHECK_EQ(std::string(error), "no page");
  CHECK_EQ(ptowsp::run_body(&call, [] { throw 5; }), 1);
  CHECK_EQ(std::string(error), "unknown C++ exception");
}

TEST(long_messages_are_cut_and_terminated) {
  char error[5] = "....";
  const ptowsp_call call = call_with(error, sizeof error);
  CHECK_EQ(ptowsp::run_body(&call, [] { ptowsp_fail("abcdefgh"); }), 1);
  CHECK_EQ(std::string(error), "abcd");
  const ptowsp_call nowhere = call_with(nullptr, 0);
  CHECK_EQ(ptowsp::run_body(&nowhere, [] { ptowsp_fail("lost"); }), 1);
}

TEST(scalars_are_read_by_their_type) {
  const std::uint64_t scalars[] = {0x3FC00000u, 0xFFFFFFFFFFFFFFFEu, 1u, 0x3E00u};
  ptowsp_call call{};
  call.scalars = scalars;
  CHECK_EQ(ptowsp::scalar_argument<float>(&call, 0), 1.5f);
  CHECK_EQ(ptowsp::scalar_argument<std::int32_t>(&call, 1), -2);
  CHECK_EQ(ptowsp::scalar_argument<bool>(&call, 2), true);
  CHECK_EQ(static_cast<float>(ptowsp::scalar_argument<f16>(&call, 3)), 1.5f);
}

}  // namespace

PTOWSP_TEST_MAIN
