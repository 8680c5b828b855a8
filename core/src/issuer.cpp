#include "ptowsp/issuer.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "arithmetic.h"
#include "ptowsp/hash.h"

namespace ptowsp {

// --- where tasks belong --------------------------------------------------------------------------

static bool shares_one_queue(const ScheduleConfig& config) {
  return config.pools <= 1 && config.ready != ReadyPolicy::WORK_STEAL &&
         config.affinity_axis == kNone && config.levels.empty() &&
         config.dispatch.kind == DispatchPolicy::WORK_STEAL;
}

Issuer::Issuer(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
               RawVector<IssuePlace>* places, u64 seed)
    : plan_(plan),
      config_(config),
      keys_(*config.keys),
      workers_(workers),
      steals_(config.ready == ReadyPolicy::WORK_STEAL),
      one_queue_(shares_one_queue(config)),
      places_(*places),
      lock_(workers == 1),
      pinned_(workers, 0),
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
  make_groups();
  queues_.assign(static_cast<std::size_t>(pools) * pool_queues_, IssueQueue(config.ready));
  lanes_.resize(config.timing == TimingPolicy::INTERLEAVED ? config.timing_count : 0);
  lane_pending_.assign(lanes_.size(), 0);
  for (u32 g = 0; g < config.num_gates; ++g) {
    gates_by_stream_[g] = config.gates[g].scope == DepthScope::STREAM;
    gates_[g].resize(num_gates_[g] =
                         gates_by_stream_[g] ? std::max(static_cast<u32>(config.streams), 1u) : 1);
  }
  if (config.streams == 0 || std::has_single_bit(static_cast<u64>(config.streams))) {
    stream_mask_ = static_cast<u32>(std::max<i64>(config.streams, 1) - 1);
  }
  find_plain_sites();
  // Unknown counts as many: the last level is for those.
  if (!config.levels.empty() && !plan.total_tasks(&total_tasks_)) total_tasks_ = INT64_MAX;
}

void Issuer::find_plain_sites() {
  constexpr Keys::Line kZero{0, 0, kNone};
  plain_.resize(plan_.sites().size());
  const bool by_number = config_.streams > 0 && config_.stream_key == kNone;
  bool plain = one_queue_ && lanes_.empty() && !by_number;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    plain = plain && config_.gates[g].scope != DepthScope::KEY;
  }
  for (u32 s = 0; s < plain_.size() && plain; ++s) {
    plain_[s].stream = config_.streams > 0 ? keys_.line(config_.stream_key, s) : kZero;
    plain_[s].rank = config_.priority_key != kNone ? keys_.line(config_.priority_key, s) : kZero;
  }
}

void Issuer::make_groups() {
  const std::size_t pools = pool_workers_.size();
  u32 most = 0;
  pool_groups_.assign(pools, 0);
  group_of_.assign(pools * workers_, kNone);
  for (u32 pool = 0; pool < pools && config_.affinity_axis != kNone; ++pool) {
    const std::vector<u32>& crew = pool_workers_[pool];
    const u32 count = static_cast<u32>(crew.size());
    const u32 size = std::min(kLargestGroup, std::max(1u, count / 2));
    for (u32 k = 0; k < count; ++k) group_of_[pool * workers_ + crew[k]] = workers_ + 1 + k / size;
    pool_groups_[pool] = (count + size - 1) / size;
    most = std::max(most, pool_groups_[pool]);
  }
  pool_queues_ = workers_ + 1 + most;
  if (config_.affinity_axis == kNone) return;
  const PlanView& plan = plan_.plan();
  const std::string_view name = plan.string(config_.affinity_axis, Section::SCHEDULE_STRING);
  for (u32 s = 0; s < plan_.sites().size(); ++s) {
    affinity_levels_.push_back(loop_level(plan, s, name));
  }
}

bool Issuer::key(u32 node, const Cursor& cursor, i64* out, Error* error) const {
  if (keys_.value(node, cursor.site, cursor.vars, cursor.task_id, out, error)) return true;
  error->at_task(cursor.site, cursor.task_id, cursor.vars, plan_.sites()[cursor.site].level);
  return false;
}

// A small number for each value of a key.
u32 Issuer::number_of(u32 gate, i64 key) {
  Numbers& numbers = numbers_[gate];
  if (key < 0 || key >= kDense) {
    const auto [found, added] = numbers.others.try_emplace(key, numbers.count);
    numbers.count += added ? 1 : 0;
    return found->second;
  }
  if (numbers.dense.empty()) numbers.dense.assign(kDense, kNone);
  u32& number = numbers.dense[static_cast<std::size_t>(key)];
  if (number == kNone) number = numbers.count++;
  return number;
}

u32 Issuer::wrapped_stream(i64 number) const {
  return static_cast<u32>(floor_mod(number, config_.streams));
}

bool Issuer::place_by_keys(const Cursor& cursor, u32 slot, u64 seq, u32* stream, Error* error) {
  Place& place = places_[slot];  // nobody else knows the slot yet
  i64 value = 0;
  place.rank = IssueQueue::rank_of(0);
  place.seq = seq;
  place.stream = place.pool = 0;
  place.worker = kNone;
  for (u32& gate : place.gate) gate = 0;
  *stream = kNone;
  if (config_.streams > 0) {
    value = static_cast<i64>(cursor.task_id);
    if (config_.stream_key != kNone && !key(config_.stream_key, cursor, &value, error))
      return false;
    *stream = place.stream = stream_of(value);
  }
  if (config_.pool_kind == PoolPolicy::BY_EXEC_UNIT) {
    const u32 kernel = plan_.sites()[cursor.site].kernel;
    const auto unit = static_cast<ExecUnit>(plan_.plan().get<Section::KERNEL>(kernel).exec_unit);
    place.pool = unit == ExecUnit::AIC || unit == ExecUnit::AIC_AIV ? 1 : 0;
  } else if (config_.pool_kind == PoolPolicy::CUSTOM) {
    if (!key(config_.pool_key, cursor, &value, error)) return false;
    place.pool = static_cast<u32>(floor_mod(value, config_.pools));
  }
  if (config_.priority_key != kNone) {
    if (!key(config_.priority_key, cursor, &value, error)) return false;
    place.rank = IssueQueue::rank_of(value);
  }
  if (!place_worker(cursor, &place, error)) return false;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    const GateConfig& gate = config_.gates[g];
    if (gate.scope == DepthScope::STREAM) place.gate[g] = place.stream;
    if (gate.scope == DepthScope::POOL) place.gate[g] = place.pool;
    if (gate.scope == DepthScope::KEY) {
      if (!key(gate.key, cursor, &value, error)) return false;
      place.gate[g] = number_of(g, value);
    }
  }
  bool grows = !lanes_.empty();
  for (u32 g = 0; g < config_.num_gates; ++g) grows = grows || place.gate[g] >= num_gates_[g];
  if (!grows) return true;
  const std::lock_guard lock(lock_);
  for (u32 g = 0; g < config_.num_gates; ++g) {
    if (place.gate[g] < num_gates_[g]) continue;
    num_gates_[g] = place.gate[g] + 1;
    gates_[g].resize(num_gates_[g]);
  }
  if (!lanes_.empty()) lane_pending_[place.stream % lanes_.size()] += 1;
  return true;
}

// By the index of a loop. Tasks in no such loop go to any worker.
void Issuer::place_by_affinity(const Cursor& cursor, Place* place) const {
  const u32 level = affinity_levels_[cursor.site];
  if (level == kNone) return;
  const std::vector<u32>& crew = pool_workers_[place->pool];
  const i64 size = static_cast<i64>(crew.size());
  const i64 index = cursor.vars[level];
  switch (config_.affinity) {
    case Affinity::CORE_LOCAL:
      place->worker = crew[static_cast<std::size_t>(floor_mod(index, size))];
      return;
    case Affinity::CORE_GROUP:
      place->worker =
          workers_ + 1 + static_cast<u32>(floor_mod(index, i64{pool_groups_[place->pool]}));
      return;
    case Affinity::SPREAD:
      place->worker = crew[(splitmix(cursor.task_id) >> 1) % crew.size()];
      return;
  }
}

// The dispatch policy for a task: the only one, or that of the highest level its metric reaches.
bool Issuer::place_worker(const Cursor& cursor, Place* place, Error* error) {
  if (!affinity_levels_.empty()) {
    place_by_affinity(cursor, place);
    return true;
  }
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
      value = static_cast<i64>(place->seq % std::max<u64>(chosen->count, 1));
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

bool Issuer::arrive(u32 worker, std::span<const u32> slots, u64 now_ns) {
  const std::lock_guard lock(lock_);
  for (const u32 slot : slots) arrive_one(worker, slot, now_ns);
  return ready_.load(std::memory_order_relaxed) > 0;
}

void Issuer::arrive_one(u32 worker, u32 slot, u64 now_ns) {
  places_[slot].from = worker;
  if (config_.timing == TimingPolicy::IMMEDIATE) {
    pass_gates(slot);
  } else {
    pass_timing(slot, now_ns);
  }
}

void Issuer::pass_timing(u32 slot, u64 now_ns) {
  if (config_.timing == TimingPolicy::INTERLEAVED) {
    lanes_[places_[slot].stream % lanes_.size()].push_back(slot);
  } else {
    held_.push(slot);
  }
  pump(now_ns);
}

// Lets go of what the timing policy allows now.
void Issuer::pump(u64 now_ns) {
  const auto let_go = [this] {
    const u32 slot = held_.front();
    held_.drop_front();
    pass_gates(slot);
  };
  switch (config_.timing) {
    case TimingPolicy::BATCHED:
      if (held_.size() < config_.timing_count) return;
      while (!held_.empty()) let_go();
      return;
    case TimingPolicy::RATE_LIMIT:
      while (!held_.empty() && now_ns >= next_issue_ns_) {
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
  const std::lock_guard lock(lock_);
  if (ready() > 0) return true;
  if (running_ > 0) return false;
  if (config_.timing == TimingPolicy::BATCHED && !held_.empty()) {
    counters_.released += 1;
    for (; !held_.empty(); held_.drop_front()) pass_gates(held_.front());
    return ready() > 0;
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
    return ready() > 0;
  }
  return false;
}

u64 Issuer::waits_until() {
  const std::lock_guard lock(lock_);
  const bool held = config_.timing == TimingPolicy::RATE_LIMIT && !held_.empty();
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

void Issuer::leave_gates(u32 slot, u64 now_ns) {
  const Place& place = places_[slot];
  for (u32 g = 0; g < config_.num_gates; ++g) gates_[g][place.gate[g]].in_flight -= 1;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    Gate& gate = gates_[g][place.gate[g]];
    if (gate.first == kNone || gate.in_flight >= config_.gates[g].depth) continue;
    const u32 next = gate.first;
    gate.first = places_[next].next;
    if (gate.first == kNone) gate.last = kNone;
    pass_gates(next);
  }
  if (config_.timing != TimingPolicy::IMMEDIATE) pump(now_ns);
}

// --- pools and workers ---------------------------------------------------------------------------

void Issuer::enqueue(u32 slot) {
  const Place& place = places_[slot];
  // Without a place, work stealing puts a task where it became ready.
  const u32 worker = place.worker == kNone && steals_ ? place.from : place.worker;
  // Where the order is open, it is the one in which tasks have passed the stages before.
  const u64 order = config_.ready == ReadyPolicy::AUTO ? issued_ : place.seq;
  issued_ += 1;
  if (one_queue_) {
    queues_[workers_].push({place.rank, order, slot});
  } else {
    queue(place.pool, worker == kNone ? workers_ : worker).push({place.rank, order, slot});
    if (worker < workers_) pinned_[worker] += 1;
  }
  const u64 ready = ready_.load(std::memory_order_relaxed) + 1;
  ready_.store(ready, std::memory_order_release);
  counters_.ready_high = std::max(counters_.ready_high, ready);
}

void Issuer::end_locked(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns) {
  if (config_.num_gates > 0) leave_gates(slot, now_ns);
  for (const u32 next : arrived) arrive_one(worker, next, now_ns);
  running_ -= 1;
}

Issuer::Seen Issuer::leave(u32 worker, u32 slot, u64 now_ns) {
  const std::lock_guard lock(lock_);
  if (config_.num_gates > 0) leave_gates(slot, now_ns);
  return {false, for_others(worker)};
}

Issuer::Seen Issuer::settle(u32 worker, u64 ended, std::span<const u32> arrived, u64 now_ns) {
  const std::lock_guard lock(lock_);
  for (const u32 next : arrived) arrive_one(worker, next, now_ns);
  running_ -= ended;
  return {false, for_others(worker)};
}

Issuer::Seen Issuer::end(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns) {
  const std::lock_guard lock(lock_);
  end_locked(worker, slot, arrived, now_ns);
  return {false, for_others(worker)};
}

Issuer::Seen Issuer::end_and_take(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns,
                                  Taken* out) {
  const std::lock_guard lock(lock_);
  if (arrived.size() == 1 && takes_place_of(slot, arrived[0])) {
    out->slot = arrived[0];
    out->stolen = false;
    issued_ += 1;
    number_take(worker, out);
    return {true, false};
  }
  end_locked(worker, slot, arrived, now_ns);
  const bool took = take_locked(worker, now_ns, out);
  return {took, for_others(worker)};
}

// Whether there is nothing to decide: nothing else is ready, and what arrives goes through the
// gates that the ended task leaves, where nobody waits.
bool Issuer::takes_place_of(u32 slot, u32 arrived) const {
  if (!one_queue_ || config_.timing != TimingPolicy::IMMEDIATE ||
      ready_.load(std::memory_order_relaxed) > 0) {
    return false;
  }
  const Place& left = places_[slot];
  const Place& entered = places_[arrived];
  for (u32 g = 0; g < config_.num_gates; ++g) {
    if (left.gate[g] != entered.gate[g] || gates_[g][left.gate[g]].first != kNone) return false;
  }
  return true;
}

Issuer::Seen Issuer::take(u32 worker, u64 now_ns, Taken* out) {
  const bool by_time = config_.timing == TimingPolicy::RATE_LIMIT;
  if (!by_time && ready() == 0) return {};
  const std::lock_guard lock(lock_);
  const bool took = take_locked(worker, now_ns, out);
  return {took, for_others(worker)};
}

bool Issuer::take_locked(u32 worker, u64 now_ns, Taken* out) {
  if (config_.timing == TimingPolicy::RATE_LIMIT) pump(now_ns);
  if (ready_.load(std::memory_order_relaxed) == 0) return false;
  if (one_queue_) {
    out->slot = queues_[workers_].take();
    out->stolen = false;
    count_take(worker, out);
    return true;
  }
  const std::vector<u32>& pools = worker_pools_[worker];
  const std::size_t count = pools.size();
  std::size_t at = turn_[worker];
  for (std::size_t k = 0; k < count; ++k) {
    const u32 pool = pools[at];
    at = at + 1 < count ? at + 1 : 0;
    IssueQueue* from = best_queue(worker, pool);
    out->stolen = false;
    if (from != nullptr) {
      out->slot = from->take();
      if (from == &queue(pool, worker)) pinned_[worker] -= 1;
    } else if (!steal(worker, pool, &out->slot)) {
      continue;
    } else {
      out->stolen = true;
    }
    count_take(worker, out);
    turn_[worker] = static_cast<u32>(at);
    return true;
  }
  return false;
}

void Issuer::number_take(u32 worker, Taken* out) {
  out->take = takes_.load(std::memory_order_relaxed);
  out->before = std::exchange(last_taker_, worker);
  takes_.store(out->take + 1, std::memory_order_relaxed);
}

void Issuer::count_take(u32 worker, Taken* out) {
  number_take(worker, out);
  // Who sees it gone without the lock sees as well that this worker is up (Run::check_stuck).
  ready_.store(ready_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  running_ += 1;
}

// Its own queue, that of its group or the one for all, whichever has the task that goes first.
IssueQueue* Issuer::best_queue(u32 worker, u32 pool) {
  const auto first = [](IssueQueue* a, IssueQueue* b) {
    if (a == nullptr || a->empty()) return b->empty() ? nullptr : b;
    return b->empty() || IssueQueue::before(a->next(), b->next()) ? a : b;
  };
  IssueQueue* const best = first(&queue(pool, worker), &queue(pool, workers_));
  const u32 group = group_of_[pool * workers_ + worker];
  return group == kNone ? best : first(best, &queue(pool, group));
}

bool Issuer::steal(u32 worker, u32 pool, u32* slot) {
  if (!steals_) return false;
  random_ += 0x9E3779B97F4A7C15ull;
  const u32 first = static_cast<u32>(splitmix(random_) % workers_);
  for (u32 k = 0; k < workers_; ++k) {
    const u32 victim = (first + k) % workers_;
    if (victim == worker || queue(pool, victim).empty()) continue;
    *slot = queue(pool, victim).steal();
    pinned_[victim] -= 1;
    return true;
  }
  return false;
}

std::string Issuer::holding_report(u32* gate) const {
  const std::lock_guard lock(lock_);
  std::string text = ", ready " + std::to_string(ready());
  *gate = kNone;
  for (u32 g = 0; g < config_.num_gates; ++g) {
    u64 waiting = 0;
    u64 most = 0;
    for (const Gate& each : gates_[g]) {
      most = std::max(most, each.in_flight);
      for (u32 slot = each.first; slot != kNone; slot = places_[slot].next) waiting += 1;
    }
    const std::string depth = std::to_string(config_.gates[g].depth);
    text += ", pipeline_depth(" + depth + ") " + std::to_string(most) + " of " + depth +
            " in flight and " + std::to_string(waiting) + " waiting";
    if (waiting > 0 && *gate == kNone) *gate = g;
  }
  u64 held = held_.size();
  for (const auto& lane : lanes_) held += lane.size();
  return held > 0 ? text + ", timing holds " + std::to_string(held) : text;
}

}  // namespace ptowsp
