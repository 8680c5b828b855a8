#include "ptowsp/cursor.h"

#include <string>

namespace ptowsp {

Cursor Cursor::at_entry(const BoundPlan& plan, u32 entry) {
  Cursor c;
  c.pc = plan.plan().get<Section::ENTRY>(entry).pc;
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

}  // namespace ptowsp
