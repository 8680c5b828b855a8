// Runs whose schedule needs an Issuer: between it and the workers.
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

void Run::issue(u32 worker, u32 slot) {
  after_issue(issuer_->arrive(worker, &slot, 1, issue_time()));
}

// Under the token.
void Run::issue_held(u32 worker) {
  if (held_.empty()) return;
  if (traced_) {
    for (const u32 slot : held_) ready_ticks_[slot] = now();
  }
  after_issue(issuer_->arrive(worker, held_.data(), held_.size(), issue_time()));
  held_.clear();
}

// `some`: there is a task to take.
void Run::after_issue(bool some) {
  if (issuer_->overflowed() != kNone) {
    const u32 slot = issuer_->overflowed();
    const TaskTable::Record& r = flow_->table()[slot];
    const BoundSite& site = plan_->sites()[r.site()];
    i64 loops[kMaxVars];
    flow_->table().get_loops(slot, loops, site.level + site.num_registers);
    Error error = Error::make(Status::WINDOW_OVERFLOW,
                              "a pipeline_depth gate is full and its on_full is \"error\"");
    error.at_task(r.site(), r.task_id, loops, site.level);
    fail_now(std::move(error));
    return;
  }
  if (!some) return;
  call_crew();
  lot_.wake();  // a task may be for one worker only, whom notify_one() need not meet
}

bool Run::take_issued(u32 worker, u32* slot, bool* stolen) {
  Issuer::Taken taken;
  if (!issuer_->take(worker, issue_time(), &taken)) return false;
  *slot = taken.slot;
  *stolen = taken.stolen;
  workers_[worker]->take = taken.take;
  workers_[worker]->stolen += taken.stolen ? 1 : 0;
  return true;
}

}  // namespace ptowsp
