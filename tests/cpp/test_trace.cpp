#include "ptowsp/trace.h"

#include <filesystem>
#include <thread>
#include <vector>

#include "harness.h"

using namespace ptowsp;

namespace {

static_assert(sizeof(ptowsp_traced) == 64, "indices lie behind it, aligned");
static_assert(sizeof(ptowsp_block) == 16 && sizeof(ptowsp_edge) == 16);

void add(TraceRing* ring, u64 number) { std::memcpy(ring->next(), &number, sizeof(number)); }

std::vector<u64> numbers(const TraceRing& ring) {
  std::vector<u64> out;
  ring.each([&](const std::byte* entries, u64 count) {
    for (u64 i = 0; i < count; ++i) {
      u64 number = 0;
      std::memcpy(&number, entries + i * ring.entry(), sizeof(number));
      out.push_back(number);
    }
  });
  return out;
}

}  // namespace

TEST(a_ring_keeps_the_newest) {
  TraceRing ring(PTOWSP_BLOCK_EDGES, 3, sizeof(u64));
  for (u64 i = 0; i < 2; ++i) add(&ring, i);
  CHECK(numbers(ring) == (std::vector<u64>{0, 1}));
  for (u64 i = 2; i < 8; ++i) add(&ring, i);
  CHECK(numbers(ring) == (std::vector<u64>{5, 6, 7}));
  CHECK_EQ(ring.total(), 8u);
  CHECK_EQ(ring.dropped(), 5u);
  ring.restart(nullptr);
  CHECK_EQ(ring.size() + ring.dropped(), 0u);
}

TEST(a_spool_gets_everything_from_everybody) {
  constexpr u64 kEach = 1000;
  const std::string path = std::filesystem::temp_directory_path() / "ptowsp_test_trace.events";
  {
    TraceSpool spool(path);
    CHECK(spool.is_open());
    std::vector<std::thread> threads;
    for (u64 t = 0; t < 3; ++t) {
      threads.emplace_back([&spool, t] {
        TraceRing ring(PTOWSP_BLOCK_TASKS, 7, sizeof(u64));
        ring.restart(&spool);
        for (u64 i = 0; i < kEach; ++i) add(&ring, t * kEach + i);
        ring.flush();
        CHECK_EQ(ring.dropped(), 0u);
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(spool.close());
  }
  std::vector<u64> seen(3 * kEach);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  ptowsp_block block{};
  while (std::fread(&block, sizeof(block), 1, file) == 1) {
    CHECK_EQ(block.kind, static_cast<u32>(PTOWSP_BLOCK_TASKS));
    std::vector<u64> part(block.bytes / sizeof(u64));
    CHECK_EQ(std::fread(part.data(), sizeof(u64), part.size(), file), part.size());
    for (const u64 number : part) seen[number] += 1;
  }
  std::fclose(file);
  std::filesystem::remove(path);
  for (const u64 times : seen) CHECK_EQ(times, 1u);
}

TEST(a_spool_without_a_file_says_so) {
  TraceSpool spool("/nowhere/at/all");
  CHECK(!spool.is_open());
  TraceRing ring(PTOWSP_BLOCK_TASKS, 1, sizeof(u64));
  ring.restart(&spool);
  for (u64 i = 0; i < 3; ++i) add(&ring, i);
  CHECK(!spool.close());
}

PTOWSP_TEST_MAIN
