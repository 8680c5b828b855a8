#include "ptowsp/slot_set.h"

#include <random>
#include <set>

#include "harness.h"

using namespace ptowsp;

TEST(random_operations_against_a_sorted_set) {
  for (const u32 slots : {1u, 63u, 64u, 65u, 5000u, 300000u}) {
    std::mt19937 random(slots);
    SlotSet set(slots);
    std::set<u32> wanted;
    for (int i = 0; i < 20000; ++i) {
      const u32 at = static_cast<u32>(random()) % slots;
      if (random() % 2 == 0 && wanted.insert(at).second) {
        set.insert(at);
      } else if (!wanted.empty() && random() % 2 == 0) {
        auto next = wanted.lower_bound(at);
        if (next == wanted.end()) next = wanted.begin();
        CHECK_EQ(set.take_next(at), *next);
        wanted.erase(next);
      } else if (!wanted.empty()) {
        auto last = wanted.lower_bound(at);
        last = last == wanted.begin() ? std::prev(wanted.end()) : std::prev(last);
        CHECK_EQ(set.take_last(at), *last);
        wanted.erase(last);
      }
      CHECK_EQ(set.size(), wanted.size());
    }
  }
}

TEST(half_of_a_set_moves_to_another) {
  for (const u32 slots : {1u, 64u, 65u, 1000u, 300000u}) {
    std::mt19937 random(slots);
    SlotSet set(slots);
    SlotSet other(slots);
    std::set<u32> all;
    for (u32 i = 0; i < slots; ++i) {
      if (random() % 3 == 0) set.insert(*all.insert(i).first);
    }
    const u32 from = static_cast<u32>(random()) % slots;
    const u32 count = (set.size() + 1) / 2;
    const u32 size = set.size();
    set.move_last(&other, from, count);
    CHECK_EQ(other.size(), count);
    CHECK_EQ(set.size(), size - count);
    // What stays comes first, beginning at `from`, but for the word of `from` itself.
    const u32 words = (slots + 63) / 64;
    const auto distance = [&](u32 s) { return (s / 64 + words - from / 64) % words; };
    u32 farthest = 0;
    while (set.size() > 0) {
      const u32 s = set.take_next(from);
      CHECK_EQ(all.erase(s), 1u);
      farthest = std::max(farthest, distance(s));
    }
    while (other.size() > 0) {
      const u32 s = other.take_next(from);
      CHECK_EQ(all.erase(s), 1u);
      CHECK(distance(s) >= farthest);
    }
    CHECK(all.empty());
  }
}

TEST(a_cleared_set_is_empty) {
  SlotSet set(100);
  set.insert(99);
  set.clear();
  CHECK_EQ(set.size(), 0u);
  set.insert(5);
  CHECK_EQ(set.take_next(50), 5u);
}

PTOWSP_TEST_MAIN
