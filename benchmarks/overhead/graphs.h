// What the rivals share with each other and with workload.py: the problem and the task bodies.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace bench {

// The same loop as SPIN in workload.py: each round waits for the multiplication before it.
inline void spin(std::int64_t iterations) {
  std::uint64_t v = 1;
  for (std::int64_t k = 0; k < iterations; ++k) {
    v = v * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(v));
  }
}

// A graph, its size and its data. The sizes mean what they mean in workload.py.
struct Problem {
  std::string_view graph;
  std::int64_t n;
  std::int64_t m;
  std::int32_t* x;
  std::int32_t* out;
  int workers;
  std::int64_t iterations;

  std::int64_t tasks() const {
    if (graph == "attention") return n * (m + 1);
    if (graph == "wavefront" || graph == "stencil") return n * m;
    return graph == "tree" ? 2 * n - 1 : n;
  }
  // Row-major positions in x.
  std::int64_t cell(std::int64_t i, std::int64_t j) const { return i * (m + 1) + j; }
  std::int64_t point(std::int64_t t, std::int64_t i) const { return t * (m + 2) + i; }
};

// Task bodies, by the number of elements that they read beside the one that they write.
inline void step(const Problem& p, std::int32_t* x) {
  spin(p.iterations);
  *x += 1;
}
inline void after_one(const Problem& p, const std::int32_t* a, std::int32_t* out) {
  spin(p.iterations);
  *out = *a + 1;
}
inline void after_two(const Problem& p, const std::int32_t* a, const std::int32_t* b,
                      std::int32_t* out) {
  spin(p.iterations);
  *out = std::max(*a, *b) + 1;
}
// The three lie side by side.
inline void after_three(const Problem& p, const std::int32_t* a, std::int32_t* out) {
  spin(p.iterations);
  *out = std::max({a[0], a[1], a[2]}) + 1;
}

inline std::int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace bench

// Every rival exports these two. `bench_run` returns the time of building and executing the graph;
// tearing it down comes after that and is reported apart. -1: no such graph.
extern "C" {
const char* bench_version();
std::int64_t bench_run(const char* graph, std::int64_t n, std::int64_t m, std::int32_t* x,
                       std::int32_t* out, int workers, std::int64_t iterations,
                       std::int64_t* teardown_ns);
}
