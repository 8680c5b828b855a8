#include "ptowsp/ready_set.h"

#include <random>
#include <set>

#include "harness.h"

using namespace ptowsp;

TEST(fifo_gives_the_smallest_seq) {
  FifoReady ready(4);
  for (const u64 seq : {5u, 1u, 9u, 3u}) ready.push(static_cast<u32>(seq), seq);
  u32 slot = 0;
  for (const u32 want : {1u, 3u, 5u, 9u}) {
    CHECK(ready.take(&slot));
    CHECK_EQ(slot, want);
  }
  CHECK(!ready.take(&slot));
}

// Seqs come in any order, some of them far behind or far ahead of the rest.
TEST(fifo_against_a_sorted_set) {
  std::mt19937_64 random(5);
  FifoReady ready(16);
  std::set<u64> wanted;
  u64 newest = 1000;
  for (int i = 0; i < 100000; ++i) {
    const u64 behind = random() % 10 == 0 ? random() % newest : random() % 100;
    const u64 seq = newest - std::min(behind, newest);
    newest += random() % 3 + (random() % 1000 == 0 ? 5000 : 0);
    if (wanted.size() < 50 && wanted.insert(seq).second) ready.push(static_cast<u32>(seq), seq);
    u32 slot = 0;
    if (random() % 2 != 0 || wanted.empty()) continue;
    CHECK(ready.take(&slot));
    CHECK_EQ(slot, static_cast<u32>(*wanted.begin()));
    wanted.erase(wanted.begin());
    CHECK_EQ(ready.size(), wanted.size());
  }
}

PTOWSP_TEST_MAIN
