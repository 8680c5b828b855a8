#include "ptowsp/task_table.h"

#include <thread>
#include <vector>

#include "harness.h"

using namespace ptowsp;

namespace {

std::vector<u32> finish(TaskTable* table, u32 slot) {
  std::vector<u32> ready;
  table->finish(slot, [&](u32 s) { ready.push_back(s); });
  return ready;
}

}  // namespace

TEST(a_task_is_ready_when_its_last_predecessor_ends) {
  TaskTable t(8, 1);
  const u32 a = t.acquire();
  const u32 b = t.acquire();
  const u32 c = t.acquire();
  CHECK(t.publish(a));
  CHECK(t.publish(b));
  CHECK(t.add_edge(t.ref(a), c));
  CHECK(t.add_edge(t.ref(b), c));
  CHECK(!t.publish(c));
  CHECK(finish(&t, a).empty());
  CHECK_EQ(finish(&t, b).size(), 1u);
}

TEST(an_edge_to_an_ended_task_is_refused) {
  TaskTable t(4, 1);
  const u32 a = t.acquire();
  const TaskRef ref = t.ref(a);
  CHECK(t.publish(a));
  CHECK(!t.ended(ref));
  finish(&t, a);
  CHECK(t.ended(ref));
  const u32 b = t.acquire();
  CHECK(!t.add_edge(ref, b));
  CHECK(t.publish(b));  // it waits for nothing
}

TEST(a_reused_slot_is_another_task) {
  TaskTable t(1, 1);
  const u32 a = t.acquire();
  const TaskRef old = t.ref(a);
  t.publish(a);
  finish(&t, a);
  t.give_back(a, a);
  CHECK_EQ(t.available(), 0u);
  t.collect([](u32) {});
  CHECK_EQ(t.available(), 1u);
  const u32 b = t.acquire();
  CHECK_EQ(a, b);
  CHECK(t.ended(old));
  CHECK(!t.ended(t.ref(b)));
}

TEST(a_predecessor_may_end_before_the_task_is_published) {
  TaskTable t(4, 1);
  const u32 a = t.acquire();
  t.publish(a);
  const u32 b = t.acquire();
  CHECK(t.add_edge(t.ref(a), b));
  CHECK(finish(&t, a).empty());  // not ready: still being made
  CHECK(t.publish(b));
}

TEST(more_edges_than_a_record_holds) {
  constexpr u32 kMany = 100;
  TaskTable t(kMany + 1, 1);
  for (int round = 0; round < 3; ++round) {
    std::vector<u32> before;
    for (u32 i = 0; i < kMany; ++i) {
      before.push_back(t.acquire());
      t.publish(before.back());
    }
    const u32 last = t.acquire();
    for (const u32 b : before) CHECK(t.add_edge(t.ref(b), last));
    CHECK(!t.publish(last));
    u32 released = 0;
    for (const u32 b : before) released += static_cast<u32>(finish(&t, b).size());
    CHECK_EQ(released, 1u);
    finish(&t, last);
    for (const u32 b : before) t.give_back(b, b);
    t.give_back(last, last);
    t.collect([](u32) {});
  }
  CHECK(t.bytes() < 64 * 1024);
}

// One thread makes a long graph in which task i waits for i - 1 and i - 3; others end tasks as they
// become ready. Each task must be released exactly once.
TEST(making_and_ending_at_the_same_time) {
  constexpr u32 kTasks = 50000;
  constexpr u32 kSlots = 64;
  constexpr u32 kWorkers = 3;
  TaskTable t(kSlots, 1);
  std::vector<std::atomic<u32>> queue(kTasks);
  for (auto& q : queue) q = kNil;
  std::atomic<u32> pushed{0};
  std::atomic<u32> popped{0};
  std::atomic<u32> ended{0};
  const auto push = [&](u32 slot) { queue[pushed.fetch_add(1)] = slot; };
  std::vector<std::thread> workers;
  for (u32 w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&] {
      while (true) {
        const u32 at = popped.fetch_add(1);
        if (at >= kTasks) return;
        while (queue[at] == kNil) std::this_thread::yield();
        const u32 slot = queue[at];
        t.finish(slot, push);
        t.give_back(slot, slot);
        ended += 1;
      }
    });
  }
  TaskRef last[3];
  for (u32 i = 0; i < kTasks; ++i) {
    while (t.available() == 0) {
      t.collect([](u32) {});
      std::this_thread::yield();
    }
    const u32 slot = t.acquire();
    for (const u32 back : {1u, 3u}) {
      const TaskRef before = last[(i + 3 - back) % 3];
      if (i >= back && before.slot != slot) t.add_edge(before, slot);
    }
    last[i % 3] = t.ref(slot);
    if (t.publish(slot)) push(slot);
  }
  for (std::thread& w : workers) w.join();
  CHECK_EQ(pushed.load(), kTasks);
  CHECK_EQ(ended.load(), kTasks);
}

PTOWSP_TEST_MAIN
