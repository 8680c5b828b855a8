// The body alone: for its length, and for how fast this machine is on several cores at once.
#include <cstdint>

#include "graphs.h"

extern "C" std::int64_t bench_spin(std::int64_t iterations) {
  const std::int64_t begin = bench::now_ns();
  bench::spin(iterations);
  return bench::now_ns() - begin;
}
