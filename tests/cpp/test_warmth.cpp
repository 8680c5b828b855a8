// Code that the next run starts with is found and read, until somebody calls.
#include "ptowsp/warmth.h"

#include <cstring>
#if defined(__linux__)
#include <dlfcn.h>
#endif

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
  Dl_info own{}, other{};
  const auto* address = reinterpret_cast<const void*>(&std::strtok);
  CHECK(dladdr(reinterpret_cast<const void*>(&read_start_code), &own) != 0);
  if (dladdr(address, &other) == 0 || own.dli_fbase == other.dli_fbase) return;  // linked into one
  const std::size_t before = read_start_code(never);
  starts_through(address);
  const std::size_t all = read_start_code(never);
  CHECK(all > before);
  starts_through(nullptr);  // the first one counts
  CHECK_EQ(read_start_code(never), all);
}

#endif

PTOWSP_TEST_MAIN
