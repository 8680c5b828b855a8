// A work-stealing deque of task slots (Chase and Lev, "Dynamic circular work-stealing deque", 2005;
// memory orders after Le et al., "Correct and efficient work-stealing for weak memory models",
// 2013).
//
// Thread roles: one owner calls push() and pop() at the bottom; any thread calls steal() at the
// top. The capacity is fixed and must hold every slot that can be ready at once, so push() never
// fails.
//
// Memory orders: push() publishes the element with a release store of bottom. pop() takes bottom
// down and then looks at top; steal() looks at top and then at bottom. These four are sequentially
// consistent, or both could take the last element. Elements are atomic because a thief may read one
// that the owner overwrites; it then loses the race for top and drops what it read.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>

#include "ptowsp/plan.h"

namespace ptowsp {

class Deque {
 public:
  explicit Deque(u32 capacity)
      : mask_(std::bit_ceil(std::max<u64>(capacity, 2)) - 1),
        items_(new std::atomic<u32>[mask_ + 1]) {}

  void push(u32 slot) {
    const i64 b = bottom_.load(std::memory_order_relaxed);
    items_[static_cast<u64>(b) & mask_].store(slot, std::memory_order_relaxed);
    bottom_.store(b + 1, std::memory_order_release);
  }

  bool pop(u32* slot) {
    const i64 b = bottom_.load(std::memory_order_relaxed) - 1;
    // Nobody adds but the owner: an empty deque needs no fence.
    if (b < top_.load(std::memory_order_relaxed)) return false;
    bottom_.store(b, std::memory_order_seq_cst);
    i64 t = top_.load(std::memory_order_seq_cst);
    if (t > b) {  // thieves took all
      bottom_.store(b + 1, std::memory_order_relaxed);
      return false;
    }
    *slot = items_[static_cast<u64>(b) & mask_].load(std::memory_order_relaxed);
    if (t < b) return true;
    // The last element: whoever moves top has it.
    const bool won = top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst,
                                                  std::memory_order_relaxed);
    bottom_.store(b + 1, std::memory_order_relaxed);
    return won;
  }

  bool steal(u32* slot) {
    i64 t = top_.load(std::memory_order_seq_cst);
    const i64 b = bottom_.load(std::memory_order_seq_cst);
    if (t >= b) return false;
    *slot = items_[static_cast<u64>(t) & mask_].load(std::memory_order_relaxed);
    return top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst,
                                        std::memory_order_relaxed);
  }

  // A guess: exact only for the owner, and only for emptiness.
  i64 size() const {
    // Whoever looks at several deques and then at who rests sees them in that order.
    const i64 top = top_.load(std::memory_order_acquire);
    return bottom_.load(std::memory_order_acquire) - top;
  }

 private:
  const u64 mask_;
  const std::unique_ptr<std::atomic<u32>[]> items_;
  alignas(64) std::atomic<i64> top_{0};
  alignas(64) std::atomic<i64> bottom_{0};
};

}  // namespace ptowsp
