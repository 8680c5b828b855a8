#include "ptowsp/phases.h"

#include <set>

#include "harness.h"

using namespace ptowsp;

namespace {

// Phases with the tasks that were released, in order.
struct Fixture {
  EdgePool edges;
  Phases phases{&edges};
  std::multiset<u32> released;

  void next() {
    phases.next_phase([this](u32 t) { released.insert(t); });
  }
  void close() {
    phases.close_group([this](u32 t) { released.insert(t); });
  }
  void leave(u32 phase) {
    phases.leave(phase, [this](u32 t) { released.insert(t); });
  }
};

}  // namespace

TEST(second_phase_waits_for_all_tasks_of_the_first) {
  Fixture f;
  f.phases.open_group();
  const u32 first = f.phases.current();
  CHECK(!f.phases.enter(1));
  CHECK(!f.phases.enter(2));
  f.next();
  CHECK(f.phases.enter(3));
  CHECK(f.phases.enter(4));
  f.close();
  f.leave(first);
  CHECK(f.released.empty());
  f.leave(first);
  CHECK_EQ(f.released.size(), 2u);
  CHECK_EQ(f.released.count(3), 1u);
}

TEST(a_phase_that_has_ended_holds_nobody) {
  Fixture f;
  f.phases.open_group();
  const u32 first = f.phases.current();
  CHECK(!f.phases.enter(1));
  f.leave(first);
  f.next();
  CHECK(!f.phases.enter(2));
}

TEST(an_empty_phase_passes_its_gate_on) {
  Fixture f;
  f.phases.open_group();
  const u32 first = f.phases.current();
  CHECK(!f.phases.enter(1));
  f.next();  // nothing is generated in this one
  f.next();
  CHECK(f.phases.enter(2));
  f.leave(first);
  CHECK_EQ(f.released.count(2), 1u);
}

TEST(inner_groups_inherit_the_gate_of_the_phase_around_them) {
  Fixture f;
  f.phases.open_group();
  const u32 outer = f.phases.current();
  CHECK(!f.phases.enter(1));
  f.next();
  f.phases.open_group();
  const u32 inner = f.phases.current();
  CHECK(f.phases.enter(2));  // waits for the outer phase before
  f.next();
  CHECK(f.phases.enter(3));  // waits for the inner phase before
  f.close();
  f.close();
  f.leave(outer);
  CHECK_EQ(f.released.count(2), 1u);
  CHECK_EQ(f.released.count(3), 0u);
  f.leave(inner);
  CHECK_EQ(f.released.count(3), 1u);
}

TEST(an_outer_phase_ends_only_when_its_inner_phases_have) {
  Fixture f;
  f.phases.open_group();
  f.phases.open_group();
  const u32 inner = f.phases.current();
  CHECK(!f.phases.enter(1));
  f.close();
  f.next();
  CHECK(f.phases.enter(2));
  f.leave(inner);
  CHECK_EQ(f.released.count(2), 1u);
}

TEST(an_inner_group_without_tasks_does_not_open_the_gate) {
  Fixture f;
  f.phases.open_group();
  const u32 first = f.phases.current();
  CHECK(!f.phases.enter(1));
  f.next();
  f.phases.open_group();
  f.next();
  f.close();
  f.next();
  CHECK(f.phases.enter(2));
  f.leave(first);
  CHECK_EQ(f.released.count(2), 1u);
}

TEST(a_million_phases_use_the_memory_of_a_few) {
  Fixture f;
  f.phases.open_group();
  for (u32 i = 0; i < 1000000; ++i) {
    const u32 phase = f.phases.current();
    f.phases.enter(i);
    f.next();
    f.leave(phase);
  }
  CHECK_EQ(f.phases.opened(), 1000001u);
  CHECK(f.phases.bytes() < 1024);
}

PTOWSP_TEST_MAIN
