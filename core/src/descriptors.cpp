#include "ptowsp/descriptors.h"

#include <algorithm>

#include "plan_facts.h"

namespace ptowsp {

DescriptorWriter::DescriptorWriter(const BoundPlan& plan, const ptowsp_descriptor_cell* cells,
                                   u32 columns)
    : plan_(plan), cells_(cells), columns_(columns), walk_(plan, true) {
  find_places();
}

void DescriptorWriter::find_places() {
  std::vector<Place> allocs;
  u64 at = 0;
  for (u32 i = 0; i < plan_.plan().count(Section::ALLOC); ++i) {
    allocs.push_back({i, at, plan_.alloc(i).bytes});
    at += plan_.alloc(i).bytes * static_cast<u64>(plan_.alloc(i).copies);
  }
  for (const BoundSite& site : plan_.sites()) {
    Place place;
    for (u32 p = 0; p < site.num_accesses && place.alloc == kNone; ++p) {
      const u32 alloc = plan_.tensors()[plan_.access(plan_.site_access(site, p)).tensor].alloc;
      if (alloc != kNone) place = allocs[alloc];
    }
    places_.push_back(place);
  }
}

bool DescriptorWriter::check(Error* error) const {
  const u32 fields = plan_.plan().count(Section::DESCRIPTOR);
  for (u32 s = 0; s < plan_.sites().size(); ++s) {
    for (u32 c = 0; c < columns_; ++c) {
      const ptowsp_descriptor_cell& cell = this->cell(s, c);
      bool known = cell.from <= PTOWSP_CELL_WORKSPACE_HIGH;
      if (cell.from == PTOWSP_CELL_LOOP) known = cell.arg < plan_.sites()[s].level;
      if (cell.from == PTOWSP_CELL_FIELD) {
        known = cell.arg < fields && plan_.plan().get<Section::DESCRIPTOR>(cell.arg).site == s;
      }
      if (known) continue;
      *error = Error::make(Status::BIND_ERROR, "column " + std::to_string(c) + " of site " +
                                                   std::to_string(s) + " names nothing");
      return false;
    }
  }
  return true;
}

bool DescriptorWriter::run(u32* out, u64 capacity, ptowsp_interrupt_fn interrupt, void* user,
                           Error* error) {
  constexpr i64 kMostAtOnce = 1 << 16;
  u64 next_poll = kMostAtOnce;
  while (true) {
    const Event event = walk_.advance(error);
    if (event == Event::Done) return true;
    if (event == Event::Error) return false;
    if (event == Event::Load) {
      *error = Error::make(Status::DATA_DEPENDENT,
                           "which tasks there are depends on data that tasks compute: they are "
                           "known only while the program runs");
      return false;
    }
    if (event != Event::Task) continue;
    const Cursor& cursor = walk_.cursor();
    const u32 frame = cursor.alike_frame(plan_);
    i64 count = 1;
    if (frame != kNone) count = walk_.most(std::min(cursor.alike_left(frame), kMostAtOnce));
    if (cursor.task_id < capacity) {
      const u64 room = capacity - cursor.task_id;
      count = static_cast<i64>(std::min<u64>(static_cast<u64>(count), room));
      if (!write_rows(out + cursor.task_id * columns_, frame, count, error)) {
        error->at_task(cursor.site, cursor.task_id, cursor.vars, rows_.level);
        return false;
      }
    }
    pass(frame, count);
    walk_.made(count);
    if (cursor.next_task < next_poll || interrupt == nullptr) continue;
    next_poll = cursor.next_task + kMostAtOnce;
    if (interrupt(user) == 0) continue;
    *error = Error::make(Status::INTERRUPTED, "interrupted");
    return false;
  }
}

// From the first of `count` tasks that go alike to the last one.
void DescriptorWriter::pass(u32 frame, i64 count) {
  if (count > 1) walk_.cursor().alike_skip(plan_, frame, count);
}

// The rows of the task that the cursor stands at and of those behind it. If one cannot be written,
// the cursor stands at it.
bool DescriptorWriter::write_rows(u32* out, u32 frame, i64 count, Error* error) {
  if (!are_open() && !open(error)) return false;
  if (!write_lines(out, frame, count, error)) return false;
  for (u32 i = 0; i < rows_.num_others; ++i) {
    const u32 c = rows_.others[i];
    if (cell(rows_.site, c).from != PTOWSP_CELL_FIELD) {
      write_places(c, out + c, count);
    } else if (!write_values(c, out + c, frame, count, error)) {
      return false;
    }
  }
  return true;
}

// ---- rows of one loop ---------------------------------------------------------------------------

bool DescriptorWriter::are_open() const {
  const Cursor& cursor = walk_.cursor();
  if (rows_.site != cursor.site) return false;
  if (rows_.level == 0) return true;
  const u32 inner = rows_.level - 1;
  return cursor.vars[inner] >= rows_.first &&
         std::equal(rows_.vars, rows_.vars + inner, cursor.vars);
}

bool DescriptorWriter::open(Error* error) {
  const Cursor& cursor = walk_.cursor();
  rows_.site = cursor.site;
  rows_.level = plan_.sites()[cursor.site].level;
  rows_.num_others = 0;
  if (rows_.level > 0) {
    std::copy(cursor.vars, cursor.vars + rows_.level - 1, rows_.vars);
    rows_.first = cursor.vars[rows_.level - 1];
  }
  for (u32 c = 0; c < columns_; ++c) {
    if (!open_column(c, error)) {
      rows_.site = kNone;
      return false;
    }
  }
  Error ignored;  // the last iteration may have no task
  rows_.fit = lines_fit(rows_.first, &ignored) && lines_fit(last_index(), &ignored);
  return true;
}

bool DescriptorWriter::open_column(u32 column, Error* error) {
  const ptowsp_descriptor_cell& cell = this->cell(rows_.site, column);
  const i64* vars = walk_.cursor().vars;
  Line& line = rows_.lines[column] = Line{};
  switch (cell.from) {
    case PTOWSP_CELL_CONSTANT:
      line.value = cell.arg;
      return true;
    case PTOWSP_CELL_LOOP:
      line = {vars[cell.arg], cell.arg + 1 == rows_.level ? 1 : 0};
      return true;
    case PTOWSP_CELL_FIELD: {
      const BoundExpr& e = plan_.field(cell.arg);
      const bool is_line = e.affine && e.form->num_regs == 0;
      if (!is_line && varies(e.node)) break;
      if (is_line && rows_.level > 0) line.step = e.form->coef[rows_.level - 1];
      return plan_.eval(e, vars, &line.value, error);
    }
    default:
      if (places_[rows_.site].alloc != kNone) break;
      line.value = kAbsent;
      return true;
  }
  rows_.others[rows_.num_others++] = column;
  return true;
}

// Whether a value may differ from row to row: it hangs on the innermost loop, or on what an
// iteration sets.
bool DescriptorWriter::varies(u32 node) const {
  if (rows_.level == 0) return false;
  const PlanFacts& facts = plan_.facts();
  const u32 inner = rows_.level - 1;
  const u64 columns_around = ((u64{1} << inner) - 1) << kFirstColumn;
  const u64 registers = facts.registers_in.empty() ? 0 : facts.registers_in[node];
  return (facts.loops_in[node] >> inner & 1u) != 0 || (registers & ~columns_around) != 0;
}

// The largest index that the innermost loop may reach.
i64 DescriptorWriter::last_index() const {
  const Cursor& cursor = walk_.cursor();
  for (u32 d = cursor.depth; d-- > 0 && rows_.level > 0;) {
    const auto op = static_cast<Op>(plan_.code()[cursor.frames[d].pc].opcode);
    const bool is_block =
        op == Op::COND || op == Op::ELSE || op == Op::COMBINE || op == Op::SEQUENTIAL;
    if (!is_block) return cursor.frames[d].end - 1;
  }
  return rows_.first;
}

bool DescriptorWriter::lines_fit(i64 index, Error* error) const {
  for (u32 c = 0; c < columns_; ++c) {
    const u32 from = cell(rows_.site, c).from;
    if (from != PTOWSP_CELL_LOOP && from != PTOWSP_CELL_FIELD) continue;
    const Line& line = rows_.lines[c];
    i64 value = 0;
    if (__builtin_mul_overflow(index - rows_.first, line.step, &value) ||
        __builtin_add_overflow(line.value, value, &value)) {
      value = -1;
    }
    if (!fits(c, value, error)) return false;
  }
  return true;
}

bool DescriptorWriter::fits(u32 column, i64 value, Error* error) const {
  if (value >= 0 && value < static_cast<i64>(kAbsent)) return true;
  const ptowsp_descriptor_cell& cell = this->cell(rows_.site, column);
  std::string name = "the index of loop " + std::to_string(cell.arg);
  if (cell.from == PTOWSP_CELL_FIELD) {
    const Descriptor d = plan_.plan().get<Section::DESCRIPTOR>(cell.arg);
    name = "descriptor field '" + std::string(plan_.plan().string(d.name)) + "'";
  }
  *error = Error::make(Status::ARITHMETIC, name + " is " + std::to_string(value) +
                                               ", which is no 32-bit number without sign");
  return false;
}

// ---- columns ------------------------------------------------------------------------------------

bool DescriptorWriter::write_lines(u32* out, u32 frame, i64 count, Error* error) {
  const i64 at = rows_.level == 0 ? 0 : walk_.cursor().vars[rows_.level - 1] - rows_.first;
  for (i64 k = 0; k < count && !rows_.fit; ++k) {
    if (lines_fit(rows_.first + at + k, error)) continue;
    pass(frame, k + 1);
    return false;
  }
  for (i64 k = at; k < at + count; ++k, out += columns_) {
    for (u32 c = 0; c < columns_; ++c) {
      out[c] = static_cast<u32>(rows_.lines[c].value + k * rows_.lines[c].step);
    }
  }
  return true;
}

void DescriptorWriter::write_places(u32 column, u32* out, i64 count) {
  const Place& place = places_[rows_.site];
  const u32 shift = cell(rows_.site, column).from == PTOWSP_CELL_WORKSPACE_HIGH ? 32 : 0;
  const u64 copies = static_cast<u64>(plan_.alloc(place.alloc).copies);
  u64 copy = static_cast<u64>(walk_.cursor().vars[plan_.copy_variable(place.alloc)]);
  for (i64 k = 0; k < count; ++k, out += columns_) {
    *out = static_cast<u32>((place.base + copy * place.bytes) >> shift);
    copy = copy + 1 < copies ? copy + 1 : 0;
  }
}

bool DescriptorWriter::write_values(u32 column, u32* out, u32 frame, i64 count, Error* error) {
  const BoundExpr& e = plan_.field(cell(rows_.site, column).arg);
  i64 ignored = 0;
  i64& index = rows_.level > 0 ? walk_.cursor().vars[rows_.level - 1] : ignored;
  const i64 first = index;
  for (i64 k = 0; k < count; ++k, out += columns_) {
    index = first + k;
    i64 value = 0;
    if (!plan_.eval(e, walk_.cursor().vars, &value, error) || !fits(column, value, error)) {
      index = first;
      pass(frame, k + 1);
      return false;
    }
    *out = static_cast<u32>(value);
  }
  index = first;
  return true;
}

}  // namespace ptowsp
