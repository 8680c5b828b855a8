// How runs and programs end before their time. Run under TSan and ASan.
#include <atomic>
#include <chrono>
#include <thread>

#include "native.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

// Runs in one thread until the other one has closed the program that often.
void close_beside_runs(const Schedule& schedule, i32 flags, int closes) {
  Wavefront w(schedule);
  Native native(&w.maker, 3);
  const ptowsp_control control{nullptr, 0, 3};
  std::atomic<bool> over = false;
  std::thread closer([&] {
    for (int k = 0; k < closes; ++k) {
      std::this_thread::sleep_for(std::chrono::microseconds(37 * (k % 11)));
      ptowsp_program_close(native.program);
    }
    over = true;
  });
  while (!over) {
    const auto b = w.bind(4, 4);
    ptowsp_run* r = ptowsp_run_start_controlled(native.program, b.data(), b.size(), flags, &control,
                                                nullptr, nullptr, &native.error);
    CHECK(r != nullptr);
    if (r == nullptr) break;
    const i32 status = ptowsp_run_wait(r, -1, &native.error);
    CHECK(status == 0 || status == number(Status::INTERRUPTED));
    if (status == 0) CHECK(w.data == wavefront_result(4, 4));
    ptowsp_run_free(r);
  }
  closer.join();
}

}  // namespace

TEST(cancel_and_interrupt_end_a_run) {
  static std::atomic<int> calls{0};
  const auto slow = [](const ptowsp_call*, void*) -> int32_t {
    calls += 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  };
  Wavefront w;
  Native native(&w.maker, 2, slow);
  const auto b = w.bind(100, 100);
  ptowsp_run* r =
      ptowsp_run_start(native.program, b.data(), b.size(), 1, nullptr, nullptr, &native.error);
  CHECK_EQ(ptowsp_run_wait(r, 1000000, &native.error), number(Status::TIMEOUT));
  ptowsp_run_cancel(r);
  CHECK_EQ(ptowsp_run_wait(r, -1, &native.error), number(Status::INTERRUPTED));
  ptowsp_run_free(r);
  r = ptowsp_run_start(
      native.program, b.data(), b.size(), 0, [](void*) { return calls > 200 ? 1 : 0; }, nullptr,
      &native.error);
  CHECK_EQ(ptowsp_run_wait(r, -1, &native.error), number(Status::INTERRUPTED));
  ptowsp_run_free(r);
  CHECK(calls < 9000);
}

TEST(closing_a_program_ends_what_is_in_flight) {
  const auto slow = [](const ptowsp_call*, void*) -> int32_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  };
  Wavefront w;
  ptowsp_run* run = nullptr;
  Native native(&w.maker, 3, slow);
  const auto b = w.bind(200, 200);
  run = ptowsp_run_start(native.program, b.data(), b.size(), 1, nullptr, nullptr, &native.error);
  ptowsp_program_close(native.program);
  CHECK_EQ(ptowsp_run_wait(run, 0, &native.error), number(Status::INTERRUPTED));
  ptowsp_run_free(run);
}

TEST(a_run_that_has_ended_is_not_cancelled) {
  for (const u32 workers : {1u, 2u}) {
    Wavefront w;
    Native native(&w.maker, workers);
    const auto b = w.bind(4, 4);
    ptowsp_run* r =
        ptowsp_run_start(native.program, b.data(), b.size(), 0, nullptr, nullptr, &native.error);
    CHECK_EQ(ptowsp_run_wait(r, -1, &native.error), 0);
    ptowsp_run_cancel(r);
    CHECK_EQ(ptowsp_run_wait(r, -1, &native.error), 0);
    ptowsp_run_free(r);
  }
}

TEST(closing_beside_runs) { close_beside_runs({}, 0, 100); }

TEST(closing_beside_runs_whose_tasks_belong_to_workers) {
  close_beside_runs({{Directive::DISPATCH, {number(DispatchPolicy::ROUND_ROBIN), 3}}}, 0, 100);
}

TEST(closing_beside_asynchronous_runs) { close_beside_runs({}, PTOWSP_RUN_ASYNC, 100); }

TEST(closing_beside_seeded_runs) { close_beside_runs({}, PTOWSP_RUN_SEED, 30); }

TEST(closing_twice_at_once) {
  Wavefront w;
  Native native(&w.maker, 3);
  for (int k = 0; k < 50; ++k) {
    CHECK_EQ(native.run(w.bind(4, 4)), 0);
    std::thread other([&] { ptowsp_program_close(native.program); });
    ptowsp_program_close(native.program);
    other.join();
  }
}

PTOWSP_TEST_MAIN
