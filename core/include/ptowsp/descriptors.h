// Work descriptors: every task of a bound plan as a row of 32-bit words, no pointers.
//
// What stands in a row is said by a table of cells, one for each site and column: the caller reads
// the plan, chooses the columns and names them. Rows of one site in one loop differ by constants:
// what a column begins with is worked out where the loop begins, or goes on behind tasks of another
// site. Iterations that all go the same way are written without walking the plan.
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
  // Rows of one site in one run of its innermost loop. A column that is a line is
  // value + step * (index of that loop - first).
  struct Line {
    i64 value = 0;
    i64 step = 0;
  };
  struct Rows {
    u32 site = kNone;
    u32 level = 0;  // of the site
    i64 first = 0;
    i64 vars[kMaxLoops] = {};  // of the loops around the innermost one
    bool fit = false;          // all lines fit until the loop ends
    u32 num_others = 0;
    u32 others[kMostColumns] = {};  // columns that are no lines
    Line lines[kMostColumns] = {};
  };
  // The first of a task's temporaries in the workspace.
  struct Place {
    u32 alloc = kNone;
    u64 base = 0;  // of its first copy
    u64 bytes = 0;
  };

  const ptowsp_descriptor_cell& cell(u32 site, u32 column) const {
    return cells_[static_cast<std::size_t>(site) * columns_ + column];
  }
  void find_places();
  bool are_open() const;
  bool open(Error* error);
  bool open_column(u32 column, Error* error);
  bool varies(u32 node) const;
  i64 last_index() const;
  bool lines_fit(i64 index, Error* error) const;
  bool fits(u32 column, i64 value, Error* error) const;
  bool write_rows(u32* out, u32 frame, i64 count, Error* error);
  bool write_lines(u32* out, u32 frame, i64 count, Error* error);
  void write_places(u32 column, u32* out, i64 count);
  bool write_values(u32 column, u32* out, u32 frame, i64 count, Error* error);
  void pass(u32 frame, i64 count);

  const BoundPlan& plan_;
  const ptowsp_descriptor_cell* cells_;
  const u32 columns_;
  Walk walk_;
  Rows rows_;
  std::vector<Place> places_;  // by SITE
};

}  // namespace ptowsp
