// Ready tasks of one queue of the Issuer, by the ready policy.
//
//   fifo(), priority()  a heap: the first in order
//   work_steal()        its worker takes the newest, thieves the oldest
//   auto                the order in which tasks came
//
// Thread roles: whoever calls holds the Issuer's lock.
#pragma once

#include <utility>
#include <vector>

#include "ptowsp/plan.h"

namespace ptowsp {

// A queue with two ends. Its memory grows with what it holds at once.
template <class T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  u64 size() const { return size_; }
  const T& front() const { return items_[first_]; }
  const T& back() const { return items_[(first_ + size_ - 1) & mask()]; }
  void push(const T& item) {
    if (size_ == items_.size()) grow();
    items_[(first_ + size_++) & mask()] = item;
  }
  void drop_front() {
    first_ = (first_ + 1) & mask();
    size_ -= 1;
  }
  void drop_back() { size_ -= 1; }

 private:
  u64 mask() const { return items_.size() - 1; }
  void grow() {
    std::vector<T> more(items_.empty() ? 16 : items_.size() * 2);
    for (u64 i = 0; i < size_; ++i) more[i] = items_[(first_ + i) & mask()];
    items_ = std::move(more);
    first_ = 0;
  }

  std::vector<T> items_;  // as many as a power of two
  u64 first_ = 0;
  u64 size_ = 0;
};

class IssueQueue {
 public:
  struct Item {
    u64 rank = 0;   // the smallest goes first
    u64 order = 0;  // among equal ones the smallest
    u32 slot = 0;
  };

  explicit IssueQueue(ReadyPolicy policy) : policy_(policy) {}

  bool empty() const { return sorted() ? heap_.empty() : ring_.empty(); }
  // The task that its worker takes next.
  const Item& next() const {
    if (sorted()) return heap_.front();
    return policy_ == ReadyPolicy::WORK_STEAL ? ring_.back() : ring_.front();
  }
  void push(const Item& item) {
    if (!sorted()) {
      ring_.push(item);
      return;
    }
    heap_.push_back(item);
    rise(heap_.size() - 1);
  }
  // Takes next().
  u32 take() {
    const u32 slot = next().slot;
    if (sorted()) {
      drop_first();
    } else if (policy_ == ReadyPolicy::WORK_STEAL) {
      ring_.drop_back();
    } else {
      ring_.drop_front();
    }
    return slot;
  }
  // Takes the oldest; only for work_steal().
  u32 steal() {
    const u32 slot = ring_.front().slot;
    ring_.drop_front();
    return slot;
  }
  static bool before(const Item& a, const Item& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.order < b.order;
  }
  // The rank of a priority: the largest goes first.
  static u64 rank_of(i64 priority) { return ~(static_cast<u64>(priority) ^ (u64{1} << 63)); }

 private:
  // Children of a place lie side by side: fewer levels, fewer lines.
  static constexpr std::size_t kBranches = 4;

  bool sorted() const { return policy_ == ReadyPolicy::FIFO || policy_ == ReadyPolicy::PRIORITY; }
  void rise(std::size_t at) {
    const Item item = heap_[at];
    while (at > 0) {
      const std::size_t above = (at - 1) / kBranches;
      if (!before(item, heap_[above])) break;
      heap_[at] = heap_[above];
      at = above;
    }
    heap_[at] = item;
  }
  void drop_first() {
    const Item item = heap_.back();
    heap_.pop_back();
    const std::size_t size = heap_.size();
    if (size == 0) return;
    std::size_t at = 0;
    while (at * kBranches + 1 < size) {
      const std::size_t first = at * kBranches + 1;
      std::size_t best = first;
      for (std::size_t k = first + 1; k < first + kBranches && k < size; ++k) {
        if (before(heap_[k], heap_[best])) best = k;
      }
      if (!before(heap_[best], item)) break;
      heap_[at] = heap_[best];
      at = best;
    }
    heap_[at] = item;
  }

  ReadyPolicy policy_;
  std::vector<Item> heap_;
  Ring<Item> ring_;
};

}  // namespace ptowsp
