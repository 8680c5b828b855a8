// Which tasks touch which tile, for tensors that are used in equal, aligned tiles.
//
// There a region is one number, two accesses conflict if their numbers are equal, and no boxes are
// compared. A cell knows a tile's last writer and the readers since; a read asks the writer, a
// write asks the writer and the readers and takes their place. Tasks that have ended are left in
// the cells: their tags say so, and whoever asks finds out (lazy invalidation).
//
// Where the tile numbers are few, they index the cells. Otherwise cells are found by a hash that
// keeps neighbours together; when too many are in use, gc() drops those in which every task has
// ended, of which there must be enough, since live tasks fit into half of the cells. Readers beyond
// the second are list nodes from a pool, which gc_readers() cleans in the same way.
//
// Memory is zeroed by the system and never cleared by us: zero says "nobody", and what an earlier
// run left behind has ended.
//
// Thread roles: the holder of the generation token calls everything; nothing is atomic.
#pragma once

#include <bit>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "ptowsp/task_table.h"

namespace ptowsp {

class TileMap {
 public:
  // For tile numbers below `numbers` and at most `live` accesses of live tasks.
  TileMap(const TaskTable* table, u64 numbers, u64 live)
      : table_(table),
        numbers_(numbers),
        live_(std::max<u64>(live, 64)),
        direct_(numbers <= std::max(kAlwaysDirect, 2 * live_)),
        cells_(direct_ ? numbers : std::bit_ceil(live_ * 3)),
        cell_(zeroed<Cell>(cells_)),
        key_(direct_ ? nullptr : zeroed<u64>(cells_)),
        most_nodes_(static_cast<u32>(live_ * 2)) {}
  // Whether a new one would be no better. More cells than needed do no harm, and temporaries whose
  // sizes change from run to run change how many are needed.
  bool fits(u64 numbers, u64 live) const {
    if (live_ != std::max<u64>(live, 64)) return false;
    return direct_ ? numbers <= numbers_ : numbers > std::max(kAlwaysDirect, 2 * live_);
  }

  // The task reads the tile. Calls before(TaskRef) for its last writer.
  template <class Fn>
  void read(u64 tile, TaskRef task, Fn before) {
    const u32 c = find(tile);
    Cell& cell = cell_[c];
    if (cell.writer.any()) before(cell.writer);
    if (!cell.first.any()) {
      cell.first = task;
    } else if (!cell.second.any()) {
      cell.second = task;
    } else {
      add_reader(c, task);
    }
  }

  // The task writes the tile. Calls before(TaskRef) for its last writer and all readers since,
  // which need not be known any more: whoever comes later waits for this task.
  template <class Fn>
  void write(u64 tile, TaskRef task, Fn before) {
    Cell& cell = cell_[find(tile)];
    if (cell.writer.any()) before(cell.writer);
    if (cell.first.any() || cell.second.any()) drop_readers(&cell, before);
    cell.writer = task;
  }

  // The last writer of a tile.
  TaskRef writer(u64 tile) { return cell_[find(tile)].writer; }

  // Brings closer what an access of this tile would need soon.
  void prefetch(u64 tile) const {
    if (direct_ && tile < numbers_) table_->prefetch(cell_[tile].writer);
  }

  std::size_t bytes() const {
    const std::size_t cell = sizeof(Cell) + (direct_ ? 0 : sizeof(u64));
    return cells_ * cell * (spare_cell_ != nullptr ? 2 : 1) + nodes_.size() * sizeof(Node);
  }

 private:
  static constexpr u64 kAlwaysDirect = 1u << 20;  // 24 MB that are touched only where used
  static constexpr u32 kMany = kNil;  // as a reader's slot: its tag is the first node + 1

  struct Cell {
    TaskRef writer;
    TaskRef first;   // reader
    TaskRef second;  // reader, or a list of them
  };
  struct Node {
    TaskRef reader;
    u32 next;
    u32 cell;
  };

  template <class T>
  using Zeroed = std::unique_ptr<T[], FreeDeleter>;
  template <class T>
  static Zeroed<T> zeroed(u64 count) {
    void* p = std::calloc(std::max<u64>(count, 1), sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    prefer_huge_pages(p, count * sizeof(T));
    return Zeroed<T>(static_cast<T*>(p));
  }

  u32 find(u64 tile) {
    if (direct_) return static_cast<u32>(tile);
    const u64 mask = cells_ - 1;
    for (u64 c = home(tile);; c = (c + 1) & mask) {
      if (key_[c] == tile + 1) return static_cast<u32>(c);
      if (key_[c] == 0) return claim(tile, c);
    }
  }
  // Eight neighbours share a block, blocks are spread.
  u64 home(u64 tile) const {
    const u64 block = ((tile >> 3) * 0x9E3779B97F4A7C15ull) >> 20;
    return (block * 8 + (tile & 7)) & (cells_ - 1);
  }
  u32 claim(u64 tile, u64 cell) {
    if (used_cells_ * 8 >= cells_ * 5) {
      gc();
      return find(tile);
    }
    used_cells_ += 1;
    key_[cell] = tile + 1;
    cell_[cell] = {};
    return static_cast<u32>(cell);
  }

  template <class Fn>
  void drop_readers(Cell* cell, Fn before) {
    if (cell->first.any()) before(cell->first);
    if (cell->second.slot == kMany) {
      for (u32 n = cell->second.tag - 1; n != kNil;) {
        const u32 next = nodes_[n].next;
        before(nodes_[n].reader);
        free_node(n);
        n = next;
      }
    } else if (cell->second.any()) {
      before(cell->second);
    }
    cell->first = cell->second = {};
  }
  void add_reader(u32 c, TaskRef task) {
    if (free_nodes_ == kNil && nodes_.size() + 2 > most_nodes_) gc_readers();
    Cell& cell = cell_[c];
    if (!cell.second.any()) {  // gc_readers() made room
      cell.second = task;
      return;
    }
    if (cell.second.slot != kMany) {
      const u32 node = new_node({cell.second, kNil, c});
      cell.second = {kMany, node + 1};
    }
    const u32 node = new_node({task, cell.second.tag - 1, c});
    cell.second.tag = node + 1;
  }

  u32 new_node(Node node) {
    used_nodes_ += 1;
    u32 n = free_nodes_;
    if (n != kNil) {
      free_nodes_ = nodes_[n].next;
      nodes_[n] = node;
      return n;
    }
    n = static_cast<u32>(nodes_.size());
    nodes_.push_back(node);
    return n;
  }
  void free_node(u32 n) {
    used_nodes_ -= 1;
    nodes_[n].cell = kNil;
    nodes_[n].next = free_nodes_;
    free_nodes_ = n;
  }

  // Drops readers that have ended from every list.
  void gc_readers();
  // Drops cells in which every task has ended.
  void gc();
  void keep_live_readers(u32 cell);

  const TaskTable* table_;
  const u64 numbers_;
  const u64 live_;
  const bool direct_;
  const u64 cells_;
  Zeroed<Cell> cell_;
  Zeroed<u64> key_;          // tile number + 1 of each cell; 0: free
  Zeroed<Cell> spare_cell_;  // gc() moves what is kept from one pair to the other
  Zeroed<u64> spare_key_;
  u32 most_nodes_;  // gc_readers() comes before there are more
  std::vector<Node> nodes_;
  u32 free_nodes_ = kNil;
  u64 used_cells_ = 0;
  u64 used_nodes_ = 0;
};

}  // namespace ptowsp
