// Reads pages as a decode step does, but only adds up what they hold: a bound for any kernel.
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using Vector = float __attribute__((vector_size(32)));
constexpr int kSums = 8;
constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(float);

// `ahead` floats further on are fetched early, or none if it is 0.
void add(const float* from, std::int64_t count, std::int64_t ahead, Vector* sums) {
  for (std::int64_t i = 0; i + kSums * kLanes <= count; i += kSums * kLanes) {
    for (int k = 0; ahead != 0 && k < kSums; k += 2) {
      __builtin_prefetch(from + i + ahead + k * kLanes);
    }
    for (int k = 0; k < kSums; ++k) {
      Vector v;
      __builtin_memcpy(&v, from + i + k * kLanes, sizeof v);
      sums[k] += v;
    }
  }
}

}  // namespace

// Thread t reads part t of each page in the order of `pages`: `block` pages of k, then the same of
// v. With `next`, the begin of each page is fetched while the one before it is read.
extern "C" float page_sum(const float* k, const float* v, const std::int32_t* pages,
                          std::int64_t count, std::int64_t page, std::int64_t block,
                          std::int64_t ahead, int next, int threads) {
  std::vector<float> totals(static_cast<std::size_t>(threads));
  const std::int64_t part = page / threads;
  const auto work = [&](int t) {
    Vector sums[kSums] = {};
    for (std::int64_t first = 0; first < count; first += block) {
      const std::int64_t end = first + block < count ? first + block : count;
      for (const float* pool : {k, v}) {
        for (std::int64_t i = first; i < end; ++i) {
          const float* follows = pool + pages[i + 1 < end ? i + 1 : first] * page + t * part;
          for (std::int64_t line = 0; next != 0 && line < part; line += 16) {
            __builtin_prefetch(follows + line, 0, 2);
          }
          add(pool + pages[i] * page + t * part, part, ahead, sums);
        }
      }
    }
    for (const Vector& each : sums) {
      for (int lane = 0; lane < kLanes; ++lane) totals[static_cast<std::size_t>(t)] += each[lane];
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  float total = 0;
  for (const float each : totals) total += each;
  return total;
}
