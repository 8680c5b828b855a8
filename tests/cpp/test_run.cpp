// Runs on one worker: what policies promise, seen from the counters and the order of tasks.
#include "ptowsp/run.h"

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

ScheduleConfig with_window(u32 window) {
  ScheduleConfig c;
  c.window = window;
  c.ready = ReadyPolicy::FIFO;
  return c;
}

struct Outcome {
  std::vector<u64> order;  // task ids
  ptowsp_stats stats;
  Error error;
};

i32 note_task(const ptowsp_call* call, void* user) {
  static_cast<std::vector<u64>*>(user)->push_back(call->task_id);
  return PTOWSP_KERNEL_OK;
}

Outcome run_all(Loaded* p, const ScheduleConfig& config) {
  Outcome out;
  const std::vector<KernelSlot> kernels(4, KernelSlot{note_task, &out.order});
  RunParts parts;
  parts.plan = std::move(p->bound);
  Run run(std::move(parts), config, &kernels, 1, 0);
  run.begin(nullptr);
  run.work(0);
  run.end();
  out.stats = run.stats();
  out.error = run.error();
  return out;
}

}  // namespace

TEST(edges_of_a_wavefront_have_the_closed_form) {
  for (const ReadyPolicy ready : {ReadyPolicy::AUTO, ReadyPolicy::FIFO, ReadyPolicy::WORK_STEAL}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(30, 20));
    ScheduleConfig config = with_window(600);
    config.ready = ready;
    config.start = StartPolicy::AFTER_ORCHESTRATION;
    const Outcome out = run_all(&p, config);
    CHECK_EQ(out.order.size(), 600u);
    CHECK_EQ(out.stats.edges, 30u * 19 + 29 * 20);
    CHECK_EQ(out.stats.start_released, 0u);
    CHECK_EQ(out.stats.live_high, 600u);
  }
}

TEST(fifo_on_one_worker_is_program_order_with_any_window) {
  for (const u32 window : {1u, 2u, 7u, 1000u}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(9, 9));
    const Outcome out = run_all(&p, with_window(window));
    CHECK_EQ(out.order.size(), 81u);
    for (u64 i = 0; i < out.order.size(); ++i) CHECK_EQ(out.order[i], i);
    CHECK(out.stats.live_high <= window);
  }
}

TEST(a_start_policy_that_cannot_be_met_is_released_and_counted) {
  for (const StartPolicy policy : {StartPolicy::AFTER_ORCHESTRATION, StartPolicy::THRESHOLD}) {
    Wavefront w;
    Loaded p(&w.maker, w.bind(10, 10));
    ScheduleConfig config = with_window(8);
    config.start = policy;
    config.start_threshold = 50;
    const Outcome out = run_all(&p, config);
    CHECK_EQ(out.order.size(), 100u);
    CHECK_EQ(out.stats.start_released, 1u);
    CHECK(out.stats.start_held >= 1u);
  }
}

TEST(abort_mode_reports_the_overflow) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  ScheduleConfig config = with_window(5);
  config.window_mode = WindowMode::ABORT;
  const Outcome out = run_all(&p, config);
  CHECK_EQ(out.error.status, Status::WINDOW_OVERFLOW);
  CHECK_EQ(out.error.task_id, 5u);
}

TEST(a_window_that_just_fits_does_not_overflow) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(2, 3));
  ScheduleConfig config = with_window(6);
  config.window_mode = WindowMode::ABORT;
  config.start = StartPolicy::AFTER_ORCHESTRATION;
  const Outcome out = run_all(&p, config);
  CHECK(out.error.ok());
  CHECK_EQ(out.order.size(), 6u);
}

TEST(benchmark_mode_counts_overflows) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  ScheduleConfig config = with_window(10);
  config.window_mode = WindowMode::BENCHMARK;
  const Outcome out = run_all(&p, config);
  CHECK_EQ(out.order.size(), 100u);
  CHECK(out.stats.window_stalls > 0);
  CHECK_EQ(out.stats.window_overflows, out.stats.window_stalls);
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
  const Outcome out = run_all(&p, config);
  CHECK_EQ(out.order.size(), 1000u);
  CHECK_EQ(out.stats.edges, 49u * 20);
  CHECK_EQ(out.stats.phases, 50u);
}

PTOWSP_TEST_MAIN
