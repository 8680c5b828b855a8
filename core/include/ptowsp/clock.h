// Time as workers read it: the raw cycle counter, turned into nanoseconds afterwards.
//
// A read costs a few cycles and no call. The counter's speed is measured against the system's clock
// over the length of the run, so long runs are as exact as that clock, and short ones have at least
// kShortest to measure.
#pragma once

#include <chrono>

#include "ptowsp/plan.h"

namespace ptowsp {

class Clock {
 public:
  static u64 ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    u64 v;
    asm volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#else
    return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  // Measures how long a tick is. Waits until there is something to measure.
  void calibrate() {
    constexpr u64 kShortest = 50'000;  // ns; the clock is exact to about 50
    u64 ns = 0;
    u64 passed = 0;
    do {
      passed = ticks() - first_;
      ns = since();
    } while (ns < kShortest);
    ns_per_tick_ = static_cast<double>(ns) / static_cast<double>(passed);
  }

  // A value of ticks() is (ticks - first()) * ns_per_tick() nanoseconds behind the beginning of
  // the run; after calibrate().
  u64 first() const { return first_; }
  double ns_per_tick() const { return ns_per_tick_; }
  // When the run began, in nanoseconds of the system's monotonic clock.
  u64 began() const {
    return static_cast<u64>(std::chrono::nanoseconds(begin_.time_since_epoch()).count());
  }
  // Nanoseconds since the run began, now.
  u64 since() const {
    const auto t = std::chrono::steady_clock::now() - begin_;
    return static_cast<u64>(std::chrono::nanoseconds(t).count());
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  u64 first_ = ticks();
  double ns_per_tick_ = 1;
};

}  // namespace ptowsp
