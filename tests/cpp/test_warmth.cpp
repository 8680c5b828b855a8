// Code that the next run starts with is found and read, until somebody calls.
#include "ptowsp/warmth.h"

#include <cstring>

#include "harness.h"

#if defined(__linux__)

using namespace ptowsp;

TEST(own_code_is_read) {
  const std::atomic<u64> called = 3;
  CHECK(read_start_code(called, 3) >= 4096);
}

TEST(whoever_calls_need_not_wait) {
  const std::atomic<u64> called = 4;
  CHECK_EQ(read_start_code(called, 3), std::size_t{0});
}

TEST(callers_code_is_read_as_well) {
  const std::atomic<u64> called = 0;
  const std::size_t before = read_start_code(called, 0);
  starts_through(reinterpret_cast<const void*>(&std::strtok));
  CHECK(read_start_code(called, 0) > before);
  // Addresses that belong to nobody, and more of them than anybody needs, add nothing.
  const std::size_t all = read_start_code(called, 0);
  for (int i = 0; i < 8; ++i) starts_through(nullptr);
  CHECK_EQ(read_start_code(called, 0), all);
}

#endif

PTOWSP_TEST_MAIN
