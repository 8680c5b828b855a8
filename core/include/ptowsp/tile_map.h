// Which live tasks touch which tile, for tensors that are used in equal, aligned tiles.
//
// There a region is one number, two accesses conflict if their numbers are equal, and no boxes are
// compared. Numbers are hashed by their low bits, which keeps neighbours next to each other. A tile
// knows its last writer and the readers since; a read asks the writer, a write asks the writer and
// the readers and takes their place. Entries of tasks that have ended are dropped when their record
// is used again, so the table never holds more than the window.
//
// Thread roles: the holder of the generation token calls everything; nothing is atomic.
#pragma once

#include <bit>
#include <vector>

#include "ptowsp/task_table.h"

namespace ptowsp {

class TileMap {
 public:
  // Room for `slots` records of up to `accesses` tracked tiles each.
  TileMap(u32 slots, u32 accesses)
      : accesses_(std::max<u32>(accesses, 1)),
        nodes_(static_cast<std::size_t>(slots) * accesses_),
        buckets_(std::bit_ceil(std::max<std::size_t>(nodes_.size(), 64)), kNil) {
    tiles_.reserve(1024);
  }

  // The task in `slot` reads the tile. Calls before(TaskRef) for a writer that may still run.
  template <class Fn>
  void read(u64 tile, u32 slot, u32 tag, u32 access, Fn before) {
    const u32 t = find_or_add(tile);
    const u32 writer = tiles_[t].writer;
    if (writer != kNil) before(TaskRef{writer / accesses_, nodes_[writer].tag});
    const u32 n = slot * accesses_ + access;
    nodes_[n] = {t, tag, tiles_[t].readers, kNil, false};
    if (tiles_[t].readers != kNil) nodes_[tiles_[t].readers].prev = n;
    tiles_[t].readers = n;
    tiles_[t].count += 1;
  }

  // The task in `slot` writes the tile. Calls before(TaskRef) for its last writer and all readers
  // since, which need not be known any more: whoever comes later waits for this task.
  template <class Fn>
  void write(u64 tile, u32 slot, u32 tag, u32 access, Fn before) {
    const u32 t = find_or_add(tile);
    Tile& entry = tiles_[t];
    if (entry.writer != kNil) {
      before(TaskRef{entry.writer / accesses_, nodes_[entry.writer].tag});
      nodes_[entry.writer].tile = kNil;
      entry.count -= 1;
    }
    for (u32 n = entry.readers; n != kNil;) {
      const u32 next = nodes_[n].next;
      before(TaskRef{n / accesses_, nodes_[n].tag});
      nodes_[n].tile = kNil;
      entry.count -= 1;
      n = next;
    }
    entry.readers = kNil;
    const u32 n = slot * accesses_ + access;
    nodes_[n] = {t, tag, kNil, kNil, true};
    entry.writer = n;
    entry.count += 1;
  }

  // The record in `slot` gets a new user: what its last one touched is forgotten.
  void forget(u32 slot) {
    for (u32 n = slot * accesses_; n < (slot + 1) * accesses_; ++n) {
      if (nodes_[n].tile != kNil) unlink(n);
    }
  }

  u32 accesses() const { return accesses_; }
  std::size_t live() const { return live_; }
  std::size_t bytes() const {
    return nodes_.size() * sizeof(Node) + tiles_.capacity() * sizeof(Tile) +
           buckets_.size() * sizeof(u32);
  }

 private:
  struct Node {
    u32 tile = kNil;  // entry it belongs to; kNil: not in the table
    u32 tag = 0;
    u32 next = kNil;  // among the readers
    u32 prev = kNil;
    bool writes = false;
  };
  struct Tile {
    u64 number;
    u32 writer;
    u32 readers;
    u32 next;   // in the bucket, or among free entries
    u32 count;  // nodes that belong to it
  };

  u32& bucket(u64 tile) { return buckets_[tile & (buckets_.size() - 1)]; }

  u32 find_or_add(u64 tile) {
    u32& head = bucket(tile);
    for (u32 t = head; t != kNil; t = tiles_[t].next) {
      if (tiles_[t].number == tile) return t;
    }
    u32 t = free_;
    if (t != kNil) {
      free_ = tiles_[t].next;
    } else {
      t = static_cast<u32>(tiles_.size());
      tiles_.push_back({});
    }
    tiles_[t] = {tile, kNil, kNil, head, 0};
    head = t;
    live_ += 1;
    return t;
  }

  void unlink(u32 n) {
    const Node node = nodes_[n];
    Tile& entry = tiles_[node.tile];
    nodes_[n].tile = kNil;
    if (node.writes) {
      entry.writer = kNil;
    } else {
      if (node.next != kNil) nodes_[node.next].prev = node.prev;
      if (node.prev != kNil) {
        nodes_[node.prev].next = node.next;
      } else {
        entry.readers = node.next;
      }
    }
    entry.count -= 1;
    if (entry.count == 0) remove(node.tile);
  }

  void remove(u32 tile) {
    u32* link = &bucket(tiles_[tile].number);
    while (*link != tile) link = &tiles_[*link].next;
    *link = tiles_[tile].next;
    tiles_[tile].next = free_;
    free_ = tile;
    live_ -= 1;
  }

  const u32 accesses_;
  std::vector<Node> nodes_;  // by slot and access
  std::vector<u32> buckets_;
  std::vector<Tile> tiles_;
  u32 free_ = kNil;
  std::size_t live_ = 0;
};

}  // namespace ptowsp
