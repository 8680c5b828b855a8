// Workers keep off each other's processors, as far as there are others.
#include "ptowsp/placement.h"

#include <thread>
#include <vector>

#include "harness.h"

#if defined(__linux__)
#include <sched.h>
#endif

using namespace ptowsp;

// Where the system says nothing, or gives one processor only, there is nothing to test.
bool has_two_cpus() { return current_cpu() >= 0 && std::thread::hardware_concurrency() > 1; }

TEST(a_thread_leaves_the_processor_that_it_is_kept_off) {
  if (!has_two_cpus()) return;
  std::thread([] {
    for (int turn = 0; turn < 4; ++turn) {
      const int before = current_cpu();
      keep_off({before});
      CHECK(current_cpu() != before);
    }
  }).join();
}

TEST(whoever_would_be_left_no_processor_stays) {
  if (!has_two_cpus()) return;
  std::thread([] {
    std::vector<int> every;
    for (int cpu = 0; cpu < 4096; ++cpu) every.push_back(cpu);
    keep_off(every);
    CHECK(current_cpu() >= 0);
  }).join();
}

TEST(a_worker_that_meets_the_caller_is_sent_away) {
  if (!has_two_cpus()) return;
  Placement placement;
  CHECK(placement.enter(0, 2).empty());
  // The same thread plays both, so they are on one processor unless it is moved in between.
  const int here = current_cpu();
  const std::vector<int> crowded = placement.enter(1, 2);
  if (here == current_cpu()) CHECK(crowded == std::vector<int>{here});
  placement.leave(1);
  placement.leave(0);
}

TEST(more_workers_than_processors_share_them) {
  if (!has_two_cpus()) return;
  Placement placement;
  CHECK(placement.enter(0, 100000).empty());
  CHECK(placement.enter(1, 100000).empty());
  placement.leave(1);
  placement.leave(0);
}

#if defined(__linux__)
TEST(a_caller_who_was_held_may_run_where_it_could_before) {
  if (!has_two_cpus()) return;
  std::thread([] {
    cpu_set_t before, after;
    CHECK(::sched_getaffinity(0, sizeof before, &before) == 0);
    for (int turn = 0; turn < 8; ++turn) {  // meets often enough to be held
      Placement placement;
      placement.enter(0, 2);
      placement.enter(1, 2);
      placement.leave(1);
      placement.leave(0);
    }
    CHECK(::sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after) != 0);
  }).join();
}
#endif

PTOWSP_TEST_MAIN
