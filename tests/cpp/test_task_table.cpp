#include "ptowsp/task_table.h"

#include <thread>
#include <vector>

#include "harness.h"

using namespace ptowsp;

namespace {

std::vector<u32> finish(TaskTable* table, u32 slot) {
  std::vector<u32> ready;
  table->finish(slot, false, [&](u32 s) { ready.push_back(s); });
  return ready;
}

}  // namespace

constexpr auto kAdded = TaskTable::Edge::Added;
constexpr auto kKnown = TaskTable::Edge::Known;
constexpr auto kEnded = TaskTable::Edge::Ended;

TEST(a_task_is_ready_when_its_last_predecessor_ends) {
  for (const bool alone : {false, true}) {
    TaskTable t(8, 1, false);
    t.set_alone(alone);
    const TaskRef a = t.acquire();
    const TaskRef b = t.acquire();
    const TaskRef c = t.acquire();
    CHECK(t.publish(a.slot, 0));
    CHECK(t.publish(b.slot, 0));
    CHECK(t.add_edge(a, c.slot, 0) == kAdded);
    CHECK(t.add_edge(a, c.slot, 1) == kKnown);
    CHECK(t.add_edge(b, c.slot, 1) == kAdded);
    CHECK(!t.publish(c.slot, 2));
    t.set_alone(false);
    CHECK(finish(&t, a.slot).empty());
    CHECK_EQ(finish(&t, b.slot).size(), 1u);
  }
}

TEST(an_edge_to_an_ended_task_is_refused) {
  TaskTable t(4, 1, false);
  const TaskRef a = t.acquire();
  CHECK(t.publish(a.slot, 0));
  CHECK(!t.ended(a));
  finish(&t, a.slot);
  CHECK(t.ended(a));
  CHECK(t.ended(TaskRef{}));
  const TaskRef b = t.acquire();
  CHECK(t.add_edge(a, b.slot, 0) == kEnded);
  CHECK(t.publish(b.slot, 0));  // it waits for nothing
}

TEST(a_reused_slot_is_another_task) {
  TaskTable t(1, 1, false);
  const TaskRef a = t.acquire();
  t.publish(a.slot, 0);
  finish(&t, a.slot);
  t.give_back(a.slot, a.slot);
  CHECK_EQ(t.available(), 0u);
  t.collect([](u32) {});
  CHECK_EQ(t.available(), 1u);
  const TaskRef b = t.acquire();
  CHECK_EQ(a.slot, b.slot);
  CHECK(t.ended(a));
  CHECK(!t.ended(b));
}

TEST(slots_are_handed_out_in_cyclic_order) {
  TaskTable t(4, 1, false);
  TaskRef made[4];
  for (u32 i = 0; i < 4; ++i) {
    made[i] = t.acquire();
    CHECK_EQ(made[i].slot, i);
    t.publish(i, 0);
  }
  for (const u32 i : {3u, 0u, 2u}) {  // slot 1 stays
    finish(&t, i);
    t.give_back(i, i);
  }
  t.collect([](u32) {});
  CHECK_EQ(t.acquire().slot, 0u);
  CHECK_EQ(t.acquire().slot, 2u);
  CHECK_EQ(t.acquire().slot, 3u);
}

TEST(a_table_that_starts_again_knows_that_old_tasks_have_ended) {
  TaskTable t(4, 1, false);
  const TaskRef a = t.acquire();
  t.publish(a.slot, 0);
  finish(&t, a.slot);
  t.give_back(a.slot, a.slot);
  t.restart();
  CHECK_EQ(t.available(), 4u);
  const TaskRef b = t.acquire();
  CHECK_EQ(b.slot, 0u);
  CHECK(t.ended(a));
  t.collect([](u32) { CHECK(false); });  // what was given back before is forgotten
}

TEST(loop_indices_are_kept) {
  for (const bool wide : {false, true}) {
    TaskTable t(3, 5, wide);
    const i64 large = wide ? i64{1} << 40 : (i64{1} << 31) - 1;
    for (i64 i = 0; i < 3; ++i) {
      const i64 loops[5] = {i, -i, large, -large, 7};
      t.set_loops(&t[t.acquire().slot], loops, 5, 3);
    }
    for (u32 s = 0; s < 3; ++s) {
      i64 loops[5] = {};
      t.get_loops(s, loops, 5);
      const i64 i = s;
      CHECK(loops[0] == i && loops[1] == -i && loops[2] == large && loops[3] == -large);
      CHECK_EQ(loops[4], 10);  // 3 further on
    }
  }
}

TEST(a_predecessor_may_end_before_the_task_is_published) {
  TaskTable t(4, 1, false);
  const TaskRef a = t.acquire();
  t.publish(a.slot, 0);
  const TaskRef b = t.acquire();
  CHECK(t.add_edge(a, b.slot, 0) == kAdded);
  CHECK(finish(&t, a.slot).empty());  // not ready: still being made
  CHECK(t.publish(b.slot, 1));
}

TEST(more_edges_than_a_record_holds) {
  constexpr u32 kMany = 100;
  TaskTable t(kMany + 1, 1, false);
  for (int round = 0; round < 3; ++round) {
    std::vector<TaskRef> before;
    for (u32 i = 0; i < kMany; ++i) {
      before.push_back(t.acquire());
      t.publish(before.back().slot, 0);
    }
    const u32 last = t.acquire().slot;
    for (u32 i = 0; i < kMany; ++i) CHECK(t.add_edge(before[i], last, i) == kAdded);
    CHECK(!t.publish(last, kMany));
    u32 released = 0;
    for (const TaskRef b : before) released += static_cast<u32>(finish(&t, b.slot).size());
    CHECK_EQ(released, 1u);
    finish(&t, last);
    for (const TaskRef b : before) t.give_back(b.slot, b.slot);
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
  TaskTable t(kSlots, 1, false);
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
        t.finish(slot, false, push);
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
    const TaskRef task = t.acquire();
    u32 edges = 0;
    for (const u32 back : {1u, 3u}) {
      const TaskRef before = last[(i + 3 - back) % 3];
      if (i < back || before.slot == task.slot) continue;
      edges += t.add_edge(before, task.slot, edges) == kAdded ? 1u : 0u;
    }
    last[i % 3] = task;
    if (t.publish(task.slot, edges)) push(task.slot);
  }
  for (std::thread& w : workers) w.join();
  CHECK_EQ(pushed.load(), kTasks);
  CHECK_EQ(ended.load(), kTasks);
}

PTOWSP_TEST_MAIN
