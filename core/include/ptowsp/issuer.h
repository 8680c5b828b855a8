// From ready to running, where the schedule says which task, when and by whom.
//
//   hazards -> timing -> depth gates -> pool -> worker queue
//
// Streams are edges between records, so a task that arrives here has its turn in its stream. Where
// a task belongs (stream, pool, worker, priority, gates) is decided when it is generated, from its
// keys, and kept by slot. Holding stages release what they hold when nothing else could run; that
// is counted.
//
// Thread roles: place() by the holder of the generation token; everything else by any worker. One
// lock guards all of it: whoever wants a schedule like this wants an order, and an order is one. It
// is taken once a task: a worker says in one call what has ended and what that made ready, and gets
// its next task.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptowsp/cursor.h"
#include "ptowsp/issue_queue.h"
#include "ptowsp/keys.h"
#include "ptowsp/lines.h"
#include "ptowsp/schedule.h"
#include "ptowsp/spin_lock.h"

namespace ptowsp {

// Where a task belongs. All of it is written when the task is generated or becomes ready, so a
// table of them goes from run to run as it is. One line, that of a task, goes from worker to
// worker.
struct alignas(kCacheLine) IssuePlace {
  u64 rank;
  u64 seq;
  u32 stream;
  u32 pool;
  u32 worker;  // whose queue it goes into, or a group's; kNone: any of the pool
  u32 from;    // the worker that made it ready
  u32 next;    // in the list of a gate
  u32 gate[ScheduleConfig::kMostGates];
};

class Issuer {
 public:
  struct Taken {
    u32 slot = kNone;
    bool stolen = false;
    u64 take = 0;        // position in the order in which workers took tasks
    u32 before = kNone;  // who took the one before
  };

  // `places` has one for each slot, and is the issuer's as long as it lives.
  Issuer(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
         RawVector<IssuePlace>* places, u64 seed);

  // Where a task of the cursor belongs. False: a key has no value. `stream` is its stream, or
  // kNone.
  bool place(const Cursor& cursor, u32 slot, u64 seq, u32* stream, Error* error) {
    if (slot + kAhead < places_.size()) __builtin_prefetch(&places_[slot + kAhead], 1);
    const Plain& plain = plain_[cursor.site];
    i64 number = 0;
    i64 priority = 0;
    if (!plain.stream.value(cursor.vars, &number) || !plain.rank.value(cursor.vars, &priority)) {
      return place_by_keys(cursor, slot, seq, stream, error);
    }
    Place& place = places_[slot];
    place.seq = seq;
    place.rank = IssueQueue::rank_of(priority);
    place.stream = stream_of(number);
    place.pool = 0;
    place.worker = kNone;
    for (u32 g = 0; g < config_.num_gates; ++g)
      place.gate[g] = gates_by_stream_[g] ? place.stream : 0;
    *stream = config_.streams > 0 ? place.stream : kNone;
    return true;
  }
  u32 stream(u32 slot) const { return places_[slot].stream; }
  u32 pool(u32 slot) const { return places_[slot].pool; }

  // Tasks may start as far as hazards go; `worker` made it so. Nobody takes one before all have
  // arrived. True: there is something to take.
  bool arrive(u32 worker, std::span<const u32> slots, u64 now_ns);
  // What one worker could see of the queues.
  struct Seen {
    bool took = false;
    bool for_others = false;  // there is more than this worker alone may take
  };
  // A task has ended, and those in `arrived` waited only for it.
  Seen end(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns);
  // The same, and the next task for this worker.
  Seen end_and_take(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns, Taken* out);
  Seen take(u32 worker, u64 now_ns, Taken* out);
  // end() in two steps, for batches: the task leaves its gates; later, of so many tasks that ended,
  // those that waited for them arrive.
  Seen leave(u32 worker, u32 slot, u64 now_ns);
  Seen settle(u32 worker, u64 ended, std::span<const u32> arrived, u64 now_ns);
  // No more tasks come by themselves: if none runs or could run either, lets go of what timing
  // holds. True: there is something to take.
  bool release(u64 now_ns);
  // When a timer will let something go; 0 if none will.
  u64 waits_until();
  // A gate whose on_full is "error" was full: the task that met it, or kNone.
  u32 overflowed() const { return overflowed_.load(std::memory_order_acquire); }
  // Whether any worker may take any task.
  bool is_one_queue() const { return one_queue_; }
  // How many tasks have been taken; looked at without the lock.
  u64 takes() const { return takes_.load(std::memory_order_relaxed); }
  // Tasks that somebody could take.
  u64 ready() const { return ready_.load(std::memory_order_acquire); }
  // What holds tasks back, for a run in which nothing runs; `gate` is the first full one, or kNone.
  std::string holding_report(u32* gate) const;
  struct Counters {
    u64 released = 0;
    u64 gate_stalls = 0;
    u64 ready_high = 0;
  };
  Counters counters() const {
    const std::lock_guard lock(lock_);
    return counters_;
  }

 private:
  using Place = IssuePlace;
  struct Gate {
    u64 in_flight = 0;  // tasks that have passed it and have not ended
    u32 first = kNone;  // tasks that wait for it, by slot
    u32 last = kNone;
  };

  // Most schedules ask only for the stream and the priority of a task, and both are lines.
  struct Plain {
    Keys::Line stream;
    Keys::Line rank;
  };

  void find_plain_sites();
  u32 stream_of(i64 number) const {
    // Dividing is slow, of long numbers above all.
    if (number >= 0 && number < config_.streams) return static_cast<u32>(number);
    if (stream_mask_ != kNone) return static_cast<u32>(number) & stream_mask_;
    const bool is_short = number >= 0 && number <= UINT32_MAX;
    return is_short ? static_cast<u32>(number) % static_cast<u32>(config_.streams)
                    : wrapped_stream(number);
  }
  u32 wrapped_stream(i64 number) const;
  bool place_by_keys(const Cursor& cursor, u32 slot, u64 seq, u32* stream, Error* error);
  bool place_worker(const Cursor& cursor, Place* place, Error* error);
  void place_by_affinity(const Cursor& cursor, Place* place) const;
  bool key(u32 node, const Cursor& cursor, i64* out, Error* error) const;
  u32 number_of(u32 gate, i64 key);

  // Under the lock:
  void arrive_one(u32 worker, u32 slot, u64 now_ns);
  void leave_gates(u32 slot, u64 now_ns);
  void end_locked(u32 worker, u32 slot, std::span<const u32> arrived, u64 now_ns);
  bool take_locked(u32 worker, u64 now_ns, Taken* out);
  void count_take(u32 worker, Taken* out);
  void number_take(u32 worker, Taken* out);
  bool takes_place_of(u32 slot, u32 arrived) const;
  bool for_others(u32 worker) const {
    return ready_.load(std::memory_order_relaxed) > (steals_ ? 0 : pinned_[worker]);
  }
  void pass_timing(u32 slot, u64 now_ns);
  void pump(u64 now_ns);
  void pass_gates(u32 slot);
  void enqueue(u32 slot);
  void make_groups();
  IssueQueue& queue(u32 pool, u32 worker) { return queues_[pool * pool_queues_ + worker]; }
  IssueQueue* best_queue(u32 worker, u32 pool);
  bool steal(u32 worker, u32 pool, u32* slot);

  static constexpr u32 kAhead = 4;  // slots whose places are fetched early
  // Values of a gate's key that are small numbers find theirs without a search.
  static constexpr i64 kDense = 4096;
  struct Numbers {
    u32 count = 0;
    std::vector<u32> dense;  // by key, or kNone
    std::unordered_map<i64, u32> others;
  };

  const BoundPlan& plan_;
  const ScheduleConfig& config_;
  const Keys& keys_;
  const u32 workers_;
  const bool steals_;
  const bool one_queue_;  // any worker may take any task
  u64 total_tasks_ = 0;
  std::vector<Plain> plain_;  // by site
  u32 stream_mask_ = kNone;   // where the number of streams is a power of two
  bool gates_by_stream_[ScheduleConfig::kMostGates] = {};
  std::vector<u32> affinity_levels_;  // by site: the loop whose index says where; or kNone
  // CORE_GROUP: neighbours among the workers of a pool share a queue.
  static constexpr u32 kLargestGroup = 4;
  std::vector<u32> pool_groups_;  // by pool: how many there are
  std::vector<u32> group_of_;     // by pool and worker: the number of its group's queue, or kNone
  u32 pool_queues_ = 0;           // of one pool
  RawVector<Place>& places_;      // by slot
  std::vector<std::vector<u32>> pool_workers_;   // which workers serve a pool
  std::vector<std::vector<u32>> worker_pools_;   // which pools a worker serves
  Numbers numbers_[ScheduleConfig::kMostGates];  // this and the next: of the token holder
  u32 num_gates_[ScheduleConfig::kMostGates] = {};

  alignas(kCacheLine) mutable SpinLock lock_;  // guards what follows
  std::atomic<u64> ready_{0};                  // tasks in queues; looked at without the lock
  u64 running_ = 0;                            // tasks taken whose successors have not arrived yet
  std::atomic<u64> takes_{0};
  u32 last_taker_ = kNone;
  u64 issued_ = 0;
  Counters counters_;
  std::vector<u64> pinned_;         // by worker: ready tasks that only it may take
  std::vector<u32> turn_;           // of a worker among its pools
  std::vector<IssueQueue> queues_;  // by pool: one per worker, one for all, one per group
  std::vector<Gate> gates_[ScheduleConfig::kMostGates];
  Ring<u32> held_;                       // timing: BATCHED and RATE_LIMIT
  std::vector<std::vector<u32>> lanes_;  // INTERLEAVED: ready tasks by lane
  std::vector<u64> lane_pending_;        // generated and not issued
  u32 lane_turn_ = 0;
  u64 next_issue_ns_ = 0;  // RATE_LIMIT
  u64 random_;
  std::atomic<u32> overflowed_{kNone};
};

}  // namespace ptowsp
