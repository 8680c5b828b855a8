#include "ptowsp/descriptors.h"

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

// Kernel 7, both loops, and a column that no task has.
const std::vector<ptowsp_descriptor_cell> kCells = {{PTOWSP_CELL_CONSTANT, 7},
                                                    {PTOWSP_CELL_LOOP, 0},
                                                    {PTOWSP_CELL_LOOP, 1},
                                                    {PTOWSP_CELL_CONSTANT, UINT32_MAX}};

}  // namespace

TEST(rows_are_the_loop_indices) {
  for (const i64 n : {0, 1, 5}) {
    Wavefront w;
    const i64 m = 2 * n + 1;
    Loaded p(&w.maker, w.bind(n, m));
    DescriptorWriter writer(*p.bound, kCells.data(), 4);
    Error error;
    CHECK(writer.check(&error));
    std::vector<u32> rows(static_cast<std::size_t>(n * m) * 4);
    CHECK(writer.run(rows.data(), static_cast<u64>(n * m), nullptr, nullptr, &error));
    CHECK_EQ(writer.tasks(), static_cast<u64>(n * m));
    for (i64 t = 0; t < n * m; ++t) {
      const u32* row = &rows[static_cast<std::size_t>(t) * 4];
      CHECK_EQ(row[0], 7u);
      CHECK_EQ(row[1], static_cast<u32>(t / m));
      CHECK_EQ(row[2], static_cast<u32>(t % m));
      CHECK_EQ(row[3], UINT32_MAX);
    }
  }
}

TEST(rows_beyond_the_capacity_are_only_counted) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(10, 10));
  DescriptorWriter writer(*p.bound, kCells.data(), 4);
  std::vector<u32> rows(25 * 4 + 1, 99);
  Error error;
  CHECK(writer.run(rows.data(), 25, nullptr, nullptr, &error));
  CHECK_EQ(writer.tasks(), 100u);
  CHECK_EQ(rows[24 * 4 + 1], 2u);
  CHECK_EQ(rows[24 * 4 + 2], 4u);
  CHECK_EQ(rows[25 * 4], 99u);
}

TEST(cells_that_name_nothing_are_refused) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(2, 2));
  for (const ptowsp_descriptor_cell bad :
       {ptowsp_descriptor_cell{PTOWSP_CELL_LOOP, 2}, ptowsp_descriptor_cell{PTOWSP_CELL_FIELD, 0},
        ptowsp_descriptor_cell{17, 0}}) {
    DescriptorWriter writer(*p.bound, &bad, 1);
    Error error;
    CHECK(!writer.check(&error));
    CHECK_EQ(error.status, Status::BIND_ERROR);
  }
}

TEST(an_interrupt_ends_the_pass) {
  Wavefront w;
  Loaded p(&w.maker, w.bind(1000, 1000));
  DescriptorWriter writer(*p.bound, kCells.data(), 4);
  std::vector<u32> rows(4);
  Error error;
  CHECK(!writer.run(rows.data(), 1, [](void*) { return 1; }, nullptr, &error));
  CHECK_EQ(error.status, Status::INTERRUPTED);
}

PTOWSP_TEST_MAIN
