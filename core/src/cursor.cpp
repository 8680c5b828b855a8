#include "ptowsp/cursor.h"

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
  c.loops[0] = lo;
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
    bool quiet = false;  // the instruction is no event
    Event event = Event::Done;
    switch (op) {
      case Op::TASK:
        site = instr.operand2;
        task_id = next_task++;
        pc += 1 + instr.operand1;
        return Event::Task;
      case Op::PARALLEL_FOR:
      case Op::FOR_EACH:
        event = enter_loop(plan, instr, &quiet, error);
        break;
      case Op::COMBINE:
      case Op::SEQUENTIAL:
        frames[depth++] = CursorFrame{pc, 0, 0, 0};
        pc += 1;
        event = Event::GroupOpen;
        quiet = op == Op::COMBINE;
        break;
      case Op::END:
        event = leave_block(plan, &quiet);
        break;
      case Op::NOP:
        pc += 1;
        quiet = true;
        break;
      default:  // HALT; anything else is refused when the program is made
        return Event::Done;
    }
    if (!quiet) return event;
  }
}

Event Cursor::enter_loop(const BoundPlan& plan, Instr instr, bool* quiet, Error* error) {
  const BoundLoop& loop = plan.loop(instr.operand1);
  i64 start = 0;
  i64 extent = 0;
  if (!plan.eval(loop.start, loops, &start, error)) return Event::Error;
  if (!plan.eval(loop.extent, loops, &extent, error)) return Event::Error;
  if (extent < 0) {
    const Axis axis = plan.plan().get<Section::AXIS>(instr.operand1);
    *error = Error::make(Status::EXECUTION_ERROR,
                         "axis '" + std::string(plan.plan().string(axis.name)) +
                             "' has the negative extent " + std::to_string(extent));
    return Event::Error;
  }
  if (extent == 0) {
    pc = instr.operand2;
    *quiet = true;
    return Event::Done;
  }
  i64 end = 0;
  if (__builtin_add_overflow(start, extent, &end)) {
    *error = Error::make(Status::EXECUTION_ERROR, "integer overflow at the end of a loop");
    return Event::Error;
  }
  frames[depth++] = CursorFrame{pc, 0, start, end};
  loops[level++] = start;
  pc += 1;
  *quiet = static_cast<Op>(instr.opcode) == Op::PARALLEL_FOR;
  return Event::GroupOpen;
}

Event Cursor::leave_block(const BoundPlan& plan, bool* quiet) {
  CursorFrame& frame = frames[depth - 1];
  const Instr opener = plan.code()[frame.pc];
  const auto op = static_cast<Op>(opener.opcode);
  const bool is_loop = op == Op::PARALLEL_FOR || op == Op::FOR_EACH;
  const bool ordered = op == Op::FOR_EACH || op == Op::SEQUENTIAL;
  *quiet = !ordered;
  if (is_loop && ++frame.index < frame.end) {
    loops[level - 1] = frame.index;
    pc = frame.pc + 1;
    return Event::PhaseNext;
  }
  if (is_loop) level -= 1;
  depth -= 1;
  pc = opener.operand2;
  return Event::GroupClose;
}

std::string describe_task(const BoundPlan& bound, u32 site, u64 task_id, const i64* loops) {
  const PlanView& plan = bound.plan();
  const BoundSite& s = bound.sites()[site];
  std::string text = "task " + std::to_string(task_id) + " " +
                     std::string(plan.string(plan.get<Section::KERNEL>(s.kernel).name)) + "[";
  for (u32 l = 0; l < s.level; ++l) text += (l > 0 ? ", " : "") + std::to_string(loops[l]);
  text += "]";
  for (u32 i = 0; i < plan.count(Section::DEBUG_LINE); ++i) {
    const DebugLine line = plan.get<Section::DEBUG_LINE>(i);
    if (line.section != static_cast<u16>(Section::SITE) || line.index != site) continue;
    text += " (" + std::string(plan.string(line.file, Section::DEBUG_STRING)) + ":" +
            std::to_string(line.line) + ")";
  }
  return text;
}

}  // namespace ptowsp
