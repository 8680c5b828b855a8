// Runs that repeat a recording or draw their interleaving from a seed; see controller.h.
#include <string>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

void Run::begin_controlled() {
  {
    Lock lock(mutex_);  // somebody may cancel
    control_.emplace(workers(), control_with_.replay ? &*control_with_.replay : nullptr,
                     control_with_.seed.value_or(0));
  }
  flow_->make_singly();
  const u64 seed = control_with_.seed.value_or(0);
  for (u32 w = 0; w < workers(); ++w) workers_[w]->random = splitmix(seed) + w;
}

void Run::work_controlled(u32 worker) {
  if (worker == 0) {
    call_crew();
    decide();
  }
  while (wait_for_turn(worker)) {
    const Controller::Next now = control_->next;
    if (now.starts) {
      decide();  // others go on while this one runs
      if (!run_one(worker, now.slot, now.stolen)) return;
    } else {
      end_controlled(worker, now.slot);
      decide();
    }
  }
}

// False: the run is over.
bool Run::wait_for_turn(u32 worker) {
  while (!stop_.load(std::memory_order_acquire)) {
    if (control_->wait(worker, kPollEvery)) return !stop_.load(std::memory_order_acquire);
    if (worker == 0) poll_interrupt();
  }
  return false;
}

void Run::end_controlled(u32 worker, u32 slot) {
  Worker& me = *workers_[worker];
  control_->ended += 1;
  control_->now_ns += 1000;
  if (config_.batch_deps > 0 && !control_->replays()) {
    end_any(worker, slot);
  } else if (issuer_ && !control_->replays()) {
    me.arrived.clear();
    finish_slot(&me, slot, [&](u32 next) { me.arrived.push_back(next); });
    after_issue(issuer_->end(worker, slot, me.arrived, issue_time()).for_others);
  } else {
    finish_slot(&me, slot, [&](u32 next) { make_ready_controlled(worker, next); });
  }
}

// A recording and an open order take ready tasks from one set, whatever the worker.
void Run::make_ready_controlled(u32 worker, u32 slot) {
  if (control_->replays() || config_.ready == ReadyPolicy::AUTO) {
    if (traced_) ready_ticks_[slot] = now();
    control_->add_ready(flow_->table()[slot].task_id, slot);
  } else {
    push_ready(worker, slot);
  }
}

// Under the turn: what happens next, and whose turn it is.
void Run::decide() {
  Error error;
  Controller::Next next;
  const bool decided = control_->replays() ? decide_again(&next, &error) : draw(&next, &error);
  if (!decided) {
    if (!error.ok()) {
      fail_now(std::move(error));
    } else {  // all tasks have ended
      if (config_.batch_deps > 0) flush_batches(0);
      stop_.store(true, std::memory_order_release);
      control_->wake_all();
    }
    return;
  }
  if (next.starts) {
    workers_[next.worker]->take = next_take_++;
    workers_[next.worker]->stolen += next.stolen ? 1 : 0;
    control_->starts(next.worker, next.slot, flow_->table()[next.slot].task_id);
  } else {
    next.slot = control_->running[next.worker];
    control_->ends(next.worker);
  }
  control_->next = next;
  control_->give(next.worker);
}

// --- a recording ---------------------------------------------------------------------------------

Error Run::misfit(const std::string& what) const {
  return Error::make(Status::RECORDING_MISFIT, "the recording does not fit: " + what +
                                                   ", at its event " +
                                                   std::to_string(control_->history.size()));
}

// False: the run is over, or `error` says why it cannot go on.
bool Run::decide_again(Controller::Next* next, Error* error) {
  const Decision* event = control_->scripted();
  if (event == nullptr) return decide_behind(next, error);
  next->worker = event->worker;
  next->starts = event->starts();
  if (!next->starts) return true;
  if (!make_until(event->task, error)) return false;
  if (control_->take_ready(event->task, &next->slot)) return true;
  *error = misfit("task " + std::to_string(event->task) + " waits for others or has run");
  return false;
}

// Generates until a task is there.
bool Run::make_until(u64 task, Error* error) {
  const auto ready = [&](u32 slot) { make_ready_controlled(0, slot); };
  const auto freed = [&](u32 slot) { free_slot(workers_[0].get(), slot); };
  while (!flow_->was_made(task)) {
    collect_all();
    // As few as may do: in another order of generation nobody knows how many come first.
    const u64 missing = flow_->has_lanes() ? 1 : task + 1 - flow_->made();
    const u32 most = static_cast<u32>(std::min<u64>(missing, kBurst));
    const Flow::Made made = flow_->make(most, ready, freed, error);
    if (made == Flow::Made::Failed) return false;
    if (made == Flow::Made::Some) continue;
    if (made == Flow::Made::Done) all_generated();
    if (flow_->was_made(task)) return true;
    const char* const why = made == Flow::Made::Done   ? ", of which there are fewer"
                            : made == Flow::Made::Full ? ", for which the window has no room"
                                                       : ", which waits for others";
    *error = misfit("it starts task " + std::to_string(task) + why);
    return false;
  }
  return true;
}

// The recording has ended: so should the run. That of a run that failed may leave tasks running.
bool Run::decide_behind(Controller::Next* next, Error* error) {
  for (u32 w = 0; w < workers(); ++w) {
    if (control_->running[w] == kNone) continue;
    next->worker = w;
    return true;
  }
  const Recording& recording = control_->recording();
  if (!recording.complete) {
    *error = misfit("it is of a run that failed here, and this one did not");
    return false;
  }
  if (!generated_all_.load(std::memory_order_relaxed)) {
    if (!make_until(flow_->made(), error) && error->status != Status::RECORDING_MISFIT)
      return false;
    *error = Error{};
  }
  if (!generated_all_.load(std::memory_order_relaxed) || flow_->made() != control_->ended) {
    *error = misfit("there are more tasks");
  } else if (hashed_ && recording.hashed && !(flow_->hash() == recording.task_hash)) {
    *error = misfit("the tasks have other regions or scalars");
  }
  return false;
}

// --- a seed --------------------------------------------------------------------------------------

// Draws the next event among those that the schedule allows now. False: the run is over, or `error`
// says why it cannot go on.
bool Run::draw(Controller::Next* next, Error* error) {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (control_->below(2) == 0) generate_controlled();
    if (draw_event(next)) return true;
    // Nothing runs, and nothing can be taken.
    const u64 before = flow_->made();
    generate_controlled();
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (flow_->made() != before) continue;
    if (draw_event(next)) return true;
    if (generated_all_ && control_->ended == flow_->made()) return false;
    if (let_go_controlled()) continue;
    *error = stuck();
    return false;
  }
  return false;
}

void Run::collect_all() {
  for (const auto& w : workers_) give_back(w.get());
  flow_->collect();
}

void Run::generate_controlled() {
  if (generated_all_.load(std::memory_order_relaxed)) return;
  collect_all();
  generate_locked(0, 1 + static_cast<u32>(control_->below(kBurst)));
  made_.store(flow_->made(), std::memory_order_release);
}

// A busy worker ends, or an idle one starts what the schedule gives it.
bool Run::draw_event(Controller::Next* next) {
  std::vector<u32> left(workers());
  for (u32 w = 0; w < workers(); ++w) left[w] = w;
  while (!left.empty()) {
    u32& chosen = left[control_->below(left.size())];
    next->worker = chosen;
    next->starts = control_->running[chosen] == kNone;
    next->stolen = false;
    if (!next->starts || take_controlled(next)) return true;
    chosen = left.back();
    left.pop_back();
  }
  return false;
}

bool Run::take_controlled(Controller::Next* next) {
  if (issuer_) {
    Issuer::Taken taken;
    if (!issuer_->take(next->worker, issue_time(), &taken).took) return false;
    next->slot = taken.slot;
    next->stolen = taken.stolen;
    return true;
  }
  if (config_.ready == ReadyPolicy::AUTO) return control_->take_any(&next->slot);
  return take_ready(next->worker, &next->slot, &next->stolen);
}

// What holds tasks back lets go of some, or time goes on. False: nothing is held.
bool Run::let_go_controlled() {
  if (config_.batch_deps > 0 && flush_batches(0)) return true;
  if (!issuer_) return false;
  if (issuer_->release(issue_time())) return true;
  const u64 until = issuer_->waits_until();
  if (until == 0) return false;
  control_->now_ns = std::max(control_->now_ns, until);
  return true;
}

// --- afterwards ----------------------------------------------------------------------------------

// The decisions of a run that was recorded or controlled. After end().
Recording Run::recording() const {
  Recording out = control_with_.head;
  out.workers = workers();
  out.complete = error_.ok();
  if (hashed_ && out.complete) {  // only now are the tasks known
    out.hashed = true;
    out.tasks = stats().tasks;
    out.task_hash = hash();
  }
  if (control_) {
    out.decisions = control_->history;
  } else if (recorder_) {
    out.decisions = recorder_->decisions();
  }
  return out;
}

}  // namespace ptowsp
