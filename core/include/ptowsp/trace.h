// What one worker records of the tasks it ran: a ring that keeps the newest events and counts what
// it had to overwrite. Written by its worker alone, read after the run has ended.
#pragma once

#include <vector>

#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

namespace ptowsp {

class TraceRing {
 public:
  explicit TraceRing(u64 capacity) : capacity_(capacity) {}

  void add(const ptowsp_event& event) {
    if (events_.size() < capacity_) {
      events_.push_back(event);
    } else {
      events_[count_ % capacity_] = event;
    }
    count_ += 1;
  }

  u64 dropped() const { return count_ - events_.size(); }
  std::size_t size() const { return events_.size(); }

  // Calls fn(event), oldest first.
  template <class Fn>
  void each(Fn fn) const {
    const std::size_t first = count_ > capacity_ ? count_ % capacity_ : 0;
    for (std::size_t i = 0; i < events_.size(); ++i) fn(events_[(first + i) % events_.size()]);
  }

 private:
  u64 capacity_;
  u64 count_ = 0;
  std::vector<ptowsp_event> events_;
};

}  // namespace ptowsp
