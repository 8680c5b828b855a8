// Structural order without all-to-all edges.
//
// Each iteration of a P.seq loop and each step of sequential(...) is a phase. A phase counts the
// unfinished tasks and inner phases that belong to it; when it is closed and the count reaches zero
// it has ended. A phase has at most one gate: the phase that must end before its tasks may start.
// One edge per task to its gate's waiters gives the whole order, because
//   - an inner group's first phase inherits the gate of the phase around it, and
//   - a phase in which nothing was generated passes its own gate on to the next phase.
//
// Thread roles: as in task_ring.h, everything is called under the scheduler's lock. A slot is
// reused when its phase has ended; (slot, tag) names a phase for ever.
#pragma once

#include <vector>

#include "ptowsp/task_ring.h"

namespace ptowsp {

struct PhaseRef {
  u32 slot = kNoSlot;
  u32 tag = 0;
};

class Phases {
 public:
  explicit Phases(EdgePool* edges) : edges_(*edges) {}

  // Innermost open phase, kNoSlot outside of any.
  u32 current() const { return open_.empty() ? kNoSlot : open_.back(); }

  // A FOR_EACH or SEQUENTIAL begins.
  void open_group() {
    const u32 outer = current();
    push(outer, outer == kNoSlot ? PhaseRef{} : phases_[outer].gate);
  }

  // Its next phase begins. Calls released(slot) for tasks that may now start.
  template <class Fn>
  void next_phase(Fn released) {
    const u32 slot = open_.back();
    const u32 parent = phases_[slot].parent;
    const PhaseRef gate =
        phases_[slot].used ? PhaseRef{slot, phases_[slot].tag} : phases_[slot].gate;
    close_top(released);
    push(parent, gate);
  }

  template <class Fn>
  void close_group(Fn released) {
    close_top(released);
  }

  // A task was generated in the innermost open phase. True if it must wait for a gate; then it was
  // put on that gate's list and will be released once.
  bool enter(u32 task_slot) {
    if (open_.empty()) return false;
    Phase& p = phases_[open_.back()];
    p.pending += 1;
    mark_used();
    if (!alive(p.gate)) return false;
    edges_.add(&phases_[p.gate.slot].waiters, task_slot);
    return true;
  }

  // A task of phase `slot` has ended.
  template <class Fn>
  void leave(u32 slot, Fn released) {
    while (slot != kNoSlot && --phases_[slot].pending == 0) {
      Phase& p = phases_[slot];
      const u32 parent = p.parent;
      p.tag += 1;
      free_.push_back(slot);
      edges_.drain(&p.waiters, released);
      slot = parent;
    }
  }

  // The phase that holds a task back, for reports.
  PhaseRef gate_of(u32 slot) const { return phases_[slot].gate; }
  bool alive(PhaseRef ref) const { return ref.slot != kNoSlot && phases_[ref.slot].tag == ref.tag; }
  u32 pending(u32 slot) const { return phases_[slot].pending; }
  u64 opened() const { return opened_; }
  std::size_t bytes() const { return phases_.capacity() * sizeof(Phase); }

 private:
  struct Phase {
    u32 pending = 0;  // unfinished tasks and inner phases, plus one while open
    u32 tag = 0;
    u32 parent = kNoSlot;
    bool used = false;  // something was generated in it
    PhaseRef gate;
    EdgeList waiters;
  };

  void push(u32 parent, PhaseRef gate) {
    u32 slot = 0;
    if (free_.empty()) {
      slot = static_cast<u32>(phases_.size());
      phases_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    Phase& p = phases_[slot];
    p.pending = 1;
    p.parent = parent;
    p.used = false;
    p.gate = gate;
    if (parent != kNoSlot) phases_[parent].pending += 1;
    open_.push_back(slot);
    opened_ += 1;
  }

  template <class Fn>
  void close_top(Fn released) {
    const u32 slot = open_.back();
    open_.pop_back();
    leave(slot, released);
  }

  // Inner phases make the phases around them used as well.
  void mark_used() {
    for (std::size_t i = open_.size(); i-- > 0 && !phases_[open_[i]].used;) {
      phases_[open_[i]].used = true;
    }
  }

  EdgePool& edges_;
  std::vector<Phase> phases_;
  std::vector<u32> free_;
  std::vector<u32> open_;  // the cursor's open phases, outermost first
  u64 opened_ = 0;
};

}  // namespace ptowsp
