#include "ptowsp/tile_map.h"

namespace ptowsp {

void TileMap::keep_live_readers(u32 c) {
  Cell& cell = cell_[c];
  if (table_->ended(cell.first)) cell.first = {};
  if (cell.second.slot != kMany) {
    if (table_->ended(cell.second)) cell.second = {};
    return;
  }
  u32 kept = kNil;
  for (u32 n = cell.second.tag - 1; n != kNil;) {
    const u32 next = nodes_[n].next;
    if (table_->ended(nodes_[n].reader)) {
      free_node(n);
    } else {
      nodes_[n].next = kept;
      kept = n;
    }
    n = next;
  }
  cell.second = kept == kNil ? TaskRef{} : TaskRef{kMany, kept + 1};
}

void TileMap::gc_readers() {
  for (u32 n = 0; n < nodes_.size(); ++n) {
    const u32 c = nodes_[n].cell;
    // Each list once: at its first node. The node that becomes the first is not visited again, or
    // nothing of its list has changed.
    if (c != kNil && cell_[c].second.slot == kMany && cell_[c].second.tag == n + 1) {
      keep_live_readers(c);
    }
  }
  // Lists may hold more than the accesses of live tasks only until the next visit.
  if (used_nodes_ * 2 > most_nodes_) most_nodes_ *= 2;
}

void TileMap::gc() {
  for (u64 c = 0; c < cells_; ++c) {
    if (key_[c] != 0) keep_live_readers(static_cast<u32>(c));
  }
  if (spare_cell_ == nullptr) {
    spare_cell_ = zeroed<Cell>(cells_);
    spare_key_ = zeroed<u64>(cells_);
  }
  std::swap(cell_, spare_cell_);
  std::swap(key_, spare_key_);
  std::fill_n(key_.get(), cells_, 0);
  used_cells_ = 0;
  const auto is_dead = [this](const Cell& c) {
    return table_->ended(c.writer) && !c.first.any() && !c.second.any();
  };
  for (u64 c = 0; c < cells_; ++c) {
    const Cell old = spare_cell_[c];
    if (spare_key_[c] == 0 || is_dead(old)) continue;
    const u32 to = find(spare_key_[c] - 1);
    cell_[to] = old;
    if (old.second.slot != kMany) continue;
    for (u32 n = old.second.tag - 1; n != kNil; n = nodes_[n].next) nodes_[n].cell = to;
  }
}

}  // namespace ptowsp
