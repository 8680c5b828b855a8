#include "ptowsp/descriptors.h"

#include <algorithm>

namespace ptowsp {

DescriptorWriter::DescriptorWriter(const BoundPlan& plan, const ptowsp_descriptor_cell* cells,
                                   u32 columns)
    : plan_(plan), cells_(cells), columns_(columns), walk_(plan, true) {
  find_levels();
  u64 at = 0;
  for (u32 i = 0; i < plan.plan().count(Section::ALLOC); ++i) {
    base_.push_back(at);
    at += plan.alloc(i).bytes * static_cast<u64>(plan.alloc(i).copies);
  }
}

// Operands come before the nodes that use them.
void DescriptorWriter::find_levels() {
  const u32 count = plan_.plan().count(Section::EXPR);
  levels_.resize(count);
  for (u32 i = 0; i < count; ++i) {
    const Expr e = plan_.plan().expr(i);
    if (static_cast<ExprOp>(e.op) == ExprOp::LOOPVAR) levels_[i] = e.arg + 1u;
    for (const u32 operand : operands_of(e)) {
      if (operand != kNone) levels_[i] = std::max(levels_[i], levels_[operand]);
    }
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
    const u32 opener =
        walk_.cursor().depth > 0 ? walk_.cursor().frames[walk_.cursor().depth - 1].pc : 0;
    const bool leaf = walk_.cursor().depth > 0 && plan_.is_leaf(opener, walk_.cursor().site);
    i64 count = leaf ? walk_.most(std::min(walk_.cursor().leaf_left(), kMostAtOnce)) : 1;
    if (walk_.cursor().task_id < capacity) {
      count = static_cast<i64>(
          std::min<u64>(static_cast<u64>(count), capacity - walk_.cursor().task_id));
      if (!write_rows(out + walk_.cursor().task_id * columns_, count, error)) {
        blame(out + walk_.cursor().task_id * columns_, count, error);
        return false;
      }
    }
    if (leaf) walk_.cursor().leaf_skip(count);
    walk_.made(count);
    if (walk_.cursor().next_task < next_poll || interrupt == nullptr) continue;
    next_poll = walk_.cursor().next_task + kMostAtOnce;
    if (interrupt(user) == 0) continue;
    *error = Error::make(Status::INTERRUPTED, "interrupted");
    return false;
  }
}

// Which of the tasks it is that has no row.
void DescriptorWriter::blame(u32* out, i64 count, Error* error) {
  const u32 level = plan_.sites()[walk_.cursor().site].level;
  u64 task = walk_.cursor().task_id;
  for (i64 k = 1; k < count && write_rows(out, 1, error); ++k, ++task)
    walk_.cursor().vars[level - 1] += 1;
  if (count > 1) write_rows(out, 1, error);
  error->at_task(walk_.cursor().site, task, walk_.cursor().vars, level);
}

// Where the first of a task's temporaries lies in the workspace.
u64 DescriptorWriter::workspace_at(const BoundSite& site) const {
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const BoundTensor& t = plan_.tensors()[plan_.access(plan_.site_access(site, p)).tensor];
    if (t.alloc == kNone) continue;
    const auto copy = static_cast<u64>(walk_.cursor().vars[plan_.copy_variable(t.alloc)]);
    return base_[t.alloc] + copy * plan_.alloc(t.alloc).bytes;
  }
  return ~u64{0};
}

bool DescriptorWriter::set_line(u32 site, u32 column, Line* line, Error* error) const {
  const BoundSite& s = plan_.sites()[site];
  const ptowsp_descriptor_cell& cell = this->cell(site, column);
  *line = Line{};
  switch (cell.from) {
    case PTOWSP_CELL_CONSTANT:
      line->value = cell.arg;
      return true;
    case PTOWSP_CELL_LOOP:
      line->value = walk_.cursor().vars[cell.arg];
      line->step = cell.arg + 1 == s.level ? 1 : 0;
      return true;
    case PTOWSP_CELL_FIELD: {
      const BoundExpr& e = plan_.field(cell.arg);
      line->step = e.affine && s.level > 0 ? e.form->coef[s.level - 1] : 0;
      line->each = !e.affine && levels_[e.node] == s.level;
      return plan_.eval(e, walk_.cursor().vars, &line->value, error);
    }
    default: {
      const u64 at = workspace_at(s);
      const u64 half = cell.from == PTOWSP_CELL_WORKSPACE_HIGH ? at >> 32 : at & 0xFFFF'FFFF;
      line->value = static_cast<i64>(half);
      return true;
    }
  }
}

bool DescriptorWriter::fits(u32 column, i64 value, Error* error) const {
  if (value >= 0 && value < static_cast<i64>(kAbsent)) return true;
  const ptowsp_descriptor_cell& cell = this->cell(walk_.cursor().site, column);
  std::string name = "the index of loop " + std::to_string(cell.arg);
  if (cell.from == PTOWSP_CELL_FIELD) {
    const Descriptor d = plan_.plan().get<Section::DESCRIPTOR>(cell.arg);
    name = "descriptor field '" + std::string(plan_.plan().string(d.name)) + "'";
  }
  *error = Error::make(Status::ARITHMETIC, name + " is " + std::to_string(value) +
                                               ", which is no 32-bit number without sign");
  return false;
}

// The rows of the task that the cursor stands at and of those behind it in a leaf loop.
bool DescriptorWriter::write_rows(u32* out, i64 count, Error* error) {
  Line lines[kMostColumns];
  for (u32 c = 0; c < columns_; ++c) {
    const u32 from = cell(walk_.cursor().site, c).from;
    if (!set_line(walk_.cursor().site, c, &lines[c], error)) return false;
    if (from != PTOWSP_CELL_LOOP && from != PTOWSP_CELL_FIELD) continue;
    const i64 last = lines[c].value + lines[c].step * (count - 1);
    if (!fits(c, lines[c].value, error) || !fits(c, last, error)) return false;
  }
  for (i64 k = 0; k < count; ++k, out += columns_) {
    for (u32 c = 0; c < columns_; ++c) {
      out[c] = static_cast<u32>(lines[c].value + k * lines[c].step);
    }
  }
  for (u32 c = 0; c < columns_; ++c) {
    if (!lines[c].each || count == 1) continue;
    const u32 inner = plan_.sites()[walk_.cursor().site].level - 1;
    const i64 first = walk_.cursor().vars[inner];
    u32* row = out - static_cast<u64>(count) * columns_;
    for (i64 k = 0; k < count; ++k, row += columns_) {
      walk_.cursor().vars[inner] = first + k;
      i64 value = 0;
      const BoundExpr& e = plan_.field(cell(walk_.cursor().site, c).arg);
      if (!plan_.eval(e, walk_.cursor().vars, &value, error) || !fits(c, value, error))
        return false;
      row[c] = static_cast<u32>(value);
    }
    walk_.cursor().vars[inner] = first;
  }
  return true;
}

}  // namespace ptowsp
