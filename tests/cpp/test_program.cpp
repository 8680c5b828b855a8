// Programs with real threads, through the C interface. Run under TSan and ASan.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "native.h"
#include "ptowsp/program.h"
#include "ptowsp/ptowsp.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

const Schedule kSchedules[] = {
    {},
    {{Directive::READY, {number(ReadyPolicy::WORK_STEAL)}}},
    {{Directive::WINDOW, {1, 0, 0}}},
    {{Directive::WINDOW, {7, 0, 0}}, {Directive::READY, {number(ReadyPolicy::WORK_STEAL)}}},
    {{Directive::START, {number(StartPolicy::AFTER_ORCHESTRATION)}}},
    {{Directive::START, {number(StartPolicy::THRESHOLD), 100}}, {Directive::WINDOW, {50, 0, 0}}},
    {{Directive::TRACE, {1, 64}}},
};

}  // namespace

TEST(results_are_those_of_program_order_under_every_schedule) {
  const std::vector<float> want = wavefront_result(30, 25);
  for (const Schedule& schedule : kSchedules) {
    for (const u32 workers : {1u, 2u, 4u}) {
      Wavefront w(schedule);
      Native native(&w.maker, workers);
      for (int round = 0; round < 3; ++round) {
        const auto bindings = w.bind(30, 25);
        ptowsp_stats stats{};
        CHECK_EQ(native.run(bindings, &stats), 0);
        CHECK(w.data == want);
        CHECK_EQ(stats.tasks, 750u);
      }
    }
  }
}

TEST(generation_alone_counts_and_hashes) {
  Wavefront w;
  Native native(&w.maker, 1);
  const auto b = w.bind(30, 25);
  uint64_t tasks = 0;
  uint64_t hash[2] = {0, 0};
  uint64_t again[2] = {0, 0};
  CHECK_EQ(ptowsp_generate(native.program, b.data(), b.size(), nullptr, nullptr, &tasks, hash,
                           &native.error),
           0);
  CHECK_EQ(tasks, 750u);
  CHECK(hash[0] != 0 && hash[1] != 0 && hash[0] != hash[1]);
  const auto other = w.bind(30, 24);
  ptowsp_generate(native.program, other.data(), other.size(), nullptr, nullptr, &tasks, again,
                  &native.error);
  CHECK(again[0] != hash[0]);
}

TEST(a_failing_kernel_ends_the_run_and_the_program_lives_on) {
  static std::atomic<bool> broken{true};
  const auto kernel = [](const ptowsp_call* call, void* user) -> int32_t {
    if (broken && call->indices[0] == 3 && call->indices[1] == 5) {
      std::snprintf(call->error, call->error_size, "no luck");
      return 1;
    }
    return add_kernel(call, user);
  };
  Wavefront w;
  Native native(&w.maker, 3, kernel);
  CHECK_EQ(native.run(w.bind(10, 10)), number(Status::KERNEL_ERROR));
  CHECK_EQ(std::string(native.error.message), std::string("no luck"));
  CHECK_EQ(native.error.site, 0u);
  CHECK_EQ(native.error.num_indices, 2u);
  CHECK_EQ(native.error.indices[0], 3);
  CHECK_EQ(native.error.indices[1], 5);
  broken = false;
  CHECK_EQ(native.run(w.bind(10, 10)), 0);
  CHECK(w.data == wavefront_result(10, 10));
}

TEST(asynchronous_runs_queue_in_call_order) {
  Wavefront w;
  Native native(&w.maker, 2);
  const auto b = w.bind(20, 20);
  std::vector<ptowsp_run*> runs;
  for (int i = 0; i < 5; ++i) {
    runs.push_back(
        ptowsp_run_start(native.program, b.data(), b.size(), 1, nullptr, nullptr, &native.error));
  }
  CHECK_EQ(native.run(b), 0);  // a synchronous run waits for its turn
  for (ptowsp_run* r : runs) {
    CHECK_EQ(ptowsp_run_wait(r, 0, &native.error), 0);
    ptowsp_run_free(r);
  }
}

TEST(several_programs_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      Wavefront w;
      Native native(&w.maker, 2);
      for (int round = 0; round < 5; ++round) {
        CHECK_EQ(native.run(w.bind(15, 15)), 0);
        CHECK(w.data == wavefront_result(15, 15));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

namespace {

int32_t add_slowly(const ptowsp_call* call, void* user) {
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  return add_kernel(call, user);
}

}  // namespace

TEST(workers_come_awake_behind_a_long_run_and_not_after_a_pause) {
  if (std::thread::hardware_concurrency() < 2) return;
  Wavefront w;
  Native native(&w.maker, 2, add_slowly);
  ptowsp_stats stats{};
  CHECK_EQ(native.run(w.bind(8, 8), &stats), 0);
  CHECK_EQ(stats.came_awake, 0u);
  // The caller may be kept from calling at once, but not always.
  for (int i = 0; i < 100 && stats.came_awake == 0; ++i) {
    CHECK_EQ(native.run(w.bind(8, 8), &stats), 0);
  }
  CHECK_EQ(stats.came_awake, 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_EQ(native.run(w.bind(8, 8), &stats), 0);
  CHECK_EQ(stats.came_awake, 0u);
}

// Behind a long run workers stay awake for a while: the next one, or the end, comes meanwhile or
// after it.
TEST(long_runs_one_behind_the_other) {
  for (const u32 workers : {2u, 3u}) {
    Wavefront w;
    Native native(&w.maker, workers, add_slowly);
    for (const int pause_us : {0, 0, 50, 3000, 0}) {
      CHECK_EQ(native.run(w.bind(8, 8)), 0);
      CHECK(w.data == wavefront_result(8, 8));
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
  }
}

TEST(one_program_from_several_threads) {
  Wavefront w;
  Native native(&w.maker, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&native, symbol = w.maker.symbol_of(w.x), &w] {
      std::vector<float> mine(11 * 11, 1.0f);
      const std::vector<ptowsp_binding> b = {bind_value(w.rows, 10), bind_value(w.cols, 10),
                                             bind_data(symbol, mine.data(), DType::F32, {11, 11})};
      ptowsp_error error{};
      ptowsp_run* r =
          ptowsp_run_start(native.program, b.data(), b.size(), 0, nullptr, nullptr, &error);
      CHECK_EQ(ptowsp_run_wait(r, -1, &error), 0);
      ptowsp_run_free(r);
      CHECK(mine == wavefront_result(10, 10));
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(traces_hold_the_newest_events_and_count_the_rest) {
  Wavefront w({{Directive::TRACE, {1, 10}}});
  Native native(&w.maker, 1);
  const auto b = w.bind(5, 5);
  ptowsp_run* r =
      ptowsp_run_start(native.program, b.data(), b.size(), 0, nullptr, nullptr, &native.error);
  ptowsp_run_wait(r, -1, &native.error);
  std::vector<ptowsp_event> events(100);
  CHECK_EQ(ptowsp_run_trace(r, events.data(), events.size()), 10u);
  for (u64 i = 0; i < 10; ++i) CHECK_EQ(events[i].seq, 15 + i);
  ptowsp_stats stats{};
  ptowsp_run_stats(r, &stats);
  CHECK_EQ(stats.trace_dropped, 15u);
  ptowsp_run_free(r);
}

TEST(traces_hold_what_tasks_waited_for) {
  Wavefront w({{Directive::START, {1, 0}}, {Directive::TRACE, {1, 100}}});
  Native native(&w.maker, 3);
  const auto b = w.bind(6, 6);
  ptowsp_run* r =
      ptowsp_run_start(native.program, b.data(), b.size(), 0, nullptr, nullptr, &native.error);
  CHECK_EQ(ptowsp_run_wait(r, -1, &native.error), 0);
  const std::size_t bytes = ptowsp_run_trace_block(r, PTOWSP_BLOCK_EDGES, nullptr, 0);
  std::vector<ptowsp_edge> edges(bytes / sizeof(ptowsp_edge));
  ptowsp_run_trace_block(r, PTOWSP_BLOCK_EDGES, edges.data(), bytes);
  CHECK_EQ(edges.size(), 60u);  // 5 x 6 down and 6 x 5 to the right
  std::vector<ptowsp_event> events(36);
  CHECK_EQ(ptowsp_run_trace(r, events.data(), events.size()), 36u);
  std::vector<u64> start(36);
  std::vector<u64> end(36);
  for (const ptowsp_event& e : events) {
    start[e.seq] = e.start_ns;
    end[e.seq] = e.end_ns;
  }
  for (const ptowsp_edge& e : edges) CHECK(end[e.from] <= start[e.to]);
  ptowsp_run_free(r);
}

TEST(directives_that_cannot_be_enforced_are_refused) {
  const Schedule refused[] = {{{Directive::STREAMS, {0}}},        {{Directive::WINDOW, {0, 0, 0}}},
                              {{Directive::WINDOW, {100, 2, 0}}}, {{Directive::READY, {3}}},
                              {{Directive::DEPS, {5}}},           {{Directive::TRACE, {2, 10}}},
                              {{Directive::BATCH_DEPS, {0}}}};
  for (const Schedule& schedule : refused) {
    Wavefront w(schedule);
    const std::vector<u8> bytes = w.maker.bytes();
    ptowsp_error error{};
    ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
    CHECK(plan != nullptr);
    const ptowsp_options options{1, 0, 0, 0};
    CHECK(ptowsp_program_new(plan, &options, &error) == nullptr);
    CHECK_EQ(error.status, number(Status::SCHEDULE_ERROR));
    ptowsp_plan_free(plan);
  }
}

TEST(symbols_and_kernels_are_found_by_name) {
  Wavefront w;
  const auto bytes = w.maker.bytes();
  ptowsp_error error{};
  ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
  CHECK_EQ(ptowsp_plan_symbol(plan, "cols"), w.cols);
  CHECK_EQ(ptowsp_plan_kernel(plan, "cell"), 0u);
  CHECK_EQ(ptowsp_plan_symbol(plan, "cell"), PTOWSP_NONE);
  CHECK_EQ(ptowsp_plan_kernel(plan, "cols"), PTOWSP_NONE);
  ptowsp_plan_free(plan);
}

TEST(a_worker_has_scratch_memory_for_the_largest_kernel) {
  static std::atomic<u32> right{0};
  Wavefront w;
  const auto bytes = w.maker.bytes();
  ptowsp_error error{};
  ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
  const ptowsp_options options{2, 0, 0, 0};
  ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
  const auto kernel = [](const ptowsp_call* call, void* user) -> int32_t {
    const auto at = reinterpret_cast<std::uintptr_t>(call->scratch);
    const auto wanted = reinterpret_cast<std::uintptr_t>(user);
    if (call->scratch_bytes < wanted || at % 64 != 0 || (wanted > 0 && at == 0)) return 1;
    if (wanted > 0) std::memset(call->scratch, 1, call->scratch_bytes);
    right += 1;
    return add_kernel(call, nullptr);
  };
  CHECK_EQ(ptowsp_program_set_scratch(program, 7, 64), number(Status::BIND_ERROR));
  for (const std::uintptr_t wanted : {0u, 100u, 5000u, 64u}) {
    ptowsp_program_set_kernel(program, 0, kernel, reinterpret_cast<void*>(wanted));
    CHECK_EQ(ptowsp_program_set_scratch(program, 0, wanted), 0);
    right = 0;
    const auto bindings = w.bind(4, 5);
    ptowsp_run* run =
        ptowsp_run_start(program, bindings.data(), bindings.size(), 0, nullptr, nullptr, &error);
    ptowsp_run_wait(run, -1, &error);
    ptowsp_run_free(run);
    CHECK_EQ(right.load(), 20u);
  }
  ptowsp_program_free(program);
  ptowsp_plan_free(plan);
}

// All regions of a wavefront lie in one tensor.
TEST(kernels_say_which_views_may_share_memory) {
  Wavefront w;
  const auto bytes = w.maker.bytes();
  ptowsp_error error{};
  ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
  const ptowsp_options options{2, 0, 0, 0};
  ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
  ptowsp_program_set_kernel(program, 0, add_kernel, nullptr);
  CHECK_EQ(ptowsp_program_set_sharing(program, 7, 0), number(Status::BIND_ERROR));
  const auto bindings = w.bind(4, 5);
  for (const u64 views : {u64{0}, u64{3}, u64{7}, u64{3}, ~u64{0}}) {
    CHECK_EQ(ptowsp_program_set_sharing(program, 0, views), 0);
    ptowsp_run* run =
        ptowsp_run_start(program, bindings.data(), bindings.size(), 0, nullptr, nullptr, &error);
    CHECK_EQ(run != nullptr, views >= 7);
    if (run == nullptr) {
      CHECK_EQ(error.status, number(Status::SHARED_MEMORY));
      CHECK_EQ(error.record, 0u);
      continue;
    }
    CHECK_EQ(ptowsp_run_wait(run, -1, &error), 0);
    ptowsp_run_free(run);
  }
  ptowsp_program_free(program);
  ptowsp_plan_free(plan);
}

namespace {

struct Planted {
  Schedule schedule;
  i64 rows, cols;
  u32 slot;  // while the first task runs, this one gets a predecessor that does not exist
  RunControl control;
};

// Other workers may still be about to make the record.
void plant(Flow* flow, u32 slot) {
  for (bool is_made = false; !is_made;) {
    while (!flow->try_lock()) std::this_thread::yield();
    is_made = flow->table().used() > slot;
    if (is_made) flow->table()[slot].fanin += 1;
    flow->unlock();
  }
}

// The error of the run, which has to end by itself.
Error run_planted(const Planted& plan, u32 workers) {
  static std::atomic<Run*> planted{nullptr};
  static std::atomic<u32> slot{0};
  const auto kernel = [](const ptowsp_call* call, void* user) -> int32_t {
    if (call->task_id == 0) plant(planted.load()->flow_for_test(), slot);
    return add_kernel(call, user);
  };
  Wavefront w(plan.schedule);
  auto loaded = std::make_shared<LoadedPlan>();
  loaded->bytes = w.maker.bytes();
  PlanFault fault;
  CHECK(validate(loaded->bytes.data(), loaded->bytes.size(), &loaded->view, &fault));
  Error error;
  const auto program = Program::make(loaded, ptowsp_options{workers, 0, 1, 0}, &error);
  program->set_kernel(0, {kernel, nullptr});
  const auto bindings = w.bind(plan.rows, plan.cols);
  const auto run = program->prepare(bindings.data(), bindings.size(), false, plan.control, &error);
  planted = run->run.get();
  slot = plan.slot;
  program->run(run.get());
  CHECK_EQ(run->run->error().status, Status::DEADLOCK);
  return run->run->error();
}

bool says(const Error& error, const char* text) {
  return error.message.find(text) != std::string::npos;
}

}  // namespace

TEST(a_planted_deadlock_is_an_answer_on_every_worker_count) {
  const auto held =
      std::pair{Directive::START, std::vector<i64>{number(StartPolicy::AFTER_ORCHESTRATION)}};
  const std::vector<i64> depth{1, number(DepthScope::GLOBAL), number(OnFull::STALL)};
  RunControl drawn;
  drawn.seed = 5;
  const Planted plans[] = {
      {{{Directive::READY, {number(ReadyPolicy::WORK_STEAL)}}, held}, 2, 2, 3, {}},
      {{{Directive::READY, {number(ReadyPolicy::FIFO)}}, held}, 2, 2, 3, {}},
      {{{Directive::STREAMS, {2}}, held}, 2, 2, 3, {}},
      {{{Directive::PIPELINE_DEPTH, depth}, held}, 2, 2, 3, {}},
      {{held}, 2, 2, 3, drawn},
  };
  for (const Planted& plan : plans) {
    for (const u32 workers : {1u, 2u, 3u}) {
      const Error error = run_planted(plan, workers);
      CHECK(says(error, "nothing can run: 1 tasks wait"));
      CHECK(says(error, "task 3 cell[1, 1] waits for 1:"));
      CHECK(says(error, "generation, after 4 tasks, has come to the end"));
      CHECK_EQ(error.section, kNone);
    }
  }
}

TEST(a_deadlock_is_noticed_by_a_worker_that_never_called_others) {
  const Planted chain{{{Directive::READY, {number(ReadyPolicy::FIFO)}}}, 1, 2, 1, {}};
  for (const u32 workers : {1u, 2u, 4u}) {
    CHECK(says(run_planted(chain, workers), "task 1 cell[0, 1] waits for 1:"));
  }
}

// One worker rests while the other one wakes up, takes the only task there is, and is not counted
// as resting any more: whoever looks around at that moment sees nothing ready.
TEST(workers_that_hand_over_to_each_other_are_not_stuck) {
  const auto slow_add = [](const ptowsp_call* call, void* user) -> int32_t {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(20 + call->task_id * 37 % 100);
    while (std::chrono::steady_clock::now() < end) {
    }
    return add_kernel(call, user);
  };
  Wavefront w({{Directive::DISPATCH, {number(DispatchPolicy::ROUND_ROBIN), 2}}});
  Native native(&w.maker, 2, slow_add);
  CHECK_EQ(native.run(w.bind(1, 5000)), 0);
  CHECK(w.data == wavefront_result(1, 5000));
}

TEST(a_deadlock_names_the_resource_and_its_directive) {
  // Everything behind the second task of the first row waits for it, until the window is full.
  const Planted narrow{
      {{Directive::READY, {number(ReadyPolicy::FIFO)}}, {Directive::WINDOW, {3, 0, 0}}},
      4,
      4,
      1,
      {}};
  for (const u32 workers : {1u, 2u}) {
    const Error error = run_planted(narrow, workers);
    CHECK(says(error, "waits for room in the window"));
    CHECK(says(error, "marks: window 3 of 3"));
    CHECK_EQ(error.section, number(Section::SCHEDULE));
    CHECK_EQ(error.record, 1u);
  }
}

PTOWSP_TEST_MAIN
