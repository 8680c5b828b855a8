// Work descriptors: every task of a bound plan as a row of 32-bit words, no pointers.
//
// What stands in a row is said by a table of cells, one for each site and column: the caller reads
// the plan, chooses the columns and names them. Rows of a leaf loop differ by constants, so they
// are written without walking the plan.
#pragma once

#include <vector>

#include "ptowsp/network.h"

namespace ptowsp {

class DescriptorWriter {
 public:
  static constexpr u32 kAbsent = 0xFFFF'FFFF;  // the task has no such number
  static constexpr u32 kMostColumns = 64;

  // `cells` has `columns` entries for each SITE; the plan is bound with BindOptions::fields.
  DescriptorWriter(const BoundPlan& plan, const ptowsp_descriptor_cell* cells, u32 columns);

  // Whether every cell names something that is there.
  bool check(Error* error) const;

  // Writes the rows of the first `capacity` tasks, in program order, and counts all of them.
  bool run(u32* out, u64 capacity, ptowsp_interrupt_fn interrupt, void* user, Error* error);

  u64 tasks() const { return walk_.cursor().next_task; }

 private:
  // A column while a run of rows is written.
  struct Line {
    i64 value = 0;
    i64 step = 0;
    bool each = false;  // not a line: evaluated for each row
  };

  const ptowsp_descriptor_cell& cell(u32 site, u32 column) const {
    return cells_[static_cast<std::size_t>(site) * columns_ + column];
  }
  void find_levels();
  bool set_line(u32 site, u32 column, Line* line, Error* error) const;
  u64 workspace_at(const BoundSite& site) const;
  bool fits(u32 column, i64 value, Error* error) const;
  void blame(u32* out, i64 count, Error* error);
  bool write_rows(u32* out, i64 count, Error* error);

  const BoundPlan& plan_;
  const ptowsp_descriptor_cell* cells_;
  const u32 columns_;
  Walk walk_;
  std::vector<u32> levels_;  // by EXPR: 1 + the innermost loop that it reads
  std::vector<u64> base_;    // by ALLOC: where its first copy lies
};

}  // namespace ptowsp
