// Rows in order, and the largest elements of a row, with the places where they were.
//
// Of equal elements the first goes first; NaN counts as the largest number, and all NaNs as equal;
// so do the two zeros. Both functions work in scratch memory alone: sort_scratch_bytes() of it,
// aligned to 16 bytes. Outputs must not overlap the row.
//
//   sort_row   all n elements, ascending or descending
//   topk_row   the k largest, largest first; all n of them where n < k. Its scratch is that of a
//   row
//              of k elements
#pragma once

#include <ptowsp_kernel/ptowsp_kernel.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "vec.h"

namespace ptowsp::tile {

constexpr i64 sort_scratch_bytes(i64 n, i64 element_size);

template <class T>
void sort_row(const T* x, i64 n, bool descending, T* values, i32* indices, std::byte* scratch);

template <class T>
void topk_row(const T* x, i64 n, i64 k, T* values, i32* indices, std::byte* scratch);

namespace detail {

// An integer that orders like the element.
template <class T>
struct SortKey {
  static_assert(std::is_integral_v<T>);
  using Key = std::conditional_t<sizeof(T) == 8, i64, i32>;
  // Unsigned numbers as long as the key are moved into its range.
  static Key of(T x) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) >= 4) {
      return static_cast<Key>(x ^ (T{1} << (sizeof(T) * 8 - 1)));
    } else {
      return static_cast<Key>(x);
    }
  }
};

// Sign and magnitude as a signed number: both zeros are 0. Every NaN is the largest one.
template <class Bits, class SignedBits, Bits kInfinity>
struct FloatSortKey {
  using Key = std::conditional_t<sizeof(Bits) == 8, i64, i32>;
  static constexpr Bits kMagnitude = std::numeric_limits<SignedBits>::max();
  template <class T>
  static Key of(T x) {
    const Bits bits = std::bit_cast<Bits>(x);
    const Key magnitude = static_cast<Key>(bits & kMagnitude);
    const Key number = bits > kMagnitude ? -magnitude : magnitude;
    return magnitude > static_cast<Key>(kInfinity) ? std::numeric_limits<Key>::max() : number;
  }
};
template <>
struct SortKey<float> : FloatSortKey<u32, i32, 0x7F800000u> {};
template <>
struct SortKey<double> : FloatSortKey<u64, i64, 0x7FF0000000000000u> {};
template <>
struct SortKey<f16> : FloatSortKey<std::uint16_t, std::int16_t, 0x7C00u> {};
template <>
struct SortKey<bf16> : FloatSortKey<std::uint16_t, std::int16_t, 0x7F80u> {};

// Key and place, compared as one; the smaller one goes first. Equal keys differ by place, so every
// order of entries is a stable one. A descending order has its keys complemented.
struct NarrowEntry {
  using Key = i32;
  u64 word;

  NarrowEntry() = default;
  NarrowEntry(i32 key, i64 place)
      : word((static_cast<u64>(static_cast<u32>(key) ^ 0x80000000u) << 32) |
             static_cast<u64>(place)) {}
  i32 place() const { return static_cast<i32>(word & 0xFFFFFFFFu); }
  bool operator<(const NarrowEntry& other) const { return word < other.word; }
};
struct WideEntry {
  i64 key;
  i64 index;

  WideEntry() = default;
  WideEntry(i64 the_key, i64 place) : key(the_key), index(place) {}
  i32 place() const { return static_cast<i32>(index); }
  bool operator<(const WideEntry& other) const {
    return key < other.key || (key == other.key && index < other.index);
  }
};
template <class T>
using Entry = std::conditional_t<sizeof(T) == 8, WideEntry, NarrowEntry>;

inline constexpr i64 kSortRun = 16;  // so few are put in order by insertion

template <class E>
inline void insertion_sort(E* first, E* last) {
  for (E* at = first + 1; at < last; ++at) {
    const E entry = *at;
    E* to = at;
    for (; to > first && entry < to[-1]; --to) *to = to[-1];
    *to = entry;
  }
}

// Which side goes first cannot be predicted, so it is computed and not branched on; the empty
// statement keeps compilers from finding the branch again.
template <class E>
inline void merge_runs(const E* left, const E* left_end, const E* right, const E* right_end,
                       E* to) {
  while (left < left_end && right < right_end) {
    i64 take_right = *right < *left ? 1 : 0;
    asm("" : "+r"(take_right));
    *to++ = left[take_right * (right - left)];
    right += take_right;
    left += 1 - take_right;
  }
  to = std::copy(left, left_end, to);
  std::copy(right, right_end, to);
}

// Sorts `entries` with as much room behind them; returns where the result lies.
template <class E>
inline E* sort_entries(E* entries, E* room, i64 n) {
  for (i64 i = 0; i < n; i += kSortRun) {
    insertion_sort(entries + i, entries + std::min(i + kSortRun, n));
  }
  for (i64 run = kSortRun; run < n; run *= 2) {
    for (i64 i = 0; i < n; i += 2 * run) {
      const i64 middle = std::min(i + run, n);
      merge_runs(entries + i, entries + middle, entries + middle,
                 entries + std::min(i + 2 * run, n), room + i);
    }
    std::swap(entries, room);
  }
  return entries;
}

template <class T, class E>
inline void write_entries(const E* entries, i64 n, const T* x, T* values, i32* indices) {
  for (i64 i = 0; i < n; ++i) {
    indices[i] = entries[i].place();
    values[i] = x[indices[i]];
  }
}

// Whether one of kScan elements goes before `worst`. No early exit: compilers vectorise it.
inline constexpr i64 kScan = 32;
template <class T, class Key>
inline bool any_before(const T* x, Key worst) {
  int found = 0;
  for (i64 i = 0; i < kScan; ++i) found |= SortKey<T>::of(x[i]) > worst ? 1 : 0;
  return found != 0;
}

// The heap's top is the entry that leaves it first. Sinks a new one from there.
template <class E>
inline void replace_top(E* heap, i64 n, E entry) {
  i64 hole = 0;
  for (i64 child = 1; child < n; child = 2 * hole + 1) {
    if (child + 1 < n && heap[child] < heap[child + 1]) ++child;
    if (!(entry < heap[child])) break;
    heap[hole] = heap[child];
    hole = child;
  }
  heap[hole] = entry;
}

}  // namespace detail

constexpr i64 sort_scratch_bytes(i64 n, i64 element_size) {
  const i64 entry =
      element_size == 8 ? i64{sizeof(detail::WideEntry)} : i64{sizeof(detail::NarrowEntry)};
  return 2 * n * entry;
}

template <class T>
void sort_row(const T* x, i64 n, bool descending, T* values, i32* indices, std::byte* scratch) {
  using Key = typename detail::SortKey<T>::Key;
  using E = detail::Entry<T>;
  E* entries = reinterpret_cast<E*>(scratch);
  const Key flip = descending ? Key{-1} : Key{0};
  for (i64 i = 0; i < n; ++i) entries[i] = E(detail::SortKey<T>::of(x[i]) ^ flip, i);
  const E* sorted = detail::sort_entries(entries, entries + n, n);
  detail::write_entries(sorted, n, x, values, indices);
}

template <class T>
void topk_row(const T* x, i64 n, i64 k, T* values, i32* indices, std::byte* scratch) {
  using Key = typename detail::SortKey<T>::Key;
  using E = detail::Entry<T>;
  k = std::min(k, n);
  if (k <= 0) return;
  const auto key_of = [x](i64 i) { return detail::SortKey<T>::of(x[i]); };
  E* heap = reinterpret_cast<E*>(scratch);
  for (i64 i = 0; i < k; ++i) heap[i] = E(~key_of(i), i);
  std::make_heap(heap, heap + k);
  i64 i = k;
  while (i < n) {
    const Key worst = key_of(heap[0].place());
    // Most of a long row lies behind the worst of the heap, and is passed by at full speed.
    while (i + detail::kScan <= n && !detail::any_before(x + i, worst)) i += detail::kScan;
    const i64 end = std::min(i + detail::kScan, n);
    for (; i < end; ++i) {
      // Only a larger one counts: of equal ones those in the heap come first.
      if (const E entry(~key_of(i), i); entry < heap[0]) detail::replace_top(heap, k, entry);
    }
  }
  detail::write_entries(detail::sort_entries(heap, heap + k, k), k, x, values, indices);
}

// Of each row the k largest, in order, and where they were.
template <class V, class I, class A>
void TTOPK(V& values, I& indices, const A& a, i64 k, std::byte* scratch) {
  for (i64 i = 0; i < a.rows; ++i) {
    topk_row(a.at(i, 0), a.cols, k, values.at(i, 0), indices.at(i, 0), scratch);
  }
}
// Each row in order, and where its elements were.
template <class V, class I, class A>
void TSORT(V& values, I& indices, const A& a, bool descending, std::byte* scratch) {
  for (i64 i = 0; i < a.rows; ++i) {
    sort_row(a.at(i, 0), a.cols, descending, values.at(i, 0), indices.at(i, 0), scratch);
  }
}

}  // namespace ptowsp::tile
