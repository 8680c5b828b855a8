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
// Slots are handed out in cyclic order as far as they are free, see slot_set.h.
//
// Tags go on counting from run to run, so a table that serves many runs is never cleared and its
// memory is touched for the first time only once. Tag 0 names no task.
//
// Thread roles: acquire(), add_edge() and publish() are called by the holder of the generation
// token; finish() by the worker that ran the task; collect() by the token holder.
// Memory orders: finish() closes the list with acq_rel, so that a generator which finds it closed
// (acquire) may run a reader of the task's data at once; fan-in is decremented with acq_rel, so the
// worker that takes it to zero has seen the writes of all predecessors. While no task can run
// (set_alone), the generator is the only one and needs neither.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "ptowsp/huge_pages.h"
#include "ptowsp/plan.h"
#include "ptowsp/slot_set.h"

namespace ptowsp {

inline constexpr u32 kNil = 0xFFFFFFFFu;     // no edge, no slot
inline constexpr u32 kClosed = 0xFFFFFFFEu;  // the list of a task that has ended
inline constexpr u32 kJoinSite = 0xFFFFFFu;  // no site: the record of a phase

// Names one use of a slot; all zero names none.
struct TaskRef {
  u32 slot = 0;
  u32 tag = 0;
  bool any() const { return tag != 0; }
};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

class TaskTable {
 public:
  static constexpr u32 kInPlace = 3;      // edges inside a record
  static constexpr u32 kAhead = 8;        // a few short tasks last as long as fetching a line
  static constexpr u32 kBias = 1u << 24;  // fan-in while the task is being made

  // The loop indices begin at `loops`, as 32-bit numbers where that is enough.
  struct Record {
    std::atomic<u64> list{pack(0, kClosed)};
    std::atomic<u32> fanin{0};
    u32 what = 0;  // see set()
    u64 task_id = 0;
    u32 join = kNil;          // the phase that counts this task; when ended: the next free slot
    u32 side = kNil;          // edges that have no place here, in the side pool
    u32 next[kInPlace] = {};  // of its edges: the next one in the predecessor's list
    i32 loops[1];             // as many as there are levels, and registers behind them

    // `count` tasks of a site: one and those that follow it in its leaf loop.
    void set(u32 of_site, u32 of_count) { what = (of_count << 24) | (of_site & kJoinSite); }
    u32 site() const { return what & kJoinSite; }
    u32 count() const { return what >> 24; }
  };
  static_assert(sizeof(Record) == 48);

  enum class Edge : u8 {
    Added,
    Known,  // the task waits for that one already
    Ended   // that one has ended
  };

  // `wide`: loop indices need 64 bits.
  TaskTable(u32 slots, u32 levels, bool wide)
      : levels_(levels),
        wide_(wide),
        count_(slots),
        stride_(stride(slots, levels, wide)),
        bytes_(static_cast<std::byte*>(std::aligned_alloc(kCacheLine, rounded(slots * stride_)))),
        free_(slots) {
    if (bytes_ == nullptr) throw std::bad_alloc();
    prefer_huge_pages(bytes_.get(), slots * stride_);
  }
  bool fits(u32 slots, u32 levels, bool wide) const {
    return count_ == slots && levels_ == levels && wide_ == wide;
  }

  Record& operator[](u32 slot) { return *reinterpret_cast<Record*>(bytes_.get() + slot * stride_); }
  const Record& operator[](u32 slot) const {
    return *reinterpret_cast<const Record*>(bytes_.get() + slot * stride_);
  }
  u32 capacity() const { return count_; }
  std::size_t bytes() const { return used_ * stride_ + side_used_ * sizeof(SideNode); }

  // `more` is added to the innermost loop index.
  void set_loops(Record* r, const i64* loops, u32 level, i64 more) {
    if (level == 0) return;
    if (wide_) {
      i64* out = wide_of(r);
      std::copy(loops, loops + level, out);
      out[level - 1] += more;
      return;
    }
    i32* out = r->loops;
    each_level(level, [&](u32 l) { out[l] = static_cast<i32>(loops[l]); });
    out[level - 1] = static_cast<i32>(loops[level - 1] + more);
  }
  // Registers lie behind the loop indices.
  void set_register(Record* r, u32 place, i64 value) {
    if (wide_) {
      wide_of(r)[place] = value;
    } else {
      r->loops[place] = static_cast<i32>(value);
    }
  }
  // Loop indices and registers, `level` of both together.
  void get_loops(u32 slot, i64* loops, u32 level) const {
    const Record& r = (*this)[slot];
    if (wide_) {
      const i64* in = wide_of(const_cast<Record*>(&r));
      std::copy(in, in + level, loops);
      return;
    }
    const i32* in = r.loops;
    each_level(level, [&](u32 l) { loops[l] = in[l]; });
  }

  // --- token holder ---

  // Whether no task runs or can start: then nothing needs an atomic read-modify-write.
  void set_alone(bool alone) { alone_ = alone; }

  // How many slots acquire() can give without collect().
  u32 available() const { return free_.size() + (count_ - used_); }

  // A slot with a fresh tag; only while available().
  TaskRef acquire() {
    u32 slot = used_;
    if (used_ < count_) {
      used_ += 1;
      if (slot == made_) new (&(*this)[made_++]) Record;
    } else {
      slot = free_.take_next(last_);
      last_ = slot;
    }
    Record& r = (*this)[slot];
    if (r.side != kNil) drop_side_nodes(&r);
    u32 tag = tag_of(r.list.load(std::memory_order_relaxed)) + 1;
    tag += tag == 0 ? 1 : 0;
    r.fanin.store(kBias, std::memory_order_relaxed);
    r.join = kNil;
    r.list.store(pack(tag, kNil), std::memory_order_release);
    return {slot, tag};
  }

  TaskRef ref(u32 slot) const {
    return {slot, tag_of((*this)[slot].list.load(std::memory_order_relaxed))};
  }

  bool ended(TaskRef t) const {
    if (!t.any()) return true;
    const u64 word = (*this)[t.slot].list.load(std::memory_order_acquire);
    return tag_of(word) != t.tag || edge_of(word) == kClosed;
  }

  // `slot`, which has `edges` edges already, waits for `before`. Edges of one task are added one
  // after the other, so an edge that it has already is the first of its predecessor's list.
  Edge add_edge(TaskRef before, u32 slot, u32 edges) {
    return add_edge(before, slot, &(*this)[slot], edges);
  }
  Edge add_edge(TaskRef before, u32 slot, Record* r, u32 edges) {
    Record& p = (*this)[before.slot];
    u64 word = p.list.load(std::memory_order_acquire);
    if (tag_of(word) != before.tag || edge_of(word) == kClosed) return Edge::Ended;
    if (edges > 0 && edge_of(word) != kNil && owner_of(edge_of(word)) == slot) return Edge::Known;
    const u32 node = new_node(slot, r, edges, edge_of(word));
    if (alone_) {
      p.list.store(pack(before.tag, node), std::memory_order_relaxed);
      return Edge::Added;
    }
    // Only finish() can come between, and it comes once.
    if (p.list.compare_exchange_strong(word, pack(before.tag, node), std::memory_order_release,
                                       std::memory_order_acquire)) {
      return Edge::Added;
    }
    if (edges >= kInPlace) drop_last_side_node(r);
    return Edge::Ended;
  }

  // All its edges are there. True if the task may start now.
  bool publish(u32 slot, u32 edges) { return publish(&(*this)[slot], edges); }
  bool publish(Record* r, u32 edges) {
    if (edges == 0 || alone_) {
      r->fanin.store(edges, std::memory_order_relaxed);
      return edges == 0;
    }
    const u32 missing = kBias - edges;
    return r->fanin.fetch_sub(missing, std::memory_order_acq_rel) == missing;
  }

  // Slots that workers gave back. Calls fn(slot) for each.
  template <class Fn>
  void collect(Fn fn) {
    if (freed_.load(std::memory_order_relaxed) == kNil) return;
    u32 slot = freed_.exchange(kNil, std::memory_order_acquire);
    while (slot != kNil) {
      const u32 next = (*this)[slot].join;
      fn(slot);
      free_.insert(slot);
      slot = next;
    }
  }

  // All tasks have ended: slots are handed out in order again.
  void restart() {
    side_high_ = side_live_;
    used_ = last_ = 0;
    free_.clear();
    freed_.store(kNil, std::memory_order_relaxed);
  }

  // --- any worker ---

  // Brings closer, while the task runs, the record of a successor and one that was generated a
  // little later: they are likely to be touched soon.
  void prefetch_successor(u32 slot) {
    const u32 node = edge_of((*this)[slot].list.load(std::memory_order_relaxed));
    if (node < in_place_nodes()) __builtin_prefetch(&(*this)[node / kPlaces], 1);
    if (slot + kAhead < count_) __builtin_prefetch(&(*this)[slot + kAhead], 1);
  }
  // The same for a task that the next one generated may wait for.
  void prefetch(TaskRef t) const { __builtin_prefetch(&(*this)[t.slot], 1); }

  // The task has ended: calls ready(slot) for each successor that may start now. `sealed`: no edge
  // will be added any more, so the list needs no exchange.
  template <class Fn>
  void finish(u32 slot, bool sealed, Fn ready) {
    Record& r = (*this)[slot];
    u64 word = r.list.load(std::memory_order_relaxed);
    const u64 closed = pack(tag_of(word), kClosed);
    if (sealed) {
      r.list.store(closed, std::memory_order_relaxed);
    } else {
      word = r.list.exchange(closed, std::memory_order_acq_rel);
    }
    u32 node = edge_of(word);
    while (node != kNil) {
      // Both before the successor can run and be reused.
      const u32 successor = owner_of(node);
      node = next_of(node);
      if (arrive(successor)) ready(successor);
    }
  }

  // Calls fn(slot) for each task that waits for this one. Only while nothing runs.
  template <class Fn>
  void each_successor(u32 slot, Fn fn) {
    u32 node = edge_of((*this)[slot].list.load(std::memory_order_acquire));
    for (; node != kNil && node != kClosed; node = next_of(node)) fn(owner_of(node));
  }

  // One predecessor fewer; true for the last.
  bool arrive(u32 slot) {
    std::atomic<u32>& fanin = (*this)[slot].fanin;
    // The last arrival is alone: no read-modify-write is needed.
    if (fanin.load(std::memory_order_acquire) == 1) return true;
    return fanin.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  // Gives back a chain of ended slots, linked from `first` to `last`.
  void give_back(u32 first, u32 last) {
    u32 head = freed_.load(std::memory_order_relaxed);
    do {
      (*this)[last].join = head;
    } while (!freed_.compare_exchange_weak(head, first, std::memory_order_release,
                                           std::memory_order_relaxed));
  }

  u32 side_high() const { return side_high_; }
  u32 used() const { return used_; }  // slots handed out at least once in this run

 private:
  struct SideNode {
    u32 owner;
    u32 next;
    u32 next_of_owner;
  };

  static i64* wide_of(Record* r) { return reinterpret_cast<i64*>(r + 1); }
  static constexpr u64 pack(u32 tag, u32 edge) { return (static_cast<u64>(tag) << 32) | edge; }
  static constexpr u32 tag_of(u64 word) { return static_cast<u32>(word >> 32); }
  static constexpr u32 edge_of(u64 word) { return static_cast<u32>(word); }

  // Bytes from record to record. Records that workers pass around get lines of their own; a table
  // that is too large for the caches anyway is kept dense.
  static std::size_t stride(u32 slots, u32 levels, bool wide) {
    constexpr u32 kLargeTable = 1u << 15;
    const std::size_t size = wide ? sizeof(Record) + levels * sizeof(i64)
                                  : offsetof(Record, loops) + levels * sizeof(i32);
    const std::size_t unit = slots < kLargeTable ? kCacheLine : 8;
    return (size + unit - 1) / unit * unit;
  }
  static std::size_t rounded(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  // Nodes in place are numbered by slot; those of the side pool come after them.
  static constexpr u32 kPlaces = 4;  // numbers for each slot
  u32 in_place_nodes() const { return count_ * kPlaces; }

  // The `k`th edge of a record, in front of `next` in its predecessor's list.
  u32 new_node(u32 slot, Record* r, u32 k, u32 next) {
    if (k < kInPlace) {
      r->next[k] = next;
      return slot * kPlaces + k;
    }
    u32 node = side_free_;
    if (node != kNil) {
      side_free_ = side(node).next_of_owner;
    } else {
      node = side_used_++;
      if (node % kChunk == 0) chunks_[node / kChunk] = std::make_unique<SideNode[]>(kChunk);
    }
    side(node) = {slot, next, r->side};
    side_live_ += 1;
    side_high_ = std::max(side_high_, side_live_);
    r->side = node;
    return in_place_nodes() + node;
  }
  void drop_last_side_node(Record* r) {
    const u32 node = r->side;
    r->side = side(node).next_of_owner;
    side(node).next_of_owner = side_free_;
    side_free_ = node;
    side_live_ -= 1;
  }
  void drop_side_nodes(Record* r) {
    while (r->side != kNil) drop_last_side_node(r);
  }
  SideNode& side(u32 node) { return chunks_[node / kChunk][node % kChunk]; }
  u32 next_of(u32 node) {
    if (node < in_place_nodes()) return (*this)[node / kPlaces].next[node % kPlaces];
    return side(node - in_place_nodes()).next;
  }
  u32 owner_of(u32 node) {
    return node < in_place_nodes() ? node / kPlaces : side(node - in_place_nodes()).owner;
  }

  // Chunks never move, so workers may follow nodes while the pool grows; an edge is published with
  // a release that also publishes its chunk.
  static constexpr u32 kChunk = 1u << 14;
  static constexpr u32 kChunks = 1u << 14;

  // What all workers read is kept away from what the token holder writes.
  const u32 levels_;
  const bool wide_;
  const u32 count_;
  const std::size_t stride_;
  const std::unique_ptr<std::byte[], FreeDeleter> bytes_;
  const std::unique_ptr<std::unique_ptr<SideNode[]>[]> chunks_{
      new std::unique_ptr<SideNode[]>[kChunks]};
  alignas(kCacheLine) SlotSet free_;
  u32 side_used_ = 0;
  u32 side_free_ = kNil;
  u32 side_live_ = 0;  // edges that have no place in their records, and the most of them
  u32 side_high_ = 0;
  u32 made_ = 0;  // records that exist
  u32 used_ = 0;
  u32 last_ = 0;  // the slot handed out last
  bool alone_ = false;
  alignas(kCacheLine) std::atomic<u32> freed_{kNil};
};

}  // namespace ptowsp
