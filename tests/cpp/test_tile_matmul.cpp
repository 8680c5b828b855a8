// The product of matrices, against three loops. Elements are small whole numbers, so sums are exact
// in any order and must be equal.
#include <ptowsp_kernel/ptowsp_kernel.h>
#include <ptowsp_tile/matmul.h>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "harness.h"

namespace {

using ptowsp::bf16;
using ptowsp::f16;
using ptowsp::tile::i32;
using ptowsp::tile::i64;

struct Random {
  std::uint32_t state = 12345;
  int small(int low, int high) {
    state = state * 1664525u + 1013904223u;
    return low + static_cast<int>(state >> 16) % (high - low + 1);
  }
};

enum class Layout { kRows, kColumns, kNeither };

// A matrix with gaps between its elements that hold something else. Its memory ends with the last
// element, so that a sanitizer sees each read behind it.
template <class T>
struct Matrix {
  i64 row, column;
  std::vector<T> memory;

  Matrix(i64 rows, i64 columns, Layout layout, int low, int high, Random& random) {
    row = layout == Layout::kColumns ? 1 : columns * (layout == Layout::kNeither ? 2 : 1) + 3;
    column = layout == Layout::kColumns ? rows + 5 : layout == Layout::kNeither ? 2 : 1;
    const i64 size = rows * columns == 0 ? 0 : (rows - 1) * row + (columns - 1) * column + 1;
    memory.assign(static_cast<std::size_t>(size), T(77));
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) at(i, j) = T(random.small(low, high));
    }
  }
  T& at(i64 i, i64 j) { return memory[static_cast<std::size_t>(i * row + j * column)]; }
};

struct AlignedFree {
  void operator()(void* memory) const { std::free(memory); }
};

// Exactly as large as asked for.
class Scratch {
 public:
  explicit Scratch(i64 bytes) {
    const std::size_t size = (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, size + 64)));
    end_ = memory_.get() + bytes;
    for (int i = 0; i < 64; ++i) end_[i] = std::byte{0xA5};
  }
  std::byte* data() { return memory_.get(); }
  bool intact() const {
    for (int i = 0; i < 64; ++i) {
      if (end_[i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<std::byte, AlignedFree> memory_;
  std::byte* end_ = nullptr;
};

struct Case {
  i64 m, n, k;
  Layout a, b;
  bool accumulate;
  std::string text() const {
    const auto number = [](auto x) { return std::to_string(static_cast<int>(x)) + ' '; };
    return number(m) + number(n) + number(k) + "layouts " + number(a) + number(b) +
           (accumulate ? "accumulate" : "");
  }
};

template <class A, class B, class Acc>
void check_product(const Case& test, int low = -8, int high = 8) {
  Random random;
  const auto [m, n, k, a_layout, b_layout, accumulate] = test;
  Matrix<A> a(m, k, a_layout, low, high, random);
  Matrix<B> b(k, n, b_layout, low, high, random);
  const i64 c_row = n + 3;
  std::vector<Acc> c(static_cast<std::size_t>(m * c_row), Acc(5));
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(m, n, k, sizeof(Acc)));
  ptowsp::tile::matmul(m, n, k, a.memory.data(), a.row, a.column, b.memory.data(), b.row, b.column,
                       c.data(), c_row, accumulate, scratch.data());
  bool right = scratch.intact();
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < c_row; ++j) {
      double want = j < n && !accumulate ? 0 : 5;
      for (i64 p = 0; j < n && p < k; ++p) want += double(a.at(i, p)) * double(b.at(p, j));
      right = right && double(c[static_cast<std::size_t>(i * c_row + j)]) == want;
    }
  }
  if (!right) ptowsp::test::fail("product", 0, test.text());
}

constexpr Layout kLayouts[] = {Layout::kRows, Layout::kColumns, Layout::kNeither};

TEST(every_height_is_right) {
  for (i64 m = 0; m <= 40; ++m) {
    for (const Layout b : kLayouts) {
      check_product<float, float, float>({m, 37, 21, Layout::kRows, b, m % 2 == 0});
    }
  }
}

TEST(every_width_is_right) {
  for (i64 n = 0; n <= 70; ++n) {
    for (const i64 m : {3, 19}) {
      for (const Layout b : kLayouts) {
        check_product<float, float, float>({m, n, 18, Layout::kRows, b, n % 2 == 0});
      }
    }
  }
}

// Strips of eight vectors, where there are registers for them, and what is left beside them.
TEST(few_rows_of_wide_ones_are_right) {
  for (i64 m = 1; m <= 17; ++m) {
    for (const i64 n : {64, 128, 131, 200, 256, 307}) {
      for (const i64 k : {1, 2, 3, 16, 17}) {
        check_product<float, float, float>({m, n, k, Layout::kRows, Layout::kRows, k % 2 == 0});
      }
      check_product<bf16, bf16, float>({m, n, 9, Layout::kRows, Layout::kRows, true});
    }
  }
}

// What lies ahead is asked for and never read: it need not exist.
TEST(what_is_ahead_changes_nothing) {
  for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
    Random random;
    Matrix<float> a(4, 128, Layout::kRows, -8, 8, random);
    Matrix<float> b(128, 128, layout, -8, 8, random);
    std::vector<std::vector<float>> found;
    for (const i64 ahead : {i64{0}, i64{1} << 16, -(i64{1} << 40), i64{1} << 62}) {
      std::vector<float> c(4 * 128);
      Scratch scratch(ptowsp::tile::matmul_scratch_bytes(4, 128, 128, sizeof(float)));
      ptowsp::tile::matmul(4, 128, 128, a.memory.data(), a.row, a.column, b.memory.data(), b.row,
                           b.column, c.data(), 128, false, scratch.data(), ahead);
      found.push_back(c);
    }
    for (const auto& each : found) CHECK(each == found[0]);
  }
}

// Parts of every size, with and without something ahead: the same bits as in one piece.
template <class T>
void check_runs(i64 m, Layout layout) {
  const bool in_rows = layout == Layout::kRows;
  const i64 n = in_rows ? 128 : 110, k = in_rows ? 110 : 128;
  std::mt19937 draw(static_cast<unsigned>(m));
  std::normal_distribution<float> normal;
  const auto numbers = [&](i64 count) {
    std::vector<T> made;
    for (i64 i = 0; i < count; ++i) made.push_back(static_cast<T>(normal(draw)));
    return made;
  };
  const std::vector<T> a = numbers(m * k), b = numbers(n * k);
  const i64 b_row = in_rows ? n : 1, b_col = in_rows ? 1 : k;
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(m, n, k, sizeof(float)));
  std::vector<float> whole(static_cast<std::size_t>(m * n), 0.25f);
  ptowsp::tile::matmul(m, n, k, a.data(), k, 1, b.data(), b_row, b_col, whole.data(), n, true,
                       scratch.data());
  for (const i64 ahead : {0, 4096}) {
    ptowsp::tile::detail::Runs<T> runs;
    i64 at = 0;
    for (const i64 size : {1, 16, 16, 3, 40, 32, 2}) {
      runs.add({b.data() + at * (in_rows ? b_row : b_col), size, ahead});
      at += size;
    }
    std::vector<float> c(whole.size(), 0.25f);
    if (in_rows) {
      ptowsp::tile::matmul_rows(m, n, a.data(), k, 1, runs, b_row, b_col, c.data(), n, true,
                                scratch.data());
    } else {
      ptowsp::tile::matmul_columns(m, k, a.data(), k, 1, runs, b_row, b_col, c.data(), n, true,
                                   scratch.data());
    }
    CHECK(std::memcmp(c.data(), whole.data(), c.size() * sizeof(float)) == 0);
  }
}

TEST(runs_add_the_same_numbers_in_the_same_order) {
  for (const i64 m : {1, 2, 3, 4, 5, 8, 9, 16}) {
    for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
      check_runs<float>(m, layout);
      check_runs<bf16>(m, layout);
    }
  }
}

// What the caller reads next is asked for in other orders, but the numbers added are the same.
template <class B, class Acc>
void check_ahead(i64 m, i64 n, i64 k, Layout layout, bool accumulate) {
  Random random;
  Matrix<Acc> a(m, k, Layout::kRows, -8, 8, random);
  Matrix<B> b(k, n, layout, -8, 8, random);
  for (Acc& x : a.memory) x = x * Acc(1.37) + Acc(0.11);
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(m, n, k, sizeof(Acc)));
  std::vector<Acc> c[2];
  for (int asks = 0; asks < 2; ++asks) {
    c[asks].assign(static_cast<std::size_t>(m * n + 1), Acc(0.25));
    ptowsp::tile::matmul(m, n, k, a.memory.data(), a.row, a.column, b.memory.data(), b.row,
                         b.column, c[asks].data(), n, accumulate, scratch.data(), 64 * asks);
  }
  CHECK(scratch.intact());
  CHECK(std::memcmp(c[0].data(), c[1].data(), c[0].size() * sizeof(Acc)) == 0);
}

TEST(asking_for_what_comes_changes_nothing) {
  for (const i64 m : {1, 2, 3, 4, 5, 7, 16}) {
    for (const i64 k : {1, 15, 16, 40, 64, 128, 136, 200, 256, 300}) {
      for (const i64 n : {1, 15, 16, 33}) {
        for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
          check_ahead<float, float>(m, n, k, layout, n % 2 == 1);
          check_ahead<bf16, float>(m, n, k, layout, k % 2 == 1);
          check_ahead<double, double>(m, n, k, layout, n % 2 == 0);
        }
      }
    }
  }
}

TEST(every_depth_is_right) {
  for (i64 k = 0; k <= 35; ++k) {
    for (const i64 m : {2, 20}) {
      for (const Layout a : kLayouts) {
        check_product<float, float, float>({m, 21, k, a, Layout::kRows, k % 2 == 0});
        check_product<float, float, float>({m, 21, k, a, Layout::kColumns, k % 2 == 1});
      }
    }
  }
}

TEST(large_products_go_block_by_block) {
  for (const Layout a : kLayouts) {
    for (const Layout b : kLayouts) {
      check_product<float, float, float>({300, 70, 600, a, b, true});
      check_product<float, float, float>({5, 1300, 530, a, b, false});
    }
  }
  check_product<double, double, double>({200, 40, 300, Layout::kRows, Layout::kColumns, true});
}

template <class A, class B, class Acc>
void check_types(int low, int high) {
  for (const Layout b : {Layout::kRows, Layout::kColumns}) {
    for (const i64 m : {1, 7, 29}) {
      check_product<A, B, Acc>({m, 45, 67, Layout::kRows, b, false}, low, high);
      check_product<A, B, Acc>({m, 45, 67, Layout::kColumns, b, true}, low, high);
    }
  }
}

TEST(every_type_is_right) {
  check_types<float, float, float>(-8, 8);
  check_types<f16, f16, float>(-8, 8);
  check_types<bf16, bf16, float>(-8, 8);
  check_types<float, bf16, float>(-8, 8);
  check_types<double, double, double>(-1000, 1000);
  check_types<std::int8_t, std::int8_t, i32>(-128, 127);
  check_types<std::uint8_t, std::uint8_t, i32>(0, 255);
  check_types<std::uint8_t, std::int8_t, i32>(0, 127);
  check_types<i32, i32, i32>(-5000, 5000);
}

// One element times one, for what no sum of small whole numbers shows.
template <class A>
float times_one(float x, i64 lanes) {
  std::vector<A> b(static_cast<std::size_t>(lanes), A(x));
  std::vector<float> c(b.size());
  const A one(1.0f);
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(1, lanes, 1, sizeof(float)));
  ptowsp::tile::matmul<A, A, float>(1, lanes, 1, &one, 1, 1, b.data(), lanes, 1, c.data(), lanes,
                                    false, scratch.data());
  return c.front();
}

TEST(half_precision_keeps_denormals_infinities_and_nan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const i64 lanes : {1, 64}) {
    for (const float x : {0x1p-24f, -0x1.8p-20f, 0x1p-14f, 65504.0f, infinity, -infinity}) {
      CHECK_EQ(times_one<f16>(x, lanes), x);
    }
    for (const float x : {0x1p-133f, -0x1.8p-130f, 0x1.fep127f, infinity, -infinity}) {
      CHECK_EQ(times_one<bf16>(x, lanes), x);
    }
    CHECK(std::isnan(times_one<f16>(std::numeric_limits<float>::quiet_NaN(), lanes)));
    CHECK(std::isnan(times_one<bf16>(std::numeric_limits<float>::quiet_NaN(), lanes)));
  }
}

TEST(integers_wrap_around) {
  const i32 a[] = {65536, 65536};
  const i32 b[] = {65536, 40000};
  i32 c = 7;
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(1, 1, 2, sizeof(i32)));
  ptowsp::tile::matmul(1, 1, 2, a, 2, 1, b, 1, 1, &c, 1, true, scratch.data());
  CHECK_EQ(c, static_cast<i32>(static_cast<std::uint32_t>(65536u * 40000u + 7u)));
}

// Where an operand lies in memory does not change what is computed.
TEST(the_order_of_additions_depends_on_shapes_alone) {
  constexpr i64 kM = 31, kN = 50, kK = 300;
  std::vector<float> a(kM * kK + 1), b(kK * kN + 1), first(kM * kN), second(kM * kN + 1);
  for (std::size_t i = 1; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 1; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
  Scratch scratch(ptowsp::tile::matmul_scratch_bytes(kM, kN, kK, sizeof(float)));
  const auto multiply = [&](const float* x, const float* y, float* to) {
    ptowsp::tile::matmul(kM, kN, kK, x, kK, 1, y, kN, 1, to, kN, false, scratch.data());
  };
  multiply(a.data() + 1, b.data() + 1, first.data());
  const std::vector<float> moved_a(a.begin() + 1, a.end()), moved_b(b.begin() + 1, b.end());
  multiply(moved_a.data(), moved_b.data(), second.data() + 1);
  CHECK(std::equal(first.begin(), first.end(), second.begin() + 1));
}

}  // namespace

PTOWSP_TEST_MAIN
