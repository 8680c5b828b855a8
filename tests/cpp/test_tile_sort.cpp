// Rows in order and their largest elements, against std::stable_sort.
#include <ptowsp_kernel/ptowsp_kernel.h>
#include <ptowsp_tile/sort.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "harness.h"

namespace {

using ptowsp::bf16;
using ptowsp::f16;
using ptowsp::tile::i32;
using ptowsp::tile::i64;

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else if constexpr (sizeof(T) == 2) {
    return std::isnan(float(x));
  } else {
    return std::isnan(x);
  }
}

// The definition: NaN is above everything, and equal to NaN.
template <class T>
bool goes_below(T a, T b) {
  if (is_nan(a)) return false;
  return is_nan(b) || a < b;
}

template <class T>
std::vector<i32> expected_order(const std::vector<T>& x, bool descending) {
  std::vector<i32> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](i32 a, i32 b) {
    const T& first = x[static_cast<std::size_t>(a)];
    const T& second = x[static_cast<std::size_t>(b)];
    return descending ? goes_below(second, first) : goes_below(first, second);
  });
  return order;
}

// Bytes behind what was asked for are watched.
class Scratch {
 public:
  explicit Scratch(i64 bytes)
      : bytes_(static_cast<std::size_t>(bytes)), words_(bytes_ / 8 + 3, kMark) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  bool intact() const { return words_[bytes_ / 8 + 1] == kMark; }

 private:
  static constexpr std::uint64_t kMark = 0xA5A5A5A5A5A5A5A5u;
  std::size_t bytes_;
  std::vector<std::uint64_t> words_;
};

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
void check_result(const std::vector<T>& x, const std::vector<i32>& want,
                  const std::vector<T>& values, const std::vector<i32>& indices) {
  CHECK(want == indices);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(same_bits(values[i], x[static_cast<std::size_t>(want[i])]));
  }
}

template <class T>
void check_row(const std::vector<T>& x, i64 k) {
  const i64 n = std::ssize(x);
  Scratch scratch(ptowsp::tile::sort_scratch_bytes(n, sizeof(T)));
  std::vector<T> values(x.size());
  std::vector<i32> indices(x.size());
  for (const bool descending : {false, true}) {
    ptowsp::tile::sort_row(x.data(), n, descending, values.data(), indices.data(), scratch.data());
    check_result(x, expected_order(x, descending), values, indices);
  }
  std::vector<i32> largest = expected_order(x, true);
  const std::size_t kept = std::min(x.size(), static_cast<std::size_t>(k));
  largest.resize(kept);
  values.resize(kept);
  indices.resize(kept);
  ptowsp::tile::topk_row(x.data(), n, k, values.data(), indices.data(), scratch.data());
  check_result(x, largest, values, indices);
  CHECK(scratch.intact());
}

// Few different values, so that many are equal.
template <class T>
std::vector<T> some_row(std::size_t n, std::uint32_t seed) {
  std::vector<T> x(n);
  for (T& element : x) {
    seed = seed * 1664525u + 1013904223u;
    element = static_cast<T>(static_cast<int>(seed >> 24) % 50 - 25);
  }
  return x;
}

template <class T>
void check_type() {
  for (const std::size_t n : {0u, 1u, 2u, 15u, 16u, 17u, 33u, 100u, 1000u}) {
    for (const i64 k : {0, 1, 2, 8, 64, 1000}) {
      check_row(some_row<T>(n, static_cast<std::uint32_t>(n + 1)), k);
    }
  }
  std::vector<T> rising(300);
  for (std::size_t i = 0; i < rising.size(); ++i)
    rising[i] = static_cast<T>(static_cast<int>(i % 120));
  check_row(rising, 7);
  std::reverse(rising.begin(), rising.end());
  check_row(rising, 7);
}

TEST(integers_are_sorted) {
  check_type<std::int8_t>();
  check_type<std::uint8_t>();
  check_type<std::int16_t>();
  check_type<i32>();
  check_type<std::uint32_t>();
  check_type<i64>();
  check_type<std::uint64_t>();
}

TEST(floats_are_sorted) {
  check_type<float>();
  check_type<double>();
  check_type<f16>();
  check_type<bf16>();
}

template <class T>
std::vector<T> special_row() {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float list[] = {0.0f, -0.0f, nan,       1.0f, -infinity, infinity, -nan, -1.0f,
                        0.0f, 1.0f,  -infinity, nan,  1e-7f,     -1e-7f,   -0.0f};
  std::vector<T> row;
  for (int repeat = 0; repeat < 5; ++repeat) {
    for (const float x : list) row.push_back(static_cast<T>(x));
  }
  return row;
}

template <class T>
void check_special() {
  for (const i64 k : {1, 5, 20, 70}) check_row(special_row<T>(), k);
}

TEST(nan_is_the_largest_and_zeros_are_equal) {
  check_special<float>();
  check_special<double>();
  check_special<f16>();
  check_special<bf16>();
}

template <class T>
void check_ends_of_range() {
  using Limits = std::numeric_limits<T>;
  check_row(std::vector<T>{T(0), Limits::max(), Limits::lowest(), T(1), Limits::max(), T(0)}, 3);
}

TEST(ends_of_the_range_are_in_order) {
  check_ends_of_range<std::int8_t>();
  check_ends_of_range<i32>();
  check_ends_of_range<std::uint32_t>();
  check_ends_of_range<i64>();
  check_ends_of_range<std::uint64_t>();
  check_ends_of_range<float>();
  check_ends_of_range<double>();
}

}  // namespace

PTOWSP_TEST_MAIN
