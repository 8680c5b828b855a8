// Records of live tasks, and the edges between them.
//
// Thread roles: the scheduler calls everything here under its lock; nothing is atomic. Slots come
// from a free list, so they are reused in any order as soon as a task has ended. `tag` counts the
// uses of a slot: (slot, tag) names one task for ever, and a stale tag says that it has ended.
#pragma once

#include <vector>

#include "ptowsp/plan.h"

namespace ptowsp {

inline constexpr u32 kNoSlot = 0xFFFFFFFFu;

// A list of slots to be told when something ends, as nodes of an EdgePool.
struct EdgeList {
  u32 head = kNoSlot;
};

// All edges of a run, in one flat pool with a free list.
class EdgePool {
 public:
  void add(EdgeList* list, u32 slot) {
    u32 node = free_;
    if (node == kNoSlot) {
      node = static_cast<u32>(nodes_.size());
      nodes_.push_back({});
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {slot, list->head};
    list->head = node;
  }

  // Calls fn(slot) for each element, the newest first, and empties the list.
  template <class Fn>
  void drain(EdgeList* list, Fn fn) {
    u32 node = list->head;
    list->head = kNoSlot;
    while (node != kNoSlot) {
      const Node n = nodes_[node];
      nodes_[node].next = free_;
      free_ = node;
      fn(n.slot);
      node = n.next;
    }
  }

  template <class Fn>
  void each(const EdgeList& list, Fn fn) const {
    for (u32 n = list.head; n != kNoSlot; n = nodes_[n].next) fn(nodes_[n].slot);
  }

  std::size_t bytes() const { return nodes_.capacity() * sizeof(Node); }

 private:
  struct Node {
    u32 slot;
    u32 next;
  };
  std::vector<Node> nodes_;
  u32 free_ = kNoSlot;
};

// One live task: where it comes from and what it waits for. Regions are not stored; they are
// computed again from site and loop indices.
struct TaskRecord {
  u64 seq = 0;
  u64 task_id = 0;
  u64 ready_ticks = 0;
  u64 marked = 0;  // 1 + seq of the last task that got an edge from this one
  u32 site = 0;
  u32 tag = 0;
  u32 fanin = 0;        // unfinished predecessors
  u32 phase = kNoSlot;  // innermost phase it belongs to
  u32 maker = 0;        // worker that made it ready
  bool live = false;
  bool running = false;
  EdgeList successors;
  u32 entries = kNoSlot;  // its entries in the tensor map
  i64 loops[kMaxLoops] = {};
};

class TaskRing {
 public:
  explicit TaskRing(u32 window) : window_(window) {}

  bool full() const { return live_ >= window_; }
  u32 live() const { return live_; }
  u32 window() const { return window_; }
  u32 slots() const { return static_cast<u32>(records_.size()); }

  // Only when not full().
  u32 acquire() {
    live_ += 1;
    u32 slot = 0;
    if (free_.empty()) {
      slot = static_cast<u32>(records_.size());
      records_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    records_[slot].live = true;
    return slot;
  }

  void release(u32 slot) {
    TaskRecord& r = records_[slot];
    r.live = false;
    r.running = false;
    r.tag += 1;
    free_.push_back(slot);
    live_ -= 1;
  }

  TaskRecord& operator[](u32 slot) { return records_[slot]; }
  const TaskRecord& operator[](u32 slot) const { return records_[slot]; }
  std::size_t bytes() const {
    return records_.capacity() * sizeof(TaskRecord) + free_.capacity() * sizeof(u32);
  }

 private:
  u32 window_;
  u32 live_ = 0;
  std::vector<TaskRecord> records_;  // grows up to the window, never beyond
  std::vector<u32> free_;
};

}  // namespace ptowsp
