// Flow, second part: several iterations of a loop generated at a time, each by a cursor of its own,
// a lane. What the lanes make does not conflict (order.h), so any order between them will do.
#include <algorithm>

#include "ptowsp/flow.h"

namespace ptowsp {

void Flow::set_orders(const std::vector<LoopOrder>& orders, u32 workers, bool steady) {
  u32 most = 0;
  steady_ = steady;
  workers_ = workers;
  for (const LoopOrder& order : orders) {
    if (order.policy == OrderPolicy::SEQUENTIAL) continue;
    orders_.push_back(order);
    most = std::max(most, order.lanes(workers));
    if (order.policy != OrderPolicy::INTERLEAVED) continue;
    for (SiteMaker& maker : makers_) maker.strip = 1;  // turns are taken by single tasks
  }
  if (most == 0) return;
  lanes_.resize(most);
  tagged_ = true;
  lane_of_.resize(table_.capacity());
  seqs_.resize(table_.capacity());
}

// The main cursor stands at a loop that forks.
void Flow::begin_fork() {
  constexpr u32 kMostTurn = 16;
  const CursorFrame& frame = main_.frames[main_.depth - 1];
  fork_axis_ = plan_.code()[frame.pc].operand1;
  const auto order = std::find_if(orders_.begin(), orders_.end(),
                                  [&](const LoopOrder& o) { return o.axis == fork_axis_; });
  next_iteration_ = frame.index;
  end_iteration_ = frame.end;
  tasks_before_ = main_.next_task;
  const i64 lanes = std::min<i64>(order->lanes(workers_), frame.end - frame.index);
  num_lanes_ = static_cast<u32>(lanes);
  in_turns_ = steady_ || order->policy == OrderPolicy::INTERLEAVED;
  // No lane fills the window before the others have had a turn.
  const u32 share = window_ / (4 * num_lanes_);
  lanes_turn_ = in_turns_ ? 1 : std::clamp<u32>(share, 1, kMostTurn);
  lane_turns_ = 0;
  shared_ = open_.size();
  for (u32 i = 0; i < num_lanes_; ++i) {
    Lane& lane = lanes_[i];
    lane.open.assign(open_.begin(), open_.end());
    lane.in_leaf = lane.pending = lane.working = lane.waits = false;
    lane.cursor.first_copy = i;
    for (u32 a = 0; a < plan_.plan().count(Section::ALLOC); ++a) {
      lane.cursor.vars[plan_.copy_variable(a)] = static_cast<i64>(i) - num_lanes_;
    }
  }
  lane_ = 0;
  forked_ = true;
  in_leaf_ = pending_ = false;
  cursor_ = &lanes_[0].cursor;
}

// Gives a lane the next iteration that none has.
bool Flow::begin_iteration(u32 number, Error* error) {
  Lane& lane = lanes_[number];
  const u32 level = plan_.plan().get<Section::AXIS>(fork_axis_).level;
  Cursor next = main_;
  next.first_copy = number;
  next.copy_step = num_lanes_;
  for (u32 a = 0; a < plan_.plan().count(Section::ALLOC); ++a) {  // those inside go on
    if (plan_.plan().get<Section::ALLOC>(a).level <= level) continue;
    next.vars[plan_.copy_variable(a)] = lane.cursor.vars[plan_.copy_variable(a)];
  }
  lane.cursor = next;
  i64 tasks = 0;
  if (!lane.cursor.only_iteration(plan_, next_iteration_, tasks_before_, error)) return false;
  if (!plan_.iteration_tasks(fork_axis_, lane.cursor.vars, &tasks, error)) {
    error->at_record(Section::AXIS, fork_axis_, lane.cursor.vars, level);
    return false;
  }
  next_iteration_ += 1;
  tasks_before_ += static_cast<u64>(tasks);
  lane.working = true;
  lane.in_leaf = lane.pending = false;
  return true;
}

// Chooses the lane that goes on: the one whose turn it is or, where the pace is open, the one with
// the fewest live tasks. False: all iterations have been generated, or an error.
bool Flow::next_lane(Error* error) {
  u32 chosen = num_lanes_;
  for (u32 k = 0; k < num_lanes_; ++k) {
    const u32 i = static_cast<u32>((lane_turns_ + k) % num_lanes_);
    const Lane& lane = lanes_[i];
    if (!lane.working && next_iteration_ == end_iteration_) continue;
    if (in_turns_) {
      lane_turns_ += k;
      chosen = i;
      break;
    }
    if (lane.waits && others_can_go_on()) continue;
    if (chosen == num_lanes_ || lane.live < lanes_[chosen].live) chosen = i;
  }
  if (chosen == num_lanes_) return false;
  lanes_[chosen].waits = false;
  switch_to(chosen);
  if (lanes_[chosen].working) return true;
  in_leaf_ = pending_ = false;
  return begin_iteration(chosen, error);
}

bool Flow::others_can_go_on() const {
  return std::any_of(lanes_.begin(), lanes_.begin() + num_lanes_, [this](const Lane& lane) {
    return !lane.waits && (lane.working || next_iteration_ < end_iteration_);
  });
}

void Flow::switch_to(u32 next) {
  if (next == lane_) return;
  Lane& old = lanes_[lane_];
  Lane& now = lanes_[next];
  old.open.swap(open_);
  open_.swap(now.open);
  // The phases around the loop are those of all lanes.
  std::copy_n(old.open.begin(), shared_, open_.begin());
  old.in_leaf = in_leaf_;
  old.pending = pending_;
  in_leaf_ = now.in_leaf;
  pending_ = now.pending;
  lane_ = next;
  cursor_ = &now.cursor;
}

void Flow::note_ids(u64 first, u32 count) {
  if (ids_.size() < first + count) ids_.resize(2 * (first + count));
  for (u64 id = first; id < first + count; ++id) ids_[id] = true;
}

// The main cursor goes on behind the loop.
void Flow::end_fork() {
  main_.past_fork(plan_, tasks_before_);
  cursor_ = &main_;
  forked_ = in_leaf_ = pending_ = false;
  lane_ = 0;
}

}  // namespace ptowsp
