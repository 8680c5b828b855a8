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
constexpr int64_t kAhead = 8192 / sizeof(float);

// Each line is added to one sum or multiplied for kRows of them. What lies `ahead` floats behind it
// is asked for, into this cache, if it is one.
template <bool kMultiplies, int kCache>
void read(const float* from, int64_t ahead, int64_t count, Line* totals) {
  Line sums[kSums];  // in registers
  std::copy_n(totals, kSums, sums);
  for (int64_t i = 0; i < count; i += 4 * kFloats) {
#pragma GCC unroll 4
    for (int64_t line = 0; line < 4; ++line) {
      const float* at = from + i + line * kFloats;
      if (kCache != 0) __builtin_prefetch(at + ahead, 0, 4 - kCache);
      Line x;
      __builtin_memcpy(&x, at, sizeof x);
#pragma GCC unroll 4
      for (int row = 0; row < (kMultiplies ? kRows : 1); ++row) {
        Line& sum = sums[line * kRows + row];
        sum = kMultiplies ? sum * 0.5f + x : sum + x;
      }
    }
  }
  std::copy_n(sums, kSums, totals);
}

using Read = void (*)(const float*, int64_t, int64_t, Line*);
constexpr Read kReads[2][3] = {{read<false, 0>, read<false, 1>, read<false, 2>},
                               {read<true, 0>, read<true, 1>, read<true, 2>}};

}  // namespace

// `pages` are the numbers of `count` pages of so many floats. Threads take blocks of them in turns,
// and read those of k, then those of v. What comes next is asked for a little before, into this
// cache, if it is one.
extern "C" float page_sum(const float* k, const float* v, const std::int32_t* pages, int64_t count,
                          int64_t page, int64_t block, int cache, int multiplies, int threads) {
  std::vector<float> totals(static_cast<std::size_t>(threads));
  const int64_t blocks = (count + block * threads - 1) / (block * threads);
  const Read read_part = kReads[multiplies][cache];
  const auto work = [&](int t) {
    Line sums[kSums] = {};
    const auto place = [&](int64_t number) {
      const int64_t in_block = number % (2 * block);
      const int64_t index = (number / (2 * block) * threads + t) * block + in_block % block;
      return (in_block < block ? k : v) + pages[std::min(index, count - 1)] * page;
    };
    for (int64_t i = 0; i < blocks * block * 2; ++i) {
      const float* here = place(i);
      const float* next = place(i + 1);
      read_part(here, kAhead, page - kAhead, sums);
      read_part(here + page - kAhead, next - here - page + kAhead, kAhead, sums);
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
