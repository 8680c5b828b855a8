// Generation for tracked runs: turns the cursor's events into records with all their dependences.
//
// Thread roles: whoever holds the token (try_lock) calls everything else here; the token is handed
// over with acquire and release, so nothing else is atomic. Workers meet what is made here only
// through the TaskTable.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ptowsp/awaited.h"
#include "ptowsp/byte_window.h"
#include "ptowsp/cursor.h"
#include "ptowsp/deque.h"
#include "ptowsp/issuer.h"
#include "ptowsp/network.h"
#include "ptowsp/schedule.h"
#include "ptowsp/task_table.h"
#include "ptowsp/tensor_map.h"
#include "ptowsp/tile_map.h"
#include "ptowsp/trace.h"
#include "ptowsp/tracking.h"

namespace ptowsp {

// The large tables of a Flow. A program keeps them from run to run, as long as they fit.
struct FlowMemory {
  TaskTable table;
  TileMap tiles;
  struct Queues {
    Deque shared;
    SlotSet own;
    Queues(u32 window, u32 slots) : shared(window), own(slots) {}
  };
  std::vector<std::unique_ptr<Queues>> queues;  // by worker
  std::optional<FixedTensorMap> boxes;          // of the last run that needed it, empty
  std::vector<u32> box_entries;                 // by slot: the head of its list there, kNoSlot
  // By slot, as large as somebody has needed them; see Flow, Run and Issuer.
  RawVector<u32> tags;
  RawVector<u32> lane_of;
  RawVector<u64> seqs;
  RawVector<u64> ready_ticks;
  RawVector<IssuePlace> places;

  FlowMemory(u32 slots, u32 levels, bool wide, u64 numbers, u64 live)
      : table(slots, levels, wide), tiles(&table, numbers, live) {}
};

class Flow {
 public:
  enum class Made : u8 {
    Some,    // as many as asked for
    Full,    // the window has no room for the next one
    Waits,   // control needs a value that live tasks may still write
    Drains,  // the next iteration needs a copy of temporaries that live tasks may still use
    Done,    // there are no more tasks
    Forks,   // several iterations of the loop that begins are to be generated at a time
    Failed   // an expression or a bound failed
  };

  // `memory` comes from an earlier run that ended well, or is null; `tracking` from one with this
  // plan, or is null.
  Flow(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, bool hashed,
       std::unique_ptr<Tracking> tracking, std::unique_ptr<FlowMemory> memory);

  // After a run that ended well.
  std::unique_ptr<FlowMemory> take_memory() {
    if (boxes_ != nullptr) boxes_->clear(&memory_->box_entries);
    return std::move(memory_);
  }
  RawVector<u64>& ready_ticks() {
    memory_->ready_ticks.resize(table_.capacity());
    return memory_->ready_ticks;
  }
  RawVector<IssuePlace>* places() {
    memory_->places.resize(table_.capacity());
    return &memory_->places;
  }
  std::unique_ptr<Tracking> take_tracking() {
    return std::make_unique<Tracking>(std::move(tracking_));
  }

  // The issuer is told of every task where it is made.
  void set_issuer(Issuer* issuer, u32 streams);

  // What tasks wait for is written there.
  void set_notes(GeneratorTrace* notes) { notes_ = notes; }
  // Each task gets a record of its own.
  void make_singly() {
    for (SiteMaker& maker : makers_) maker.strip = 1;
  }

  bool try_lock() {
    return !token_.load(std::memory_order_relaxed) &&
           !token_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { token_.store(false, std::memory_order_release); }

  TaskTable& table() { return table_; }
  FlowMemory::Queues* queues(u32 worker);

  // A task has ended. Calls ready(slot) for tasks that may start now, and gives back slots through
  // freed(slot). Called by the worker that ran it, without the token. `sealed`: all tasks have been
  // generated.
  template <class Ready, class Freed>
  void finish(u32 slot, bool sealed, Ready ready, Freed freed) {
    while (slot != kNil) {
      // Joins are nothing to run: the first task of a phase has its join as a successor, and so
      // have tasks that an AFTER waits for.
      u32 reached = kNil;
      table_.finish(slot, sealed, [&](u32 next) {
        if (table_[next].site() != kJoinSite) {
          ready(next);
        } else if (reached == kNil) {
          reached = next;
        } else {
          finish(next, sealed, ready, freed);
        }
      });
      const u32 join = table_[slot].join;
      freed(slot);
      if (reached != kNil) finish(reached, sealed, ready, freed);
      slot = join != kNil && table_.arrive(join) ? join : kNil;
    }
  }

  // --- token holder ---

  // Takes back slots of ended tasks.
  void collect() {
    live_high_ = live_high();
    map_high_ = map_high();
    table_.collect([this](u32 slot) {
      const TaskTable::Record& r = table_[slot];
      if (r.count() == 0) return;  // a join
      if (bytes_) bytes_->give(slot);
      live_ -= r.count();
      if (!lanes_.empty()) lanes_[lane_of_[slot]].live -= r.count();
      entries_ -= r.count() * tracking_.entries(r.site());
    });
  }
  // Makes up to `most` records. Calls ready(slot) for tasks that may start: of those made, and what
  // a phase that ended on the way released; its slots go back through freed(slot).
  template <class Ready, class Freed>
  Made make(u32 most, Ready ready, Freed freed, Error* error) {
    if (lanes_.empty()) return make_some(&most, ready, freed, error);
    while (most > 0) {
      if (forked_ && !next_lane(error)) {
        if (!error->ok()) return Made::Failed;
        end_fork();
      }
      const u32 turn = forked_ ? std::min(most, lanes_turn_) : most;
      u32 left = turn;
      const Made made = make_some(&left, ready, freed, error);
      most -= turn - left;
      if (made == Made::Forks) {
        begin_fork();
      } else if (made == Made::Done && forked_) {
        lanes_[lane_].working = false;
      } else if ((made == Made::Waits || made == Made::Drains) && forked_ && !in_turns_) {
        lanes_[lane_].waits = true;
        if (!others_can_go_on()) return made;
      } else if (made != Made::Some) {
        return made;
      } else if (forked_) {
        lane_turns_ += 1;
      }
    }
    return Made::Some;
  }

  // Null unless the plan has processes.
  const Network* network() const { return network_ ? &*network_ : nullptr; }
  // From now on process_of() tells which cursor of the network made a slot's task.
  void note_processes() {
    lane_of_.resize(table_.capacity());
    tagged_ = true;
  }
  u32 process_of(u32 slot) const { return lane_of_[slot]; }

  // For tasks that run where they are generated, without records: what comes next, how many tasks
  // of a leaf loop may be made before another process has its turn, and that they were.
  Event next_event(Error* error) {
    if (!network_) return cursor_->advance(plan_, error);
    Event event = network_->advance(error);
    for (; event == Event::Switch; event = network_->advance(error)) switch_process();
    return event;
  }
  i64 turn() const { return network_ ? network_->budget() : INT64_MAX; }
  void spend(i64 tasks) {
    if (network_) network_->spend(static_cast<u32>(tasks));
  }
  Cursor& cursor() { return *cursor_; }
  bool take_pending() {
    const bool was = pending_;
    pending_ = in_leaf_ = false;
    return was;
  }
  template <class Ready, class Freed>
  void on_group(Event event, Ready ready, Freed freed) {
    if (event != Event::GroupOpen) close_phase(ready, freed);
    if (event == Event::GroupClose) {
      open_.pop_back();
    } else if (event == Event::PhaseNext) {
      const Phase& last = open_.back();
      open_.back() = Phase{last.used ? last.end : last.gate};
    } else {
      open_.push_back(Phase{open_.empty() ? TaskRef{} : open_.back().gate});
    }
    phases_ += event != Event::GroupClose ? 1 : 0;
  }

  // Who waits for what, for a run in which nothing runs.
  std::string waiting_report();
  // The same of generation, which `last` made() ended with.
  std::string generation_report(Made last) const;

  u32 live() const { return live_; }
  u64 made() const { return lanes_.empty() ? cursor_->next_task - (pending_ ? 1 : 0) : submitted_; }
  // The number of a slot's first task in the order of generation.
  u64 seq(u32 slot) const { return lanes_.empty() ? table_[slot].task_id : seqs_[slot]; }
  // Before anything is made: where several iterations of a loop are generated at a time.
  // `steady`: at no pace that differs from run to run.
  void set_orders(const std::vector<LoopOrder>& orders, u32 workers, bool steady);
  // Whether a task has been generated; in a steady run only.
  bool was_made(u64 task_id) const {
    return lanes_.empty() ? task_id < made() : task_id < ids_.size() && ids_[task_id];
  }
  bool has_lanes() const { return !lanes_.empty(); }
  u64 edges() const { return edges_; }
  u64 phases() const { return phases_; }
  // Both grow until the next collect().
  u64 live_high() const { return std::max<u64>(live_high_, live_); }
  u64 map_high() const { return std::max(map_high_, entries_); }
  u64 bytes_high() const { return bytes_ ? bytes_->high() : 0; }
  u64 bounds_checked() const { return bounds_checked_; }
  u64 loads() const { return loads_; }
  u64 edges_high() const { return table_.side_high(); }  // outside of records
  const TaskHash& hash() const { return hash_; }
  std::size_t bytes() const {
    return table_.bytes() + tiles_.bytes() + (boxes_ ? boxes_->bytes() : 0);
  }

 private:
  // An open iteration of P.seq or step of sequential. One task needs no record of its own: it is
  // itself what the next phase waits for. From the second task on, a join record counts them.
  struct Phase {
    TaskRef gate;   // what this phase waits for
    TaskRef end{};  // what the next phase waits for: the only task, or the join
    u32 join = kNil;
    u32 members = 0;  // tasks and joins that count down `join` when they end
    u32 tasks = 0;
    u32 join_edges = 0;  // tasks that the join waits for by an edge
    bool used = false;
    explicit Phase(TaskRef g) : gate(g) {}
  };

  // One of several iterations of a loop that are generated at a time.
  struct Lane {
    Cursor cursor;
    std::vector<Phase> open;  // while another lane is at work
    bool in_leaf = false;
    bool pending = false;
    bool working = false;  // has an iteration
    bool waits = false;    // control waits for a value
    u32 live = 0;          // tasks
  };

  // What making a task of one site needs to know, close together.
  struct SiteMaker {
    const BoundSite* site = nullptr;
    u32 level = 0;
    u32 entries = 0;  // in the tensor maps
    u32 strip = 1;    // the most tasks of one record
    bool needs_regions = false;
    bool moves = false;  // whole leaf loops can be made at once
    const TrackedAccess* begin = nullptr;
    const TrackedAccess* end = nullptr;
  };

  // An access in a leaf loop: its tile number goes on by a constant.
  struct Moving {
    const TrackedAccess* access;
    u64 number;
    u64 step;
  };
  static constexpr u64 kAhead = 5;  // tasks whose predecessors are fetched early

  template <class Ready, class Freed>
  Made make_some(u32* most, Ready ready, Freed freed, Error* error) {
    while (*most > 0) {
      if (!pending_ && !(in_leaf_ && has_turn() && cursor_->leaf_next())) {
        const Event event = next_event(error);
        if (event == Event::Done) return Made::Done;
        if (event == Event::Error) return Made::Failed;
        if (event == Event::Fork) return Made::Forks;
        in_leaf_ = event == Event::Task && at_leaf();
        if (event == Event::Load) {
          if (load(error)) continue;
          return error->ok() ? Made::Waits : Made::Failed;
        }
        if (event == Event::Drain) {
          collect();
          if (live_ > 0) return Made::Drains;
          cursor_->drained = 1;
          continue;
        }
        if (event != Event::Task) {
          on_group(event, ready, freed);
          continue;
        }
      }
      pending_ = true;
      const SiteMaker& maker = makers_[cursor_->site];
      if (!has_room()) return Made::Full;
      if (maker.needs_regions && !check_regions(cursor_->site, error)) return Made::Failed;
      if (bytes_ && !bytes_->fits(written())) return too_large(error) ? Made::Failed : Made::Full;
      if (maker.needs_regions) bounds_checked_ += maker.site->num_checked;
      if (hashed_ && !hash_task(error)) return Made::Failed;
      u32 made = 1;
      if (in_leaf_ && maker.moves) {
        const u32 turn = network_ ? std::min(*most, network_->budget()) : *most;
        made = make_leaf(maker, turn, ready, error);
        if (issuer_ != nullptr && !error->ok()) return Made::Failed;
      } else if (!make_one(maker, ready, freed, error)) {
        return Made::Failed;
      }
      *most -= made;
      if (network_) network_->spend(made);
      pending_ = false;
    }
    return Made::Some;
  }

  // Whether the process at work may make another task before the next one has its turn.
  bool has_turn() const { return !network_ || network_->budget() > 0; }
  void switch_process();

  // flow_lanes.cpp
  void begin_fork();
  bool next_lane(Error* error);
  bool begin_iteration(u32 lane, Error* error);
  void switch_to(u32 lane);
  bool others_can_go_on() const;
  void end_fork();
  void note_ids(u64 first, u32 count);

  bool at_leaf() const;
  // Whether the cursor's task fits into the window and the table.
  bool has_room() {
    if (live_ >= window_) return false;
    const std::size_t needed = 1 + open_.size() + spare_;  // itself and a join per phase
    if (table_.available() < needed) collect();
    return table_.available() >= needed;
  }
  // A record for `count` tasks of the cursor's leaf loop, `done` tasks further on.
  TaskRef new_record(const SiteMaker& maker, u32 count, i64 done) {
    const TaskRef task = table_.acquire();
    live_ += count;
    entries_ += u64{count} * maker.entries;
    record_ = &table_[task.slot];
    record_->set(cursor_->site, count);
    record_->task_id = cursor_->task_id + static_cast<u64>(done);
    if (tagged_) tag(task.slot, count);
    table_.set_loops(record_, cursor_->vars, maker.level, done);
    for (u32 r = 0; r < maker.site->num_registers; ++r) {
      table_.set_register(record_, maker.level + r, cursor_->vars[maker.site->registers[r]]);
    }
    num_edges_ = 0;
    if (bytes_) bytes_->take(task.slot, count * written());
    if (!open_.empty()) enter_phase(task);
    return task;
  }
  // Whose task it is: of a lane or, where somebody asks, of a process.
  void tag(u32 slot, u32 count) {
    if (lanes_.empty()) {
      lane_of_[slot] = part_;
      return;
    }
    lane_of_[slot] = lane_;
    lanes_[lane_].live += count;
    seqs_[slot] = submitted_;
    if (steady_) note_ids(table_[slot].task_id, count);
    submitted_ += count;
  }
  template <class Ready>
  void publish(TaskRef task, Ready ready) {
    edges_ += num_edges_;
    if (table_.publish(record_, num_edges_)) ready(task.slot);
  }
  // A record for the cursor's task. There is room.
  template <class Ready, class Freed>
  bool make_one(const SiteMaker& maker, Ready ready, Freed freed, Error* error) {
    if (maker.site->checks_afters && !cursor_->check_afters(plan_, error)) return false;
    if (maker.site->num_afters > 0 && !find_awaited(*maker.site, ready, freed, error)) return false;
    const TaskRef task = new_record(maker, 1, 0);
    if (issuer_ != nullptr && !place(task, error)) return false;
    for (const TaskRef t : waits_) depend(t, task.slot);
    waits_.clear();
    if (maker.site->awaited) awaited_->add(cursor_->site, cursor_->vars, task);
    for (const TrackedAccess* a = maker.begin; a != maker.end; ++a) {
      if (a->tile) touch(*a, tile_number(maker, *a), task);
    }
    if (boxes_) find_boxes(task);
    publish(task, ready);
    return true;
  }
  // Collects the tasks that the cursor's task waits for by AFTER. Where they are many, a join takes
  // their place, so that others that wait for them as well have one edge each.
  template <class Ready, class Freed>
  bool find_awaited(const BoundSite& site, Ready ready, Freed freed, Error* error) {
    constexpr std::size_t kMany = 8;
    for (u32 i = site.afters; i < site.afters + site.num_afters; ++i) {
      const BoundAfter& after = plan_.after(i);
      if (after.num_indices > 0) {
        TaskRef task;
        if (!task_at(after, &task, error)) return false;
        waits_.push_back(task);
        continue;
      }
      std::vector<TaskRef>* group = awaited_->group(after.site, after.shared, cursor_->vars);
      if (group == nullptr) continue;
      std::erase_if(*group, [this](TaskRef t) { return table_.ended(t); });
      if (group->size() > kMany) join_group(group, ready, freed);
      waits_.insert(waits_.end(), group->begin(), group->end());
    }
    return true;
  }
  template <class Ready, class Freed>
  void join_group(std::vector<TaskRef>* group, Ready ready, Freed freed) {
    const TaskRef join = table_.acquire();
    table_[join.slot].set(kJoinSite, 0);
    if (boxes_) boxes_->remove(&box_entries_[join.slot]);
    u32 edges = 0;
    for (const TaskRef t : *group) {
      if (table_.add_edge(t, join.slot, edges) != TaskTable::Edge::Added) continue;
      edges += 1;
      if (notes_ != nullptr) notes_->edge(name_of(t), name_of(join));
    }
    group->clear();
    if (table_.publish(join.slot, edges)) {
      finish(join.slot, false, ready, freed);
    } else {
      group->push_back(join);
    }
  }
  // Where the schedule puts the task. It waits for the one before it in its stream.
  bool place(TaskRef task, Error* error) {
    u32 stream = kNone;
    if (!issuer_->place(*cursor_, task.slot, seq(task.slot), &stream, error)) return false;
    if (stream >= stream_last_.size()) return true;
    depend(stream_last_[stream], task.slot);
    stream_last_[stream] = task;
    return true;
  }
  bool task_at(const BoundAfter& after, TaskRef* out, Error* error);
  // Up to `most` records for the cursor's task and those behind it in its leaf loop, as long as
  // there is room; there is for one. Leaves the cursor at the last task made. With an issuer, the
  // cursor goes along, since keys are read from it.
  template <class Ready>
  u32 make_leaf(const SiteMaker& maker, u32 most, Ready ready, Error* error) {
    Moving moving[kMaxTensorArgs];
    Moving* const end = moving + (maker.end - maker.begin);
    for (Moving* m = moving; m != end; ++m) {
      m->access = maker.begin + (m - moving);
      m->number = tile_number(maker, *m->access);
      m->step = static_cast<u64>(tracking_.step(*m->access, maker.level));
    }
    const i64 left = cursor_->leaf_left();
    i64 done = 0;
    u32 made = 0;
    do {
      const i64 room = std::min<i64>(maker.strip, window_ - live_);
      u32 count = static_cast<u32>(std::min(left - done, room));
      if (bytes_) count = bytes_->room(written(), count);
      const TaskRef task = new_record(maker, count, issuer_ != nullptr ? 0 : done);
      if (issuer_ != nullptr && !place(task, error)) return made;
      for (Moving* m = moving; m != end; ++m) {
        u32 k = 0;
        do {
          touch(*m->access, m->number, task);
          m->number += m->step;
        } while (++k < count);
        if (!m->access->write) tiles_.prefetch(m->number + kAhead * m->step);
      }
      if (boxes_) find_boxes(task);
      publish(task, ready);
      done += count;
      made += 1;
    } while (made < most && done < left && has_room() && (!bytes_ || bytes_->fits(written())) &&
             (issuer_ == nullptr || cursor_->leaf_next()));
    if (issuer_ == nullptr) cursor_->leaf_skip(done);
    return made;
  }
  u64 tile_number(const SiteMaker& maker, const TrackedAccess& a) const {
    return a.affine ? tracking_.number(a, cursor_->vars, *maker.site)
                    : tracking_.tile_of(regions_[a.argument]);
  }
  void touch(const TrackedAccess& a, u64 number, TaskRef task) {
    const auto before = [&](TaskRef t) { depend(t, task.slot); };
    if (a.num_tiles > 1) {
      touch_tiles(a, number, task);
    } else if (a.write) {
      tiles_.write(number, task, before);
    } else {
      tiles_.read(number, task, before);
    }
  }
  void touch_tiles(const TrackedAccess& a, u64 number, TaskRef task);
  // Bytes that the cursor's task writes; its regions are there if they are needed.
  u64 written() const { return bytes_->bytes(cursor_->site, regions_.data()); }
  bool too_large(Error* error) const;
  bool check_regions(u32 site, Error* error);
  bool load(Error* error);
  bool hash_task(Error* error);
  void enter_phase(TaskRef task);
  void make_join(std::size_t phase);
  void depend(TaskRef before, u32 slot) {
    if (!before.any() || before.slot == slot) return;
    const TaskTable::Edge edge = table_.add_edge(before, slot, record_, num_edges_);
    if (edge != TaskTable::Edge::Added) return;
    num_edges_ += 1;
    if (notes_ != nullptr) notes_->edge(name_of(before), seq(slot));
  }
  // How a trace calls a task, of several the last one, or a join.
  u64 name_of(TaskRef t) const {
    const TaskTable::Record& r = table_[t.slot];
    if (r.site() == kJoinSite) return PTOWSP_JOIN | (u64{t.slot} << 32) | t.tag;
    return seq(t.slot) + r.count() - 1;
  }
  void find_boxes(TaskRef task);
  void make_makers(const ScheduleConfig& config, u32 workers);
  u32 longest_strip(u32 site, const ScheduleConfig& config, u32 workers) const;

  template <class Ready, class Freed>
  void close_phase(Ready ready, Freed freed) {
    Phase& p = open_.back();
    if (p.join == kNil) return;
    const u32 join = p.join;
    const u32 missing = TaskTable::kBias - p.join_edges - p.members;
    if (table_[join].fanin.fetch_sub(missing, std::memory_order_acq_rel) == missing) {
      finish(join, false, ready, freed);
    }
  }

  static u32 sequential_depth(const BoundPlan& plan);
  static std::unique_ptr<FlowMemory> fitting(std::unique_ptr<FlowMemory> memory,
                                             const BoundPlan& plan, const Tracking& tracking,
                                             u32 window, u32 lanes);

  const BoundPlan& plan_;
  const u32 window_;
  const Matching matching_;
  Tracking tracking_;  // by value: generation looks at it for every access
  std::unique_ptr<FlowMemory> memory_;
  TaskTable& table_;
  TileMap& tiles_;
  FixedTensorMap* boxes_ = nullptr;  // where there are accesses that are not tiles
  std::optional<ByteWindow> bytes_;  // where the window counts bytes
  alignas(kCacheLine) Cursor main_;
  Cursor* cursor_ = &main_;  // or that of a lane
  std::vector<Phase> open_;
  std::optional<Awaited> awaited_;  // where the plan has explicit dependences
  std::vector<TaskRef> waits_;      // explicit ones, of the task being made
  Issuer* issuer_ = nullptr;
  GeneratorTrace* notes_ = nullptr;
  std::vector<TaskRef> stream_last_;  // by stream
  u32 spare_ = 0;                     // joins that one task may need for them
  std::vector<Region> regions_;
  std::vector<SiteMaker> makers_;        // by site
  std::vector<u32>& box_entries_;        // by slot
  RawVector<u32>& tags_;                 // by slot: of the last user that is in boxes_
  TaskTable::Record* record_ = nullptr;  // being made
  u32 num_edges_ = 0;                    // of it
  bool in_leaf_ = false;                 // the cursor's last task is in a parallel leaf loop
  bool pending_ = false;                 // the cursor stands at a task that has no record yet
  u32 live_ = 0;
  u64 edges_ = 0;
  u64 phases_ = 0;
  u64 live_high_ = 0;
  u64 entries_ = 0;  // of live tasks in the tensor maps
  u64 map_high_ = 0;
  u64 bounds_checked_ = 0;
  u64 loads_ = 0;
  // Where the plan has processes; of those that are not at work, what belongs to their cursors:
  struct Part {
    std::vector<Phase> open;
    bool in_leaf = false;
    bool pending = false;
  };
  std::optional<Network> network_;
  std::vector<Part> parts_;  // by cursor
  u32 part_ = 0;             // at work
  bool tagged_ = false;
  // Where a loop's iterations are generated several at a time:
  std::vector<Lane> lanes_;
  std::vector<LoopOrder> orders_;
  u32 workers_ = 1;
  u32 lane_ = 0;           // at work
  u32 num_lanes_ = 0;      // of this loop
  bool in_turns_ = false;  // lanes have turns of one task; else whoever has the fewest goes on
  u32 lanes_turn_ = 1;     // records until the next lane has its turn
  u64 lane_turns_ = 0;     // taken
  bool forked_ = false;    // in such a loop
  u32 fork_axis_ = 0;
  i64 next_iteration_ = 0;  // that no lane has
  i64 end_iteration_ = 0;
  u64 tasks_before_ = 0;     // next_iteration_, in program order
  std::size_t shared_ = 0;   // phases around the loop
  u64 submitted_ = 0;        // tasks
  RawVector<u32>& lane_of_;  // by slot
  bool steady_ = false;
  std::vector<bool> ids_;  // steady: by task, whether it was made
  RawVector<u64>& seqs_;   // by slot
  const bool hashed_;
  TaskHash hash_;
  alignas(kCacheLine) std::atomic<bool> token_{false};
};

}  // namespace ptowsp
