// Tiles: where they lie and how many of their elements there are.
//
// A Tile lies in scratch memory; its rows are padded, so that whole vectors may be read and written
// beyond the last column. A Window is a region of a tensor; nothing outside of its rows and columns
// is touched. Both know how many rows and columns they really have: fewer than the type says where
// the region lies at the edge of a tensor.
#pragma once

#include <ptowsp_tile/arith.h>

#include <cstdio>

namespace ptowsp::tile {

// A number that is known when the kernel is compiled. Assigning to it says the same number again.
template <i64 N>
struct Const {
  constexpr Const() = default;
  constexpr Const(i64) {}
  constexpr operator i64() const { return N; }
};
// How much there is of N: all of it, or a number that is found out at run time.
template <bool Whole, i64 N>
using Bound = std::conditional_t<Whole, Const<N>, i64>;

template <bool Whole, i64 N>
PTOWSP_TILE Bound<Whole, N> bound(i64 room) {
  return room < 0 ? 0 : room < N ? room : N;
}
template <i64 A, i64 B>
PTOWSP_TILE auto least(Const<A>, Const<B>) {
  return Const<(A < B ? A : B)>();
}
template <class A, class B>
PTOWSP_TILE i64 least(A a, B b) {
  const i64 x = a;
  const i64 y = b;
  return x < y ? x : y;
}
template <class A, class B, class C, class... More>
PTOWSP_TILE auto least(A a, B b, C c, More... more) {
  return least(least(a, b), c, more...);
}

// Calls f with whether tiles are whole, as a constant: a part of what is whole may not be.
template <bool Whole, class F>
PTOWSP_TILE void choose(bool inside, F f) {
  if constexpr (Whole) {
    if (inside) return f(std::true_type());
  }
  f(std::false_type());
}

// A part of a row: L lanes from a column on. If it is not Full, only `count` of them exist.
template <int L, bool Full>
struct At {
  static constexpr int kLanes = L;
  i64 column;
  i64 count;
};

// How the elements of a row lie: with room for whole vectors behind them, next to each other, or
// `stride` elements apart.
enum class Lie { kPadded, kAdjacent, kApart };

template <class T, Lie How>
struct Line {
  using E = std::remove_const_t<T>;
  T* data;
  i64 stride;

  template <int L, bool Full>
  PTOWSP_TILE Lanes<T, L> operator()(At<L, Full> at) const {
    if constexpr (How == Lie::kPadded || (Full && How == Lie::kAdjacent)) {
      return load_lanes<E, L>(data + at.column);
    } else {
      if (is_adjacent() && at.count == L) return load_lanes<E, L>(data + at.column);
      return collect<L>(at.column, at.count);
    }
  }
  template <int L, bool Full, class V>
  PTOWSP_TILE void set(At<L, Full> at, V value) const {
    const auto lanes = memory_lanes<E>(as_lanes<L>(value));
    if constexpr (How == Lie::kPadded || (Full && How == Lie::kAdjacent)) {
      store(data + at.column, lanes);
    } else {
      if (is_adjacent() && at.count == L) {
        store(data + at.column, lanes);
      } else {
        distribute(at.column, at.count, lanes);
      }
    }
  }

 private:
  // Most rows are, also those of a partial tile, of which nothing is known beforehand.
  PTOWSP_TILE bool is_adjacent() const { return How == Lie::kAdjacent || stride == 1; }
  // Masks may have elements of any size.
  template <int L, class V>
  PTOWSP_TILE static auto as_lanes(V value) {
    if constexpr (Vector<V>) {
      return value;
    } else {
      return spread<Lanes<E, L>>(value);
    }
  }
  // Element by element: edges of tensors, and columns that lie apart.
  template <int L>
  [[gnu::noinline]] Lanes<T, L> collect(i64 column, i64 count) const {
    alignas(64) unsigned char bytes[L * sizeof(E)] = {};
    for (i64 k = 0; k < count; ++k) {
      const i64 from = (column + k) * (How == Lie::kApart ? stride : 1);
      std::memcpy(bytes + k * static_cast<i64>(sizeof(E)), data + from, sizeof(E));
    }
    return load_lanes<E, L>(reinterpret_cast<const E*>(bytes));
  }
  template <class V>
  [[gnu::noinline]] void distribute(i64 column, i64 count, V lanes) const {
    for (i64 k = 0; k < count; ++k) {
      const i64 to = (column + k) * (How == Lie::kApart ? stride : 1);
      const auto one = lanes[k];
      static_assert(sizeof one == sizeof(E));
      std::memcpy(data + to, &one, sizeof one);
    }
  }
};

// A region of a tensor. Unit: its columns are next to each other.
template <class T, bool Unit = false>
struct Window {
  using value_type = std::remove_const_t<T>;
  T* data;
  i64 row_stride;
  i64 col_stride;
  i64 rows;
  i64 cols;

  PTOWSP_TILE auto row(i64 i) const {
    return Line<T, Unit ? Lie::kAdjacent : Lie::kApart>{data + i * row_stride, col_stride};
  }
  PTOWSP_TILE auto column() const { return Line<T, Lie::kApart>{data, row_stride}; }
  // Asks for a part of row i, while the row before it is being computed. Behind the last row that
  // is often where the next task begins.
  template <int L, bool Full>
  PTOWSP_TILE void prefetch(i64 i, At<L, Full> part) const {
    if constexpr (Unit) {
      const i64 offset = (i * row_stride + part.column) * static_cast<i64>(sizeof(T));
      __builtin_prefetch(reinterpret_cast<const char*>(data) + offset);
    }
  }
  // The same for what the stores of row i will overwrite. Not behind the last row: another worker
  // may be writing there.
  template <int L, bool Full>
  PTOWSP_TILE void prefetch_to_write(i64 i, At<L, Full> part) const {
    if constexpr (Unit) {
      if (i >= rows) return;
      const i64 offset = (i * row_stride + part.column) * static_cast<i64>(sizeof(T));
      __builtin_prefetch(reinterpret_cast<const char*>(data) + offset, 1);
    }
  }
  PTOWSP_TILE T* at(i64 i, i64 j) const {
    return data + i * row_stride + j * (Unit ? 1 : col_stride);
  }
  PTOWSP_TILE auto get(i64 i, i64 j) const { return scalar_of(*at(i, j)); }
  template <class S>
  PTOWSP_TILE void set(i64 i, i64 j, S value) const {
    *at(i, j) = static_cast<value_type>(value);
  }
  // Rows become columns, without moving anything.
  PTOWSP_TILE Window<T> transposed() const { return {data, col_stride, row_stride, cols, rows}; }
};

constexpr i64 round_up(i64 n, i64 to) { return (n + to - 1) / to * to; }

// R x C elements in scratch memory. A single column lies without gaps.
template <class T, i64 R, i64 C>
struct Tile {
  using value_type = T;
  static constexpr i64 kStride = C == 1 ? 1 : round_up(C, 64 / static_cast<i64>(sizeof(T)));
  static constexpr i64 kBytes = round_up(R * kStride * static_cast<i64>(sizeof(T)), 64);

  explicit Tile(std::byte* place, i64 rows_now = R, i64 cols_now = C)
      : data(reinterpret_cast<T*>(place)), rows(rows_now), cols(cols_now) {}

  static constexpr i64 row_stride = kStride;
  static constexpr i64 col_stride = 1;
  T* data;
  i64 rows;
  i64 cols;

  PTOWSP_TILE auto row(i64 i) const {
    return Line<T, C == 1 ? Lie::kAdjacent : Lie::kPadded>{data + i * kStride, 1};
  }
  // The rows of a single column, as a row.
  PTOWSP_TILE auto column() const {
    static_assert(C == 1);
    return Line<T, Lie::kPadded>{data, 1};
  }
  PTOWSP_TILE T* at(i64 i, i64 j) const { return data + i * kStride + j; }
  PTOWSP_TILE auto get(i64 i, i64 j) const { return scalar_of(*at(i, j)); }
  template <class S>
  PTOWSP_TILE void set(i64 i, i64 j, S value) const {
    *at(i, j) = static_cast<T>(value);
  }
  PTOWSP_TILE Window<T> transposed() const { return {data, 1, kStride, cols, rows}; }
};

// Ends the task where a kernel does what its operations do not allow.
PTOWSP_TILE void need(bool holds, const char* message) {
  if (!holds) [[unlikely]] {
    [](const char* text) __attribute__((cold, noinline)) { ptowsp_fail(text); }(message);
  }
}

// An index from 0 up to `end`; the dimension has `extent` elements.
PTOWSP_TILE void need_index(i64 index, i64 end, i64 extent, int dim, const char* where) {
  if (index < 0 || index >= end) [[unlikely]] {
    [](i64 i, i64 n, int d, const char* text) __attribute__((cold, noinline)) {
      char message[512];  // sums of strings take longer to compile than most kernels
      std::snprintf(message, sizeof message,
                    "index %lld of dimension %d, which has %lld elements (%s)",
                    static_cast<long long>(i), d, static_cast<long long>(n), text);
      ptowsp_fail(message);
    }(index, extent, dim, where);
  }
}

}  // namespace ptowsp::tile
