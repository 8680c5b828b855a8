#include "ptowsp/flow.h"

#include <algorithm>

namespace ptowsp {

Flow::Flow(const BoundPlan& plan, const ScheduleConfig& config, u32 workers, bool hashed,
           std::unique_ptr<Tracking> tracking, std::unique_ptr<FlowMemory> memory)
    : plan_(plan),
      window_(config.window),
      matching_(config.matching),
      tracking_(tracking != nullptr
                    ? std::move(*tracking)
                    : Tracking(plan, config.matching, config.deps == DepsPolicy::AUTO)),
      memory_(fitting(std::move(memory), plan, tracking_, config.window,
                      std::max(workers, config.most_lanes(workers)))),
      table_(memory_->table),
      tiles_(memory_->tiles),
      main_(Cursor::at_entry(plan, 0)),
      regions_(plan.most_accesses()),
      box_entries_(memory_->box_entries),
      tags_(memory_->tags),
      lane_of_(memory_->lane_of),
      seqs_(memory_->seqs),
      hashed_(hashed) {
  if (config.window_bytes > 0) bytes_.emplace(plan, config.window_bytes, table_.capacity());
  make_makers(config, workers);
  cursor_->drains = matching_ == Matching::Overlap ? 0 : 1;
  if (plan.is_network()) {
    network_.emplace(plan);
    network_->share_copies();
    parts_.resize(network_->size());
    cursor_ = &network_->cursor();
    make_singly();  // turns are counted in tasks
  }
  for (const BoundSite& site : plan.sites()) spare_ = std::max(spare_, site.num_afters);
  if (spare_ > 0) awaited_.emplace(plan, &table_);
  if (!tracking_.any_box()) return;
  if (!memory_->boxes) memory_->boxes.emplace();
  boxes_ = &*memory_->boxes;
  boxes_->begin(&plan, config.matching);
  box_entries_.resize(table_.capacity(), kNoSlot);
  tags_.resize(table_.capacity());
}

void Flow::make_makers(const ScheduleConfig& config, u32 workers) {
  for (u32 s = 0; s < plan_.sites().size(); ++s) {
    const auto& accesses = tracking_.site(s);
    SiteMaker maker;
    maker.site = &plan_.sites()[s];
    maker.level = plan_.sites()[s].level;
    maker.entries = tracking_.entries(s);
    maker.strip = longest_strip(s, config, workers);
    maker.needs_regions =
        tracking_.needs_regions(s) || hashed_ || (bytes_ && bytes_->needs_regions(s));
    maker.moves = !maker.needs_regions && !maker.site->awaited && maker.site->num_afters == 0;
    maker.begin = accesses.data();
    maker.end = accesses.data() + accesses.size();
    makers_.push_back(maker);
  }
}

// Another process has the turn.
void Flow::switch_process() {
  Part& old = parts_[part_];
  part_ = network_->current();
  Part& now = parts_[part_];
  old.open.swap(open_);
  open_.swap(now.open);
  old.in_leaf = in_leaf_;
  old.pending = pending_;
  in_leaf_ = now.in_leaf;
  pending_ = now.pending;
  cursor_ = &network_->cursor();
}

void Flow::set_issuer(Issuer* issuer, u32 streams) {
  issuer_ = issuer;
  stream_last_.assign(streams, TaskRef{});
  make_singly();  // each task has a place of its own
}

// Where the order is open, tasks that follow each other in a leaf loop may share a record and run
// one after the other: a strip. Strips are short, and only where there are so many tasks that those
// of one strip are not missed as parallelism.
u32 Flow::longest_strip(u32 s, const ScheduleConfig& config, u32 workers) const {
  constexpr i64 kMost = 8;
  if (config.ready != ReadyPolicy::AUTO || config.start != StartPolicy::IMMEDIATE) return 1;
  if (config.batch_deps > 0) return 1;                // they are counted one by one
  if (config.trace == TracePolicy::CYCLES) return 1;  // each task has an end of its own
  const BoundSite& site = plan_.sites()[s];
  if (!site.simple || tracking_.needs_regions(s) || site.awaited || site.num_afters > 0) return 1;
  i64 tasks = 1;
  for (u32 l = 0; l < site.level; ++l) {
    // Unknown counts as many; the product is kept small.
    tasks = std::min<i64>(tasks, 1 << 24) * (std::min<i64>(site.reach[l], 1 << 24) + 1);
    if (site.reach[l] < 0) tasks = 1 << 24;
  }
  const i64 enough = std::min<i64>(tasks / (i64{32} * workers * workers), window_ / (8 * workers));
  return static_cast<u32>(std::clamp<i64>(enough, 1, kMost));
}

bool Flow::at_leaf() const {
  if (cursor_->depth == 0) return false;
  const u32 opener = cursor_->frames[cursor_->depth - 1].pc;
  return plan_.is_leaf(opener, cursor_->site) &&
         static_cast<Op>(plan_.code()[opener].opcode) == Op::PARALLEL_FOR;
}

std::unique_ptr<FlowMemory> Flow::fitting(std::unique_ptr<FlowMemory> memory, const BoundPlan& plan,
                                          const Tracking& tracking, u32 window, u32 lanes) {
  u32 levels = 1;
  bool wide = false;
  for (const BoundSite& site : plan.sites()) {
    levels = std::max(levels, site.level + site.num_registers);
    wide = wide || !site.narrow;
  }
  // Each live task may hold one join per phase around it, and one for those that wait for it; open
  // phases have some more, in each lane and process.
  for (const BoundProcess& process : plan.processes()) lanes += process.replicas;
  u32 joins = sequential_depth(plan);
  for (const BoundSite& site : plan.sites()) joins += site.num_afters;
  const u32 slots = window * (1 + joins) + kMaxBlocks + lanes * joins;
  const u64 numbers = tracking.numbers();
  const u64 live = static_cast<u64>(window + 1) * tracking.most_tiles();
  if (memory != nullptr && memory->table.fits(slots, levels, wide) &&
      memory->tiles.fits(numbers, live)) {
    return memory;
  }
  return std::make_unique<FlowMemory>(slots, levels, wide, numbers, live);
}

// Large enough for every task that can be ready at once.
FlowMemory::Queues* Flow::queues(u32 worker) {
  while (memory_->queues.size() <= worker) {
    memory_->queues.push_back(std::make_unique<FlowMemory::Queues>(window_, table_.capacity()));
  }
  return memory_->queues[worker].get();
}

u32 Flow::sequential_depth(const BoundPlan& plan) {
  u32 depth = 0;
  u32 most = 0;
  std::vector<u8> open;
  for (u32 pc = 0; pc < plan.code().size(); ++pc) {
    const Instr instr = plan.code()[pc];
    switch (static_cast<Op>(instr.opcode)) {
      case Op::FOR_EACH:
      case Op::SEQUENTIAL:
        open.push_back(1);
        most = std::max(most, ++depth);
        break;
      case Op::PARALLEL_FOR:
      case Op::SELECT:
      case Op::LOOP_WHILE:
      case Op::COMBINE:
      case Op::COND:
      case Op::ELSE:
      case Op::RECV:
        open.push_back(0);
        break;
      case Op::END:
        depth -= open.back();
        open.pop_back();
        break;
      case Op::TASK:
        pc += instr.operand1;
        break;
      default:
        break;
    }
  }
  return most;
}

bool Flow::check_regions(u32 site, Error* error) {
  return plan_.regions(site, cursor_->task_id, cursor_->vars, regions_.data(), error);
}

// The task that waits for room writes more than the whole window: `error` says so.
bool Flow::too_large(Error* error) const {
  if (!bytes_->never_fits()) return false;
  *error = Error::make(Status::TASK_TOO_LARGE, std::to_string(bytes_->waiting()) +
                                                   " bytes, more than the task window of " +
                                                   std::to_string(bytes_->limit()) + " holds");
  error->at_task(cursor_->site, cursor_->task_id, cursor_->vars,
                 plan_.sites()[cursor_->site].level);
  return true;
}

// An access of several tiles.
void Flow::touch_tiles(const TrackedAccess& a, u64 number, TaskRef task) {
  const auto before = [&](TaskRef t) { depend(t, task.slot); };
  const i64* deltas = tracking_.deltas(a);
  for (u32 i = 0; i < a.num_tiles; ++i) {
    const u64 tile = number + static_cast<u64>(deltas[i]);
    if (a.write) {
      tiles_.write(tile, task, before);
    } else {
      tiles_.read(tile, task, before);
    }
  }
}

// Its regions are there.
bool Flow::hash_task(Error* error) {
  if (plan_.hash_task(cursor_->site, cursor_->vars, regions_.data(), &hash_, error)) return true;
  const u32 level = plan_.sites()[cursor_->site].level;
  error->at_task(cursor_->site, cursor_->task_id, cursor_->vars, level);
  return false;
}

// The task that an AFTER names by its indices.
bool Flow::task_at(const BoundAfter& after, TaskRef* out, Error* error) {
  i64 indices[kMaxLoops];
  std::copy(cursor_->vars, cursor_->vars + after.shared, indices);
  for (u32 k = 0; k < after.num_indices; ++k) {
    const BoundExpr& index = plan_.after_index(after.indices + k);
    if (plan_.eval(index, cursor_->vars, &indices[after.shared + k], error)) continue;
    error->at_task(cursor_->site, cursor_->task_id, cursor_->vars,
                   plan_.sites()[cursor_->site].level);
    return false;
  }
  *out = awaited_->at(after.site, indices);
  return true;
}

// Reads what control asks for; false while somebody may still write it, or with an error. Where the
// maps do not know every task that may, all have to end: a promise about tasks is none about
// control.
bool Flow::load(Error* error) {
  const BoundSite& site = plan_.sites()[cursor_->site];
  const auto& accesses = tracking_.site(cursor_->site);
  bool waits = false;
  if (!plan_.regions(cursor_->site, cursor_->next_task, cursor_->vars, regions_.data(), error)) {
    return false;
  }
  const auto is_tile = [](const TrackedAccess& a) { return a.tile; };
  const bool known =
      matching_ == Matching::Overlap ||
      (matching_ == Matching::Exact && std::all_of(accesses.begin(), accesses.end(), is_tile));
  if (!known) {
    collect();
    waits = live_ > 0;
  }
  for (const TrackedAccess& a : accesses) {
    if (!known) break;
    if (!a.tile) {
      boxes_->query(regions_[0],
                    [&](u32 other) { waits = waits || !table_.ended({other, tags_[other]}); });
      continue;
    }
    const u64 number =
        a.affine ? tracking_.number(a, cursor_->vars, site) : tracking_.tile_of(regions_[0]);
    for (u32 i = 0; i < a.num_tiles; ++i) {
      const u64 tile = number + static_cast<u64>(tracking_.deltas(a)[i]);
      waits = waits || !table_.ended(tiles_.writer(tile));
    }
  }
  if (waits) return false;
  i64 value = 0;
  if (!plan_.load(cursor_->site, regions_[0], &value, error)) return false;
  cursor_->loaded(plan_, value);
  loads_ += 1;
  return true;
}

void Flow::find_boxes(TaskRef task) {
  boxes_->remove(&box_entries_[task.slot]);
  tags_[task.slot] = task.tag;
  const auto& accesses = tracking_.site(cursor_->site);
  for (const TrackedAccess& a : accesses) {
    if (a.tile) continue;
    boxes_->query(regions_[a.argument],
                  [&](u32 other) { depend({other, tags_[other]}, task.slot); });
  }
  for (const TrackedAccess& a : accesses) {
    if (!a.tile) boxes_->insert(regions_[a.argument], task.slot, &box_entries_[task.slot]);
  }
}

// The task belongs to the innermost open phase and, through joins, to all phases around it.
void Flow::enter_phase(TaskRef task) {
  for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
    if (open_[i].join == kNil) make_join(i);
  }
  Phase& p = open_.back();
  depend(p.gate, task.slot);
  p.used = true;
  p.tasks += 1;
  if (p.tasks > 1 && p.join == kNil) make_join(open_.size() - 1);
  const std::size_t depth = open_.size();
  const u32 counted_by = p.join != kNil ? p.join : depth > 1 ? open_[depth - 2].join : kNil;
  table_[task.slot].join = counted_by;
  if (notes_ != nullptr && counted_by != kNil) {
    notes_->edge(name_of(task), name_of(table_.ref(counted_by)));
  }
  if (counted_by == kNil) {
    p.end = task;
  } else if (p.join != kNil) {
    p.members += 1;
  } else {
    open_[depth - 2].members += 1;
    p.end = task;
  }
}

// Gives an open phase a join record, which the phase around it counts like a task.
void Flow::make_join(std::size_t phase) {
  const TaskRef join = table_.acquire();
  Phase& p = open_[phase];
  table_[join.slot].set(kJoinSite, 0);
  table_[join.slot].join = phase > 0 ? open_[phase - 1].join : kNil;
  if (phase > 0) open_[phase - 1].members += 1;
  if (notes_ != nullptr && phase > 0) {
    notes_->edge(name_of(join), name_of(table_.ref(open_[phase - 1].join)));
  }
  if (p.tasks >= 1 && p.end.any()) {
    p.join_edges = table_.add_edge(p.end, join.slot, 0) == TaskTable::Edge::Added ? 1 : 0;
    if (notes_ != nullptr && p.join_edges > 0) notes_->edge(name_of(p.end), name_of(join));
  }
  if (boxes_) boxes_->remove(&box_entries_[join.slot]);
  p.join = join.slot;
  p.end = join;
  p.used = true;
}

std::string Flow::waiting_report() {
  constexpr u32 kMostLines = 20;
  const auto alive = [this](u32 s) { return !table_.ended(table_.ref(s)); };
  u32 tasks = 0;
  for (u32 s = 0; s < table_.used(); ++s) tasks += alive(s) ? table_[s].count() : 0;
  std::string text = "nothing can run: " + std::to_string(tasks) + " tasks wait";
  std::vector<std::string> waits(table_.capacity());
  const auto name = [this](u32 s) {
    if (table_[s].site() == kJoinSite) return std::string("the phase before it");
    i64 loops[kMaxVars];
    table_.get_loops(s, loops, plan_.sites()[table_[s].site()].level);
    return describe_task(plan_, table_[s].site(), table_[s].task_id, loops);
  };
  for (u32 s = 0; s < table_.used(); ++s) {
    if (!alive(s)) continue;
    table_.each_successor(s, [&](u32 next) { waits[next] += "\n    " + name(s); });
  }
  u32 lines = 0;
  for (u32 s = 0; s < table_.used(); ++s) {
    if (!alive(s) || table_[s].site() == kJoinSite) continue;
    if (lines++ == kMostLines) return text + "\n  ...";
    const u32 count = table_[s].fanin.load(std::memory_order_relaxed);
    text += "\n  " + name(s) + " waits for " + std::to_string(count) + ":" + waits[s];
  }
  return text;
}

std::string Flow::generation_report(Made last) const {
  const PlanView& plan = plan_.plan();
  const auto line = [&](u32 site) { return line_of(plan, Section::SITE, site); };
  std::string text = "\n  generation, after " + std::to_string(made()) + " tasks, ";
  switch (last) {
    case Made::Full:
      text += "waits for room in the window";
      break;
    case Made::Waits:
      text += "waits for a value that control reads" + line(cursor_->site);
      break;
    case Made::Drains:
      text += "waits for a copy of temporaries";
      break;
    default:
      text += "has come to the end";
  }
  return text + "\n  marks: window " + std::to_string(live_) + " of " + std::to_string(window_) +
         ", records " + std::to_string(table_.capacity() - table_.available()) + " of " +
         std::to_string(table_.capacity()) + ", tensor map " + std::to_string(entries_) +
         " entries, edges outside of records " + std::to_string(table_.side_high());
}

}  // namespace ptowsp
