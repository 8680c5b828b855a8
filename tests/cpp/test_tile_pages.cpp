// Products whose second operand lies on pages: the same bits alone, in a group, and on pages of any
// size. Pools and tables end with their last element, so that a sanitizer sees each read behind it.
#include <ptowsp_kernel/ptowsp_kernel.h>
#include <ptowsp_tile/product.h>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "harness.h"

namespace {

using namespace ptowsp::tile;

constexpr int kHeads = 2;
using Numbers = std::vector<float>;

Numbers drawn(i64 count, unsigned seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<float> normal;
  Numbers made(static_cast<std::size_t>(count));
  for (float& x : made) x = normal(draw);
  return made;
}

struct Sizes {
  i64 m, tokens, dim;
};

// Where the tokens of two heads lie on a page: those of a head together, or the heads of a token.
enum class Layout { kByHead, kByToken };

// Keys or values on pages in no order.
struct Pool {
  ptowsp_view view{};
  ptowsp_pages pages{};
  Numbers memory;
  std::vector<std::int32_t> table;

  Pool(const Numbers (&heads)[kHeads], const Sizes& sizes, i64 page, Layout layout) {
    const i64 count = (sizes.tokens + page - 1) / page;
    const bool by_head = layout == Layout::kByHead;
    const i64 head_size = by_head ? page * sizes.dim : sizes.dim;
    const i64 token_size = by_head ? sizes.dim : kHeads * sizes.dim;
    const i64 page_size = kHeads * page * sizes.dim;
    memory.resize(static_cast<std::size_t>(count * page_size));
    for (i64 p = 0; p < count; ++p) table.push_back(static_cast<std::int32_t>(count - 1 - p));
    for (i64 t = 0; t < sizes.tokens; ++t) {
      for (i64 h = 0; h < kHeads; ++h) {
        float* to = memory.data() + table[static_cast<std::size_t>(t / page)] * page_size +
                    h * head_size + t % page * token_size;
        std::memcpy(to, heads[h].data() + t * sizes.dim,
                    static_cast<std::size_t>(sizes.dim) * sizeof(float));
      }
    }
    view.data = memory.data();
    const i64 shape[] = {sizes.tokens, kHeads, sizes.dim};
    const i64 stride[] = {token_size, head_size, 1};
    std::copy_n(shape, 3, view.shape);
    std::copy_n(stride, 3, view.stride);
    pages.table = table.data();
    pages.table_stride = 1;
    pages.page = page;
    pages.page_stride = page_size;
  }
};

enum class Kind { kRows, kColumns };

struct Results {
  Numbers alone[kHeads], group[kHeads];
};

Results multiply(Kind kind, const Sizes& sizes, const Numbers (&heads)[kHeads],
                 const Numbers (&a)[kHeads], i64 page, Layout layout, bool accumulate) {
  const auto [m, tokens, dim] = sizes;
  const i64 inner = kind == Kind::kRows ? tokens : dim, outer = kind == Kind::kRows ? dim : tokens;
  Pool pool(heads, sizes, page, layout);
  const ptowsp::PagedView<const float, 3> view(pool.view, pool.pages);
  const auto bytes = static_cast<std::size_t>(matmul_scratch_bytes(m, outer, inner, sizeof(float)));
  std::vector<std::byte> scratch(bytes + 64);
  auto* room = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  Results out;
  for (int h = 0; h < kHeads; ++h) {
    out.alone[h] = drawn(m * outer, 7);
    out.group[h] = out.alone[h];
  }
  using Tile = Window<float>;
  Tile left[kHeads] = {{const_cast<float*>(a[0].data()), inner, 1, m, inner},
                       {const_cast<float*>(a[1].data()), inner, 1, m, inner}};
  const auto sums = [&](Numbers& c) { return Tile{c.data(), outer, 1, m, outer}; };
  const auto window = [&](int h) {
    return PagedWindow<const float, 3>{view, 0, h * pool.view.stride[1], 1, tokens, dim};
  };
  const auto run = [&](auto right) {
    Tile alone[] = {sums(out.alone[0]), sums(out.alone[1])};
    Tile group[] = {sums(out.group[0]), sums(out.group[1])};
    const auto b0 = right(0), b1 = right(1);
    const auto g0 = by(group[0], left[0], b0), g1 = by(group[1], left[1], b1);
    if (accumulate) {
      TMATMUL_ACC(alone[0], left[0], b0, room);
      TMATMUL_ACC(alone[1], left[1], b1, room);
      TMATMUL_ACC_EACH(room, NotKnown{}, g0, g1);
    } else {
      TMATMUL(alone[0], left[0], b0, room);
      TMATMUL(alone[1], left[1], b1, room);
      TMATMUL_EACH(room, NotKnown{}, g0, g1);
    }
  };
  if (kind == Kind::kRows) {
    run(window);
  } else {
    run([&](int h) { return window(h).transposed(); });
  }
  return out;
}

bool same(const Numbers& x, const Numbers& y) {
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

void check(Kind kind, const Sizes& sizes) {
  Numbers heads[kHeads], a[kHeads];
  for (unsigned h = 0; h < kHeads; ++h) {
    heads[h] = drawn(sizes.tokens * sizes.dim, h);
    a[h] = drawn(sizes.m * (kind == Kind::kRows ? sizes.tokens : sizes.dim), 10 + h);
  }
  for (const bool accumulate : {false, true}) {
    const Results first = multiply(kind, sizes, heads, a, 16, Layout::kByHead, accumulate);
    for (const i64 page : {1, 7, 16, 64, 200, 512}) {
      for (const Layout layout : {Layout::kByHead, Layout::kByToken}) {
        const Results found = multiply(kind, sizes, heads, a, page, layout, accumulate);
        for (int h = 0; h < kHeads; ++h) {
          CHECK(same(found.alone[h], found.group[h]));
          CHECK(same(found.alone[h], first.alone[h]));
        }
      }
    }
  }
}

}  // namespace

TEST(products_add_in_one_order_alone_in_a_group_and_on_any_pages) {
  for (const i64 m : {1, 4, 16}) {
    for (const i64 tokens : {1, 100, 512}) {
      for (const i64 dim : {24, 128, 256, 2080}) {
        check(Kind::kRows, {m, tokens, dim});
        check(Kind::kColumns, {m, tokens, dim});
      }
    }
  }
}

PTOWSP_TEST_MAIN
