// Workers of a run on different processors.
//
// Some systems put threads that wake each other on one processor and leave them there, so that
// others can sleep: virtual machines above all. Two workers then share a processor for a whole run
// while the next one is idle. Nothing is done about it until a program sees it:
//
//   met       a worker that finds another one on its processor keeps off those of all others
//   met again so often that the caller's thread must have been brought there: while other workers
//             take part in a run it is held where it is, and may go anywhere as before when the run
//             ends
//
// Where a thread may run on fewer processors than there are workers nothing is done. Threads that a
// kernel starts inherit what its own may use. Besides huge_pages.h the only place of the core that
// speaks to one operating system; elsewhere nothing here does anything.
#pragma once

#include <memory>

#include "ptowsp/plan.h"

namespace ptowsp {

// The processor that the calling thread runs on; -1 where the system does not say.
int current_cpu();

// Where the workers of a run are. The lock of their pool guards it.
class Placement {
 public:
  Placement();
  ~Placement();
  // The calling thread is that worker, of so many, until it leaves. Worker 0, the caller's thread,
  // comes first and leaves last.
  void enter(u32 worker, u32 workers);
  void leave(u32 worker);
  // Whether each of so many workers may have a processor of its own, as far as is known of this
  // one, which has entered.
  bool has_room(u32 worker, u32 workers) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptowsp
