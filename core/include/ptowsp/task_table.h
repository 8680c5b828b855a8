// Records of live tasks and the edges between them, without locks.
//
// A record belongs to its generator until the task is published, then to whoever holds the task.
// Its successor list is one atomic word {tag, first edge}: the generator adds edges with a
// compare-and-swap, the worker that ends the task closes the list with one exchange. Since the word
// holds the tag, an edge can never be added to the next user of a slot: the caller then knows that
// the task it meant has ended. An edge is a node inside the waiting record (a few in place, more
// from a side pool), so edges need no memory management of their own: a record is reused only after
// all its predecessors have walked past its nodes.
//
// Thread roles: acquire(), add_edge() and publish() are called by the holder of the generation
// token; finish() by the worker that ran the task; collect() by the token holder.
// Memory orders: finish() closes the list with acq_rel, so that a generator which finds it closed
// (acquire) may run a reader of the task's data at once; fan-in is decremented with acq_rel, so the
// worker that takes it to zero has seen the writes of all predecessors.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

#include "ptowsp/plan.h"

namespace ptowsp {

inline constexpr u32 kNil = 0xFFFFFFFFu;     // no edge, no slot
inline constexpr u32 kClosed = 0xFFFFFFFEu;  // the list of a task that has ended
inline constexpr u32 kJoinSite = 0xFFFFFFFDu;

// Names one use of a slot.
struct TaskRef {
  u32 slot = kNil;
  u32 tag = 0;
};

class TaskTable {
 public:
  static constexpr u32 kInPlace = 4;      // edges inside a record
  static constexpr u32 kBias = 1u << 24;  // fan-in while the task is being made

  struct alignas(64) Record {
    std::atomic<u64> list{pack(0, kClosed)};
    std::atomic<u32> fanin{0};
    u32 site = 0;
    u64 task_id = 0;
    u64 ready_ns = 0;
    u32 join = kNil;          // record of the phase that counts this task
    u32 edges = 0;            // nodes in use
    u32 next[kInPlace] = {};  // of its nodes: the next one in the predecessor's list
    u32 side = kNil;          // further nodes, in the side pool
    u32 free_next = kNil;     // when ended: the next free slot
  };
  static_assert(sizeof(Record) == 64);

  TaskTable(u32 slots, u32 levels)
      : levels_(levels),
        count_(slots),
        records_(new Record[slots]),
        loops_(new i64[static_cast<std::size_t>(slots) * std::max<u32>(levels, 1)]) {}

  Record& operator[](u32 slot) { return records_[slot]; }
  const Record& operator[](u32 slot) const { return records_[slot]; }
  i64* loops(u32 slot) { return &loops_[static_cast<std::size_t>(slot) * levels_]; }
  u32 capacity() const { return count_; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(used_) * (sizeof(Record) + levels_ * sizeof(i64)) +
           static_cast<std::size_t>(side_used_) * sizeof(SideNode);
  }

  // --- token holder ---

  // How many slots acquire() can give without collect().
  u32 available() const { return free_count_ + (count_ - used_); }

  // A slot with a fresh tag and fan-in kBias; only while available().
  u32 acquire() {
    u32 slot = free_;
    if (slot != kNil) {
      free_ = records_[slot].free_next;
      free_count_ -= 1;
    } else {
      slot = used_++;
    }
    Record& r = records_[slot];
    drop_side_nodes(&r);
    const u32 tag = tag_of(r.list.load(std::memory_order_relaxed)) + 1;
    r.fanin.store(kBias, std::memory_order_relaxed);
    r.edges = 0;
    r.join = kNil;
    r.list.store(pack(tag, kNil), std::memory_order_release);
    return slot;
  }

  TaskRef ref(u32 slot) const {
    return {slot, tag_of(records_[slot].list.load(std::memory_order_relaxed))};
  }

  bool ended(TaskRef t) const {
    if (t.slot == kNil) return true;
    const u64 word = records_[t.slot].list.load(std::memory_order_acquire);
    return tag_of(word) != t.tag || edge_of(word) == kClosed;
  }

  // `slot` waits for `before`, unless that has ended already: then false.
  bool add_edge(TaskRef before, u32 slot) {
    Record& p = records_[before.slot];
    u64 word = p.list.load(std::memory_order_acquire);
    if (tag_of(word) != before.tag || edge_of(word) == kClosed) return false;
    Record& r = records_[slot];
    const u32 node = new_node(slot, &r);
    while (true) {
      set_next(node, edge_of(word));
      if (p.list.compare_exchange_weak(word, pack(before.tag, node), std::memory_order_release,
                                       std::memory_order_acquire)) {
        return true;
      }
      if (tag_of(word) != before.tag || edge_of(word) == kClosed) {
        undo_node(&r);
        return false;
      }
    }
  }

  // All edges are there. True if the task may start now.
  bool publish(u32 slot) {
    Record& r = records_[slot];
    const u32 missing = kBias - r.edges;
    if (r.edges == 0) {
      r.fanin.store(0, std::memory_order_relaxed);
      return true;
    }
    return r.fanin.fetch_sub(missing, std::memory_order_acq_rel) == missing;
  }

  // Slots that workers gave back. Calls fn(slot) for each.
  template <class Fn>
  void collect(Fn fn) {
    if (freed_.load(std::memory_order_relaxed) == kNil) return;
    u32 slot = freed_.exchange(kNil, std::memory_order_acquire);
    while (slot != kNil) {
      const u32 next = records_[slot].free_next;
      fn(slot);
      records_[slot].free_next = free_;
      free_ = slot;
      free_count_ += 1;
      slot = next;
    }
  }

  // --- any worker ---

  // The task has ended: calls ready(slot) for each successor that may start now.
  template <class Fn>
  void finish(u32 slot, Fn ready) {
    Record& r = records_[slot];
    const u32 tag = tag_of(r.list.load(std::memory_order_relaxed));
    const u64 word = r.list.exchange(pack(tag, kClosed), std::memory_order_acq_rel);
    u32 node = edge_of(word);
    while (node != kNil) {
      const u32 next = next_of(node);  // before the successor can run and be reused
      const u32 successor = owner_of(node);
      if (arrive(successor)) ready(successor);
      node = next;
    }
  }

  // Calls fn(slot) for each task that waits for this one. Only while nothing runs.
  template <class Fn>
  void each_successor(u32 slot, Fn fn) {
    u32 node = edge_of(records_[slot].list.load(std::memory_order_acquire));
    for (; node != kNil && node != kClosed; node = next_of(node)) fn(owner_of(node));
  }

  // One predecessor fewer; true for the last.
  bool arrive(u32 slot) {
    std::atomic<u32>& fanin = records_[slot].fanin;
    // The last arrival is alone: no read-modify-write is needed.
    if (fanin.load(std::memory_order_acquire) == 1) return true;
    return fanin.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  // Gives back a chain of ended slots, linked by free_next from `first` to `last`.
  void give_back(u32 first, u32 last) {
    u32 head = freed_.load(std::memory_order_relaxed);
    do {
      records_[last].free_next = head;
    } while (!freed_.compare_exchange_weak(head, first, std::memory_order_release,
                                           std::memory_order_relaxed));
  }

 private:
  struct SideNode {
    u32 owner;
    u32 next;
    u32 next_of_owner;
  };

  static constexpr u64 pack(u32 tag, u32 edge) { return (static_cast<u64>(tag) << 32) | edge; }
  static constexpr u32 tag_of(u64 word) { return static_cast<u32>(word >> 32); }
  static constexpr u32 edge_of(u64 word) { return static_cast<u32>(word); }

  // Nodes in place are numbered by slot; those of the side pool come after them.
  u32 in_place_nodes() const { return count_ * kInPlace; }

  u32 new_node(u32 slot, Record* r) {
    const u32 k = r->edges++;
    if (k < kInPlace) return slot * kInPlace + k;
    u32 node = side_free_;
    if (node != kNil) {
      side_free_ = side(node).next_of_owner;
    } else {
      node = side_used_++;
      if (node % kChunk == 0) chunks_[node / kChunk] = std::make_unique<SideNode[]>(kChunk);
    }
    side(node) = {slot, kNil, r->side};
    r->side = node;
    return in_place_nodes() + node;
  }
  // Takes back the node that new_node() gave last.
  void undo_node(Record* r) {
    r->edges -= 1;
    if (r->edges < kInPlace) return;
    const u32 node = r->side;
    r->side = side(node).next_of_owner;
    side(node).next_of_owner = side_free_;
    side_free_ = node;
  }
  void drop_side_nodes(Record* r) {
    while (r->side != kNil) {
      const u32 node = r->side;
      r->side = side(node).next_of_owner;
      side(node).next_of_owner = side_free_;
      side_free_ = node;
    }
  }
  SideNode& side(u32 node) { return chunks_[node / kChunk][node % kChunk]; }
  u32 next_of(u32 node) {
    if (node < in_place_nodes()) return records_[node / kInPlace].next[node % kInPlace];
    return side(node - in_place_nodes()).next;
  }
  void set_next(u32 node, u32 next) {
    if (node < in_place_nodes()) {
      records_[node / kInPlace].next[node % kInPlace] = next;
    } else {
      side(node - in_place_nodes()).next = next;
    }
  }
  u32 owner_of(u32 node) {
    return node < in_place_nodes() ? node / kInPlace : side(node - in_place_nodes()).owner;
  }

  // Chunks never move, so workers may follow nodes while the pool grows; an edge is published with
  // a release that also publishes its chunk.
  static constexpr u32 kChunk = 1u << 14;
  static constexpr u32 kChunks = 1u << 14;

  const u32 levels_;
  const u32 count_;
  u32 side_used_ = 0;
  u32 side_free_ = kNil;
  const std::unique_ptr<std::unique_ptr<SideNode[]>[]> chunks_{
      new std::unique_ptr<SideNode[]>[kChunks]};
  u32 used_ = 0;     // slots handed out at least once
  u32 free_ = kNil;  // token holder's free list
  u32 free_count_ = 0;
  const std::unique_ptr<Record[]> records_;
  const std::unique_ptr<i64[]> loops_;
  alignas(64) std::atomic<u32> freed_{kNil};
};

}  // namespace ptowsp
