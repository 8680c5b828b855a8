// What the ways of multiplying share: sizes, what is read next, where sums go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "matmul_pack.h"
#include "vec.h"

namespace ptowsp::tile::detail {

// ---- sizes ------------------------------------------------------------------------------------

// A tile of c that fits into the registers, beside one row of b and an element of a. The short
// tile is for the last rows: most m are a sum of both heights.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14, kShortTileRows = 8, kTileVectors = 2;
#elif defined(__aarch64__)
inline constexpr int kTileRows = 8, kShortTileRows = 4, kTileVectors = 3;
#else
inline constexpr int kTileRows = 6, kShortTileRows = 4, kTileVectors = 2;
#endif
template <class E>
inline constexpr int kTileLanes = kVectorBytes / static_cast<int>(sizeof(E));
template <class E>
inline constexpr int kTileColumns = kTileVectors * kTileLanes<E>;

// The block of a stays in the second-level cache, a tile's columns of b in the first.
inline constexpr i64 kBlockDepth = 256;
inline constexpr i64 kBlockRowBytes = 1024;
inline constexpr i64 kStripColumns = 64;
template <class E>
inline constexpr i64 kBlockRows = kBlockRowBytes / i64{sizeof(E)};
// In elements: where the strip may begin, and room for that and for what copies write too much.
inline constexpr i64 kAligned = 16;
inline constexpr i64 kSlack = 64;
// Sums of a product with few rows, which stay in the first cache.
inline constexpr i64 kTileElements = 4096;

// `size` in equal parts of at most `most`, each a multiple of `unit` but the last.
constexpr i64 equal_part(i64 size, i64 most, i64 unit) {
  if (size <= most) return std::min((size + unit - 1) / unit * unit, most);  // the usual case
  const i64 parts = std::max<i64>((size + most - 1) / most, 1);
  const i64 part = (size + parts - 1) / parts;
  return std::min((part + unit - 1) / unit * unit, most);
}

// How high the tile of the next rows is, of which `left` are left.
constexpr i64 tile_rows(i64 left) {
  const bool two_short = left > kTileRows && left <= 2 * kShortTileRows;
  return left <= kShortTileRows || two_short ? kShortTileRows : kTileRows;
}

// ---- what is read next ----------------------------------------------------------------------

// Memory that is read next: lines of it are asked for while tiles are computed. Its rows often lie
// a page apart, which no machine foresees by itself.
class Ahead {
 public:
  Ahead(const void* from, i64 rows, i64 row_bytes, i64 stride_bytes, i64 steps)
      : row_(static_cast<const std::byte*>(from)),
        rows_(rows),
        bytes_(row_bytes),
        stride_(stride_bytes) {
    const i64 lines = rows * ((row_bytes + kLine - 1) / kLine);
    each_ = (lines + steps - 1) / steps;
  }
  void step() {
    for (i64 i = 0; i < each_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + done_);
      done_ += kLine;
      if (done_ < bytes_) continue;
      done_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr i64 kLine = 64;
  const std::byte* row_;
  i64 rows_, bytes_, stride_, each_ = 0, done_ = 0;
};

// What pack_columns() of the same columns reads.
template <class T>
inline Ahead columns_ahead(Sliver<T> b, i64 k, i64 steps) {
  if (b.count <= 0) return Ahead(b.x, 0, 0, 0, 1);
  constexpr i64 kSize = sizeof(T);
  if (b.across == 1) return Ahead(b.x, k, b.count * kSize, b.along * kSize, steps);
  if (b.along == 1) return Ahead(b.x, b.count, k * kSize, b.across * kSize, steps);
  return Ahead(b.x, 0, 0, 0, 1);
}

inline constexpr i64 kLineBytes = 64;

// Into which cache what is read next is asked for: 3 is the first one, 2 the second. Cores that
// have many lines under way answer sooner through the first; others drop what they have no room
// for, unless it is for the second, and some of that as well, so that it is asked for again shortly
// before it is read (docs/investigations/0001). Which they are is told by instructions that only
// they have: Intel's, then Zen 5.
#if defined(__SERIALIZE__)
inline constexpr int kAskedFor = 2;
inline constexpr i64 kAskedAgain = 1024;  // bytes ahead
#elif defined(__AVXVNNI__)
inline constexpr int kAskedFor = 3;
inline constexpr i64 kAskedAgain = 0;  // not at all
#else
inline constexpr int kAskedFor = 2;
inline constexpr i64 kAskedAgain = 0;
#endif

// Asks for what lies so many bytes behind what is read now. Where nothing is known of what comes,
// `ahead` is 0, and asking for what is there costs next to nothing.
template <class T>
[[gnu::always_inline]] inline void ask_for(const T* at, i64 ahead) {
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(at);
  const auto ask = [place](i64 bytes) __attribute__((always_inline)) {
    const std::uintptr_t there = place + static_cast<std::uintptr_t>(bytes);
    __builtin_prefetch(reinterpret_cast<const void*>(there), 0, kAskedFor);
  };
  ask(ahead);
  if constexpr (kAskedAgain != 0) ask(kAskedAgain);
}

// A part of b that lies in one piece, so many rows or columns of it, and how many bytes behind it
// that lies which is read next; 0 where that is not known.
template <class B>
struct Run {
  const B* x;
  i64 size;
  i64 ahead;
};
// As many of them as are multiplied at a time.
template <class B>
struct Runs {
  static constexpr i64 kMost = 32;
  Run<B> run[std::size_t{kMost}];
  i64 count = 0;
  i64 size = 0;

  void add(Run<B> next) {
    run[count++] = next;
    size += next.size;
  }
  bool full() const { return count == kMost; }
  const Run<B>* begin() const { return run; }
  const Run<B>* end() const { return run + count; }
};

// ---- results ----------------------------------------------------------------------------------

template <class E>
struct Target {
  E* c;
  i64 row;
  bool accumulate;
};

// A sum of no products.
template <class E>
inline void multiply_nothing(i64 m, i64 n, Target<E> to) {
  if (to.accumulate) return;
  for (i64 i = 0; i < m; ++i) std::fill_n(to.c + i * to.row, n, E{});
}

template <class E>
PTOWSP_TILE_ONCE void write_sums(i64 m, i64 n, const E* sums, i64 sums_row, Target<E> to) {
  for (i64 i = 0; i < m; ++i) {
    E* c = to.c + i * to.row;
    const E* from = sums + i * sums_row;
    for (i64 j = 0; j < n; ++j) c[j] = to.accumulate ? c[j] + from[j] : from[j];
  }
}

}  // namespace ptowsp::tile::detail
