// Operands of a product, copied into the order in which its innermost loop reads them.
//
// An operand is a row of vectors of k elements: the rows of a, or the columns of b. A sliver is as
// many of them as one tile takes, element by element: the first of each, the second of each, ...
#pragma once

#include <ptowsp_kernel/ptowsp_kernel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "vec.h"

// Compiled once per element type, not again for each caller and its constants: the time that saves
// is the user's, who waits for a kernel to be compiled.
#if defined(__clang__)
#define PTOWSP_TILE_ONCE [[gnu::noinline]]
#else
#define PTOWSP_TILE_ONCE [[gnu::noinline, gnu::noclone]]
#endif

namespace ptowsp::tile::detail {

// ---- elements ---------------------------------------------------------------------------------

template <class E, class T>
[[gnu::always_inline]] inline E element(T x) {
  return static_cast<E>(x);
}

// As many elements as V has lanes, converted exactly.
template <class V, class T>
[[gnu::always_inline]] inline V load_as(const T* from) {
  using E = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
  constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(E));
  using Words = Vec<u32, kLanes>;
  if constexpr (std::is_same_v<T, E>) {
    return load<V>(from);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const auto bits = load<Vec<std::uint16_t, kLanes>>(from);
    return reinterpret_cast<V>(__builtin_convertvector(bits, Words) << 16);
  } else if constexpr (std::is_same_v<T, f16>) {
    const auto bits = __builtin_convertvector(load<Vec<std::uint16_t, kLanes>>(from), Words);
    const Words magnitude = (bits & 0x7FFFu) << 13;
    // A power of two moves the exponent, also of denormal numbers; infinity and NaN keep theirs.
    const V scaled = reinterpret_cast<V>(magnitude) * 0x1p112f;
    const auto finite = magnitude < (0x7C00u << 13);
    const Words value = finite ? reinterpret_cast<Words>(scaled) : (magnitude | 0x7F800000u);
    return reinterpret_cast<V>(value | ((bits & 0x8000u) << 16));
  } else {
    return __builtin_convertvector(load<Vec<T, kLanes>>(from), V);
  }
}

// ---- copies in the order of use ---------------------------------------------------------------

// Eight rows of eight elements (four of four, when they are long) become columns.
template <class V>
[[gnu::always_inline]] inline void transpose(V (&x)[8]) {
  V y[8];
  for (int i = 0; i < 8; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      x[i + 2 * j + 1] =
          __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    y[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    y[i + 4] = __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) x[i] = y[i];
}
template <class V>
[[gnu::always_inline]] inline void transpose(V (&x)[4]) {
  const V low = __builtin_shufflevector(x[0], x[1], 0, 4, 2, 6);
  const V high = __builtin_shufflevector(x[0], x[1], 1, 5, 3, 7);
  const V next_low = __builtin_shufflevector(x[2], x[3], 0, 4, 2, 6);
  const V next_high = __builtin_shufflevector(x[2], x[3], 1, 5, 3, 7);
  x[0] = __builtin_shufflevector(low, next_low, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(high, next_high, 0, 1, 4, 5);
  x[2] = __builtin_shufflevector(low, next_low, 2, 3, 6, 7);
  x[3] = __builtin_shufflevector(high, next_high, 2, 3, 6, 7);
}

// Some vectors of an operand: `count` of them, `across` apart, with k elements that are `along`
// apart.
template <class T>
struct Sliver {
  const T* x;
  i64 count;
  i64 across;
  i64 along;
};

// Elements of one vector lie next to each other: squares are transposed in registers. Stores run
// over the end of their row into the next, which is written later: squares go from the last to the
// first, rows from the first to the last. Where there is no vector, the last one is taken again.
// Returns how many of the k are done.
template <class E, class T>
inline i64 pack_squares(Sliver<T> from, i64 width, i64 k, E* to) {
  constexpr i64 kSide = 32 / i64{sizeof(E)};
  using V = Vec<E, kSide>;
  const i64 end = k / kSide * kSide;
  for (i64 first = (width - 1) / kSide * kSide; first >= 0; first -= kSide) {
    const T* row[std::size_t{kSide}];
    for (i64 i = 0; i < kSide; ++i) {
      row[i] = from.x + std::min(first + i, from.count - 1) * from.across;
    }
    for (i64 p = 0; p < end; p += kSide) {
      V square[std::size_t{kSide}];
      for (i64 i = 0; i < kSide; ++i) square[i] = load_as<V>(row[i] + p);
      transpose(square);
      for (i64 i = 0; i < kSide; ++i) store(to + (p + i) * width + first, square[i]);
    }
  }
  return end;
}

// Copies a run of elements that lie next to each other.
template <class E, class T>
[[gnu::always_inline]] inline void pack_run(const T* x, i64 count, E* to) {
  constexpr i64 kWide = 32 / i64{sizeof(E)};
  i64 i = 0;
  for (; i + kWide <= count; i += kWide) store(to + i, load_as<Vec<E, kWide>>(x + i));
  for (; i + 2 <= count; i += 2) store(to + i, load_as<Vec<E, 2>>(x + i));
  if (i < count) to[i] = element<E>(x[i]);
}

// to[p * width + i] is element p of vector i; anything where there is no such vector.
template <class E, class T>
PTOWSP_TILE_ONCE void pack_sliver(Sliver<T> from, i64 width, i64 k, E* to) {
  i64 p = 0;
  if (from.along == 1) p = pack_squares(from, width, k, to);
  for (; p < k; ++p) {
    const T* x = from.x + p * from.along;
    E* row = to + p * width;
    if (from.across == 1) {
      pack_run(x, from.count, row);
    } else {
      for (i64 i = 0; i < from.count; ++i) row[i] = element<E>(x[i * from.across]);
    }
    for (i64 i = from.count; i < width; ++i) row[i] = E{};
  }
}

}  // namespace ptowsp::tile::detail
