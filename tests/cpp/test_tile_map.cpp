#include "ptowsp/tile_map.h"

#include <map>
#include <random>
#include <set>

#include "harness.h"

using namespace ptowsp;

namespace {

// What must wait for what, by remembering everything.
struct Oracle {
  std::map<u64, u32> writer;
  std::map<u64, std::set<u32>> readers;

  std::set<u32> read(u64 tile, u32 task) {
    std::set<u32> before;
    if (writer.count(tile) != 0) before.insert(writer[tile]);
    readers[tile].insert(task);
    return before;
  }
  std::set<u32> write(u64 tile, u32 task) {
    std::set<u32> before = readers[tile];
    if (writer.count(tile) != 0) before.insert(writer[tile]);
    readers[tile].clear();
    writer[tile] = task;
    return before;
  }
};

}  // namespace

TEST(random_reads_and_writes_against_the_oracle) {
  constexpr u32 kSlots = 500;
  std::mt19937 random(3);
  Oracle oracle;
  TileMap map(kSlots, 2);
  for (u32 slot = 0; slot < kSlots; ++slot) {  // nothing ends: every dependence is found
    for (u32 access = 0; access < 2; ++access) {
      const u64 tile = random() % 40 + (random() % 3) * 4096;  // same bucket, other tile
      std::set<u32> found;
      const auto before = [&](TaskRef t) {
        CHECK_EQ(t.tag, t.slot + 7);
        if (t.slot != slot) found.insert(t.slot);
      };
      const bool write = random() % 3 == 0;
      if (write) {
        map.write(tile, slot, slot + 7, access, before);
      } else {
        map.read(tile, slot, slot + 7, access, before);
      }
      std::set<u32> wanted = write ? oracle.write(tile, slot) : oracle.read(tile, slot);
      wanted.erase(slot);
      CHECK(found == wanted);
    }
  }
}

TEST(forgotten_slots_leave_nothing_behind) {
  TileMap map(8, 2);
  const auto none = [](TaskRef) { CHECK(false); };
  for (u32 round = 0; round < 1000; ++round) {
    const u32 slot = round % 8;
    map.forget(slot);
    map.read(round * 2, slot, round, 0, none);
    map.write(round * 2 + 1, slot, round, 1, none);
  }
  for (u32 slot = 0; slot < 8; ++slot) map.forget(slot);
  CHECK_EQ(map.live(), 0u);
}

TEST(a_reader_between_two_writers_is_remembered_once) {
  TileMap map(4, 1);
  std::vector<u32> found;
  const auto before = [&](TaskRef t) { found.push_back(t.slot); };
  map.write(5, 0, 1, 0, before);
  map.read(5, 1, 1, 0, before);
  map.read(5, 2, 1, 0, before);
  CHECK_EQ(found.size(), 2u);  // both readers wait for the writer
  found.clear();
  map.write(5, 3, 1, 0, before);
  CHECK_EQ(found.size(), 3u);  // the writer and both readers
}

PTOWSP_TEST_MAIN
