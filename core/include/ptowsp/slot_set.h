// A set of record slots that is asked for the next one in order.
//
// Slots are handed out in cyclic order, so among live tasks the order of slots is nearly the order
// of generation. A worker that takes the next ready slot behind the one it took last therefore runs
// its tasks nearly in program order, which is the order in which their data lies in memory; a table
// that hands out the next free slot behind the last one keeps that so.
//
// One bit a slot, and one bit for each word of them that is not empty: every operation looks at a
// few words, whatever the number of slots.
//
// Thread roles: belongs to one thread.
#pragma once

#include <algorithm>
#include <bit>

#include "ptowsp/lines.h"
#include "ptowsp/plan.h"

namespace ptowsp {

class SlotSet {
 public:
  explicit SlotSet(u32 slots = 0)
      : words_((slots + 63) / 64 + 1, 0), used_(words_.size() / 64 + 1, 0) {}

  u32 size() const { return size_; }

  // The slot must not be in the set.
  void insert(u32 slot) {
    words_[slot / 64] |= u64{1} << (slot % 64);
    used_[slot / 4096] |= u64{1} << (slot / 64 % 64);
    size_ += 1;
  }

  // Takes the first slot at or behind `from`, going on at the beginning. Only if there is one.
  u32 take_next(u32 from) {
    u32 w = from / 64;
    u64 bits = words_[w] & (~u64{0} << (from % 64));
    if (bits == 0) {
      w = next_word(w + 1);
      bits = words_[w];
    }
    return take(w * 64 + static_cast<u32>(std::countr_zero(bits)));
  }

  // Takes the last slot before `from`, going on at the end. Only if there is one.
  u32 take_last(u32 from) {
    u32 w = from / 64;
    u64 bits = words_[w] & ~(~u64{0} << (from % 64));
    if (bits == 0) {
      w = last_word(w);
      bits = words_[w];
    }
    return take(w * 64 + 63 - static_cast<u32>(std::countl_zero(bits)));
  }

  // Moves `count` slots to another set, word by word: the last ones before `from`, going on at the
  // end. Only if there are as many.
  void move_last(SlotSet* to, u32 from, u32 count) {
    u32 w = from / 64;
    while (count > 0) {
      w = last_word(w);
      u64 bits = words_[w];
      u32 n = static_cast<u32>(std::popcount(bits));
      for (; n > count; --n) bits &= bits - 1;
      to->words_[w] |= bits;
      to->used_[w / 64] |= u64{1} << (w % 64);
      to->size_ += n;
      words_[w] ^= bits;
      if (words_[w] == 0) used_[w / 64] &= ~(u64{1} << (w % 64));
      size_ -= n;
      count -= n;
    }
  }

  void clear() {
    std::fill(words_.begin(), words_.end(), 0);
    std::fill(used_.begin(), used_.end(), 0);
    size_ = 0;
  }

 private:
  u32 take(u32 slot) {
    u64& word = words_[slot / 64];
    word &= ~(u64{1} << (slot % 64));
    if (word == 0) used_[slot / 4096] &= ~(u64{1} << (slot / 64 % 64));
    size_ -= 1;
    return slot;
  }

  // The first word at or behind `w` that is not empty, going on at the beginning.
  u32 next_word(u32 w) const {
    u32 u = w / 64;
    u64 bits = u < used_.size() ? used_[u] & (~u64{0} << (w % 64)) : 0;
    while (bits == 0) {
      u = u + 1 < used_.size() ? u + 1 : 0;
      bits = used_[u];
    }
    return u * 64 + static_cast<u32>(std::countr_zero(bits));
  }
  // The last word before `w` that is not empty, going on at the end.
  u32 last_word(u32 w) const {
    u32 u = w / 64;
    u64 bits = used_[u] & ~(~u64{0} << (w % 64));
    while (bits == 0) {
      u = u > 0 ? u - 1 : static_cast<u32>(used_.size()) - 1;
      bits = used_[u];
    }
    return u * 64 + 63 - static_cast<u32>(std::countl_zero(bits));
  }

  LineVector<u64> words_;
  LineVector<u64> used_;  // one bit for each word that is not 0
  u32 size_ = 0;
};

}  // namespace ptowsp
