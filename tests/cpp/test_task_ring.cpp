#include "ptowsp/task_ring.h"

#include "harness.h"

using namespace ptowsp;

TEST(slots_are_reused_out_of_order_with_new_tags) {
  TaskRing ring(3);
  const u32 a = ring.acquire();
  const u32 b = ring.acquire();
  const u32 c = ring.acquire();
  CHECK(ring.full());
  const u32 tag = ring[b].tag;
  ring.release(b);
  CHECK(!ring.full());
  const u32 d = ring.acquire();
  CHECK_EQ(d, b);
  CHECK_EQ(ring[d].tag, tag + 1);
  CHECK(ring.full());
  ring.release(c);
  ring.release(a);
  CHECK_EQ(ring.live(), 1u);
}

TEST(ring_never_grows_beyond_its_window) {
  TaskRing ring(4);
  for (int round = 0; round < 1000; ++round) {
    u32 slots[4];
    for (u32& s : slots) s = ring.acquire();
    for (const u32 s : slots) ring.release(s);
  }
  CHECK_EQ(ring.slots(), 4u);
}

TEST(edges_are_drained_once_and_recycled) {
  EdgePool pool;
  EdgeList list;
  for (int round = 0; round < 100; ++round) {
    for (u32 i = 0; i < 10; ++i) pool.add(&list, i);
    u32 sum = 0;
    pool.drain(&list, [&](u32 slot) { sum += slot; });
    CHECK_EQ(sum, 45u);
    pool.drain(&list, [&](u32) { sum += 1000; });
    CHECK_EQ(sum, 45u);
  }
  CHECK(pool.bytes() <= 64 * 8);
}

PTOWSP_TEST_MAIN
