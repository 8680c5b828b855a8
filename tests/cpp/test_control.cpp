// A plan whose control reads what its tasks write, run by one worker and by several: the same bits.
#include <fstream>
#include <iterator>
#include <vector>

#include "harness.h"
#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

using namespace ptowsp;

namespace {

i64 scalar(const ptowsp_call* call) { return static_cast<i64>(call->scalars[0]); }

i32 route(const ptowsp_call* call, void*) {
  i64* out = static_cast<i64*>(call->views[0].data);
  out[0] = (scalar(call) * 7) % 5;
  out[1] = (scalar(call) * 3 + 1) % 5;
  return PTOWSP_KERNEL_OK;
}

i32 note(const ptowsp_call* call, void*) {
  i64* y = static_cast<i64*>(call->views[0].data);
  // Counters go up and down by one, notes mix.
  *y = scalar(call) == -1 ? *y - 1 : (*y * 3 + scalar(call)) % 1000003;
  return PTOWSP_KERNEL_OK;
}

i32 look(const ptowsp_call* call, void*) {
  return static_cast<const i64*>(call->views[0].data)[0] < 0 ? PTOWSP_KERNEL_FAILED
                                                             : PTOWSP_KERNEL_OK;
}

struct Data {
  std::vector<i64> indptr, idx, lengths, y, counter;
  explicit Data(i64 n)
      : idx(static_cast<std::size_t>(2 * n)),
        lengths(static_cast<std::size_t>(n)),
        y(5),
        counter(1, 20) {
    for (i64 i = 0; i <= n; ++i) indptr.push_back(2 * i);
  }
};

ptowsp_binding bound(const ptowsp_plan* plan, const char* name, std::vector<i64>* data) {
  ptowsp_binding b{};
  b.symbol = ptowsp_plan_symbol(plan, name);
  b.dtype = PTOWSP_DType_I64;
  b.rank = 1;
  b.data = data->data();
  b.shape[0] = static_cast<i64>(data->size());
  b.stride[0] = 1;
  return b;
}

// `flags` and `control` as for ptowsp_run_start_controlled; the recording, if asked for, goes to
// `recording`.
std::vector<i64> run(u32 workers, i64 n, ptowsp_stats* stats, i32 flags = 0,
                     const ptowsp_control* control = nullptr,
                     std::vector<char>* recording = nullptr) {
  std::ifstream file(CONTROL_PLAN, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  ptowsp_error error{};
  ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
  CHECK(plan != nullptr);
  const ptowsp_options options{workers, 0, 1, 0};
  ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
  CHECK(program != nullptr);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "route"), route, nullptr);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "note"), note, nullptr);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "look"), look, nullptr);
  Data data(n);
  ptowsp_binding tokens{};
  tokens.symbol = ptowsp_plan_symbol(plan, "tokens");
  tokens.value = n;
  const ptowsp_binding bindings[] = {tokens,
                                     bound(plan, "routing_indptr", &data.indptr),
                                     bound(plan, "idx", &data.idx),
                                     bound(plan, "L", &data.lengths),
                                     bound(plan, "Y", &data.y),
                                     bound(plan, "C", &data.counter)};
  ptowsp_run* r =
      ptowsp_run_start_controlled(program, bindings, 6, flags, control, nullptr, nullptr, &error);
  CHECK(r != nullptr);
  CHECK_EQ(ptowsp_run_wait(r, -1, &error), 0);
  if (recording != nullptr) {
    recording->resize(ptowsp_run_recording(r, nullptr, 0));
    ptowsp_run_recording(r, recording->data(), recording->size());
  }
  ptowsp_run_stats(r, stats);
  ptowsp_run_free(r);
  ptowsp_program_free(program);
  ptowsp_plan_free(plan);
  data.y.push_back(data.counter[0]);
  return data.y;
}

}  // namespace

TEST(every_number_of_workers_gives_the_same_result) {
  for (const i64 n : {1, 7, 300}) {
    ptowsp_stats alone{};
    const std::vector<i64> wanted = run(1, n, &alone);
    CHECK_EQ(wanted.back(), 0);
    for (u32 repeat = 0; repeat < 6; ++repeat) {
      ptowsp_stats together{};
      CHECK(run(2 + repeat % 3, n, &together) == wanted);
      CHECK_EQ(together.tasks, alone.tasks);
      CHECK_EQ(together.loads, alone.loads);
    }
  }
}

TEST(recorded_replayed_and_drawn_runs_give_the_same_result) {
  for (const i64 n : {1, 7, 60}) {
    ptowsp_stats stats{};
    const std::vector<i64> wanted = run(1, n, &stats);
    for (u32 workers = 1; workers <= 4; ++workers) {
      std::vector<char> recording;
      CHECK(run(workers, n, &stats, PTOWSP_RUN_RECORD, nullptr, &recording) == wanted);
      CHECK(!recording.empty());
      const ptowsp_control again{recording.data(), recording.size(), 0};
      for (u32 repeat = 0; repeat < 3; ++repeat) {
        std::vector<char> second;
        CHECK(run(workers, n, &stats, 0, &again, &second) == wanted);
        CHECK(second == recording);
      }
      for (u64 seed = 0; seed < 5; ++seed) {
        const ptowsp_control drawn{nullptr, 0, seed};
        std::vector<char> first, second;
        CHECK(run(workers, n, &stats, PTOWSP_RUN_SEED, &drawn, &first) == wanted);
        CHECK(run(workers, n, &stats, PTOWSP_RUN_SEED, &drawn, &second) == wanted);
        CHECK(first == second);
      }
    }
  }
}

PTOWSP_TEST_MAIN
