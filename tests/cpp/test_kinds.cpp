// A plan with temporaries, tokens and pages, run by one worker and by several: the same bits.
#include <fstream>
#include <iterator>
#include <vector>

#include "harness.h"
#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

using namespace ptowsp;

namespace {

i64& element(const ptowsp_view& view, i64 i) {
  return static_cast<i64*>(view.data)[view.rank > 0 ? i * view.stride[0] : 0];
}

i64 count(const ptowsp_view& view) { return view.rank > 0 ? view.shape[0] : 1; }

i32 fill(const ptowsp_call* call, void*) {
  const i64 s = static_cast<i64>(call->scalars[0]);
  for (i64 i = 0; i < count(call->views[0]); ++i) element(call->views[0], i) = s + i;
  return PTOWSP_KERNEL_OK;
}

i32 total(const ptowsp_call* call, void*) {
  i64& y = element(call->views[1], 0);
  for (i64 i = 0; i < count(call->views[0]); ++i) {
    y = (y * 3 + element(call->views[0], i)) % 1000003;
  }
  return PTOWSP_KERNEL_OK;
}

i32 attend(const ptowsp_call* call, void*) {
  const ptowsp_view& k = call->views[0];
  const ptowsp_pages& pages = call->pages[0];
  i64& y = element(call->views[1], 0);
  if (pages.page != 4 || call->pages[1].page != 0) return PTOWSP_KERNEL_FAILED;
  for (i64 i = 0; i < k.shape[0]; ++i) {
    const i64 at = pages.first + i;
    const i64 page = static_cast<const i64*>(pages.table)[at / pages.page * pages.table_stride];
    const i64* data = static_cast<const i64*>(k.data) + page * pages.page_stride;
    y = (y * 5 + data[at % pages.page * k.stride[0]]) % 1000003;
  }
  return PTOWSP_KERNEL_OK;
}

i32 turn(const ptowsp_call* call, void*) {
  if (call->views[1].data != nullptr) return PTOWSP_KERNEL_FAILED;
  element(call->views[0], 0) += 1;
  return PTOWSP_KERNEL_OK;
}

ptowsp_binding bound(const ptowsp_plan* plan, const char* name, std::vector<i64>* data,
                     i64 columns) {
  ptowsp_binding b{};
  b.symbol = ptowsp_plan_symbol(plan, name);
  b.dtype = PTOWSP_DType_I64;
  b.rank = columns > 0 ? 2 : 1;
  b.data = data->data();
  b.shape[0] = static_cast<i64>(data->size()) / (columns > 0 ? columns : 1);
  b.shape[1] = columns;
  b.stride[0] = columns > 0 ? columns : 1;
  b.stride[1] = 1;
  return b;
}

std::vector<i64> run(const char* path, u32 workers, i64 n, ptowsp_stats* stats,
                     std::vector<std::vector<char>>* recordings = nullptr) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  ptowsp_error error{};
  ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
  CHECK(plan != nullptr);
  const ptowsp_options options{workers, 0, 1, 0};
  ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
  CHECK(program != nullptr);
  for (u32 k = 0; k < 2; ++k) {  // two specialisations: for temporaries, and for tokens of pages
    const u32 number = ptowsp_plan_kernel(plan, k == 0 ? "fill" : "fill.2");
    CHECK(number != PTOWSP_NONE);
    ptowsp_program_set_kernel(program, number, fill, nullptr);
  }
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "total"), total, nullptr);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "attend"), attend, nullptr);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "turn"), turn, nullptr);
  std::vector<i64> lens, y(4), pool(24), table{5, 0, 3, 1, 2, 4};
  for (i64 i = 0; i < n; ++i) lens.push_back(i * 7 % 11);
  ptowsp_binding rows{};
  rows.symbol = ptowsp_plan_symbol(plan, "rows");
  rows.value = n;
  const ptowsp_binding bindings[] = {rows, bound(plan, "lens", &lens, 0), bound(plan, "Y", &y, 0),
                                     bound(plan, "K_pool", &pool, 4),
                                     bound(plan, "K_table", &table, 2)};
  for (u32 repeat = 0; repeat < 3; ++repeat) {  // the workspace is used again
    ptowsp_run* r = ptowsp_run_start(program, bindings, 5, 0, nullptr, nullptr, &error);
    CHECK(r != nullptr);
    CHECK_EQ(ptowsp_run_wait(r, -1, &error), 0);
    ptowsp_run_stats(r, stats);
    ptowsp_run_free(r);
  }
  const auto zero = [&] {
    y.assign(y.size(), 0);
    pool.assign(pool.size(), 0);
  };
  // As often as before, each time decided by somebody else.
  const auto controlled = [&](i32 flags, const ptowsp_control* control) {
    std::vector<char> recording;
    zero();
    for (u32 repeat = 0; repeat < 3; ++repeat) {
      ptowsp_run* r = ptowsp_run_start_controlled(program, bindings, 5, flags, control, nullptr,
                                                  nullptr, &error);
      CHECK(r != nullptr);
      CHECK_EQ(ptowsp_run_wait(r, -1, &error), 0);
      recording.resize(ptowsp_run_recording(r, nullptr, 0));
      ptowsp_run_recording(r, recording.data(), recording.size());
      ptowsp_run_free(r);
    }
    return recording;
  };
  if (recordings != nullptr) {
    recordings->push_back(controlled(PTOWSP_RUN_RECORD, nullptr));
    const ptowsp_control again{recordings->back().data(), recordings->back().size(), 0};
    CHECK(controlled(0, &again) == recordings->back());
    for (u64 seed = 0; seed < 3; ++seed) {
      const ptowsp_control drawn{nullptr, 0, seed};
      recordings->push_back(controlled(PTOWSP_RUN_SEED, &drawn));
    }
  }
  ptowsp_program_free(program);
  ptowsp_plan_free(plan);
  y.insert(y.end(), pool.begin(), pool.end());
  return y;
}

}  // namespace

TEST(every_number_of_workers_gives_the_same_result) {
  for (const i64 n : {1, 7, 500}) {
    ptowsp_stats alone{};
    const std::vector<i64> wanted = run(KINDS_PLAN, 1, n, &alone);
    for (u32 repeat = 0; repeat < 6; ++repeat) {
      ptowsp_stats together{};
      CHECK(run(repeat % 2 == 0 ? KINDS_PLAN : SCHEDULED_PLAN, 2 + repeat % 3, n, &together) ==
            wanted);
      CHECK_EQ(together.tasks, alone.tasks);
      CHECK(together.workspace_bytes > 0);
    }
  }
}

TEST(recorded_replayed_and_drawn_runs_give_the_same_result) {
  for (const char* path : {KINDS_PLAN, SCHEDULED_PLAN}) {
    for (const i64 n : {1, 7, 60}) {
      ptowsp_stats stats{};
      const std::vector<i64> wanted = run(path, 1, n, &stats);
      for (u32 workers = 1; workers <= 4; ++workers) {
        std::vector<std::vector<char>> recordings;
        CHECK(run(path, workers, n, &stats, &recordings) == wanted);
        CHECK_EQ(recordings.size(), 4u);
      }
    }
  }
}

PTOWSP_TEST_MAIN
