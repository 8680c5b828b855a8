#include "ptowsp/ready_set.h"

#include <random>
#include <set>

#include "harness.h"

using namespace ptowsp;

TEST(fifo_gives_the_smallest_seq) {
  FifoReady ready(4);
  for (const u64 seq : {5u, 1u, 9u, 3u}) ready.push(static_cast<u32>(seq), seq);
  u32 slot = 0;
  for (const u32 want : {1u, 3u, 5u, 9u}) {
    CHECK(ready.take(&slot));
    CHECK_EQ(slot, want);
  }
  CHECK(!ready.take(&slot));
}

// Seqs come in any order, some of them far behind or far ahead of the rest.
TEST(fifo_against_a_sorted_set) {
  std::mt19937_64 random(5);
  FifoReady ready(16);
  std::set<u64> wanted;
  u64 newest = 1000;
  for (int i = 0; i < 100000; ++i) {
    const u64 behind = random() % 10 == 0 ? random() % newest : random() % 100;
    const u64 seq = newest - std::min(behind, newest);
    newest += random() % 3 + (random() % 1000 == 0 ? 5000 : 0);
    if (wanted.size() < 50 && wanted.insert(seq).second) ready.push(static_cast<u32>(seq), seq);
    u32 slot = 0;
    if (random() % 2 != 0 || wanted.empty()) continue;
    CHECK(ready.take(&slot));
    CHECK_EQ(slot, static_cast<u32>(*wanted.begin()));
    wanted.erase(wanted.begin());
    CHECK_EQ(ready.size(), wanted.size());
  }
}

TEST(owner_takes_its_newest_thief_the_oldest) {
  StealReady ready(2, 7);
  for (u32 s = 0; s < 4; ++s) ready.push(s, 0);
  u32 slot = 0;
  u32 victim = 9;
  CHECK(ready.take(0, &slot, &victim));
  CHECK_EQ(slot, 3u);
  CHECK_EQ(victim, 0u);
  CHECK(ready.take(1, &slot, &victim));
  CHECK_EQ(slot, 0u);
  CHECK_EQ(victim, 0u);
  CHECK_EQ(ready.size(), 2u);
}

TEST(a_thief_finds_the_only_task_wherever_it_is) {
  for (u32 owner = 0; owner < 8; ++owner) {
    StealReady ready(8, owner);
    ready.push(42, owner);
    u32 slot = 0;
    u32 victim = 0;
    CHECK(ready.take((owner + 3) % 8, &slot, &victim));
    CHECK_EQ(victim, owner);
    CHECK(!ready.take(owner, &slot, &victim));
  }
}

PTOWSP_TEST_MAIN
