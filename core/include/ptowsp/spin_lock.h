// A lock for sections of a few dozen instructions, taken once a task.
//
// Taking it free costs one exchange, giving it back one store. Who finds it taken looks less and
// less often: a worker whose tasks are short then takes it many times in a row, with all that it
// guards in its own cache, instead of passing it to and fro. After a while the waiting worker lets
// others run, since the holder may have been preempted.
//
// Memory orders: lock() acquires what the last unlock() released.
#pragma once

#include <atomic>
#include <thread>

#include "ptowsp/plan.h"

namespace ptowsp {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

class SpinLock {
 public:
  // `alone`: only one thread ever takes it.
  explicit SpinLock(bool alone = false) : alone_(alone) {}
  void lock() {
    if (alone_ || !taken_.exchange(true, std::memory_order_acquire)) return;
    lock_slowly();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void lock_slowly() {
    constexpr u32 kMostPauses = 64;
    u32 pauses = 2;
    do {
      for (u32 i = 0; i < pauses; ++i) pause_briefly();
      if (pauses < kMostPauses) {
        pauses *= 2;
      } else {
        std::this_thread::yield();
      }
    } while (taken_.load(std::memory_order_relaxed) ||
             taken_.exchange(true, std::memory_order_acquire));
  }

  const bool alone_;
  std::atomic<bool> taken_{false};
};

}  // namespace ptowsp
