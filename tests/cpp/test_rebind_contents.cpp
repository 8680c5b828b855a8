// Plans that are bound again to arrays of other contents.
#include <algorithm>
#include <array>
#include <random>

#include "fixtures.h"
#include "same_plan.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

using Bindings = std::vector<ptowsp_binding>;

// Sequence b has lens[b] tokens in row b of `in`, cut into chunks of a size that all lengths
// decide: their sum over `blocks`, but at least 2. Chunk c gives out[b, c].
struct Cut {
  static constexpr i64 kSequences = 6;
  static constexpr i64 kTokens = 200;
  PlanMaker maker;
  u32 lens, blocks, in, out;
  i64 most_chunks = 8;
  std::array<i64, kSequences> lengths{100, 0, 70, 100, 93, 80};
  std::vector<float> data = std::vector<float>(4 * kSequences * kTokens);
  std::vector<u8> bytes;
  PlanView view;

  // `more_steps` make the number of chunks an expression that is worth keeping.
  explicit Cut(i64 longest = INT64_MAX, int more_steps = 0) {
    lens = maker.array("lens");
    blocks = maker.extent("blocks");
    in = maker.tensor("in", 2);
    out = maker.tensor("out", 2);
    const u32 kernel = maker.kernel("k", {AccessMode::IN, AccessMode::OUT}, 1);
    const u32 one = maker.number(1);
    const u32 all = maker.number(kSequences);
    const u32 each = maker.load(lens, maker.node(ExprOp::BOUNDVAR, 0));
    const u32 total = maker.node(ExprOp::REDUCE, 0, maker.number(0), all, each);
    const u32 mean = maker.node(ExprOp::FLOORDIV, 0, total, maker.value(blocks));
    const u32 size = maker.node(ExprOp::MAX, 0, mean, maker.number(2));
    const u32 b = maker.var(0);
    const u32 mine = maker.load(lens, b);
    const u32 more = maker.node(ExprOp::SUB, 0, maker.node(ExprOp::ADD, 0, mine, size), one);
    u32 chunks = maker.node(ExprOp::FLOORDIV, 0, more, size);
    for (int i = 0; i < more_steps; ++i) chunks = maker.node(ExprOp::MAX, 0, chunks, one);
    const u32 tasks = maker.node(ExprOp::MUL, 0, chunks, maker.number(2));
    maker.loop(Op::PARALLEL_FOR, "batch", all, kNone, kNone, tasks);
    maker.loop(Op::PARALLEL_FOR, "chunks", chunks);
    const u32 c = maker.var(1);
    const u32 begin = maker.node(ExprOp::MUL, 0, c, size);
    const u32 left = maker.node(ExprOp::SUB, 0, mine, begin);
    const u32 extent = maker.node(ExprOp::MIN, 0, size, left);
    maker.task(kernel, {{in, AccessMode::IN, {{b, one, one, true}, {begin, extent, one}}},
                        {out, AccessMode::OUT, {{b, one, one, true}, {c, one, one}}}});
    maker.task(kernel, {{in, AccessMode::IN, {{b, one, one, true}, {maker.number(0), mine, one}}},
                        {out, AccessMode::OUT, {{b, one, one, true}, {c, one, one}}}});
    maker.end();
    maker.end();
    maker.limit(lens, longest);
    maker.set_ragged();
    bytes = maker.bytes();
    PlanFault fault;
    if (!validate(bytes.data(), bytes.size(), &view, &fault)) {
      fail(__FILE__, __LINE__, "invalid plan: " + fault.message);
    }
  }
  Bindings bind(i64 tokens = kTokens) {
    return {bind_data(lens, lengths.data(), DType::I64, {kSequences}),
            bind_value(blocks, most_chunks),
            bind_data(maker.symbol_of(in), data.data(), DType::F32, {kSequences, tokens}),
            bind_data(maker.symbol_of(out), &data[2 * kSequences * kTokens], DType::F32,
                      {kSequences, kTokens})};
  }
  std::unique_ptr<BoundPlan> bound(const Bindings& to,
                                   const std::vector<ArrayRange>& expected = {}) const {
    Error error;
    BindOptions options;
    options.expected = expected;
    std::unique_ptr<BoundPlan> plan = BoundPlan::bind(view, to.data(), to.size(), &error, options);
    if (plan != nullptr) plan->remember(to.data(), to.size());
    return plan;
  }
};

bool again(BoundPlan* plan, const Bindings& to) { return plan->rebind(to.data(), to.size()); }

}  // namespace

TEST(contents_inside_of_what_they_were_keep_the_plan) {
  Cut cut;
  const Bindings b = cut.bind();
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  std::swap(cut.lengths[0], cut.lengths[2]);
  CHECK(again(plan.get(), b));
  check_same(*plan, *cut.bound(b));
  cut.lengths[2] -= 1;  // the sum is another one, the mean is not
  CHECK(again(plan.get(), b));
  check_same(*plan, *cut.bound(b, expected_by(*plan)));
  std::array<i64, Cut::kSequences> copy = cut.lengths;
  Bindings elsewhere = b;
  elsewhere[0].data = copy.data();
  CHECK(again(plan.get(), elsewhere));
  copy[2] -= 1;  // read from its new place
  CHECK(again(plan.get(), elsewhere));
  check_same(*plan, *cut.bound(elsewhere, expected_by(*plan)));
}

// What a thread has kept of an expression does not count for other contents.
TEST(values_that_are_kept_are_worked_out_anew) {
  Cut cut(INT64_MAX, 20);
  const Bindings b = cut.bind();
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  CHECK(plan->independent_axis() != kNone);
  const u32 chunks = plan->plan().count(Section::AXIS) - 1;
  const auto chunks_of = [&](i64 sequence) {
    const i64 vars[kMaxVars] = {sequence};
    i64 found = 0;
    Error error;
    CHECK(plan->eval(plan->loop(chunks).extent, vars, &found, &error));
    return found;
  };
  const i64 before = chunks_of(0);
  CHECK_EQ(chunks_of(0), before);
  std::swap(cut.lengths[0], cut.lengths[1]);
  CHECK(again(plan.get(), b));
  check_same(*plan, *cut.bound(b));
  CHECK_EQ(chunks_of(1), before);
  CHECK_EQ(chunks_of(0), i64{1});
}

TEST(contents_that_lead_to_another_constant_are_refused) {
  Cut cut;
  const Bindings b = cut.bind();
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  cut.lengths[3] = 20;  // chunks are of another size
  CHECK(!again(plan.get(), b));
  CHECK(!plan->take_expected().empty());
}

TEST(contents_that_return_are_read_again) {
  Cut cut;
  const Bindings b = cut.bind();
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  const std::array<i64, Cut::kSequences> first = cut.lengths;
  cut.lengths[4] = 94;
  CHECK(again(plan.get(), b));
  cut.lengths = first;
  CHECK(again(plan.get(), b));
  check_same(*plan, *cut.bound(b));
}

TEST(an_array_read_backwards_is_compared_as_it_is_read) {
  Cut cut;
  Bindings b = cut.bind();
  b[0].data = &cut.lengths[Cut::kSequences - 1];
  b[0].stride[0] = -1;
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  std::swap(cut.lengths[1], cut.lengths[4]);
  CHECK(again(plan.get(), b));
  check_same(*plan, *cut.bound(b));
}

TEST(lengths_that_grow_at_each_run_are_bound_anew_once_in_a_while) {
  Cut cut;
  cut.most_chunks = 1000;
  const Bindings b = cut.bind();
  std::unique_ptr<BoundPlan> plan = cut.bound(b);
  u32 anew = 0;
  for (int step = 0; step < 90; ++step) {
    for (i64& length : cut.lengths) length += 1;
    if (!again(plan.get(), b)) {
      const std::vector<ArrayRange> expected = plan->take_expected();
      CHECK(!expected.empty());
      plan = cut.bound(b, expected);
      anew += 1;
    }
    check_same(*plan, *cut.bound(b, expected_by(*plan)));
  }
  CHECK(anew > 0 && anew <= 15);
}

// The second call reads a whole row: proved as long as it is not longer than the tensor.
TEST(no_more_is_expected_than_tensors_hold_and_numbers_may_be) {
  for (const i64 tokens : {101, 103, 200}) {
    Cut cut(104);
    const Bindings b = cut.bind(tokens);
    const std::unique_ptr<BoundPlan> plan = cut.bound(b);
    cut.lengths[0] = 101;
    CHECK(!again(plan.get(), b));
    const std::vector<ArrayRange> expected = plan->take_expected();
    const i64 most = expected[cut.lens].elements.hi;
    CHECK(most >= 101 && most <= std::min<i64>(tokens, 104));
    const std::unique_ptr<BoundPlan> more = cut.bound(b, expected);
    CHECK_EQ(more->accesses_proved(), plan->accesses_proved());
    cut.lengths[0] = most + 1;
    CHECK(!again(more.get(), b));
  }
}

TEST(what_is_expected_is_what_was_asked_for_no_more) {
  Cut cut;
  const Bindings b = cut.bind();
  const std::unique_ptr<BoundPlan> plan = cut.bound(b);
  plan->expect_nothing();
  cut.lengths[0] = 120;
  CHECK(!again(plan.get(), b));
  CHECK(plan->take_expected().empty());
}

TEST(other_contents_agree_with_binding) {
  std::mt19937 random(5);
  const auto pick = [&](i64 n) { return static_cast<i64>(random() % static_cast<u32>(n)); };
  u32 served = 0;
  u32 refused = 0;
  for (int round = 0; round < 60; ++round) {
    Cut cut;
    cut.most_chunks = 1 + pick(400);
    const i64 spread = 1 + pick(60);
    const i64 least = pick(130);
    const auto draw = [&] {
      for (i64& length : cut.lengths) length = least + pick(spread);
    };
    draw();
    const Bindings b = cut.bind();
    std::unique_ptr<BoundPlan> plan = cut.bound(b);
    for (int k = 0; k < 12; ++k) {
      if (pick(3) == 0) {
        draw();
      } else {
        cut.lengths[static_cast<std::size_t>(pick(Cut::kSequences))] = least + pick(spread);
      }
      const bool kept = again(plan.get(), b);
      (kept ? served : refused) += 1;
      if (!kept) plan = cut.bound(b, plan->take_expected());
      check_same(*plan, *cut.bound(b, expected_by(*plan)));
      // Whatever is expected, tasks are those of what is there.
      const std::unique_ptr<BoundPlan> exact = cut.bound(b);
      CHECK(plan->accesses_proved() <= exact->accesses_proved());
      u64 tasks[2] = {};
      CHECK_EQ(plan->total_tasks(&tasks[0]), exact->total_tasks(&tasks[1]));
      CHECK_EQ(tasks[0], tasks[1]);
    }
  }
  CHECK(served > 200 && refused > 50);
}

PTOWSP_TEST_MAIN
