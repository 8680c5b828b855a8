// Loaded and bound plans for C++ tests.
#pragma once

#include <memory>
#include <vector>

#include "harness.h"
#include "plan_maker.h"
#include "ptowsp/bind.h"

namespace ptowsp::test {

// A plan with its bytes and bindings. `ok` is false if either was refused; `error` says why.
struct Loaded {
  std::vector<u8> bytes;
  PlanView view;
  PlanFault fault;
  Error error;
  std::unique_ptr<BoundPlan> bound;

  Loaded(PlanMaker* maker, const std::vector<ptowsp_binding>& bindings) : bytes(maker->bytes()) {
    if (!validate(bytes.data(), bytes.size(), &view, &fault)) {
      fail(__FILE__, __LINE__,
           "invalid plan at " + std::to_string(fault.offset) + ": " + fault.message);
      return;
    }
    bound = BoundPlan::bind(view, bindings.data(), bindings.size(), &error);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
};

// rows x cols grid over X: out X[i + 1, j + 1], in X[i, j + 1] and X[i + 1, j].
struct Wavefront {
  PlanMaker maker;
  u32 rows, cols, x;
  std::vector<float> data;

  explicit Wavefront(const std::vector<std::pair<Directive, std::vector<i64>>>& schedule = {}) {
    rows = maker.extent("rows");
    cols = maker.extent("cols");
    x = maker.tensor("X", 2);
    const u32 cell = maker.kernel("cell", {AccessMode::IN, AccessMode::IN, AccessMode::OUT});
    maker.loop(Op::PARALLEL_FOR, "rows", maker.value(rows));
    maker.loop(Op::PARALLEL_FOR, "cols", maker.value(cols));
    const u32 i = maker.var(0);
    const u32 j = maker.var(1);
    const u32 i1 = maker.plus(i, 1);
    const u32 j1 = maker.plus(j, 1);
    maker.task(
        cell, {maker.element(x, AccessMode::IN, {i, j1}), maker.element(x, AccessMode::IN, {i1, j}),
               maker.element(x, AccessMode::OUT, {i1, j1})});
    maker.end();
    maker.end();
    for (const auto& [id, args] : schedule) maker.directive(id, args);
  }

  std::vector<ptowsp_binding> bind(i64 n, i64 m) {
    data.assign(static_cast<std::size_t>((n + 1) * (m + 1)), 1.0f);
    return {bind_value(rows, n), bind_value(cols, m),
            bind_data(maker.symbol_of(x), data.data(), DType::F32, {n + 1, m + 1})};
  }
};

// Adds the first two elements into the third, modulo a small number so that it stays exact.
inline int32_t add_kernel(const ptowsp_call* call, void*) {
  const float a = *static_cast<const float*>(call->views[0].data);
  const float b = *static_cast<const float*>(call->views[1].data);
  const float sum = a + b;
  *static_cast<float*>(call->views[2].data) = sum > 1000.0f ? sum - 1000.0f : sum;
  return 0;
}

inline std::vector<float> wavefront_result(i64 n, i64 m) {
  const auto width = static_cast<std::size_t>(m + 1);
  std::vector<float> x(static_cast<std::size_t>(n + 1) * width, 1.0f);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    for (std::size_t j = 0; j + 1 < width; ++j) {
      const float sum = x[i * width + j + 1] + x[(i + 1) * width + j];
      x[(i + 1) * width + j + 1] = sum > 1000.0f ? sum - 1000.0f : sum;
    }
  }
  return x;
}

}  // namespace ptowsp::test
