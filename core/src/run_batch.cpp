// Runs under batch_deps(n): ended tasks release their successors n at a time.
#include "ptowsp/run.h"

namespace ptowsp {

// A task has ended: with n - 1 others of this worker, or at once if somebody waits for work.
void Run::end_in_batch(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  if (me.batch.add(slot, config_.batch_deps, &me.committed)) {
    commit(worker);
  } else if (resting_.load(std::memory_order_relaxed) > 0) {
    flush_batches(worker);
  }
}

// Commits what all workers have, because this one would idle, or generation waits. False if there
// was nothing.
bool Run::flush_batches(u32 worker) {
  Worker& me = *workers_[worker];
  bool some = false;
  for (const auto& other : workers_) {
    if (!other->batch.take(&me.committed)) continue;
    me.early_flushes += 1;
    commit(worker);
    some = true;
  }
  return some;
}

// What was taken from a batch.
void Run::commit(u32 worker) {
  Worker& me = *workers_[worker];
  me.batches += 1;
  if (traced_) me.now = now();
  if (issuer_) {
    commit_issued(worker);
  } else {
    for (const u32 slot : me.committed) {
      finish_slot(&me, slot, [&](u32 next) {
        if (control_) {
          make_ready_controlled(worker, next);
        } else {
          push_ready(worker, next);
        }
      });
    }
  }
  me.committed.clear();
}

}  // namespace ptowsp
