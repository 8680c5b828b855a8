#include "ptowsp/cursor.h"

#include <algorithm>
#include <string>

namespace ptowsp {

Cursor Cursor::at_entry(const BoundPlan& plan, u32 entry) {
  Cursor c;
  c.pc = plan.plan().get<Section::ENTRY>(entry).pc;
  return c;
}

Cursor Cursor::over_range(const BoundPlan& plan, u32 entry, i64 lo, i64 hi, u64 before) {
  Cursor c = at_entry(plan, entry);
  c.frames[0] = CursorFrame{c.pc, 0, lo, hi};
  c.depth = 1;
  c.level = 1;
  c.vars[0] = lo;
  c.pc += 1;
  c.next_task = before;
  return c;
}

Event Cursor::advance(const BoundPlan& plan, Error* error) {
  const std::vector<Instr>& code = plan.code();
  while (true) {
    const Instr instr = code[pc];
    const auto op = static_cast<Op>(instr.opcode);
    if (depth > 0 && announced == 0 && op != Op::END) {
      CursorFrame& top = frames[depth - 1];
      if (static_cast<Op>(code[top.pc].opcode) == Op::SEQUENTIAL) {
        announced = 1;
        if (top.child++ > 0) return Event::PhaseNext;
      }
    }
    announced = 0;
    bool quiet = true;  // the instruction is no event
    Event event = Event::Done;
    switch (op) {
      case Op::TASK:
        site = instr.operand2;
        task_id = next_task++;
        pc += 1 + instr.operand1;
        return Event::Task;
      case Op::PARALLEL_FOR:
      case Op::FOR_EACH:
      case Op::SELECT:
      case Op::LOOP_WHILE:
        event = enter_loop(plan, instr, &quiet, error);
        break;
      case Op::COMBINE:
      case Op::SEQUENTIAL:
        frames[depth++] = CursorFrame{pc, 0, 0, 0};
        pc += 1;
        event = Event::GroupOpen;
        quiet = op == Op::COMBINE;
        break;
      case Op::COND:
        if (!enter_cond(plan, instr, error)) return Event::Error;
        break;
      case Op::END:
        if (depth == stop) return Event::Done;
        event = leave_block(plan, &quiet, error);
        break;
      case Op::SLOT_LOAD:
        site = instr.operand2;
        announced = 1;
        return Event::Load;
      case Op::SLOT_SET:
      case Op::LET:
        if (!plan.value(instr.operand2, vars, &vars[plan.target(instr)], error)) {
          error->at_record(Section::CODE, pc, vars, level);
          return Event::Error;
        }
        pc += 1;
        break;
      case Op::RECV:
      case Op::TAKE:
      case Op::DROP:
      case Op::ROOM:
      case Op::SEND:
      case Op::CLOSE:
        announced = 1;
        return Event::Channel;
      case Op::ALLOC:
        event = take_copy(plan, instr.operand1, &quiet, error);
        break;
      case Op::NOP:
        pc += 1;
        break;
      default:  // HALT; anything else is refused when the program is made
        return Event::Done;
    }
    if (!quiet || event == Event::Error) return event;
  }
}

// The iteration gets a copy of the buffer for its temporaries.
Event Cursor::take_copy(const BoundPlan& plan, u32 alloc, bool* quiet, Error* error) {
  const i64 copies = plan.alloc(alloc).copies;
  i64& mine = vars[plan.copy_variable(alloc)];
  *quiet = false;
  if (!plan.check_shapes(alloc, vars, error)) {
    error->at_record(Section::CODE, pc, vars, level);
    return Event::Error;
  }
  const i64 next = mine + copy_step < copies ? mine + copy_step : first_copy;
  if (next == first_copy && drains != 0 && drained == 0) {
    announced = 1;
    return Event::Drain;
  }
  drained = 0;
  mine = copy == kNone ? next : std::min<i64>(copy, copies - 1);
  *quiet = true;
  pc += 1;
  return Event::Done;
}

// Calls fn(ALLOC) for the temporaries of an iteration that goes alike, up to the task.
template <class Fn>
void Cursor::each_alloc(const BoundPlan& plan, u32 frame, Fn fn) const {
  const std::vector<Instr>& code = plan.code();
  for (u32 d = frame; d < depth; ++d) {
    const auto opener = static_cast<Op>(code[frames[d].pc].opcode);
    u32 at = frames[d].pc + (opener == Op::COND ? 2 : 1);
    for (; static_cast<Op>(code[at].opcode) == Op::ALLOC; ++at) fn(code[at].operand1);
  }
}

u32 Cursor::alike_frame(const BoundPlan& plan) const {
  const std::vector<Instr>& code = plan.code();
  for (u32 d = depth; d-- > 0;) {
    const Instr opener = code[frames[d].pc];
    const auto op = static_cast<Op>(opener.opcode);
    if (op == Op::COND || op == Op::ELSE) continue;
    const bool is_loop = op == Op::PARALLEL_FOR || op == Op::FOR_EACH;
    if (!is_loop || !plan.loop(opener.operand1).alike) return kNone;
    // Who drains, or shares copies with others, takes each of them by itself.
    bool takes_each = false;
    if (copy == kNone && (drains != 0 || copy_step != 1 || first_copy != 0)) {
      each_alloc(plan, d, [&](u32) { takes_each = true; });
    }
    return takes_each ? kNone : d;
  }
  return kNone;
}

void Cursor::alike_skip(const BoundPlan& plan, u32 frame, i64 count) {
  frames[frame].index += count - 1;
  vars[level - 1] = frames[frame].index;
  next_task += static_cast<u64>(count) - 1;
  task_id = next_task - 1;
  if (copy != kNone) return;
  each_alloc(plan, frame, [&](u32 alloc) {
    i64& mine = vars[plan.copy_variable(alloc)];
    mine = (mine + count - 1) % plan.alloc(alloc).copies;
  });
}

Event Cursor::enter_loop(const BoundPlan& plan, Instr instr, bool* quiet, Error* error) {
  const BoundLoop& loop = plan.loop(instr.operand1);
  i64 start = 0;
  i64 extent = 0;
  i64 end = 0;
  *quiet = false;
  if (!plan.eval(loop.start, vars, &start, error) ||
      !plan.eval(loop.extent, vars, &extent, error)) {
    error->at_record(Section::AXIS, instr.operand1, vars, level);
    return Event::Error;
  }
  const auto fail = [&](Status status, const std::string& what) {
    const Axis axis = plan.plan().get<Section::AXIS>(instr.operand1);
    *error =
        Error::make(status, "axis '" + std::string(plan.plan().string(axis.name)) + "' " + what);
    error->at_record(Section::AXIS, instr.operand1, vars, level);
    return Event::Error;
  };
  if (extent < 0)
    return fail(Status::NEGATIVE_EXTENT, "has the negative extent " + std::to_string(extent));
  if (__builtin_add_overflow(start, extent, &end))
    return fail(Status::ARITHMETIC, "ends beyond 64 bits");
  const auto op = static_cast<Op>(instr.opcode);
  if (extent == 0 && op != Op::LOOP_WHILE) {
    pc = instr.operand2;
    *quiet = true;
    return Event::Done;
  }
  const u32 opener = pc;
  frames[depth++] = CursorFrame{pc, 0, start, end};
  vars[level++] = start;
  if (loop.forks && stop == 0) return Event::Fork;
  bool goes_on = true;
  if (!enter_iteration(plan, opener, &goes_on, error)) return Event::Error;
  if (!goes_on) return leave_loop(plan, quiet);
  *quiet = op != Op::FOR_EACH;
  return Event::GroupOpen;
}

bool Cursor::only_iteration(const BoundPlan& plan, i64 index, u64 before, Error* error) {
  CursorFrame& frame = frames[depth - 1];
  frame.index = vars[level - 1] = index;
  frame.end = index + 1;
  next_task = before;
  stop = depth;
  bool goes_on = true;
  return enter_iteration(plan, frame.pc, &goes_on, error);
}

void Cursor::past_fork(const BoundPlan& plan, u64 before) {
  next_task = before;
  level -= 1;
  depth -= 1;
  pc = plan.code()[frames[depth].pc].operand2;
}

// The innermost loop has a new value.
bool Cursor::enter_iteration(const BoundPlan& plan, u32 opener, bool* goes_on, Error* error) {
  const Instr instr = plan.code()[opener];
  const auto op = static_cast<Op>(instr.opcode);
  pc = opener + 1;
  if (op == Op::SELECT) {
    const BoundLoop& loop = plan.loop(instr.operand1);
    if (plan.column(loop, vars, vars[level - 1], &vars[kFirstColumn + level - 1], error))
      return true;
    error->at_record(Section::AXIS, instr.operand1, vars, level);
    return false;
  }
  if (op != Op::LOOP_WHILE) return true;
  const CursorFrame& frame = frames[depth - 1];
  i64 condition = 0;
  if (!plan.value(plan.code()[pc].operand2, vars, &condition, error)) {
    error->at_record(Section::AXIS, instr.operand1, vars, level);
    return false;
  }
  *goes_on = condition != 0;
  pc += 1;
  if (condition == 0 || frame.index < frame.end) return true;
  const Axis axis = plan.plan().get<Section::AXIS>(instr.operand1);
  *error = Error::make(Status::LOOP_LIMIT,
                       "loop_while '" + std::string(plan.plan().string(axis.name)) +
                           "' still holds after max_iterations=" + std::to_string(frame.end));
  error->at_record(Section::AXIS, instr.operand1, vars, level - 1);
  return false;
}

// Into the block if the condition holds, else into the ELSE block behind it if there is one.
bool Cursor::enter_cond(const BoundPlan& plan, Instr instr, Error* error) {
  i64 condition = 0;
  if (!plan.value(plan.code()[pc + 1].operand2, vars, &condition, error)) {
    error->at_record(Section::CODE, pc, vars, level);
    return false;
  }
  if (condition != 0) {
    frames[depth++] = CursorFrame{pc, 0, 0, 0};
    pc += 2;
    return true;
  }
  pc = instr.operand2;
  if (static_cast<Op>(plan.code()[pc].opcode) == Op::ELSE) {
    frames[depth++] = CursorFrame{pc, 0, 0, 0};
    pc += 1;
  }
  return true;
}

Event Cursor::leave_block(const BoundPlan& plan, bool* quiet, Error* error) {
  CursorFrame& frame = frames[depth - 1];
  const Instr opener = plan.code()[frame.pc];
  const auto op = static_cast<Op>(opener.opcode);
  switch (op) {
    case Op::COND:
      depth -= 1;
      pc = opener.operand2;
      if (static_cast<Op>(plan.code()[pc].opcode) == Op::ELSE) pc = plan.code()[pc].operand2;
      return Event::Done;
    case Op::COMBINE:
    case Op::ELSE:
    case Op::SEQUENTIAL:
      *quiet = op != Op::SEQUENTIAL;
      depth -= 1;
      pc = opener.operand2;
      return Event::GroupClose;
    case Op::RECV:  // back to it, for the next message
      *quiet = false;
      level -= 1;
      depth -= 1;
      pc = frame.pc;
      site = opener.operand1;
      announced = 1;
      return Event::Left;
    default:
      break;
  }
  vars[level - 1] = ++frame.index;
  bool goes_on = frame.index < frame.end;
  if (goes_on || op == Op::LOOP_WHILE) {
    if (!enter_iteration(plan, frame.pc, &goes_on, error)) return Event::Error;
  }
  if (!goes_on) return leave_loop(plan, quiet);
  *quiet = op != Op::FOR_EACH;
  return Event::PhaseNext;
}

Event Cursor::leave_loop(const BoundPlan& plan, bool* quiet) {
  const Instr opener = plan.code()[frames[depth - 1].pc];
  *quiet = static_cast<Op>(opener.opcode) != Op::FOR_EACH;
  level -= 1;
  depth -= 1;
  pc = opener.operand2;
  return Event::GroupClose;
}

bool Cursor::check_afters(const BoundPlan& plan, Error* error) const {
  const BoundSite& s = plan.sites()[site];
  for (u32 i = s.afters; i < s.afters + s.num_afters; ++i) {
    const BoundAfter& after = plan.after(i);
    if (!after.may_be_later) continue;
    i64 indices[kMaxLoops];
    std::copy(vars, vars + after.shared, indices);
    for (u32 k = 0; k < after.num_indices; ++k) {
      if (plan.eval(plan.after_index(after.indices + k), vars, &indices[after.shared + k], error)) {
        continue;
      }
      error->at_task(site, task_id, vars, s.level);
      return false;
    }
    if (!comes_later(plan, after, indices)) continue;
    const u32 kernel = plan.sites()[after.site].kernel;
    std::string text(plan.plan().string(plan.plan().get<Section::KERNEL>(kernel).name));
    for (u32 l = 0; l < after.shared + after.num_indices; ++l) {
      text += (l > 0 ? ", " : "[") + std::to_string(indices[l]);
    }
    *error = Error::make(Status::AFTER_LATER,
                         "after= names " + text + "], which does not come before it,");
    error->at_task(site, task_id, vars, s.level);
    return false;
  }
  return true;
}

// Whether the task at these indices is the cursor's own, or one of a later iteration of the loops
// around both. Indices beyond the end of a loop name no task.
bool Cursor::comes_later(const BoundPlan& plan, const BoundAfter& after, const i64* indices) const {
  for (u32 l = after.shared; l < after.common; ++l) {
    if (indices[l] != vars[l]) return indices[l] > vars[l] && indices[l] < end_of_loop(plan, l);
  }
  return after.site == site;
}

i64 Cursor::end_of_loop(const BoundPlan& plan, u32 wanted) const {
  u32 loops = 0;
  for (u32 d = 0; d < depth; ++d) {
    const auto op = static_cast<Op>(plan.code()[frames[d].pc].opcode);
    const bool is_loop = op == Op::PARALLEL_FOR || op == Op::FOR_EACH || op == Op::SELECT ||
                         op == Op::LOOP_WHILE || op == Op::RECV;
    if (is_loop && loops++ == wanted) return frames[d].end;
  }
  return 0;
}

std::string describe_task(const BoundPlan& bound, u32 site, u64 task_id, const i64* loops) {
  const PlanView& plan = bound.plan();
  const BoundSite& s = bound.sites()[site];
  std::string text = "task " + std::to_string(task_id) + " " +
                     std::string(plan.string(plan.get<Section::KERNEL>(s.kernel).name)) + "[";
  for (u32 l = 0; l < s.level; ++l) text += (l > 0 ? ", " : "") + std::to_string(loops[l]);
  return text + "]" + line_of(plan, Section::SITE, site);
}

}  // namespace ptowsp
