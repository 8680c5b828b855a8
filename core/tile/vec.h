// Vectors of the compiler: as many lanes as asked for, whatever the machine's registers hold.
//
// GCC and Clang split a vector that is too long for a register and widen one that is too short, so
// one source serves AVX-512, AVX2, NEON and machines without vectors. kVectorBytes is what this
// machine does in one instruction.
#pragma once

#include <cstdint>
#include <cstring>

// Vectors longer than the machine's are passed in memory, by a rule that once changed. Nothing here
// crosses the border of a library.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace ptowsp::tile {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) || defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

// Whether there are 32 vector registers, not 16.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

template <class T, int N>
struct VecOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, int N>
using Vec = typename VecOf<T, N>::type;

template <class V, class T>
inline V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <class V, class T>
inline void store(T* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}
// Keeps the compiler from reading a vector again, from memory, in each place where it is used.
template <class V>
[[gnu::always_inline]] inline V in_register(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));  // any of 32 registers; "x" are the first 16
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

template <class V, class T>
inline V splat(T x) {
  return x - V{};  // a sum would lose the sign of zero, and cost an addition
}

}  // namespace ptowsp::tile
