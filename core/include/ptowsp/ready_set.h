// Tasks that may run now, and which of them a worker takes next.
//
// FifoReady   always the ready task with the smallest seq: one bit a seq, and a heap for tasks so
// far
//             from the others that bits would not tell them apart.
// StealReady  a deque per worker: the owner takes its newest, thieves take the oldest of a random
//             victim, trying each other worker once before they give up.
//
// Thread roles: as in task_ring.h, everything is called under the scheduler's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <vector>

#include "ptowsp/hash.h"
#include "ptowsp/slot_set.h"
#include "ptowsp/task_ring.h"

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

class StealReady {
 public:
  StealReady(u32 workers, u64 seed) : deques_(workers), random_(seed) {}

  void push(u32 slot, u32 worker) {
    deques_[worker].push_back(slot);
    size_ += 1;
  }

  // `victim` receives the worker whose deque the task came from.
  bool take(u32 worker, u32* slot, u32* victim) {
    if (size_ == 0) return false;
    if (!deques_[worker].empty()) {
      *slot = deques_[worker].back();
      deques_[worker].pop_back();
      *victim = worker;
      size_ -= 1;
      return true;
    }
    const u32 n = static_cast<u32>(deques_.size());
    random_ += 0x9E3779B97F4A7C15ull;
    const u32 first = static_cast<u32>(splitmix(random_) % n);
    for (u32 k = 0; k < n; ++k) {
      const u32 v = (first + k) % n;
      if (deques_[v].empty()) continue;
      *slot = deques_[v].front();
      deques_[v].pop_front();
      *victim = v;
      size_ -= 1;
      return true;
    }
    return false;
  }

  std::size_t size() const { return size_; }

 private:
  std::vector<std::deque<u32>> deques_;
  std::size_t size_ = 0;
  u64 random_;
};

}  // namespace ptowsp
