// The decisions of a run: in what order tasks began and ended, and on which worker.
//
// A worker runs one task at a time, so an event needs little: its worker and, if that worker was
// idle, the task that it starts; if it was busy, that task ends. As bytes: a header, then for each
// event the worker and the distance of the task from the one that this worker started last, both as
// varints, then a checksum of everything before it. docs/design/0008-replay.md has the layout.
//
// Thread roles: a Recorder is written by all workers, each for itself, and read after the run;
// Recording is plain data.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ptowsp/error.h"
#include "ptowsp/hash.h"
#include "ptowsp/lines.h"
#include "ptowsp/plan_view.h"

namespace ptowsp {

struct Decision {
  static constexpr u64 kEnd = ~u64{0};
  u64 task = kEnd;  // kEnd: the task that the worker runs ends
  u32 worker = 0;

  bool starts() const { return task != kEnd; }
  bool operator==(const Decision&) const = default;
};

// Takes down events while workers run freely. Their order is that of one counter: whoever waits for
// a task asks the counter after that task's end has.
class Recorder {
 public:
  explicit Recorder(u32 workers) {
    for (u32 w = 0; w < workers; ++w) lists_.push_back(std::make_unique<List>());
  }
  void starts(u32 worker, u64 task) { add(worker, task); }
  void ends(u32 worker) { add(worker, Decision::kEnd); }
  // After the run.
  std::vector<Decision> decisions() const;

 private:
  struct Entry {
    u64 number;
    u64 task;
  };
  struct alignas(kCacheLine) List {
    std::vector<Entry> entries;
  };

  void add(u32 worker, u64 task) {
    lists_[worker]->entries.push_back({next_.fetch_add(1, std::memory_order_acq_rel), task});
  }

  std::vector<std::unique_ptr<List>> lists_;  // by worker
  alignas(kCacheLine) std::atomic<u64> next_{0};
};

struct Recording {
  u64 plan[2] = {0, 0};  // the plan's identity
  u64 schedule = 0;      // of its schedule without the trace, see schedule_identity()
  u64 tasks = 0;         // of the whole run, if it is known
  TaskHash task_hash;    // the same
  u32 workers = 0;
  bool complete = false;  // the run ended well
  bool hashed = false;    // tasks and task_hash are known
  std::vector<Decision> decisions;

  std::vector<u8> to_bytes() const;
  // False: `error` says what is wrong with the bytes.
  static bool from_bytes(const u8* bytes, std::size_t size, Recording* out, Error* error);
};

// A number for the directives of a plan, but for those that only look.
u64 schedule_identity(const PlanView& plan);

}  // namespace ptowsp
