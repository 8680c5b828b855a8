#include "ptowsp/bind.h"

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

TEST(affine_regions_are_proved_and_exact) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 20));
  CHECK(p.bound != nullptr);
  if (p.bound == nullptr) return;
  CHECK_EQ(p.bound->accesses_checked(), 0u);
  CHECK_EQ(p.bound->accesses_proved(), 3u);
  const i64 loops[2] = {4, 7};
  Region r;
  Error e;
  CHECK(p.bound->region(0, loops, &r, &e));
  CHECK_EQ(r.start[0], 4);
  CHECK_EQ(r.start[1], 8);
  CHECK_EQ(r.byte_hi - r.byte_lo, 4u);
  CHECK_EQ(r.byte_lo, reinterpret_cast<u64>(w.data.data() + 4 * 21 + 8));
}

TEST(a_tensor_too_small_is_checked_per_task_and_found) {
  Wavefront w;
  auto bindings = w.bind(10, 20);
  bindings[2].shape[1] = 20;
  Loaded p(&w.maker, bindings);
  CHECK(p.bound->accesses_checked() > 0);
  const i64 inside[2] = {0, 18};
  const i64 outside[2] = {0, 19};
  Region r;
  Error e;
  CHECK(p.bound->region(2, inside, &r, &e));
  CHECK(!p.bound->region(2, outside, &r, &e));
  CHECK(e.message.find("outside its extent 20") != std::string::npos);
}

// One task per row: `length` elements from the second column of a row on, as a tile of 3.
struct Tiles {
  PlanMaker maker;
  u32 rows, lens, x;
  std::vector<i64> lengths;
  std::vector<float> data = std::vector<float>(64);

  Tiles() {
    rows = maker.extent("rows");
    lens = maker.array("lens");
    x = maker.tensor("X", 2);
    const u32 fill = maker.kernel("fill", {AccessMode::OUT}, 1, DType::F32, {maker.number(3)});
    maker.loop(Op::PARALLEL_FOR, "rows", maker.value(rows));
    const u32 i = maker.var(0);
    maker.task(fill, {{x,
                       AccessMode::OUT,
                       {{i, maker.number(1), maker.number(1), true},
                        {maker.number(1), maker.load(lens, i), maker.number(1)}}}});
    maker.end();
  }

  std::vector<ptowsp_binding> bind(std::vector<i64> values) {
    lengths = std::move(values);
    const i64 n = static_cast<i64>(lengths.size());
    return {bind_value(rows, n), bind_data(lens, lengths.data(), DType::I64, {n}),
            bind_data(maker.symbol_of(x), data.data(), DType::F32, {n, 8})};
  }
};

TEST(tiles_that_fit_are_proved) {
  Tiles t;
  Loaded p(&t.maker, t.bind({3, 0, 2}));
  CHECK_EQ(p.bound->accesses_checked(), 0u);
  CHECK(!p.bound->access(0).limited);
}

TEST(tiles_that_may_not_fit_are_checked_per_task) {
  Tiles t;
  Loaded p(&t.maker, t.bind({3, 4, 2}));
  CHECK_EQ(p.bound->accesses_checked(), 1u);
  CHECK(p.bound->access(0).limited);
  CHECK(!p.bound->access(0).checked);
  CHECK(!p.bound->sites()[0].simple);
  const i64 small[1] = {0};
  const i64 large[1] = {1};
  Region r;
  Error e;
  CHECK(p.bound->region(0, small, &r, &e));
  CHECK(!p.bound->region(0, large, &r, &e));
  CHECK(e.status == Status::TILE_MISFIT);
  CHECK_EQ(e.message, "4 elements in dimension 0 of parameter 'p0', whose tile holds 3");
}

TEST(what_is_proved_of_an_access_holds_for_one_word) {
  PlanMaker maker;
  const u32 x = maker.tensor("X", 1);
  const u32 touch = maker.kernel("touch", {AccessMode::INOUT});
  maker.loop(Op::PARALLEL_FOR, "long", maker.number(10));
  maker.task(touch, {maker.element(x, AccessMode::INOUT, {maker.var(0)})});
  maker.end();
  maker.loop(Op::PARALLEL_FOR, "short", maker.number(4));
  maker.task(touch, {{x, AccessMode::INOUT, {}, 0}});
  maker.end();
  float data[4] = {};
  Loaded p(&maker, {bind_data(maker.symbol_of(x), data, DType::F32, {4})});
  const BoundSite& first = p.bound->sites()[0];
  const BoundSite& second = p.bound->sites()[1];
  CHECK(p.bound->access(p.bound->site_access(first, 0)).checked);
  CHECK(!p.bound->access(p.bound->site_access(second, 0)).checked);
}

TEST(strides_that_a_plan_asks_for) {
  for (const i64 stride : {4, 5}) {
    PlanMaker maker;
    const u32 x = maker.tensor("X", 2, DType::F32, {maker.number(stride), maker.number(1)});
    float data[64] = {};
    auto binding = bind_data(maker.symbol_of(x), data, DType::F32, {3, 4});
    Loaded p(&maker, {binding});
    CHECK_EQ(p.bound != nullptr, stride == 4);
    if (stride == 4) continue;
    CHECK(p.error.status == Status::STRIDE_ERROR);
    CHECK_EQ(p.error.symbol, maker.symbol_of(x));
    CHECK_EQ(p.error.message, "tensor 'X' has the stride 4 in dimension 0, its layout says 5");
  }
}

TEST(extents_that_a_plan_asks_for) {
  for (const i64 wanted : {4, 5}) {
    PlanMaker maker;
    const u32 x = maker.tensor("X", 2, DType::F32, {}, {kNone, maker.number(wanted)});
    float data[64] = {};
    Loaded p(&maker, {bind_data(maker.symbol_of(x), data, DType::F32, {0, 4})});
    CHECK_EQ(p.bound != nullptr, wanted == 4);
    if (wanted == 4) continue;
    CHECK(p.error.status == Status::EXTENT_ERROR);
    CHECK_EQ(p.error.symbol, maker.symbol_of(x));
    CHECK_EQ(p.error.message,
             "tensor 'X' has the extent 4 in dimension 1, the workload is made for 5");
  }
}

TEST(wrong_bindings_are_refused) {
  {
    Wavefront w;
    auto b = w.bind(4, 4);
    b[0].value = -1;
    Loaded p(&w.maker, b);
    CHECK(p.bound == nullptr);
    CHECK(p.error.message.find("'rows' is -1") != std::string::npos);
  }
  {
    Wavefront w;
    auto b = w.bind(4, 4);
    b.pop_back();
    Loaded p(&w.maker, b);
    CHECK(p.error.message.find("nothing is bound to 'X'") != std::string::npos);
  }
  {
    Wavefront w;
    auto b = w.bind(4, 4);
    b[2].dtype = static_cast<u32>(DType::F64);
    Loaded p(&w.maker, b);
    CHECK(p.error.message.find("another dtype") != std::string::npos);
  }
  {
    Wavefront w;
    auto b = w.bind(4, 4);
    b[2].rank = 1;
    Loaded p(&w.maker, b);
    CHECK(p.error.message.find("1 dimensions, the plan expects 2") != std::string::npos);
  }
  {
    Wavefront w;
    auto b = w.bind(4, 4);
    b[2].read_only = 1;
    Loaded p(&w.maker, b);
    CHECK(p.error.message.find("read-only") != std::string::npos);
  }
}

namespace {

// for b in P(batch): for t in P(lengths[b]): k(out X[b, t])
struct Ragged {
  PlanMaker maker;
  u32 batch, lengths, x;
  std::vector<i64> lens;
  std::vector<float> data = std::vector<float>(64);

  explicit Ragged(std::vector<i64> values) : lens(std::move(values)) {
    batch = maker.extent("batch");
    lengths = maker.array("lens");
    x = maker.tensor("X", 2);
    const u32 k = maker.kernel("k", {AccessMode::OUT});
    maker.loop(Op::PARALLEL_FOR, "batch", maker.value(batch));
    const u32 outer = maker.last_axis();
    const u32 b = maker.var(0);
    maker.loop(Op::PARALLEL_FOR, "toks", maker.load(lengths, b), lengths, outer);
    maker.task(k, {maker.element(x, AccessMode::OUT, {b, maker.var(1)})});
    maker.end();
    maker.end();
  }
  std::vector<ptowsp_binding> bind(i64 n) {
    return {bind_value(batch, n),
            bind_data(lengths, lens.data(), DType::I64, {static_cast<i64>(lens.size())}),
            bind_data(maker.symbol_of(x), data.data(), DType::F32, {8, 8})};
  }
};

}  // namespace

TEST(ragged_lengths_are_as_many_as_the_batch) {
  Ragged good({3, 0, 8});
  Loaded p(&good.maker, good.bind(3));
  CHECK(p.bound != nullptr);
  CHECK_EQ(p.bound->accesses_checked(), 0u);
  Ragged bad({3, 0, 8});
  Loaded q(&bad.maker, bad.bind(4));
  CHECK(q.bound == nullptr);
  CHECK(q.error.message.find("has 3 lengths, but axis 'batch' has 4") != std::string::npos);
  Ragged negative({3, -2, 8});
  Loaded r(&negative.maker, negative.bind(3));
  CHECK(r.error.message.find("holds -2") != std::string::npos);
}

TEST(an_array_that_tasks_write_is_refused) {
  Ragged r({3, 0, 8});
  auto b = r.bind(3);
  b[2].data = r.lens.data();
  b[2].shape[0] = b[2].shape[1] = 2;
  Loaded p(&r.maker, b);
  CHECK(p.bound == nullptr);
  CHECK(p.error.message.find("shares memory with tensor") != std::string::npos);
}

TEST(tensors_that_share_bytes_join_one_storage) {
  PlanMaker m;
  const u32 a = m.tensor("A", 1);
  const u32 b = m.tensor("B", 1);
  const u32 c = m.tensor("C", 1);
  const u32 d = m.tensor("D", 1);
  std::vector<float> data(100);
  std::vector<ptowsp_binding> bindings = {
      bind_data(m.symbol_of(a), data.data(), DType::F32, {50}),
      bind_data(m.symbol_of(b), data.data() + 49, DType::F32, {10}),
      bind_data(m.symbol_of(c), data.data() + 59, DType::F32, {10}),
      bind_data(m.symbol_of(d), data.data(), DType::F32, {50})};
  Loaded p(&m, bindings);
  const auto& t = p.bound->tensors();
  CHECK_EQ(t[a].storage, t[b].storage);
  CHECK(t[b].storage != t[c].storage);
  CHECK_EQ(t[a].geometry, t[d].geometry);
  CHECK(t[a].geometry != t[b].geometry);
}

TEST(a_broadcast_view_is_compared_by_bytes) {
  PlanMaker m;
  const u32 a = m.tensor("A", 2);
  const u32 b = m.tensor("B", 2);
  std::vector<float> data(100);
  auto broadcast = bind_data(m.symbol_of(a), data.data(), DType::F32, {4, 5});
  broadcast.stride[0] = 0;
  Loaded p(&m, {broadcast, bind_data(m.symbol_of(b), data.data() + 50, DType::F32, {4, 5})});
  CHECK(p.bound->tensors()[a].by_bytes);
  CHECK(!p.bound->tensors()[b].by_bytes);
}

TEST(expressions_that_overflow_or_divide_by_zero_are_errors) {
  PlanMaker m;
  const u32 n = m.extent("n");
  const u32 x = m.tensor("X", 1);
  const u32 k = m.kernel("k", {AccessMode::OUT});
  m.loop(Op::PARALLEL_FOR, "n", m.number(4));
  const u32 i = m.var(0);
  const u32 huge = m.node(ExprOp::MUL, 0, m.times(i, INT64_MAX), m.value(n));
  const u32 divided = m.node(ExprOp::FLOORDIV, 0, i, m.plus(m.value(n), -3));
  m.task(k, {m.element(x, AccessMode::OUT, {huge})});
  m.task(k, {m.element(x, AccessMode::OUT, {divided})});
  m.end();
  std::vector<float> data(8);
  Loaded p(&m, {bind_value(n, 3), bind_data(m.symbol_of(x), data.data(), DType::F32, {8})});
  const i64 loops[1] = {2};
  Region r;
  Error e;
  CHECK(!p.bound->region(0, loops, &r, &e));
  CHECK(e.message.find("overflow") != std::string::npos);
  CHECK(!p.bound->region(1, loops, &r, &e));
  CHECK(e.message.find("division by zero") != std::string::npos);
}

TEST(reductions_and_searches_are_evaluated) {
  PlanMaker m;
  const u32 lens = m.array("lens");
  const u32 x = m.tensor("X", 1);
  const u32 k = m.kernel("k", {AccessMode::OUT});
  m.loop(Op::PARALLEL_FOR, "n", m.number(4));
  const u32 bound = m.node(ExprOp::BOUNDVAR, 0);
  const u32 element = m.load(lens, bound);
  const u32 four = m.number(4);
  const u32 zero = m.number(0);
  const u32 sum = m.node(ExprOp::REDUCE, 0, zero, four, element);
  const u32 most = m.node(ExprOp::REDUCE, static_cast<u16>(ReduceOp::MAX), zero, four, element);
  const u32 six = m.number(6);
  const u32 reached = m.add<Section::EXPR>(
      Expr{static_cast<u8>(ExprOp::GE), static_cast<u8>(ScalarType::BOOL), 0, element, six, kNone});
  const u32 where = m.node(ExprOp::SEARCH, 0, zero, four, reached);
  for (const u32 e : {sum, most, where}) m.task(k, {m.element(x, AccessMode::OUT, {e})});
  m.end();
  std::vector<float> data(64);
  std::vector<i64> values = {1, 2, 6, 9};
  Loaded p(&m, {bind_data(lens, values.data(), DType::I64, {4}),
                bind_data(m.symbol_of(x), data.data(), DType::F32, {64})});
  if (p.bound == nullptr) return;
  const i64 loops[1] = {0};
  const i64 want[3] = {18, 9, 2};
  for (u32 a = 0; a < 3; ++a) {
    Region r;
    Error e;
    CHECK(p.bound->region(a, loops, &r, &e));
    CHECK_EQ(r.start[0], want[a]);
  }
}

PTOWSP_TEST_MAIN
