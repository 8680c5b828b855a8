// Runs on a virtual clock: one thread plays all workers. A task lasts as many cycles as its key
// says, whatever its body takes here; it ends, and lets others become ready, when the clock comes
// to its end. So every directive acts as it would on workers of that speed, and the same program
// has the same trace each time.
//
// Bodies run when their tasks start. What they read is there: the tasks they wait for have ended.
#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "ptowsp/run.h"

namespace ptowsp {

struct Run::Ending {
  u64 at = 0;
  u64 order = 0;  // of tasks that end together, the one that started first goes first
  u32 worker = 0;
  u32 slot = 0;
  bool operator>(const Ending& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

void Run::begin_virtual() {
  if (pinned_) flow_->note_processes();
  for (const BoundChannel& channel : plan_->channels()) {
    if (channel.latency == 0) continue;
    arrivals_.resize(plan_->channels().size());
    arrivals_[static_cast<std::size_t>(&channel - plan_->channels().data())].resize(
        channel.buffers);
  }
}

// Calls fn(channel, buffer, mode) for each message of a channel with latency that a task touches.
template <class Fn>
void Run::each_message(u32 slot, Fn fn) {
  const TaskTable& table = flow_->table();
  const BoundSite& site = plan_->sites()[table[slot].site()];
  i64 packed[kMaxVars];
  i64 vars[kMaxVars] = {};
  table.get_loops(slot, packed, site.level + site.num_registers);
  BoundPlan::unpack(site, packed, vars);
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const BoundAccess& a = plan_->access(plan_->site_access(site, p));
    for (std::size_t c = 0; c < arrivals_.size(); ++c) {
      const BoundChannel& channel = plan_->channels()[c];
      if (arrivals_[c].empty() || channel.element != a.tensor) continue;
      fn(c, static_cast<std::size_t>(vars[plan_->copy_variable(channel.alloc)]), a.mode);
    }
  }
}

// Whether a task that could start waits for a message; then it is ready when that arrives.
bool Run::is_under_way(u32 worker, u32 slot) {
  u64 at = 0;
  each_message(slot, [&](std::size_t channel, std::size_t buffer, u32 mode) {
    if (reads(mode)) at = std::max(at, arrivals_[channel][buffer]);
  });
  if (at <= virtual_now_) return false;
  under_way_.push_back({at, under_way_order_++, worker, slot});
  std::push_heap(under_way_.begin(), under_way_.end(), std::greater<>());
  return true;
}

// A task ends at this moment: what it wrote arrives later.
void Run::note_message(u32 slot) {
  if (arrivals_.empty()) return;
  each_message(slot, [&](std::size_t channel, std::size_t buffer, u32 mode) {
    if (reads(mode)) return;
    arrivals_[channel][buffer] = virtual_now_ + plan_->channels()[channel].latency;
  });
}

// The first message that is under way arrives.
void Run::deliver() {
  std::pop_heap(under_way_.begin(), under_way_.end(), std::greater<>());
  const UnderWay task = under_way_.back();
  under_way_.pop_back();
  virtual_now_ = task.at;
  workers_[task.worker]->now = task.at;
  if (issuer_) {
    held_.push_back(task.slot);
    issue_held(task.worker);
  } else {
    push_ready(task.worker, task.slot);
  }
}

bool Run::cycles_of(u32 site, const i64* loops, u64 task_id, u64* out, Error* error) const {
  i64 cycles = 0;
  const bool ok = keys_->value(config_.cycles_key, site, loops, task_id, &cycles, error);
  if (ok && cycles < 0) {
    *error = Error::make(Status::SCHEDULE_ERROR,
                         "TracePolicy.cycles gives " + std::to_string(cycles) + " cycles");
  }
  if (!ok || cycles < 0) {
    error->at_task(site, task_id, loops, plan_->sites()[site].level);
    return false;
  }
  *out = static_cast<u64>(cycles);
  return true;
}

// Gives an idle worker what it would take now. False: there is nothing for it.
bool Run::start_virtual(u32 worker, Ending* out) {
  Worker& me = *workers_[worker];
  u32 slot = kNil;
  bool stolen = false;
  if (!take_any(worker, &slot, &stolen)) return false;
  if (me.own->size() > 0 && me.deque->size() <= 0 && workers() > 1 && !pinned_) share(&me);
  const TaskTable::Record& r = flow_->table()[slot];
  const BoundSite& site = plan_->sites()[r.site()];
  i64 loops[kMaxVars];
  flow_->table().get_loops(slot, loops, site.level + site.num_registers);
  u64 cycles = 0;
  // Others see it inside of a kernel until then: what it keeps for itself is theirs to take.
  me.closed.store(me.own->size() == 0, std::memory_order_relaxed);
  if (!cycles_of(r.site(), loops, r.task_id, &cycles, &me.error) ||
      !me.runner.run(r.site(), loops, r.task_id, &me.error)) {
    fail_now(std::move(me.error));
    return false;
  }
  ptowsp_traced event{};
  event.task_id = r.task_id;
  event.seq = flow_->seq(slot);
  event.ready = ready_ticks_[slot];
  event.start = virtual_now_;
  event.end = virtual_now_ + cycles;
  event.take = me.take;
  event.site = r.site();
  event.stream = issuer_ ? issuer_->stream(slot) : 0;
  event.worker = worker;
  event.pool = static_cast<u16>(issuer_ ? issuer_->pool(slot) : 0);
  event.stolen = stolen ? 1 : 0;
  event.num_loops = static_cast<u8>(site.level);
  std::byte* const at = me.trace->next();
  std::memcpy(at, &event, sizeof(event));
  std::memcpy(at + sizeof(event), loops, site.level * sizeof(i64));
  me.tasks += 1;
  *out = {event.end, 0, worker, slot};
  return true;
}

void Run::end_virtual(const Ending& task) {
  Worker& me = *workers_[task.worker];
  virtual_now_ = me.now = task.at;
  me.closed.store(true, std::memory_order_relaxed);
  me.done.store(me.tasks, std::memory_order_release);
  note_message(task.slot);
  end_any(task.worker, task.slot);
}

// Generation takes no time: whatever the window has room for is there.
void Run::generate_virtual(u32 worker) {
  u64 before = 0;
  do {
    before = made_.load(std::memory_order_relaxed);
    generate_burst(worker);
  } while (made_.load(std::memory_order_relaxed) != before && !stop_);
}

void Run::work_virtual() {
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings;
  std::vector<bool> busy(workers());
  u64 order = 0;
  u32 last = 0;  // the worker that ended a task, and so looks for more
  while (!stop_) {
    generate_virtual(last);
    for (bool more = true; more;) {
      more = false;
      for (u32 w = 0; w < workers() && !stop_; ++w) {
        Ending ending;
        if (busy[w]) continue;
        if (!start_virtual(w, &ending)) {
          more = more || (config_.batch_deps > 0 && flush_batches(w));
          continue;
        }
        ending.order = order++;
        endings.push(ending);
        busy[w] = more = true;
      }
    }
    poll_interrupt();
    const u64 timer = issuer_ ? issuer_->waits_until() : 0;  // of a rate limit that holds something
    const u64 arrives = under_way_.empty() ? UINT64_MAX : under_way_.front().at;
    if (!under_way_.empty() && (endings.empty() || arrives < endings.top().at) &&
        (timer <= virtual_now_ || arrives <= timer)) {
      deliver();
    } else if (timer > virtual_now_ && (endings.empty() || timer < endings.top().at)) {
      virtual_now_ = timer;
    } else if (!endings.empty()) {
      last = endings.top().worker;
      busy[last] = false;
      end_virtual(endings.top());
      endings.pop();
    } else if (generated_all_ && total_done() == made_) {
      return;
    } else {
      collect_all();  // a batch that was committed for want of room has made some
      check_stuck(last);
    }
  }
}

}  // namespace ptowsp
