#include "ptowsp/scheduler.h"

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

ScheduleConfig with_window(u32 window) {
  ScheduleConfig c;
  c.window = window;
  return c;
}

// Runs everything on one worker; the order of task ids.
std::vector<u64> drain(Scheduler* s) {
  std::vector<u64> order;
  Error error;
  while (!s->finished()) {
    u32 slot = 0;
    bool stolen = false;
    if (s->take(0, &slot, &stolen)) {
      order.push_back(s->record(slot).task_id);
      s->finish(slot, 0);
    } else if (s->can_generate()) {
      CHECK(s->generate(0, 16, &error));
    } else {
      CHECK(s->quiesce(&error));
    }
  }
  return order;
}

}  // namespace

TEST(edges_of_a_wavefront_have_the_closed_form) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(30, 20));
  ScheduleConfig config = with_window(600);
  config.start = StartPolicy::AFTER_ORCHESTRATION;
  Scheduler s(*p.bound, config, 1, 0);
  CHECK_EQ(drain(&s).size(), 600u);
  CHECK_EQ(s.stats().edges, 30u * 19 + 29 * 20);
  CHECK_EQ(s.stats().start_released, 0u);
  CHECK_EQ(s.stats().live_high, 600u);
}

TEST(fifo_on_one_worker_is_program_order_with_any_window) {
  for (const u32 window : {1u, 2u, 7u, 1000u}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(9, 9));
    Scheduler s(*p.bound, with_window(window), 1, 0);
    const std::vector<u64> order = drain(&s);
    CHECK_EQ(order.size(), 81u);
    for (u64 i = 0; i < order.size(); ++i) CHECK_EQ(order[i], i);
    CHECK(s.stats().live_high <= window);
  }
}

TEST(a_start_policy_that_cannot_be_met_is_released_and_counted) {
  for (const StartPolicy policy : {StartPolicy::AFTER_ORCHESTRATION, StartPolicy::THRESHOLD}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(10, 10));
    ScheduleConfig config = with_window(8);
    config.start = policy;
    config.start_threshold = 50;
    Scheduler s(*p.bound, config, 1, 0);
    CHECK_EQ(drain(&s).size(), 100u);
    CHECK_EQ(s.stats().start_released, 1u);
    CHECK(s.stats().start_held >= 1u);
  }
}

TEST(threshold_starts_after_that_many_tasks) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  ScheduleConfig config = with_window(1000);
  config.start = StartPolicy::THRESHOLD;
  config.start_threshold = 10;
  Scheduler s(*p.bound, config, 1, 0);
  Error error;
  u32 slot = 0;
  bool stolen = false;
  CHECK(s.generate(0, 9, &error));
  CHECK(!s.take(0, &slot, &stolen));
  CHECK(s.generate(0, 1, &error));
  CHECK(s.take(0, &slot, &stolen));
}

TEST(abort_mode_reports_the_overflow) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  ScheduleConfig config = with_window(5);
  config.window_mode = WindowMode::ABORT;
  Scheduler s(*p.bound, config, 1, 0);
  Error error;
  CHECK(s.generate(0, 5, &error));
  CHECK(!s.generate(0, 1, &error));
  CHECK_EQ(error.status, Status::WINDOW_OVERFLOW);
  CHECK_EQ(error.task_id, 5u);
}

TEST(a_window_that_just_fits_does_not_overflow) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(2, 3));
  ScheduleConfig config = with_window(6);
  config.window_mode = WindowMode::ABORT;
  config.start = StartPolicy::AFTER_ORCHESTRATION;
  Scheduler s(*p.bound, config, 1, 0);
  CHECK_EQ(drain(&s).size(), 6u);
}

TEST(benchmark_mode_counts_overflows) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  ScheduleConfig config = with_window(10);
  config.window_mode = WindowMode::BENCHMARK;
  Scheduler s(*p.bound, config, 1, 0);
  CHECK_EQ(drain(&s).size(), 100u);
  CHECK_EQ(s.stats().window_overflows, s.stats().window_stalls);
}

TEST(a_planted_deadlock_is_reported_with_who_waits_for_what) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(2, 2));
  ScheduleConfig config = with_window(100);
  config.start = StartPolicy::AFTER_ORCHESTRATION;
  Scheduler s(*p.bound, config, 1, 0);
  Error error;
  CHECK(s.generate(0, 3, &error));
  s.hold_for_test(1);
  CHECK(s.generate(0, 100, &error));
  u32 slot = 0;
  bool stolen = false;
  while (s.take(0, &slot, &stolen)) s.finish(slot, 0);
  CHECK(!s.can_generate());
  CHECK(!s.quiesce(&error));
  CHECK_EQ(error.status, Status::DEADLOCK);
  CHECK(error.message.find("2 tasks wait") != std::string::npos);
  CHECK(error.message.find("task 1 cell[0, 1] waits for 1:") != std::string::npos);
  CHECK(error.message.find("task 3 cell[1, 1] waits for 1:\n    task 1 cell[0, 1]") !=
        std::string::npos);
}

TEST(phases_are_stored_as_one_edge_per_task) {
  PlanMaker m;
  const u32 x = m.tensor("X", 2);
  const u32 k = m.kernel("k", {AccessMode::OUT});
  m.loop(Op::FOR_EACH, "steps", m.number(50));
  m.loop(Op::PARALLEL_FOR, "width", m.number(20));
  m.task(k, {m.element(x, AccessMode::OUT, {m.var(0), m.var(1)})});
  m.end();
  m.end();
  std::vector<float> data(1000);
  Loaded p(&m, {bind_data(m.symbol_of(x), data.data(), DType::F32, {50, 20})});
  ScheduleConfig config = with_window(1000);
  config.start = StartPolicy::AFTER_ORCHESTRATION;
  Scheduler s(*p.bound, config, 1, 0);
  CHECK_EQ(drain(&s).size(), 1000u);
  CHECK_EQ(s.stats().edges, 49u * 20);
  CHECK_EQ(s.stats().phases, 50u);
}

PTOWSP_TEST_MAIN
