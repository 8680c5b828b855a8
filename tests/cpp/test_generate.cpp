#include "ptowsp/generate.h"

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

// Task by task, without the short cut for leaf loops.
TaskHash slow_hash(const BoundPlan& plan, u64* tasks) {
  TaskHash hash;
  Cursor cursor = Cursor::at_entry(plan, 0);
  std::vector<Region> regions(kMaxTensorArgs);
  Error error;
  for (Event e = cursor.advance(plan, &error); e != Event::Done; e = cursor.advance(plan, &error)) {
    if (e != Event::Task) continue;
    const BoundSite& site = plan.sites()[cursor.site];
    for (u32 p = 0; p < site.num_accesses; ++p) {
      CHECK(plan.region(plan.site_access(site, p), cursor.vars, &regions[p], &error));
    }
    plan.hash_task(cursor.site, cursor.vars, regions.data(), &hash, &error);
  }
  *tasks = cursor.next_task;
  return hash;
}

}  // namespace

TEST(leaf_loops_give_the_same_hash_as_single_tasks) {
  for (const i64 n : {0, 1, 2, 37}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(n, 2 * n + 1));
    Generator fast(*p.bound);
    Error error;
    CHECK(fast.run(nullptr, nullptr, &error));
    u64 tasks = 0;
    const TaskHash slow = slow_hash(*p.bound, &tasks);
    CHECK_EQ(fast.tasks(), tasks);
    CHECK_EQ(fast.hash().lane[0], slow.lane[0]);
    CHECK_EQ(fast.hash().lane[1], slow.lane[1]);
  }
}

TEST(an_interrupt_ends_the_pass) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(1000, 1000));
  Generator g(*p.bound);
  Error error;
  CHECK(!g.run([](void*) { return 1; }, nullptr, &error));
  CHECK_EQ(error.status, Status::INTERRUPTED);
}

PTOWSP_TEST_MAIN
