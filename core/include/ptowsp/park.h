// Where workers sleep. The only place of the core that blocks in the operating system.
//
// A worker that found nothing announces itself (prepare), looks once more, and then naps or
// withdraws. Whoever makes work calls notify_one(), which costs one load while nobody sleeps. That
// load is not ordered with the work before it, so a wake-up can be missed; a nap is therefore short
// and a missed wake-up costs its length, never a hang.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "ptowsp/plan.h"

namespace ptowsp {

class ParkingLot {
 public:
  // A ticket for wait(); must be followed by wait() or withdraw().
  u64 prepare() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    return epoch_.load(std::memory_order_acquire);
  }
  void withdraw() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }

  // Sleeps until a notify() that came after prepare(), or until the time is over.
  void wait(u64 ticket, std::chrono::nanoseconds most) {
    {
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, most, [&] { return epoch_.load(std::memory_order_relaxed) != ticket; });
    }
    withdraw();
  }

  void notify_one() {
    if (!any_asleep()) return;
    bump();
    woken_.notify_one();
  }
  // Whoever is asleep; those on their way to sleep look again by themselves.
  void wake() {
    if (any_asleep()) notify_all();
  }
  void notify_all() {
    bump();
    woken_.notify_all();
  }

 private:
  bool any_asleep() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  void bump() {
    const std::lock_guard lock(mutex_);
    epoch_.fetch_add(1, std::memory_order_release);
  }

  alignas(64) std::atomic<u32> sleepers_{0};
  std::atomic<u64> epoch_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

}  // namespace ptowsp
