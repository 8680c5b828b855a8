#include "ptowsp/ready_set.h"

#include "harness.h"

using namespace ptowsp;

TEST(fifo_gives_the_smallest_seq) {
  FifoReady ready;
  for (const u64 seq : {5u, 1u, 9u, 3u}) ready.push(static_cast<u32>(seq), seq);
  u32 slot = 0;
  for (const u32 want : {1u, 3u, 5u, 9u}) {
    CHECK(ready.take(&slot));
    CHECK_EQ(slot, want);
  }
  CHECK(!ready.take(&slot));
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
