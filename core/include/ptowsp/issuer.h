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
// lock guards all of it: whoever wants a schedule like this wants an order, and an order is one.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ptowsp/cursor.h"
#include "ptowsp/keys.h"
#include "ptowsp/schedule.h"

namespace ptowsp {

// Ready tasks of one queue, by the ready policy.
class IssueQueue {
 public:
  struct Item {
    i64 priority;
    u64 order;  // of tasks of equal priority the smallest goes first
    u32 slot;
  };

  explicit IssueQueue(ReadyPolicy policy) : policy_(policy) {}

  bool empty() const { return items_.size() == head_; }
  std::size_t size() const { return items_.size() - head_; }
  // The task that its worker takes next.
  const Item& next() const {
    return policy_ == ReadyPolicy::WORK_STEAL ? items_.back() : items_[head_];
  }
  void push(Item item);
  Item take();   // next()
  Item steal();  // the oldest one
  // Whether `a` goes before `b`.
  static bool before(ReadyPolicy policy, const Item& a, const Item& b);

 private:
  ReadyPolicy policy_;
  std::vector<Item> items_;  // a heap, or for WORK_STEAL a queue from head_ on
  std::size_t head_ = 0;
};

class Issuer {
 public:
  struct Taken {
    u32 slot = 0;
    bool stolen = false;
    u64 take = 0;  // position in the order in which workers took tasks
  };

  Issuer(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, u32 slots, u64 seed);

  // Where a task of the cursor belongs. False: a key has no value. `stream` is its stream, or
  // kNone.
  bool place(const Cursor& cursor, u32 slot, u32* stream, Error* error);
  u32 stream(u32 slot) const { return places_[slot].stream; }
  u32 pool(u32 slot) const { return places_[slot].pool; }

  // Tasks may start as far as hazards go; `worker` made it so. Nobody takes one before all have
  // arrived. True: there is something to take.
  bool arrive(u32 worker, const u32* slots, std::size_t count, u64 now_ns);
  bool take(u32 worker, u64 now_ns, Taken* out);
  // A task has ended. True: somebody could take a task.
  bool ended(u32 slot, u64 now_ns);
  // Those that waited for it have arrived.
  void finished() { running_.fetch_sub(1, std::memory_order_acq_rel); }
  // No more tasks come by themselves: if none runs or could run either, lets go of what timing
  // holds. True: there is something to take.
  bool release(u64 now_ns);
  // When a timer will let something go; 0 if none will.
  u64 waits_until();
  // A gate whose on_full is "error" was full: the task that met it, or kNone.
  u32 overflowed() const { return overflowed_.load(std::memory_order_acquire); }
  // Tasks that somebody could take.
  u64 ready() {
    const std::lock_guard lock(mutex_);
    return ready_;
  }
  struct Counters {
    u64 released = 0;
    u64 gate_stalls = 0;
    u64 ready_high = 0;
  };
  Counters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  struct Place {
    u32 stream = 0;
    u32 pool = 0;
    u32 worker = kNone;  // kNone: any of the pool
    u32 gate[ScheduleConfig::kMostGates] = {};
    i64 priority = 0;
    u64 seq = 0;
    u32 next = kNone;  // in the list of a gate
    u32 from = 0;      // the worker that made it ready
  };
  struct Gate {
    u64 in_flight = 0;
    u32 first = kNone;  // tasks that wait for it, by slot
    u32 last = kNone;
  };

  bool place_worker(const Cursor& cursor, Place* place, Error* error);
  bool key(u32 node, const Cursor& cursor, i64* out, Error* error) const;
  static u32 number_of(std::unordered_map<i64, u32>* numbers, i64 key);

  void pass_timing(u32 slot, u64 now_ns);
  void pump(u64 now_ns);
  void pass_gates(u32 slot);
  void enqueue(u32 slot);
  IssueQueue& queue(u32 pool, u32 worker) { return queues_[pool * (workers_ + 1) + worker]; }
  IssueQueue* best_queue(u32 worker, u32 pool);
  bool steal(u32 worker, u32 pool, Taken* out);

  const BoundPlan& plan_;
  const ScheduleConfig& config_;
  const Keys keys_;
  const u32 workers_;
  u64 total_tasks_ = 0;
  std::vector<Place> places_;  // by slot
  // Of the token holder:
  std::unordered_map<i64, u32> gate_numbers_[ScheduleConfig::kMostGates];
  u32 num_gates_[ScheduleConfig::kMostGates] = {};

  mutable std::mutex mutex_;                    // guards what follows
  std::vector<std::vector<u32>> pool_workers_;  // which workers serve a pool
  std::vector<std::vector<u32>> worker_pools_;  // which pools a worker serves
  std::vector<u32> turn_;                       // of a worker among its pools
  std::vector<IssueQueue> queues_;              // by pool: one per worker, then one for all
  std::vector<u32> held_;                       // timing: BATCHED and RATE_LIMIT
  std::size_t held_head_ = 0;
  std::vector<std::vector<u32>> lanes_;  // INTERLEAVED: ready tasks by lane, heaps by seq
  std::vector<u64> lane_pending_;        // generated and not issued
  u32 lane_turn_ = 0;
  u64 next_issue_ns_ = 0;  // RATE_LIMIT
  std::vector<Gate> gates_[ScheduleConfig::kMostGates];
  u64 random_;
  std::atomic<u32> running_{0};  // tasks taken whose successors have not arrived yet
  u64 takes_ = 0;
  u64 issued_ = 0;
  u64 ready_ = 0;  // tasks in queues
  Counters counters_;
  std::atomic<u32> overflowed_{kNone};
};

}  // namespace ptowsp
