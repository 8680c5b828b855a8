// The task hash: two lanes, each the wrapping sum over tasks of a mixed, position-coded sum of the
// task's words. Position coding makes a word that is linear in a loop variable advance the sum by a
// constant, so a generator may update it instead of recomputing it. docs/bytecode.md has vectors.
#pragma once

#include <array>
#include <string_view>

#include "ptowsp/plan.h"

namespace ptowsp {

inline constexpr u32 kHashKernel = 0;
inline constexpr u32 kHashPath = 1;
inline constexpr u32 kHashProcess = 2;
inline constexpr u32 kHashReplica = 3;
inline constexpr u32 kHashCounts = 4;
inline constexpr u32 kHashIndex = 8;
inline constexpr u32 kHashScalar = 24;
inline constexpr u32 kHashTensor = 64;  // 32 words a tensor argument
inline constexpr u32 kHashWords = kHashTensor + 32 * kMaxTensorArgs;

inline constexpr u64 splitmix(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

inline constexpr u64 fmix(u64 h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDull;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return h ^ (h >> 33);
}

inline constexpr u64 fnv1a(std::string_view bytes, u64 h = 0xCBF29CE484222325ull) {
  for (const char c : bytes) h = (h ^ static_cast<u8>(c)) * 0x100000001B3ull;
  return h;
}

// Odd multiplier of a word, by lane and position.
inline constexpr u64 hash_key(u32 lane, u32 position) {
  return splitmix(0x5054'4F57'0000'0001ull + lane + position * 0x9E3779B97F4A7C15ull) | 1u;
}

// All multipliers, made once.
struct HashKeys {
  std::array<std::array<u64, 2>, kHashWords> key;
  HashKeys() {
    for (u32 i = 0; i < kHashWords; ++i) key[i] = {hash_key(0, i), hash_key(1, i)};
  }
  static const HashKeys& get() {
    static const HashKeys keys;
    return keys;
  }
};

// The sum for one task, before mixing.
struct HashSum {
  u64 lane[2] = {0, 0};

  void add(const HashKeys& keys, u32 position, u64 word) {
    lane[0] += word * keys.key[position][0];
    lane[1] += word * keys.key[position][1];
  }
};

// The hash of a set of tasks; order does not matter.
struct TaskHash {
  u64 lane[2] = {0, 0};

  bool operator==(const TaskHash&) const = default;

  void add(const HashSum& task) {
    lane[0] += fmix(task.lane[0]);
    lane[1] += fmix(task.lane[1]);
  }
};

}  // namespace ptowsp
