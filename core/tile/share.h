// Kernels whose parameters may lie in the same memory.
#pragma once

#include <ptowsp_tile/tile.h>

namespace ptowsp::tile {

// Memory is written above before it is read below, also as elements of another type.
PTOWSP_TILE void in_order() { asm volatile("" ::: "memory"); }

struct Bytes {
  std::uintptr_t begin;
  std::uintptr_t end;
};

template <class T, int Rank>
Bytes bytes_of(const View<T, Rank>& view) {
  i64 low = 0;
  i64 high = 1;
  for (int k = 0; k < Rank; ++k) {
    const i64 reach = (view.shape(k) - 1) * view.stride(k);
    if (view.shape(k) == 0) return {0, 0};
    (reach < 0 ? low : high) += reach;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(view.data());
  const i64 size = sizeof(T);
  return {first + static_cast<std::uintptr_t>(low * size),
          first + static_cast<std::uintptr_t>(high * size)};
}

// Whether regions may have bytes in common. Columns side by side in the same rows have none.
template <class A, int M, class B, int N>
bool may_share(const View<A, M>& a, const View<B, N>& b) {
  const Bytes one = bytes_of(a);
  const Bytes other = bytes_of(b);
  if (one.begin >= other.end || other.begin >= one.end) return false;
  if constexpr (M == 2 && N == 2 && sizeof(A) == sizeof(B)) {
    const i64 row = a.stride(0);
    const auto apart =
        reinterpret_cast<std::intptr_t>(b.data()) - reinterpret_cast<std::intptr_t>(a.data());
    const i64 size = sizeof(A);
    if (b.stride(0) == row && a.stride(1) == 1 && b.stride(1) == 1 && apart % size == 0 &&
        a.shape(1) <= row && b.shape(1) <= row) {
      const i64 column = (apart / size % row + row) % row;  // where b begins in the rows of a
      return column < a.shape(1) || column + b.shape(1) > row;
    }
  }
  return true;
}
// Pages may lie anywhere.
template <class A, class B>
bool may_share(const A&, const B&) {
  return true;
}

}  // namespace ptowsp::tile
