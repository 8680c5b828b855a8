#include "ptowsp/tensor_map.h"

namespace ptowsp {

void FixedTensorMap::begin(const BoundPlan* plan, Matching matching) {
  plan_ = plan;
  matching_ = matching;
  all_.assign(plan->num_storages(), kNoSlot);
  wide_.assign(plan->num_storages(), kNoSlot);
  mixed_.assign(plan->num_storages(), 0);
  std::vector<u32> first(plan->num_storages(), kNoSlot);
  for (const BoundTensor& t : plan->tensors()) {
    if (first[t.storage] == kNoSlot) first[t.storage] = t.geometry;
    if (first[t.storage] != t.geometry || t.by_bytes) mixed_[t.storage] = 1;
  }
}

// Links and entries that are free by now say where they were.
void FixedTensorMap::clear(std::vector<u32>* entries) {
  for (const Link& link : links_) buckets_[link.bucket] = kNoSlot;
  for (const Entry& entry : entries_) (*entries)[entry.slot] = kNoSlot;
  links_.clear();
  entries_.clear();
  free_links_.clear();
  free_entries_.clear();
  live_ = 0;
}

bool FixedTensorMap::cells_of(const Region& r, Cells* out) const {
  if (mixed_[r.storage] != 0) return false;
  const BoundTensor& t = plan_->tensors()[r.tensor];
  out->tensor = r.geometry;
  out->rank = r.rank;
  i64 count = 1;
  for (u32 d = 0; d < r.rank; ++d) {
    out->lo[d] = r.start[d] / t.cell[d];
    out->hi[d] = (r.start[d] + (r.extent[d] - 1) * r.step[d]) / t.cell[d];
    count *= out->hi[d] - out->lo[d] + 1;
    if (count > kMaxCells) return false;
  }
  return true;
}

void FixedTensorMap::insert(const Region& r, u32 slot, u32* entries) {
  if (r.empty) return;
  const u32 entry = new_entry();
  Entry& e = entries_[entry];
  e.region = r;
  e.slot = slot;
  e.next_of_task = *entries;
  e.linked = true;
  e.links = kNoSlot;
  *entries = entry;
  push(kAll, &all_[r.storage], entry);
  Cells cells;
  e.wide = !cells_of(r, &cells);
  if (e.wide) {
    push(kWide, &wide_[r.storage], entry);
    return;
  }
  each_cell(cells, [&](u32 bucket) {
    const u32 link = new_link();
    links_[link] = {entry, bucket, buckets_[bucket], kNoSlot, entries_[entry].links};
    if (buckets_[bucket] != kNoSlot) links_[buckets_[bucket]].prev = link;
    buckets_[bucket] = link;
    entries_[entry].links = link;
  });
}

void FixedTensorMap::remove(u32* entries) {
  u32 entry = *entries;
  *entries = kNoSlot;
  while (entry != kNoSlot) {
    const u32 next = entries_[entry].next_of_task;
    if (entries_[entry].linked) unlink(entry);
    free_entries_.push_back(entry);
    entry = next;
  }
}

u32 FixedTensorMap::new_entry() {
  live_ += 1;
  if (free_entries_.empty()) {
    entries_.emplace_back();
    return static_cast<u32>(entries_.size() - 1);
  }
  const u32 entry = free_entries_.back();
  free_entries_.pop_back();
  return entry;
}

u32 FixedTensorMap::new_link() {
  if (free_links_.empty()) {
    links_.push_back({});
    return static_cast<u32>(links_.size() - 1);
  }
  const u32 link = free_links_.back();
  free_links_.pop_back();
  return link;
}

void FixedTensorMap::push(List list, u32* head, u32 entry) {
  entries_[entry].prev[list] = kNoSlot;
  entries_[entry].next[list] = *head;
  if (*head != kNoSlot) entries_[*head].prev[list] = entry;
  *head = entry;
}

void FixedTensorMap::drop(List list, u32* head, u32 entry) {
  const u32 next = entries_[entry].next[list];
  const u32 prev = entries_[entry].prev[list];
  if (next != kNoSlot) entries_[next].prev[list] = prev;
  if (prev != kNoSlot) {
    entries_[prev].next[list] = next;
  } else {
    *head = next;
  }
}

// Takes an entry out of all lists; it stays allocated until its task ends.
void FixedTensorMap::unlink(u32 entry) {
  Entry& e = entries_[entry];
  e.linked = false;
  live_ -= 1;
  drop(kAll, &all_[e.region.storage], entry);
  if (e.wide) drop(kWide, &wide_[e.region.storage], entry);
  u32 link = e.links;
  while (link != kNoSlot) {
    const Link l = links_[link];
    if (l.next != kNoSlot) links_[l.next].prev = l.prev;
    if (l.prev != kNoSlot) {
      links_[l.prev].next = l.next;
    } else {
      buckets_[l.bucket] = l.next;
    }
    free_links_.push_back(link);
    link = l.next_of_entry;
  }
  e.links = kNoSlot;
}

}  // namespace ptowsp
