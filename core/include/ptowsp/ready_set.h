// Tasks that may run now, and which of them a worker takes next.
//
// FifoReady   always the ready task with the smallest seq.
// StealReady  a deque per worker: the owner takes its newest, thieves take the oldest of a random
//             victim, trying each other worker once before they give up.
//
// Thread roles: as in task_ring.h, everything is called under the scheduler's lock.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "ptowsp/hash.h"
#include "ptowsp/task_ring.h"

namespace ptowsp {

class FifoReady {
 public:
  void push(u32 slot, u64 seq) {
    heap_.push_back({seq, slot});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  bool take(u32* slot) {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    *slot = heap_.back().slot;
    heap_.pop_back();
    return true;
  }

  std::size_t size() const { return heap_.size(); }

 private:
  struct Item {
    u64 seq;
    u32 slot;
  };
  static bool later(const Item& a, const Item& b) { return a.seq > b.seq; }
  std::vector<Item> heap_;
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
