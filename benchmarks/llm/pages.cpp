// Reads pages as a decode step does, but computes nothing of use: a bound for any kernel.
#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using std::int64_t;

using Line = float __attribute__((vector_size(64)));
constexpr int64_t kFloats = 16;
constexpr int kSums = 16;  // independent of each other, as those of four rows are
constexpr int kRows = 4;

// Each line is added to one sum or multiplied for kRows of them.
template <bool kMultiplies>
void read(const float* from, const float* asked, int64_t count, Line* sums) {
  for (int64_t i = 0; i < count; i += 4 * kFloats) {
    for (int64_t line = 0; line < 4; ++line) {
      if (asked != nullptr) __builtin_prefetch(asked + i + line * kFloats, 0, 2);
    }
    for (int64_t line = 0; line < 4; ++line) {
      Line x;
      __builtin_memcpy(&x, from + i + line * kFloats, sizeof x);
      for (int row = 0; row < (kMultiplies ? kRows : 1); ++row) {
        Line& sum = sums[line * kRows + row];
        sum = kMultiplies ? sum * 0.5f + x : sum + x;
      }
    }
  }
}

}  // namespace

// Threads share the heads of each page. Each reads blocks of `block` pages, head by head, of k and
// then of v; with `asks`, it asks for what it reads a window later, the pages of a head.
extern "C" float page_sum(const float* k, const float* v, const std::int32_t* pages, int64_t count,
                          int64_t heads, int64_t head, int64_t block, int asks, int multiplies,
                          int threads) {
  std::vector<float> totals(static_cast<std::size_t>(threads));
  const int64_t mine = heads / threads;
  const int64_t pieces = (count + block - 1) / block * block * mine * 2;
  const auto work = [&](int t) {
    Line sums[kSums] = {};
    const auto place = [&](int64_t number) {
      const int64_t page = number / (block * mine * 2) * block + number % block;
      const int64_t h = t * mine + number / block % mine;
      const float* pool = number / (block * mine) % 2 == 0 ? k : v;
      return pool + (pages[std::min(page, count - 1)] * heads + h) * head;
    };
    for (int64_t i = 0; i < pieces; ++i) {
      const float* asked = asks != 0 ? place(i + block) : nullptr;
      if (multiplies != 0) {
        read<true>(place(i), asked, head, sums);
      } else {
        read<false>(place(i), asked, head, sums);
      }
    }
    for (const Line& each : sums) totals[static_cast<std::size_t>(t)] += each[0];
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  float total = 0;
  for (const float each : totals) total += each;
  return total;
}
