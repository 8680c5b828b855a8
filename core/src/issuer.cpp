#include "ptowsp/issuer.h"

#include <algorithm>
#include <string>

#include "arithmetic.h"
#include "ptowsp/hash.h"

namespace ptowsp {

// --- queues --------------------------------------------------------------------------------------

bool IssueQueue::before(ReadyPolicy policy, const Item& a, const Item& b) {
  if (policy == ReadyPolicy::PRIORITY && a.priority != b.priority) return a.priority > b.priority;
  return a.order < b.order;
}

void IssueQueue::push(Item item) {
  items_.push_back(item);
  if (policy_ == ReadyPolicy::WORK_STEAL) return;
  std::push_heap(items_.begin(), items_.end(),
                 [this](const Item& a, const Item& b) { return before(policy_, b, a); });
}

IssueQueue::Item IssueQueue::take() {
  if (policy_ == ReadyPolicy::WORK_STEAL) {
    const Item item = items_.back();
    items_.pop_back();
    if (items_.size() == head_) items_.clear(), head_ = 0;
    return item;
  }
  std::pop_heap(items_.begin(), items_.end(),
                [this](const Item& a, const Item& b) { return before(policy_, b, a); });
  const Item item = items_.back();
  items_.pop_back();
  return item;
}

IssueQueue::Item IssueQueue::steal() {
  if (policy_ != ReadyPolicy::WORK_STEAL) return take();
  const Item item = items_[head_++];
  if (items_.size() == head_) items_.clear(), head_ = 0;
  return item;
}

// --- where tasks belong --------------------------------------------------------------------------

Issuer::Issuer(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, u32 slots,
               u64 seed)
    : plan_(plan),
      config_(config),
      keys_(plan.plan()),
      workers_(workers),
      places_(slots),
      turn_(workers, 0),
      random_(seed) {
  const u32 pools = std::max<u32>(config.pools, 1);
  pool_workers_.resize(pools);
  worker_pools_.resize(workers);
  // As many workers as pools or more: each has one. Fewer: they take turns.
  for (u32 k = 0; k < std::max(pools, workers); ++k) {
    pool_workers_[k % pools].push_back(k % workers);
    worker_pools_[k % workers].push_back(k % pools);
  }
  queues_.assign(static_cast<std::size_t>(pools) * (workers + 1), IssueQueue(config.ready));
  lanes_.resize(config.timing == TimingPolicy::INTERLEAVED ? config.timing_count : 0);
  lane_pending_.assign(lanes_.size(), 0);
  for (u32 g = 0; g < config.num_gates; ++g) gates_[g].resize(num_gates_[g] = 1);
  // Unknown counts as many: the last level is for those.
  if (!config.levels.empty() && !plan.total_tasks(&total_tasks_)) total_tasks_ = INT64_MAX;
}

bool Issuer::key(u32 node, const Cursor& cursor, i64* out, Error* error) const {
  if (keys_.value(node, cursor.site, cursor.vars, cursor.task_id, out, error)) return true;
  error->at_task(cursor.site, cursor.task_id, cursor.vars, plan_.sites()[cursor.site].level);
  return false;
}

// A small number for each value of a key.
u32 Issuer::number_of(std::unordered_map<i64, u32>* numbers, i64 key) {
  return numbers->try_emplace(key, static_cast<u32>(numbers->size())).first->second;
}

bool Issuer::place(const Cursor& cursor, u32 slot, u32* stream, Error* error) {
  Place place;
  i64 value = 0;
  place.seq = cursor.task_id;
  *stream = kNone;
  if (config_.streams > 0) {
    value = static_cast<i64>(cursor.task_id);
    if (config_.stream_key != kNone && !key(config_.stream_key, cursor, &value, error))
      return false;
    place.stream = static_cast<u32>(floor_mod(value, config_.streams));
    *stream = place.stream;
  }
  if (config_.pool_kind == PoolPolicy::BY_EXEC_UNIT) {
    const u32 kernel = plan_.sites()[cursor.site].kernel;
    const auto unit = static_cast<ExecUnit>(plan_.plan().get<Section::KERNEL>(kernel).exec_unit);
    place.pool = unit == ExecUnit::AIC || unit == ExecUnit::AIC_AIV ? 1 : 0;
  } else if (config_.pool_kind == PoolPolicy::CUSTOM) {
    if (!key(config_.pool_key, cursor, &value, error)) return false;
    place.pool = static_cast<u32>(floor_mod(value, config_.pools));
  }
  if (config_.priority_key != kNone && !key(config_.priority_key, cursor, &place.priority, error)) {
    return false;
  }
  if (!place_worker(cursor, &place, error)) return false;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    const GateConfig& gate = config_.gates[g];
    if (gate.scope == DepthScope::STREAM) place.gate[g] = place.stream;
    if (gate.scope == DepthScope::POOL) place.gate[g] = place.pool;
    if (gate.scope == DepthScope::KEY) {
      if (!key(gate.key, cursor, &value, error)) return false;
      place.gate[g] = number_of(&gate_numbers_[g], value);
    }
  }
  places_[slot] = place;  // nobody else knows the slot yet
  bool grows = !lanes_.empty();
  for (u32 g = 0; g < config_.num_gates; ++g) grows = grows || place.gate[g] >= num_gates_[g];
  if (!grows) return true;
  const std::lock_guard lock(mutex_);
  for (u32 g = 0; g < config_.num_gates; ++g) {
    if (place.gate[g] < num_gates_[g]) continue;
    num_gates_[g] = place.gate[g] + 1;
    gates_[g].resize(num_gates_[g]);
  }
  if (!lanes_.empty()) lane_pending_[place.stream % lanes_.size()] += 1;
  return true;
}

// The dispatch policy for a task: the only one, or that of the highest level its metric reaches.
bool Issuer::place_worker(const Cursor& cursor, Place* place, Error* error) {
  const Dispatch* chosen = &config_.dispatch;
  if (!config_.levels.empty()) {
    i64 metric = static_cast<i64>(total_tasks_);
    if (config_.metric_key != kNone && !key(config_.metric_key, cursor, &metric, error))
      return false;
    for (const DispatchLevel& level : config_.levels) {
      if (metric >= level.threshold) chosen = &level.dispatch;
    }
  }
  const std::vector<u32>& crew = pool_workers_[place->pool];
  const i64 size = static_cast<i64>(crew.size());
  i64 value = 0;
  switch (chosen->kind) {
    case DispatchPolicy::WORK_STEAL:
      return true;
    case DispatchPolicy::ROUND_ROBIN:
      value = static_cast<i64>(cursor.task_id % std::max<u64>(chosen->count, 1));
      break;
    case DispatchPolicy::STATIC_PARTITION:
      value = static_cast<i64>(std::upper_bound(chosen->starts.begin(), chosen->starts.end(),
                                                static_cast<i64>(cursor.task_id)) -
                               chosen->starts.begin()) -
              1;
      break;
    default:
      if (!key(chosen->key, cursor, &value, error)) return false;
      if (chosen->kind == DispatchPolicy::HASH) {
        value = static_cast<i64>(splitmix(static_cast<u64>(value)) >> 1);
      }
      if (chosen->kind != DispatchPolicy::BY_KEY || (value >= 0 && value < size)) break;
      *error =
          Error::make(Status::SCHEDULE_ERROR, "dispatch_by gives worker " + std::to_string(value) +
                                                  ", there are " + std::to_string(size));
      error->at_task(cursor.site, cursor.task_id, cursor.vars, plan_.sites()[cursor.site].level);
      return false;
  }
  place->worker = crew[static_cast<std::size_t>(floor_mod(value, size))];
  return true;
}

// --- timing --------------------------------------------------------------------------------------

bool Issuer::arrive(u32 worker, const u32* slots, std::size_t count, u64 now_ns) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) {
    places_[slots[i]].from = worker;
    pass_timing(slots[i], now_ns);
  }
  return ready_ > 0;
}

void Issuer::pass_timing(u32 slot, u64 now_ns) {
  switch (config_.timing) {
    case TimingPolicy::IMMEDIATE:
      pass_gates(slot);
      return;
    case TimingPolicy::INTERLEAVED:
      lanes_[places_[slot].stream % lanes_.size()].push_back(slot);
      break;
    default:
      held_.push_back(slot);
  }
  pump(now_ns);
}

// Lets go of what the timing policy allows now.
void Issuer::pump(u64 now_ns) {
  const auto let_go = [this] {
    const u32 slot = held_[held_head_++];
    if (held_head_ == held_.size()) held_.clear(), held_head_ = 0;
    pass_gates(slot);
  };
  switch (config_.timing) {
    case TimingPolicy::BATCHED:
      if (held_.size() - held_head_ < config_.timing_count) return;
      for (u64 left = held_.size() - held_head_; left > 0; --left) let_go();
      return;
    case TimingPolicy::RATE_LIMIT:
      while (held_head_ < held_.size() && now_ns >= next_issue_ns_) {
        next_issue_ns_ = std::max(next_issue_ns_, now_ns) + 1'000'000 / config_.timing_count;
        let_go();
      }
      return;
    case TimingPolicy::INTERLEAVED:
      for (u32 idle = 0; idle < lanes_.size();) {
        std::vector<u32>& lane = lanes_[lane_turn_];
        if (lane.empty() && lane_pending_[lane_turn_] > 0) return;  // its turn: the others wait
        const bool issues = !lane.empty();
        if (issues) {
          const auto first = std::min_element(lane.begin(), lane.end(), [this](u32 a, u32 b) {
            return places_[a].seq < places_[b].seq;
          });
          const u32 slot = *first;
          lane.erase(first);
          lane_pending_[lane_turn_] -= 1;
          pass_gates(slot);
        }
        idle = issues ? 0 : idle + 1;
        lane_turn_ = (lane_turn_ + 1) % static_cast<u32>(lanes_.size());
      }
      return;
    case TimingPolicy::IMMEDIATE:
      return;
  }
}

bool Issuer::release(u64 now_ns) {
  const std::lock_guard lock(mutex_);
  if (ready_ > 0) return true;
  if (running_.load(std::memory_order_acquire) > 0) return false;
  if (config_.timing == TimingPolicy::BATCHED && held_head_ < held_.size()) {
    counters_.released += 1;
    while (held_head_ < held_.size()) pass_gates(held_[held_head_++]);
    held_.clear();
    held_head_ = 0;
    return ready_ > 0;
  }
  if (config_.timing != TimingPolicy::INTERLEAVED) return false;
  // The lane whose turn it is waits for others: those that have something go first.
  for (u32 k = 0; k < lanes_.size(); ++k) {
    const u32 lane = (lane_turn_ + k) % static_cast<u32>(lanes_.size());
    if (lanes_[lane].empty()) continue;
    counters_.released += 1;
    lane_turn_ = lane;
    const u32 slot = lanes_[lane].front();
    lanes_[lane].erase(lanes_[lane].begin());
    lane_pending_[lane] -= 1;
    pass_gates(slot);
    lane_turn_ = (lane_turn_ + 1) % static_cast<u32>(lanes_.size());
    pump(now_ns);
    return ready_ > 0;
  }
  return false;
}

u64 Issuer::waits_until() {
  const std::lock_guard lock(mutex_);
  const bool held = config_.timing == TimingPolicy::RATE_LIMIT && held_head_ < held_.size();
  return held ? std::max<u64>(next_issue_ns_, 1) : 0;
}

// --- depth gates ---------------------------------------------------------------------------------

// All of its gates or none: a task that waits holds nothing.
void Issuer::pass_gates(u32 slot) {
  Place& place = places_[slot];
  for (u32 g = 0; g < config_.num_gates; ++g) {
    Gate& gate = gates_[g][place.gate[g]];
    if (gate.in_flight < config_.gates[g].depth) continue;
    counters_.gate_stalls += 1;
    if (config_.gates[g].on_full == OnFull::ERROR) {
      overflowed_.store(slot, std::memory_order_release);
      return;
    }
    place.next = kNone;
    (gate.last == kNone ? gate.first : places_[gate.last].next) = slot;
    gate.last = slot;
    return;
  }
  for (u32 g = 0; g < config_.num_gates; ++g) gates_[g][place.gate[g]].in_flight += 1;
  enqueue(slot);
}

bool Issuer::ended(u32 slot, u64 now_ns) {
  if (config_.num_gates == 0) return false;
  const std::lock_guard lock(mutex_);
  const Place place = places_[slot];
  for (u32 g = 0; g < config_.num_gates; ++g) gates_[g][place.gate[g]].in_flight -= 1;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    Gate& gate = gates_[g][place.gate[g]];
    if (gate.first == kNone || gate.in_flight >= config_.gates[g].depth) continue;
    const u32 next = gate.first;
    gate.first = places_[next].next;
    if (gate.first == kNone) gate.last = kNone;
    pass_gates(next);
  }
  pump(now_ns);
  return ready_ > 0;
}

// --- pools and workers ---------------------------------------------------------------------------

void Issuer::enqueue(u32 slot) {
  const Place& place = places_[slot];
  // Without a place, work stealing puts a task where it became ready.
  const bool to_maker = place.worker == kNone && config_.ready == ReadyPolicy::WORK_STEAL;
  const u32 worker = to_maker ? place.from : place.worker;
  // Where the order is open, it is the one in which tasks have passed the stages before.
  const u64 order = config_.ready == ReadyPolicy::AUTO ? issued_ : place.seq;
  issued_ += 1;
  queue(place.pool, worker == kNone ? workers_ : worker).push({place.priority, order, slot});
  ready_ += 1;
  counters_.ready_high = std::max(counters_.ready_high, ready_);
}

bool Issuer::take(u32 worker, u64 now_ns, Taken* out) {
  const std::lock_guard lock(mutex_);
  if (config_.timing == TimingPolicy::RATE_LIMIT) pump(now_ns);
  if (ready_ == 0) return false;
  const std::vector<u32>& pools = worker_pools_[worker];
  for (std::size_t k = 0; k < pools.size(); ++k) {
    const u32 pool = pools[(turn_[worker] + k) % pools.size()];
    IssueQueue* from = best_queue(worker, pool);
    const bool found = from != nullptr;
    if (found) {
      out->slot = from->take().slot;
      out->stolen = false;
    } else if (!steal(worker, pool, out)) {
      continue;
    }
    out->take = takes_++;
    ready_ -= 1;
    running_.fetch_add(1, std::memory_order_relaxed);
    turn_[worker] = static_cast<u32>((turn_[worker] + k + 1) % pools.size());
    return true;
  }
  return false;
}

// Its own queue or the one for all, whichever has the task that goes first.
IssueQueue* Issuer::best_queue(u32 worker, u32 pool) {
  IssueQueue& own = queue(pool, worker);
  IssueQueue& all = queue(pool, workers_);
  if (own.empty() && all.empty()) return nullptr;
  if (own.empty()) return &all;
  if (all.empty()) return &own;
  return IssueQueue::before(config_.ready, own.next(), all.next()) ? &own : &all;
}

bool Issuer::steal(u32 worker, u32 pool, Taken* out) {
  if (config_.ready != ReadyPolicy::WORK_STEAL) return false;
  random_ += 0x9E3779B97F4A7C15ull;
  const u32 first = static_cast<u32>(splitmix(random_) % workers_);
  for (u32 k = 0; k < workers_; ++k) {
    const u32 victim = (first + k) % workers_;
    if (victim == worker || queue(pool, victim).empty()) continue;
    out->slot = queue(pool, victim).steal().slot;
    out->stolen = true;
    return true;
  }
  return false;
}

}  // namespace ptowsp
