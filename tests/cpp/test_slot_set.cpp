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

TEST(a_cleared_set_is_empty) {
  SlotSet set(100);
  set.insert(99);
  set.clear();
  CHECK_EQ(set.size(), 0u);
  set.insert(5);
  CHECK_EQ(set.take_next(50), 5u);
}

PTOWSP_TEST_MAIN
