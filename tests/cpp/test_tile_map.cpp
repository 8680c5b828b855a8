#include "ptowsp/tile_map.h"

#include <map>
#include <random>
#include <set>
#include <vector>

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

// Numbers are few: they index the cells. Numbers are many: cells are found by a hash.
constexpr u64 kFew = 1000;
constexpr u64 kHuge = u64{1} << 40;

TEST(random_reads_and_writes_against_the_oracle) {
  constexpr u32 kTasks = 3000;
  for (const u64 numbers : {kFew, kHuge}) {
    for (const u32 alive : {20u, kTasks}) {  // how many tasks are alive at once
      std::mt19937 random(3);
      Oracle oracle;
      TaskTable table(kTasks, 1, false);
      TileMap map(&table, numbers, u64{2} * alive);
      std::vector<TaskRef> tasks;
      for (u32 i = 0; i < kTasks; ++i) {
        tasks.push_back(table.acquire());
        const TaskRef task = tasks.back();
        const auto is_alive = [&](u32 slot) { return slot + alive > i; };
        for (u32 access = 0; access < 2; ++access) {
          // Neighbours, and others that are far away.
          const u64 tile = (random() % 40 + (random() % 5) * (numbers / 5)) % numbers;
          std::set<u32> found;
          const auto before = [&](TaskRef t) {
            CHECK_EQ(t.tag, 1u);
            if (t.slot != i && is_alive(t.slot)) found.insert(t.slot);
          };
          const bool write = random() % 3 == 0;
          if (write) {
            map.write(tile, task, before);
          } else {
            map.read(tile, task, before);
          }
          std::set<u32> wanted = write ? oracle.write(tile, i) : oracle.read(tile, i);
          wanted.erase(i);
          std::erase_if(wanted, [&](u32 slot) { return !is_alive(slot); });
          CHECK(found == wanted);
        }
        table.publish(task.slot, 0);
        if (i + 1 >= alive) table.finish(tasks[i + 1 - alive].slot, false, [](u32) {});
      }
    }
  }
}

// Every tile is new, and every task ends soon: the table must stay as it is.
TEST(ended_tasks_make_room) {
  constexpr u32 kAlive = 50;
  TaskTable table(kAlive, 1, false);
  TileMap map(&table, kHuge, 3 * kAlive);
  const std::size_t bytes = 2 * map.bytes();  // with the second half, for gc()
  std::vector<TaskRef> live;
  for (u64 i = 0; i < 20000; ++i) {
    if (live.size() == kAlive) {
      const u32 slot = live.front().slot;
      live.erase(live.begin());
      table.finish(slot, false, [](u32) {});
      table.give_back(slot, slot);
      table.collect([](u32) {});
    }
    live.push_back(table.acquire());
    table.publish(live.back().slot, 0);
    const auto ended = [&](TaskRef t) { CHECK(table.ended(t)); };
    map.read(i * 977, live.back(), ended);
    map.write(i * 977 + 1, live.back(), ended);
    map.read(3, live.back(), ended);  // a tile that many read: its list must not grow for ever
  }
  CHECK(map.bytes() <= bytes + 16 * 6 * kAlive);
}

TEST(a_reader_between_two_writers_is_remembered_once) {
  TaskTable table(8, 1, false);
  TileMap map(&table, kFew, 16);
  std::vector<u32> found;
  const auto before = [&](TaskRef t) { found.push_back(t.slot); };
  map.write(5, table.acquire(), before);
  for (int i = 0; i < 4; ++i) map.read(5, table.acquire(), before);
  CHECK_EQ(found.size(), 4u);  // all readers wait for the writer
  found.clear();
  map.write(5, table.acquire(), before);
  CHECK_EQ(found.size(), 5u);  // the writer and all readers
  found.clear();
  map.write(5, table.acquire(), before);
  CHECK_EQ(found.size(), 1u);
}

PTOWSP_TEST_MAIN
