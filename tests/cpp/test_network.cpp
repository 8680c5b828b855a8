// A network with replicas, feedback, temporaries and a rendezvous, run by one worker and by
// several: the same bits each time, and nothing left over when a kernel fails.
#include "ptowsp/network.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <vector>

#include "harness.h"
#include "ptowsp/ptowsp.h"
#include "ptowsp/validate.h"

using namespace ptowsp;

namespace {

i64* data_of(const ptowsp_view& view) { return static_cast<i64*>(view.data); }

i32 make(const ptowsp_call* call, void*) {
  for (i64 i = 0; i < 4; ++i) {
    data_of(call->views[1])[i] =
        data_of(call->views[0])[i] + static_cast<i64>(call->scalars[0]) * (i + 1);
  }
  return PTOWSP_KERNEL_OK;
}

// Fails when it is called for the `user`-th time.
i32 change(const ptowsp_call* call, void* user) {
  auto* const left = static_cast<std::atomic<i64>*>(user);
  if (left != nullptr && left->fetch_sub(1) == 1) return PTOWSP_KERNEL_FAILED;
  for (i64 i = 0; i < 4; ++i) {
    data_of(call->views[1])[i] = (data_of(call->views[0])[i] * 7 + 3) % 1000003;
  }
  return PTOWSP_KERNEL_OK;
}

i32 fold(const ptowsp_call* call, void*) {
  for (i64 i = 0; i < 4; ++i) {
    i64& y = data_of(call->views[1])[i];
    y = (y * 31 + data_of(call->views[0])[i]) % 1000003;
  }
  return PTOWSP_KERNEL_OK;
}

class Network3 {
 public:
  explicit Network3(u32 workers, std::atomic<i64>* failing = nullptr) : y_(4) {
    std::ifstream file(NETWORK_PLAN, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    plan_ = ptowsp_plan_load(bytes_.data(), bytes_.size(), &error);
    CHECK(plan_ != nullptr);
    const ptowsp_options options{workers, 0, 1, 0};
    program_ = ptowsp_program_new(plan_, &options, &error);
    CHECK(program_ != nullptr);
    set("make", make, nullptr);
    set("change", change, failing);
    set("fold", fold, nullptr);
  }
  ~Network3() {
    ptowsp_program_free(program_);
    ptowsp_plan_free(plan_);
  }
  Network3(const Network3&) = delete;
  Network3& operator=(const Network3&) = delete;

  // The status of a run of `rounds` messages; what it made is in result().
  i32 run(i64 rounds) {
    y_.assign(4, 0);
    ptowsp_binding n{};
    n.symbol = ptowsp_plan_symbol(plan_, "rounds");
    n.value = rounds;
    ptowsp_binding y{};
    y.symbol = ptowsp_plan_symbol(plan_, "Y");
    y.dtype = PTOWSP_DType_I64;
    y.rank = 1;
    y.data = y_.data();
    y.shape[0] = 4;
    y.stride[0] = 1;
    const ptowsp_binding bindings[] = {n, y};
    ptowsp_run* r = ptowsp_run_start(program_, bindings, 2, 0, nullptr, nullptr, &error);
    CHECK(r != nullptr);
    const i32 status = static_cast<i32>(ptowsp_run_wait(r, -1, &error));
    ptowsp_run_stats(r, &stats);
    ptowsp_run_free(r);
    return status;
  }
  const std::vector<i64>& result() const { return y_; }

  ptowsp_stats stats{};
  ptowsp_error error{};

 private:
  void set(const char* name, ptowsp_kernel_fn fn, void* user) {
    const u32 number = ptowsp_plan_kernel(plan_, name);
    CHECK(number != PTOWSP_NONE);
    ptowsp_program_set_kernel(program_, number, fn, user);
  }

  std::vector<char> bytes_;
  std::vector<i64> y_;
  ptowsp_plan* plan_ = nullptr;
  ptowsp_program* program_ = nullptr;
};

}  // namespace

TEST(every_number_of_workers_gives_the_same_result) {
  for (const i64 rounds : {0, 1, 7, 600}) {
    Network3 alone(1);
    CHECK_EQ(alone.run(rounds), 0);
    for (u32 workers = 2; workers <= 4; ++workers) {
      Network3 together(workers);
      for (u32 repeat = 0; repeat < 2; ++repeat) {
        CHECK_EQ(together.run(rounds), 0);
        CHECK(together.result() == alone.result());
        CHECK_EQ(together.stats.tasks, alone.stats.tasks);
        CHECK_EQ(together.stats.messages, static_cast<u64>(rounds) * 4);
        CHECK(together.stats.channel_high <= 3);
      }
    }
  }
}

TEST(a_stage_that_fails_ends_the_run_and_the_program_goes_on) {
  for (u32 workers = 1; workers <= 3; ++workers) {
    for (const i64 when : {1, 5, 200}) {
      std::atomic<i64> left{when};
      Network3 network(workers, &left);
      CHECK_EQ(network.run(300), static_cast<i32>(Status::KERNEL_ERROR));
      left = -1;  // never again
      CHECK_EQ(network.run(300), 0);
      Network3 fresh(1);
      CHECK_EQ(fresh.run(300), 0);
      CHECK(network.result() == fresh.result());
    }
  }
}

PTOWSP_TEST_MAIN
