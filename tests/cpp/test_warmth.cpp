// Code that the next run starts with is found and read, until somebody calls.
#include "ptowsp/warmth.h"

#include <cstring>

#include "harness.h"

#if defined(__linux__)

using namespace ptowsp;

namespace {
bool never() { return false; }
}  // namespace

TEST(own_code_is_read) { CHECK(read_start_code(never) >= 4096); }

TEST(nobody_needs_to_wait_for_it) {
  CHECK_EQ(read_start_code([] { return true; }), std::size_t{0});
  int asked = 0;
  CHECK_EQ(read_start_code([&] { return ++asked > 1; }), std::size_t{4096});
}

TEST(callers_code_is_read_as_well) {
  const std::size_t before = read_start_code(never);
  starts_through(reinterpret_cast<const void*>(&std::strtok));
  CHECK(read_start_code(never) > before);
  // Addresses that belong to nobody, and more of them than anybody needs, add nothing.
  const std::size_t all = read_start_code(never);
  for (int i = 0; i < 8; ++i) starts_through(nullptr);
  CHECK_EQ(read_start_code(never), all);
}

#endif

PTOWSP_TEST_MAIN
