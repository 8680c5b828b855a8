// Programs through the C interface.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fixtures.h"
#include "ptowsp/ptowsp.h"

namespace ptowsp::test {

using Schedule = std::vector<std::pair<Directive, std::vector<i64>>>;

inline i64 number(auto value) { return static_cast<i64>(value); }

// A loaded program, freed at the end.
struct Native {
  ptowsp_error error{};
  ptowsp_plan* plan = nullptr;
  ptowsp_program* program = nullptr;

  Native(PlanMaker* maker, u32 workers, ptowsp_kernel_fn kernel = add_kernel,
         void* user = nullptr) {
    const std::vector<u8> bytes = maker->bytes();
    plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
    CHECK(plan != nullptr);
    const ptowsp_options options{workers, 0, 1, 0};
    program = ptowsp_program_new(plan, &options, &error);
    CHECK(program != nullptr);
    if (program != nullptr) ptowsp_program_set_kernel(program, 0, kernel, user);
  }
  ~Native() {
    ptowsp_program_free(program);
    ptowsp_plan_free(plan);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  int32_t run(const std::vector<ptowsp_binding>& b, ptowsp_stats* stats = nullptr) {
    ptowsp_run* r = ptowsp_run_start(program, b.data(), b.size(), 0, nullptr, nullptr, &error);
    if (r == nullptr) return error.status;
    const int32_t status = ptowsp_run_wait(r, -1, &error);
    if (stats != nullptr) ptowsp_run_stats(r, stats);
    ptowsp_run_free(r);
    return status;
  }
};

}  // namespace ptowsp::test
