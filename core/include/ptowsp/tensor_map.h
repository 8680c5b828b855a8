// Which live tasks touch what: the table from which data dependences are inferred.
//
// A new task asks for every live task whose access conflicts with one of its own (read after write,
// write after read, write after write), then enters its own accesses. A task's accesses leave the
// map when it ends or its slot is used again, so entries never outlive the window.
// An access that a later write covers leaves early: whoever conflicts with it conflicts with that
// write, which already waits for it.
//
// DynamicTensorMap compares with every entry; it is the oracle that tests hold FixedTensorMap to.
// FixedTensorMap finds candidates through a hash of cells: each tensor is cut into cells about as
// large as its regions, so a region meets a handful of cells and a query costs about its hits.
//
// Thread roles: belongs to the holder of the generation token; nothing is atomic.
#pragma once

#include <vector>

#include "ptowsp/overlap.h"

namespace ptowsp {

inline constexpr u32 kNoSlot = 0xFFFFFFFFu;

class DynamicTensorMap {
 public:
  explicit DynamicTensorMap(Matching matching) : matching_(matching) {}

  // Calls fn(slot) for each live task that conflicts with `r`, possibly more than once.
  template <class Fn>
  void query(const Region& r, Fn fn) const {
    if (r.empty) return;
    for (const Entry& e : entries_) {
      if (conflicts(r, e.region, matching_)) fn(e.slot);
    }
  }

  void insert(const Region& r, u32 slot) {
    if (!r.empty) entries_.push_back({r, slot});
  }

  void remove(u32 slot) {
    std::erase_if(entries_, [slot](const Entry& e) { return e.slot == slot; });
  }

 private:
  struct Entry {
    Region region;
    u32 slot;
  };
  Matching matching_;
  std::vector<Entry> entries_;
};

class FixedTensorMap {
 public:
  FixedTensorMap() : buckets_(kBuckets, kNoSlot) {}
  FixedTensorMap(const BoundPlan* plan, Matching matching) : FixedTensorMap() {
    begin(plan, matching);
  }
  // For another run; the map is empty.
  void begin(const BoundPlan* plan, Matching matching);
  // Takes out everything, in time that depends on what was in it. `entries` are the heads of the
  // tasks' lists, by slot.
  void clear(std::vector<u32>* entries);

  // Calls fn(slot) for each live task that conflicts with `r`, possibly more than once. Accesses
  // that the write `r` covers leave the map.
  template <class Fn>
  void query(const Region& r, Fn fn) {
    if (r.empty) return;
    Cells cells;
    const bool narrow = cells_of(r, &cells);
    if (!narrow) {
      scan<kAll>(all_[r.storage], r, fn);
      return;
    }
    scan<kWide>(wide_[r.storage], r, fn);
    each_cell(cells, [&](u32 bucket) { scan_bucket(bucket, r, fn); });
  }

  // `entries` is the head of the task's own list; remove() takes all of them out.
  void insert(const Region& r, u32 slot, u32* entries);
  void remove(u32* entries);

  std::size_t live() const { return live_; }
  std::size_t bytes() const {
    return entries_.size() * sizeof(Entry) + links_.size() * sizeof(Link) +
           buckets_.size() * sizeof(u32);
  }

 private:
  static constexpr u32 kBuckets = 1u << 13;
  static constexpr i64 kMaxCells = 16;  // a region that meets more is wide
  enum List { kAll, kWide };

  struct Entry {
    Region region;
    u32 slot = kNoSlot;
    u32 next_of_task = kNoSlot;
    u32 links = kNoSlot;               // its places in buckets; none if wide
    u32 next[2] = {kNoSlot, kNoSlot};  // neighbours in the lists all and wide
    u32 prev[2] = {kNoSlot, kNoSlot};
    bool linked = false;  // false: covered, already out of all lists
    bool wide = false;
  };
  struct Link {
    u32 entry;
    u32 bucket;
    u32 next;  // in the bucket
    u32 prev;
    u32 next_of_entry;
  };
  struct Cells {
    u32 tensor;
    u32 rank;
    i64 lo[kMaxRank];
    i64 hi[kMaxRank];
  };

  // The cells that a region meets; false if there are too many, or its storage cannot have cells.
  bool cells_of(const Region& r, Cells* out) const;

  template <class Fn>
  void each_cell(const Cells& c, Fn fn) const {
    i64 at[kMaxRank];
    for (u32 d = 0; d < c.rank; ++d) at[d] = c.lo[d];
    while (true) {
      fn(bucket_of(c, at));
      u32 d = c.rank;
      while (d > 0 && ++at[d - 1] > c.hi[d - 1]) {
        at[d - 1] = c.lo[d - 1];
        d -= 1;
      }
      if (d == 0) return;
    }
  }

  static u32 bucket_of(const Cells& c, const i64* at) {
    u64 h = c.tensor * 0x9E3779B97F4A7C15ull;
    for (u32 d = 0; d < c.rank; ++d) h = (h + static_cast<u64>(at[d])) * 0xBF58476D1CE4E5B9ull;
    return static_cast<u32>(h >> 51);
  }
  static_assert(kBuckets == 1u << (64 - 51));

  template <class Fn>
  void visit(u32 entry, const Region& r, Fn& fn) {
    if (!conflicts(r, entries_[entry].region, matching_)) return;
    fn(entries_[entry].slot);
    const bool write = r.mode == static_cast<u32>(AccessMode::OUT) ||
                       r.mode == static_cast<u32>(AccessMode::INOUT);
    if (write && !r.by_bytes && covers(r, entries_[entry].region)) unlink(entry);
  }

  template <List L, class Fn>
  void scan(u32 entry, const Region& r, Fn& fn) {
    while (entry != kNoSlot) {
      const u32 next = entries_[entry].next[L];
      visit(entry, r, fn);
      entry = next;
    }
  }

  template <class Fn>
  void scan_bucket(u32 bucket, const Region& r, Fn& fn) {
    u32 link = buckets_[bucket];
    while (link != kNoSlot) {
      // visit() may unlink this entry and with it every link of the entry, so find the next link
      // of another entry first.
      const u32 entry = links_[link].entry;
      u32 next = links_[link].next;
      while (next != kNoSlot && links_[next].entry == entry) next = links_[next].next;
      visit(entry, r, fn);
      link = next;
    }
  }

  u32 new_entry();
  u32 new_link();
  void push(List list, u32* head, u32 entry);
  void drop(List list, u32* head, u32 entry);
  void unlink(u32 entry);

  const BoundPlan* plan_ = nullptr;
  Matching matching_ = Matching::Overlap;
  std::vector<u32> buckets_;
  std::vector<Entry> entries_;
  std::vector<Link> links_;
  std::vector<u32> free_entries_;
  std::vector<u32> free_links_;
  std::vector<u32> all_;   // by storage: every entry
  std::vector<u32> wide_;  // by storage: entries that are in no bucket
  std::vector<u8> mixed_;  // by storage: several tensors share it, so cells do not line up
  std::size_t live_ = 0;
};

}  // namespace ptowsp
