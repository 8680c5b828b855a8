// Workers of a run on different processors.
//
// Some systems put threads that wake each other on one processor and leave them there, so that
// others can sleep: virtual machines above all. Two workers then share a processor for a whole run
// while the next one is idle. Nothing is done about it until it is seen:
//
//   once      a worker keeps off the processor of worker 0, which is the caller's thread, and of
//             any other worker that it finds on its own
//   again     the caller's thread was brought to a worker's processor: it is held where it is while
//             a run has other workers, and may go anywhere as before when the run ends
//
// Where there are fewer processors than workers nothing is done at all. Besides huge_pages.h the
// only place of the core that speaks to one operating system; elsewhere nothing here does anything.
#pragma once

#include <memory>
#include <vector>

#include "ptowsp/plan.h"

namespace ptowsp {

// The processor that the calling thread runs on; -1 where the system does not say.
int current_cpu();
// The calling thread runs on any processor but these from now on, if there is another.
void keep_off(const std::vector<int>& cpus);

// Where the workers of a run are. The lock of their pool guards it.
class Placement {
 public:
  Placement();
  ~Placement();
  // The calling thread is that worker, of so many, until it leaves. Worker 0 comes first and leaves
  // last. What it gets are processors to keep_off(), for which it needs no lock; most times none.
  std::vector<int> enter(u32 worker, u32 workers);
  void leave(u32 worker);

 private:
  struct Place {
    int cpu = -1;   // not in the run, or not known
    int last = -1;  // where it was found the last time
    std::vector<int> off;
  };
  struct Caller;

  bool meets(u32 worker) const;
  std::vector<Place> places_;
  std::unique_ptr<Caller> caller_;
};

}  // namespace ptowsp
