// ReadyPolicy.fifo(): tasks that may run now, of which the one with the smallest seq is next.
//
// One bit a seq, and a heap for tasks so far from the others that bits would not tell them apart.
//
// Thread roles: whoever calls holds one lock around everything.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "ptowsp/slot_set.h"

namespace ptowsp {

class FifoReady {
 public:
  // Fastest while the ready tasks' seqs lie within four windows of each other.
  explicit FifoReady(u32 window)
      : range_(std::bit_ceil(std::max<u64>(window, 64) * 4)),
        bits_(static_cast<u32>(range_)),
        slots_(range_) {}

  void push(u32 slot, u64 seq) {
    if (bits_.size() == 0) low_ = high_ = seq;
    const u64 low = std::min(low_, seq);
    const u64 high = std::max(high_, seq);
    if (high - low >= range_) {  // a bit would name two tasks
      far_.push_back({seq, slot});
      std::push_heap(far_.begin(), far_.end(), later);
      return;
    }
    low_ = low;
    high_ = high;
    bits_.insert(static_cast<u32>(seq % range_));
    slots_[seq % range_] = slot;
  }

  bool take(u32* slot) {
    if (size() == 0) return false;
    if (bits_.size() == 0) return take_far(slot);
    const u32 at = bits_.take_next(static_cast<u32>(low_ % range_));
    low_ += (at - low_) % range_;
    if (!far_.empty() && far_.front().seq < low_) {
      bits_.insert(at);
      return take_far(slot);
    }
    *slot = slots_[at];
    return true;
  }

  std::size_t size() const { return bits_.size() + far_.size(); }

 private:
  struct Item {
    u64 seq;
    u32 slot;
  };
  static bool later(const Item& a, const Item& b) { return a.seq > b.seq; }

  bool take_far(u32* slot) {
    std::pop_heap(far_.begin(), far_.end(), later);
    *slot = far_.back().slot;
    far_.pop_back();
    return true;
  }

  const u64 range_;  // a power of two
  SlotSet bits_;     // by seq modulo range_
  std::vector<u32> slots_;
  u64 low_ = 0;  // no seq in bits_ is smaller than low_ or larger than high_
  u64 high_ = 0;
  std::vector<Item> far_;  // a heap of what does not fit
};

}  // namespace ptowsp
