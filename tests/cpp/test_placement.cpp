// Workers keep off each other's processors, as far as there are others.
#include "ptowsp/placement.h"

#include <thread>

#include "harness.h"

#if defined(__linux__)

#include <sched.h>

using namespace ptowsp;

namespace {

cpu_set_t mask() {
  cpu_set_t found;
  CPU_ZERO(&found);
  ::sched_getaffinity(0, sizeof found, &found);
  return found;
}
int may_run_on() {
  const cpu_set_t found = mask();
  return CPU_COUNT(&found);
}
// With one processor only there is nothing to test.
bool has_two_cpus() { return may_run_on() > 1; }

// In a thread that may be moved, as the ones of a pool.
template <class F>
void in_thread(F f) {
  std::thread(f).join();
}

}  // namespace

TEST(a_worker_that_meets_the_caller_moves) {
  if (!has_two_cpus()) return;
  in_thread([] {
    const int before = may_run_on();
    Placement placement;
    placement.enter(0, 2);  // one thread plays both, so they meet unless the system moves it
    const int caller = current_cpu();
    placement.enter(1, 2);
    if (may_run_on() == before) return;
    CHECK_EQ(may_run_on(), before - 1);
    CHECK(current_cpu() != caller);
    placement.leave(1);
    placement.leave(0);
  });
}

TEST(more_workers_than_processors_share_them) {
  in_thread([] {
    const cpu_set_t before = mask();
    Placement placement;
    placement.enter(0, 100000);
    placement.enter(1, 100000);
    const cpu_set_t after = mask();
    CHECK(CPU_EQUAL(&before, &after) != 0);
    placement.leave(1);
    placement.leave(0);
  });
}

TEST(a_worker_goes_nowhere_that_its_thread_may_not) {
  if (!has_two_cpus()) return;
  in_thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(current_cpu()), &one);
    CHECK(::sched_setaffinity(0, sizeof one, &one) == 0);
    Placement placement;
    placement.enter(0, 2);
    placement.enter(1, 2);
    CHECK_EQ(may_run_on(), 1);
    const cpu_set_t after = mask();
    CHECK(CPU_EQUAL(&one, &after) != 0);
  });
}

TEST(a_caller_who_is_brought_to_workers_is_held_and_let_go) {
  if (!has_two_cpus()) return;
  in_thread([] {
    const cpu_set_t before = mask();
    Placement placement;
    bool held = false;
    for (int turn = 0; turn < 50 && !held; ++turn) {
      // The worker of each turn stands where the caller is, whatever it was told before.
      placement.enter(0, 2);
      std::thread([&] {
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(static_cast<std::size_t>(turn % 2), &here);
        ::sched_setaffinity(0, sizeof here, &here);
        ::sched_setaffinity(0, sizeof before, &before);
        placement.enter(1, 2);
      }).join();
      held = may_run_on() == 1;
      placement.leave(1);
      placement.leave(0);
      const cpu_set_t after = mask();
      CHECK(CPU_EQUAL(&before, &after) != 0);
    }
    CHECK(held);
  });
}

#else

TEST(nothing_is_done_here) {
  ptowsp::Placement placement;
  placement.enter(0, 2);
  placement.enter(1, 2);
  placement.leave(1);
  placement.leave(0);
  CHECK_EQ(ptowsp::current_cpu(), -1);
}

#endif

PTOWSP_TEST_MAIN
