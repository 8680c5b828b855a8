// Generates tasks: a resumable walk over a plan's code in program order.
//
// A Cursor is plain data with an explicit bounded stack. It can be copied, stored and resumed at
// any event; whoever holds it may advance it, one thread at a time. It knows nothing of tasks in
// flight: the caller turns its events into records and phases.
#pragma once

#include <string>

#include "ptowsp/bind.h"

namespace ptowsp {

enum class Event : u8 {
  Task,        // a task: Cursor::site, Cursor::vars, Cursor::task_id
  GroupOpen,   // a FOR_EACH or SEQUENTIAL begins; its first phase is open
  PhaseNext,   // its next phase begins; it waits for the one before
  GroupClose,  // it ends
  Load,        // control waits for data: Cursor::site says which; go on with loaded()
  Drain,       // copies of a temporary begin anew: set `drained` when all tasks have ended
  Fork,        // a loop of which several iterations are to be generated at a time begins
  Channel,     // a channel's instruction, at Cursor::pc; see Network
  Left,        // the body of a RECV ends; Cursor::site is the channel
  Switch,      // of a Network: another cursor has the turn
  Done,        // no more events
  Error        // an expression failed; the cursor must not be advanced further
};

struct Cursor {
  u32 pc = 0;
  u32 depth = 0;      // open blocks
  u32 level = 0;      // open loops
  u32 site = kNone;   // of the last Task event
  u32 announced = 0;  // the child at pc was counted in its SEQUENTIAL block
  u32 copy = kNone;   // the copy of temporaries to use; kNone: each iteration takes the next one
  u32 drains = 0;     // no hazards keep old tasks of a copy from new ones: Drain does
  u32 drained = 0;
  u32 stop = 0;        // the walk ends with the iteration of the loop at this depth; 0: it does not
  u32 first_copy = 0;  // where copies go on: first_copy, first_copy + copy_step ...
  u32 copy_step = 1;
  u64 next_task = 0;        // task_id of the next task
  u64 task_id = 0;          // of the last Task event
  i64 vars[kMaxVars] = {};  // see plan.h
  CursorFrame frames[kMaxBlocks] = {};

  // A cursor at the start of an entry.
  static Cursor at_entry(const BoundPlan& plan, u32 entry);

  // A cursor over iterations [lo, hi) of the parallel loop that is the whole entry; `before` tasks
  // come before them in program order.
  static Cursor over_range(const BoundPlan& plan, u32 entry, i64 lo, i64 hi, u64 before);

  // Behind a Fork event, on a copy of the cursor: only iteration `index` of that loop, before which
  // `before` tasks come in program order. False: it has no column.
  bool only_iteration(const BoundPlan& plan, i64 index, u64 before, Error* error);
  // Behind a Fork event: past the loop, before whose end `before` tasks come.
  void past_fork(const BoundPlan& plan, u64 before);

  // Behind a Task event in a leaf loop: how many tasks of that loop are left, this one included.
  i64 leaf_left() const { return frames[depth - 1].end - frames[depth - 1].index; }
  // The caller generated that many tasks of the leaf loop by itself, the first being the event's.
  void leaf_skip(i64 count) {
    frames[depth - 1].index += count - 1;
    vars[level - 1] = frames[depth - 1].index;
    next_task += static_cast<u64>(count) - 1;
    task_id = next_task - 1;
  }

  // Behind a Task event: the frame of the innermost loop, if the iterations left of it go as this
  // one does, to a task of the same site each; else kNone. For who asks for nothing but tasks.
  u32 alike_frame(const BoundPlan& plan) const;
  // How many such tasks are left, this one included.
  i64 alike_left(u32 frame) const { return frames[frame].end - frames[frame].index; }
  // As leaf_skip().
  void alike_skip(const BoundPlan& plan, u32 frame, i64 count);

  // Goes on to the next task of a parallel leaf loop, as advance() would; false at its end.
  bool leaf_next() {
    CursorFrame& frame = frames[depth - 1];
    if (frame.index + 1 >= frame.end) return false;
    vars[level - 1] = ++frame.index;
    task_id = next_task++;
    return true;
  }

  // Goes on to the next event. A Load comes again until loaded() was called.
  Event advance(const BoundPlan& plan, Error* error);

  // Behind a Task event: false, with an error, if the task waits for one that comes later.
  bool check_afters(const BoundPlan& plan, Error* error) const;

  // Behind a Channel event: what it asks for is done.
  void pass() { pass_to(pc + 1); }
  void pass_to(u32 next) {
    pc = next;
    announced = 0;
  }
  // Behind a Channel event at a RECV: into its body, with this message.
  void enter_message(i64 number) {
    frames[depth++] = CursorFrame{pc, 0, number, number + 1};
    vars[level++] = number;
    pass();
  }

  // The value that the Load event asked for.
  void loaded(const BoundPlan& plan, i64 value) {
    vars[kFirstSlot + plan.code()[pc].operand1] = value;
    pc += 2;
    announced = 0;
  }

 private:
  Event enter_loop(const BoundPlan& plan, Instr instr, bool* quiet, Error* error);
  bool enter_iteration(const BoundPlan& plan, u32 opener, bool* goes_on, Error* error);
  Event take_copy(const BoundPlan& plan, u32 alloc, bool* quiet, Error* error);
  template <class Fn>
  void each_alloc(const BoundPlan& plan, u32 frame, Fn fn) const;
  bool enter_cond(const BoundPlan& plan, Instr instr, Error* error);
  Event leave_block(const BoundPlan& plan, bool* quiet, Error* error);
  Event leave_loop(const BoundPlan& plan, bool* quiet);
  bool comes_later(const BoundPlan& plan, const BoundAfter& after, const i64* indices) const;
  i64 end_of_loop(const BoundPlan& plan, u32 level) const;
};

// A task as reports name it: number, kernel, loop indices, the user's line.
std::string describe_task(const BoundPlan& plan, u32 site, u64 task_id, const i64* loops);

}  // namespace ptowsp
