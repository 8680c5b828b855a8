#include "ptowsp/deque.h"

#include <thread>
#include <vector>

#include "harness.h"

using namespace ptowsp;

TEST(owner_takes_the_newest_and_thieves_the_oldest) {
  Deque d(4);
  for (u32 i = 0; i < 4; ++i) d.push(i);
  u32 slot = 9;
  CHECK(d.pop(&slot));
  CHECK_EQ(slot, 3u);
  CHECK(d.steal(&slot));
  CHECK_EQ(slot, 0u);
  CHECK_EQ(d.size(), 2);
  CHECK(d.pop(&slot));
  CHECK(d.pop(&slot));
  CHECK(!d.pop(&slot));
  CHECK(!d.steal(&slot));
}

TEST(the_ring_is_reused_many_times) {
  Deque d(2);
  u32 slot = 0;
  for (u32 i = 0; i < 1000; ++i) {
    d.push(i);
    d.push(i + 1);
    CHECK(d.steal(&slot));
    CHECK_EQ(slot, i);
    CHECK(d.pop(&slot));
    CHECK_EQ(slot, i + 1);
  }
}

// Every element is taken exactly once, whoever takes it.
TEST(no_element_is_lost_or_taken_twice) {
  constexpr u32 kItems = 200000;
  constexpr u32 kThieves = 3;
  Deque d(1024);
  std::vector<std::atomic<u32>> taken(kItems);
  std::atomic<bool> done{false};
  std::vector<std::thread> thieves;
  for (u32 t = 0; t < kThieves; ++t) {
    thieves.emplace_back([&] {
      u32 slot = 0;
      while (!done) {
        if (d.steal(&slot)) taken[slot] += 1;
      }
      while (d.steal(&slot)) taken[slot] += 1;
    });
  }
  u32 slot = 0;
  for (u32 i = 0; i < kItems; ++i) {
    while (d.size() >= 1000) {
      if (d.pop(&slot)) taken[slot] += 1;
    }
    d.push(i);
    if (i % 3 == 0 && d.pop(&slot)) taken[slot] += 1;
  }
  while (d.pop(&slot)) taken[slot] += 1;
  done = true;
  for (std::thread& t : thieves) t.join();
  u32 wrong = 0;
  for (const auto& n : taken) wrong += n == 1 ? 0u : 1u;
  CHECK_EQ(wrong, 0u);
}

PTOWSP_TEST_MAIN
