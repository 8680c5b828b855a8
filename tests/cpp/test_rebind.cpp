// Plans that are bound again: rebind() gives what bind() gives, or refuses.
#include <algorithm>
#include <array>
#include <functional>
#include <random>

#include "fixtures.h"
#include "ptowsp/ptowsp.h"
#include "same_plan.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

using Bindings = std::vector<ptowsp_binding>;

// For each row i and each column j < lens[i]: out[i, j] from a[i, j] and b[j].
struct Ragged {
  static constexpr i64 kRows = 6;
  static constexpr i64 kColumns = 5;
  PlanMaker maker;
  u32 rows, lens, factor, a, b, out;
  std::array<i64, kRows> lengths{5, 0, 3, 5, 1, 2};
  std::vector<float> data = std::vector<float>(1000);
  std::vector<u8> bytes;
  PlanView view;

  Ragged() {
    rows = maker.extent("rows");
    lens = maker.array("lens");
    factor = maker.extent("factor");
    a = maker.tensor("a", 2);
    b = maker.tensor("b", 1);
    out = maker.tensor("out", 2);
    const u32 kernel = maker.kernel("k", {AccessMode::IN, AccessMode::IN, AccessMode::OUT});
    maker.loop(Op::PARALLEL_FOR, "rows", maker.value(rows));
    const u32 axis = maker.last_axis();
    const u32 i = maker.var(0);
    maker.loop(Op::PARALLEL_FOR, "columns", maker.load(lens, i), lens, axis);
    const u32 j = maker.var(1);
    maker.task(kernel,
               {maker.element(a, AccessMode::IN, {i, j}), maker.element(b, AccessMode::IN, {j}),
                maker.element(out, AccessMode::OUT, {i, j})});
    maker.end();
    maker.end();
    bytes = maker.bytes();
    PlanFault fault;
    CHECK(validate(bytes.data(), bytes.size(), &view, &fault));
  }
  std::unique_ptr<BoundPlan> bound(const Bindings& to,
                                   std::vector<ArrayRange> expected = {}) const {
    Error error;
    BindOptions options;
    options.expected = std::move(expected);
    return BoundPlan::bind(view, to.data(), to.size(), &error, options);
  }

  // The tensors lie where their numbers say, in elements of `data`.
  Bindings bind(u32 at_a, u32 at_b, u32 at_out) {
    return {bind_value(rows, kRows),
            bind_data(lens, lengths.data(), DType::I64, {kRows}),
            bind_value(factor, 2),
            bind_data(maker.symbol_of(a), &data[at_a], DType::F32, {kRows, kColumns}),
            bind_data(maker.symbol_of(b), &data[at_b], DType::F32, {kColumns}),
            bind_data(maker.symbol_of(out), &data[at_out], DType::F32, {kRows, kColumns})};
  }
  enum Place : std::size_t { kRowsAt, kLensAt, kFactorAt, kA, kB, kOut };
};

// A plan that is bound again and again.
struct Rebound {
  const Ragged& ragged;
  std::unique_ptr<BoundPlan> plan;

  Rebound(const Ragged& r, const Bindings& first) : ragged(r), plan(r.bound(first)) {
    if (plan != nullptr) plan->remember(first.data(), first.size());
  }
  bool again(const Bindings& b) { return plan->rebind(b.data(), b.size()); }
};

}  // namespace

TEST(tensors_that_move_apart_from_each_other_are_moved) {
  Ragged r;
  Rebound plan(r, r.bind(0, 100, 200));
  for (const auto& at : {std::array<u32, 3>{300, 400, 500}, {500, 0, 300}, {0, 100, 200}}) {
    const Bindings b = r.bind(at[0], at[1], at[2]);
    CHECK(plan.again(b));
    check_same(*plan.plan, *r.bound(b));
  }
}

TEST(tensors_that_begin_or_cease_to_share_memory_are_refused) {
  Ragged r;
  const std::array<u32, 3> apart{0, 100, 200};
  const std::array<u32, 3> shared[] = {
      {0, 100, 0},     // the output in the place of an input
      {0, 100, 29},    // their last and first element meet
      {0, 3, 200},     // two inputs
      {200, 210, 205}  // all of them
  };
  for (const auto& at : shared) {
    const Bindings separate = r.bind(apart[0], apart[1], apart[2]);
    const Bindings joined = r.bind(at[0], at[1], at[2]);
    CHECK(!Rebound(r, separate).again(joined));
    CHECK(!Rebound(r, joined).again(separate));
    CHECK(Rebound(r, joined).again(r.bind(at[0] + 300, at[1] + 300, at[2] + 300)));
  }
  // Neighbours do not share anything.
  CHECK(Rebound(r, r.bind(0, 100, 200)).again(r.bind(0, 100, 30)));
}

TEST(equal_views_and_shifted_ones_are_not_the_same) {
  Ragged r;
  CHECK(!Rebound(r, r.bind(0, 100, 0)).again(r.bind(0, 100, 5)));
  CHECK(!Rebound(r, r.bind(0, 100, 5)).again(r.bind(0, 100, 0)));
}

TEST(an_array_in_memory_that_tasks_write_is_refused) {
  Ragged r;
  const Bindings b = r.bind(0, 100, 200);
  std::array<i64, 100> inside{};
  std::copy(r.lengths.begin(), r.lengths.end(), inside.begin());
  Rebound plan(r, b);
  Bindings shared = b;
  shared[Ragged::kLensAt].data = inside.data();
  shared[Ragged::kOut].data = inside.data();
  CHECK(r.bound(shared) == nullptr);
  CHECK(!plan.again(shared));
}

TEST(anything_else_that_differs_is_refused) {
  Ragged r;
  const Bindings b = r.bind(0, 100, 200);
  const std::pair<const char*, std::function<void(Bindings*)>> changes[] = {
      {"extent", [](Bindings* c) { (*c)[Ragged::kRowsAt].value = 5; }},
      {"scalar", [](Bindings* c) { (*c)[Ragged::kFactorAt].value = 3; }},
      {"shape", [](Bindings* c) { (*c)[Ragged::kA].shape[0] = 7; }},
      {"shape", [](Bindings* c) { (*c)[Ragged::kB].shape[0] = 4; }},
      {"stride", [](Bindings* c) { (*c)[Ragged::kA].stride[0] = 6; }},
      {"reversed", [](Bindings* c) { (*c)[Ragged::kB].stride[0] = -1; }},
      {"rank", [](Bindings* c) { (*c)[Ragged::kB].rank = 2; }},
      {"dtype", [](Bindings* c) { (*c)[Ragged::kA].dtype = static_cast<u32>(DType::I32); }},
      {"read-only", [](Bindings* c) { (*c)[Ragged::kOut].read_only = 1; }},
      {"length", [](Bindings* c) { (*c)[Ragged::kLensAt].shape[0] = 5; }},
      {"symbol", [](Bindings* c) { std::swap((*c)[Ragged::kA], (*c)[Ragged::kOut]); }},
      {"count", [](Bindings* c) { c->pop_back(); }},
  };
  for (const auto& [what, change] : changes) {
    Rebound plan(r, b);
    Bindings other = b;
    change(&other);
    if (plan.again(other)) fail(__FILE__, __LINE__, std::string(what) + " was overlooked");
  }
}

TEST(long_arrays_are_bound_anew) {
  Ragged r;
  std::vector<i64> lengths(20'000, 3);
  Bindings b = r.bind(0, 100, 200);
  b[Ragged::kRowsAt].value = 20'000;
  b[Ragged::kLensAt] = bind_data(r.lens, lengths.data(), DType::I64, {20'000});
  CHECK(!Rebound(r, b).again(b));
}

TEST(rebinding_agrees_with_binding) {
  std::mt19937 random(1);
  const auto pick = [&](i64 n) { return static_cast<i64>(random() % static_cast<u32>(n)); };
  Ragged r;
  u32 served = 0;
  u32 refused = 0;
  u32 wrong = 0;
  for (int round = 0; round < 400; ++round) {
    // Places that meet now and then; changes of shape, contents and strides are rarer.
    const auto place = [&] { return static_cast<u32>(pick(20)) * 40; };
    const auto make = [&] {
      Bindings b = r.bind(place(), place(), place());
      if (pick(20) == 0) r.lengths[static_cast<std::size_t>(pick(Ragged::kRows))] = pick(7);
      if (pick(40) == 0) b[Ragged::kRowsAt].value = pick(8);
      if (pick(40) == 0) b[Ragged::kA].shape[1] = 4;
      if (pick(40) == 0) std::swap(b[Ragged::kA].stride[0], b[Ragged::kA].stride[1]);
      if (pick(40) == 0) b[Ragged::kB].stride[0] = pick(3) - 1;
      if (pick(40) == 0) b[Ragged::kOut].read_only = 1;
      return b;
    };
    const Bindings first = make();
    Rebound plan(r, first);
    if (plan.plan == nullptr) continue;
    for (int k = 0; k < 8; ++k) {
      const Bindings next = make();
      const std::unique_ptr<BoundPlan> fresh = r.bound(next);
      if (!plan.again(next)) {
        refused += 1;
        break;
      }
      served += 1;
      wrong += fresh == nullptr ? 1u : 0u;
      if (fresh != nullptr) check_same(*plan.plan, *r.bound(next, expected_by(*plan.plan)));
    }
  }
  CHECK_EQ(wrong, 0u);
  CHECK(served > 50 && refused > 50);
}

// Nothing of what a plan was bound to before is left in it.
TEST(a_plan_bound_anew_in_the_memory_of_another_is_a_new_one) {
  std::mt19937 random(3);
  const auto pick = [&](i64 n) { return static_cast<i64>(random() % static_cast<u32>(n)); };
  Ragged r;
  std::unique_ptr<BoundPlan> used;
  u32 bound = 0;
  for (int round = 0; round < 400; ++round) {
    for (i64& length : r.lengths) length = pick(6);
    const auto place = [&] { return static_cast<u32>(pick(20)) * 40; };
    Bindings b = r.bind(place(), place(), place());
    if (pick(4) == 0) b[Ragged::kA].shape[1] = 3;  // some bounds are not proved
    if (pick(4) == 0) b[Ragged::kB].stride[0] = 0;
    if (pick(8) == 0) b[Ragged::kLensAt].shape[0] = 5;  // an error
    Error error;
    const std::unique_ptr<BoundPlan> fresh = r.bound(b);
    used = BoundPlan::bind(r.view, b.data(), b.size(), &error, {}, std::move(used));
    CHECK_EQ(used == nullptr, fresh == nullptr);
    if (used == nullptr) continue;
    bound += 1;
    check_same(*used, *fresh);
    used->remember(b.data(), b.size());
    CHECK(used->rebind(b.data(), b.size()));
  }
  CHECK(bound > 200);
}

namespace {

// Depends on the order of the tasks that touch the same element.
int32_t mix_kernel(const ptowsp_call* call, void*) {
  const float u = *static_cast<const float*>(call->views[0].data);
  const float l = *static_cast<const float*>(call->views[1].data);
  float* o = static_cast<float*>(call->views[2].data);
  const i64 mixed = static_cast<i64>(*o) * 3 + static_cast<i64>(u) * 5 + static_cast<i64>(l) * 7;
  *o = static_cast<float>((mixed + 1) % 1009);
  return 0;
}

// o[i, j] from u[i, j] and l[j, i]: what that means is up to where the three of them lie.
struct Mixing {
  static constexpr i64 kSide = 12;
  PlanMaker maker;
  u32 tensors[3];

  explicit Mixing(i64 window) {
    for (u32 t = 0; t < 3; ++t) tensors[t] = maker.tensor(std::string(1, "ulo"[t]), 2);
    const u32 kernel = maker.kernel("mix", {AccessMode::IN, AccessMode::IN, AccessMode::INOUT});
    maker.loop(Op::PARALLEL_FOR, "i", maker.number(kSide));
    maker.loop(Op::PARALLEL_FOR, "j", maker.number(kSide));
    const u32 i = maker.var(0);
    const u32 j = maker.var(1);
    maker.task(kernel, {maker.element(tensors[0], AccessMode::IN, {i, j}),
                        maker.element(tensors[1], AccessMode::IN, {j, i}),
                        maker.element(tensors[2], AccessMode::INOUT, {i, j})});
    maker.end();
    maker.end();
    maker.directive(Directive::WINDOW, {window, 0, 0});
  }
};

struct Native {
  ptowsp_error error{};
  ptowsp_plan* plan;
  ptowsp_program* program;
  Native(const std::vector<u8>& bytes, u32 workers) {
    plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
    const ptowsp_options options{workers, 0, 1, 0};
    program = ptowsp_program_new(plan, &options, &error);
    ptowsp_program_set_kernel(program, 0, mix_kernel, nullptr);
  }
  ~Native() {
    ptowsp_program_free(program);
    ptowsp_plan_free(plan);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  ptowsp_run* start(const Bindings& b, int32_t flags) {
    return ptowsp_run_start(program, b.data(), b.size(), flags, nullptr, nullptr, &error);
  }
  int32_t run(const Bindings& b, int32_t flags = 0) {
    ptowsp_run* r = start(b, flags);
    if (r == nullptr) return error.status;
    const int32_t status = ptowsp_run_wait(r, -1, &error);
    ptowsp_run_free(r);
    return status;
  }
};

}  // namespace

// One program for all runs and a new one for each of them leave the same in memory.
TEST(runs_of_a_program_bound_again_equal_those_of_a_new_one) {
  constexpr i64 kSide = Mixing::kSide;
  std::mt19937 random(2);
  const auto pick = [&](i64 n) { return static_cast<i64>(random() % static_cast<u32>(n)); };
  std::vector<float> used(1500);
  std::vector<float> wanted(used.size());
  for (const u32 workers : {1u, 2u, 4u}) {
    Mixing mixing(workers == 4 ? 20 : 8192);
    const std::vector<u8> bytes = mixing.maker.bytes();
    Native kept(bytes, workers);
    for (int round = 0; round < 120; ++round) {
      Bindings b;
      for (const u32 tensor : mixing.tensors) {
        b.push_back(bind_data(mixing.maker.symbol_of(tensor), nullptr, DType::F32, {kSide, kSide}));
        ptowsp_binding& last = b.back();
        if (pick(6) == 0) std::swap(last.stride[0], last.stride[1]);
        if (pick(6) == 0) last.stride[0] = 2 * kSide;
      }
      // The same shapes in several places: most of these runs use the plan of the one before.
      for (int k = 0; k < 4; ++k) {
        i64 at[3];
        for (i64& place : at) place = pick(2) == 0 ? pick(8) * 150 : 300 + pick(3) * kSide / 2;
        for (std::size_t i = 0; i < used.size(); ++i) used[i] = static_cast<float>(i % 97);
        wanted = used;
        for (std::size_t t = 0; t < 3; ++t) b[t].data = &wanted[static_cast<std::size_t>(at[t])];
        CHECK_EQ(Native(bytes, 1).run(b), 0);
        for (std::size_t t = 0; t < 3; ++t) b[t].data = &used[static_cast<std::size_t>(at[t])];
        CHECK_EQ(kept.run(b, pick(4) == 0 ? PTOWSP_RUN_HASH : 0), 0);
        CHECK(used == wanted);
      }
    }
  }
}

TEST(runs_in_flight_do_not_share_a_plan) {
  constexpr i64 kSide = Mixing::kSide;
  Mixing mixing(8192);
  const std::vector<u8> bytes = mixing.maker.bytes();
  Native native(bytes, 3);
  std::vector<std::vector<float>> data(20, std::vector<float>(3 * kSide * kSide, 1.0f));
  const auto bind = [&](std::vector<float>* to) {
    Bindings b;
    for (std::size_t t = 0; t < 3; ++t) {
      float* first = to->data() + t * kSide * kSide;
      b.push_back(
          bind_data(mixing.maker.symbol_of(mixing.tensors[t]), first, DType::F32, {kSide, kSide}));
    }
    return b;
  };
  CHECK_EQ(native.run(bind(&data[0])), 0);
  std::vector<ptowsp_run*> runs;
  for (std::size_t i = 1; i < data.size(); ++i) {
    runs.push_back(native.start(bind(&data[i]), PTOWSP_RUN_ASYNC));
  }
  for (ptowsp_run* run : runs) {
    CHECK_EQ(ptowsp_run_wait(run, -1, &native.error), 0);
    ptowsp_run_free(run);
  }
  for (const auto& each : data) CHECK(each == data[0]);
}

PTOWSP_TEST_MAIN
