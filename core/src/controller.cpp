#include "ptowsp/controller.h"

#include <algorithm>

#include "ptowsp/spin_lock.h"

namespace ptowsp {

Controller::Controller(u32 workers, const Recording* replay, u64 seed)
    : running(workers, kNone), replay_(replay), random_(splitmix(seed)) {
  for (u32 w = 0; w < workers; ++w) seats_.push_back(std::make_unique<Seat>());
}

void Controller::give(u32 worker) {
  Seat& seat = *seats_[worker];
  seat.turn.store(true, std::memory_order_seq_cst);  // before it looks for sleepers
  seat.lot.notify_one();
}

bool Controller::wait(u32 worker, std::chrono::nanoseconds most) {
  constexpr u32 kSpins = 200;
  Seat& seat = *seats_[worker];
  for (u32 i = 0; i < kSpins && !over_.load(std::memory_order_relaxed); ++i) {
    if (seat.turn.exchange(false, std::memory_order_acquire)) return true;
    pause_briefly();
  }
  const u64 ticket = seat.lot.prepare();
  const bool has_turn = seat.turn.exchange(false, std::memory_order_seq_cst);
  if (has_turn || over_.load(std::memory_order_seq_cst)) {
    seat.lot.withdraw();
    return has_turn;
  }
  seat.lot.wait(ticket, most);
  return seat.turn.exchange(false, std::memory_order_acquire);
}

void Controller::wake_all() {
  over_.store(true, std::memory_order_seq_cst);  // for those who are on their way to sleep
  for (const auto& seat : seats_) seat->lot.notify_all();
}

void Controller::add_ready(u64 task, u32 slot) {
  if (replays()) {
    ready_.emplace(task, slot);
  } else {
    open_.emplace_back(task, slot);
  }
}

bool Controller::take_ready(u64 task, u32* slot) {
  const auto found = ready_.find(task);
  if (found == ready_.end()) return false;
  *slot = found->second;
  ready_.erase(found);
  return true;
}

bool Controller::take_any(u32* slot) {
  if (open_.empty()) return false;
  std::pair<u64, u32>& chosen = open_[below(open_.size())];
  *slot = chosen.second;
  chosen = open_.back();
  open_.pop_back();
  return true;
}

u32 Controller::idle() const {
  return static_cast<u32>(std::count(running.begin(), running.end(), kNone));
}

void Controller::starts(u32 worker, u32 slot, u64 task) {
  running[worker] = slot;
  history.push_back({task, worker});
}

void Controller::ends(u32 worker) {
  running[worker] = kNone;
  history.push_back({Decision::kEnd, worker});
}

}  // namespace ptowsp
