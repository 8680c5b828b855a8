// What a plan says whatever is bound to it: worked out when it is bound for the first time. Private
// to the binder's files and to evaluation.
#pragma once

#include <vector>

#include "ptowsp/plan_view.h"

namespace ptowsp {

struct PlanFacts {
  static constexpr u32 kVaries = 1u << 31;
  // By EXPR: what it needs from around it, a bit for each level of REDUCE and SEARCH and kVaries
  // for loops, slots and lets. Reductions and searches that need nothing have one value in a run.
  std::vector<u32> open;
  // By EXPR: of a reduction or search, that it is nothing but a branch of choices with one outcome
  // in a run. It is worked out if it is chosen.
  std::vector<u8> branch;
  // By EXPR, empty if the plan has neither slots nor sparse loops: the register that holds its
  // value, or kNone; a bit for each register that its value needs.
  std::vector<u32> register_of;
  std::vector<u64> registers_in;
  std::vector<u32> tensor_of;   // by SYMBOL: TENSOR, or kNone
  std::vector<u8> begins_rows;  // by SYMBOL: rows of a sparse loop begin where this array says
  std::vector<u32> setters;     // by SLOT: instructions that set it, twice those that load it
  u32 lets = 0;
  // Expressions of one value in a run, which is read from arrays; operands come first. `shown`:
  // something else than the value of another of them hangs on it.
  struct Read {
    u32 node;
    bool shown;
  };
  std::vector<Read> reads;
  // By EXPR: among those whose values evaluation keeps (eval_kept()), or kNone. They are costly,
  // and hang on nothing but the indices of these loops.
  struct Keeps {
    u32 count = 0;
    u8 levels[2] = {};
  };
  std::vector<u32> keeps_at;
  std::vector<Keeps> keeps;
  std::vector<u32> loops_in;  // by EXPR: a bit for each level whose loop variable its value needs
  // By AXIS: a loop whose iterations all go the same way, to at most one task each. Its body is
  // nothing but temporaries, a task, and conditions that do not hang on the loop.
  std::vector<u8> alike;

  explicit PlanFacts(const PlanView& plan);

 private:
  void find_registers(const PlanView& plan);
  void find_open(const PlanView& plan);
  void find_branches(const PlanView& plan);
  void read_code(const PlanView& plan);
  void find_reads(const PlanView& plan);
  void find_keeps(const PlanView& plan);
  void find_alike(const PlanView& plan);
  bool goes_alike(const PlanView& plan, u32 level, u32* pc) const;
  bool allocates_alike(const PlanView& plan, u32 level, u32 alloc) const;
};

}  // namespace ptowsp
