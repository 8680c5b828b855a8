// Ended tasks of one worker whose successors have not been told yet: batch_deps(n).
//
// Thread roles: add() by the worker that it belongs to, take() by anybody. One small lock guards
// the list; any() costs one load.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "ptowsp/plan.h"

namespace ptowsp {

class EndBatch {
 public:
  // True: with this task there are `full` of them, and `out` has them now. `out` is empty before.
  bool add(u32 slot, u64 full, std::vector<u32>* out) {
    const std::lock_guard lock(mutex_);
    slots_.push_back(slot);
    if (slots_.size() >= full) slots_.swap(*out);
    any_.store(!slots_.empty(), std::memory_order_release);
    return slots_.empty();
  }

  bool any() const { return any_.load(std::memory_order_acquire); }

  // False if there are none. `out` is empty before.
  bool take(std::vector<u32>* out) {
    if (!any()) return false;
    const std::lock_guard lock(mutex_);
    slots_.swap(*out);
    any_.store(false, std::memory_order_release);
    return !out->empty();
  }

 private:
  std::mutex mutex_;
  std::vector<u32> slots_;
  std::atomic<bool> any_{false};
};

}  // namespace ptowsp
