// What a run records of itself: tasks, the dependences they waited for, and samples of counters.
//
// Each is written in its native form, in ticks of the cycle counter, to a ring of fixed memory that
// keeps the newest and counts what it had to overwrite; with a spool, a full ring goes to a file
// instead and nothing is lost. What the entries mean to others is worked out after the run. Rings
// outlive runs: touching memory for the first time costs more than recording a task.
//
// Thread roles: a ring is written by one thread at a time (its worker, or the holder of the
// generation token), and read after the run has ended. A spool may be written to by all of them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ptowsp/huge_pages.h"
#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

namespace ptowsp {

// A file of blocks: ptowsp_block, then its bytes.
class TraceSpool {
 public:
  explicit TraceSpool(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {}
  ~TraceSpool() { close(); }
  TraceSpool(const TraceSpool&) = delete;
  TraceSpool& operator=(const TraceSpool&) = delete;

  void write(u32 kind, const void* bytes, u64 size) {
    const std::lock_guard lock(mutex_);
    const ptowsp_block block{kind, 0, size};
    if (file_ == nullptr || std::fwrite(&block, sizeof(block), 1, file_) != 1 ||
        std::fwrite(bytes, 1, size, file_) != size) {
      failed_ = true;
    }
  }
  // False if something could not be written.
  bool close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) failed_ = true;
    return !failed_;
  }
  bool is_open() const { return file_ != nullptr; }

 private:
  std::mutex mutex_;
  std::FILE* file_;
  bool failed_ = false;
};

class TraceRing {
 public:
  // `capacity` entries of `entry` bytes each.
  TraceRing(u32 kind, u64 capacity, u64 entry)
      : kind_(kind),
        capacity_(capacity),
        entry_(entry),
        bytes_(static_cast<std::byte*>(std::malloc(capacity * entry))) {
    if (bytes_ == nullptr) throw std::bad_alloc();
    prefer_huge_pages(bytes_.get(), capacity * entry);
  }
  bool fits(u64 capacity, u64 entry) const { return capacity_ == capacity && entry_ == entry; }
  // Before a run; `spool` may be null.
  void restart(TraceSpool* spool) {
    spool_ = spool;
    at_ = turns_ = 0;
  }

  // Where the next entry is to be written.
  std::byte* next() {
    if (at_ == capacity_) turn();
    std::byte* const out = bytes_.get() + entry_ * at_++;
    __builtin_prefetch(out + 4 * entry_, 1);
    return out;
  }
  // Writes what has not been written yet to the spool, if there is one.
  void flush() {
    if (spool_ == nullptr || at_ == 0) return;
    spool_->write(kind_, bytes_.get(), at_ * entry_);
    at_ = 0;
  }

  u64 total() const { return turns_ * capacity_ + at_; }
  u64 size() const { return turns_ > 0 && spool_ == nullptr ? capacity_ : at_; }
  u64 dropped() const { return spool_ == nullptr ? total() - size() : 0; }
  u64 entry() const { return entry_; }
  // Calls fn(entries, count) for one or two pieces, oldest first.
  template <class Fn>
  void each(Fn fn) const {
    if (size() > at_) fn(bytes_.get() + entry_ * at_, capacity_ - at_);
    if (at_ > 0) fn(bytes_.get(), at_);
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  void turn() {
    if (spool_ != nullptr) spool_->write(kind_, bytes_.get(), capacity_ * entry_);
    turns_ += 1;
    at_ = 0;
  }

  const u32 kind_;
  const u64 capacity_;
  const u64 entry_;
  const std::unique_ptr<std::byte, Free> bytes_;
  TraceSpool* spool_ = nullptr;
  u64 at_ = 0;
  u64 turns_ = 0;
};

// The rings of a run.
struct TraceMemory {
  std::vector<std::unique_ptr<TraceRing>> tasks;  // by worker
  std::unique_ptr<TraceRing> edges;
  std::unique_ptr<TraceRing> samples;

  // `capacity` tasks of each worker, with up to `levels` loop indices.
  TraceMemory(u32 workers, u64 capacity, u32 levels)
      : edges(std::make_unique<TraceRing>(PTOWSP_BLOCK_EDGES, 4 * capacity * workers,
                                          sizeof(ptowsp_edge))),
        samples(std::make_unique<TraceRing>(PTOWSP_BLOCK_SAMPLES, capacity * workers,
                                            sizeof(ptowsp_sample))) {
    for (u32 w = 0; w < workers; ++w) {
      tasks.push_back(
          std::make_unique<TraceRing>(PTOWSP_BLOCK_TASKS, capacity, entry_bytes(levels)));
    }
  }
  static u64 entry_bytes(u32 levels) { return sizeof(ptowsp_traced) + levels * sizeof(i64); }
  bool fits(u64 capacity, u32 levels) const {
    return tasks[0]->fits(capacity, entry_bytes(levels));
  }
  template <class Fn>
  void each_ring(Fn fn) {
    for (const auto& ring : tasks) fn(*ring);
    fn(*edges);
    fn(*samples);
  }
};

// The generator's notes: what each task waits for, and how full the window is. Tasks are named by
// their seq, joins (which are no tasks: the end of a phase, or of the tasks that an after= names)
// by a number with the highest bit set.
class GeneratorTrace {
 public:
  GeneratorTrace(TraceRing* edges, TraceRing* samples) : edges_(edges), samples_(samples) {}

  void edge(u64 from, u64 to) {
    auto* const out = reinterpret_cast<ptowsp_edge*>(edges_->next());
    out->from = from;
    out->to = to;
  }
  void sample(u64 ticks, u32 counter, u64 value) {
    const ptowsp_sample out{ticks, counter, static_cast<u32>(value)};
    std::memcpy(samples_->next(), &out, sizeof(out));
  }

 private:
  TraceRing* edges_;
  TraceRing* samples_;
};

}  // namespace ptowsp
