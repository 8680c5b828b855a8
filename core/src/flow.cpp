#include "ptowsp/flow.h"

#include <algorithm>

namespace ptowsp {

Flow::Flow(const BoundPlan& plan, const ScheduleConfig& config)
    : plan_(plan),
      window_(config.window),
      tracking_(plan),
      // Each live task may hold one join per phase around it.
      table_(config.window * (1 + sequential_depth(plan)) + kMaxBlocks, deepest(plan)),
      tiles_(table_.capacity(), tracking_.most_tiles()),
      boxes_(&plan, config.matching),
      cursor_(Cursor::at_entry(plan, 0)),
      regions_(kMaxTensorArgs),
      tags_(table_.capacity(), 0) {
  if (tracking_.any_box()) box_entries_.assign(table_.capacity(), kNoSlot);
}

u32 Flow::deepest(const BoundPlan& plan) {
  u32 most = 1;
  for (const BoundSite& site : plan.sites()) most = std::max(most, site.level);
  return most;
}

u32 Flow::sequential_depth(const BoundPlan& plan) {
  u32 depth = 0;
  u32 most = 0;
  std::vector<u8> open;
  for (u32 pc = plan.plan().get<Section::ENTRY>(0).pc; pc < plan.code().size(); ++pc) {
    const Instr instr = plan.code()[pc];
    switch (static_cast<Op>(instr.opcode)) {
      case Op::FOR_EACH:
      case Op::SEQUENTIAL:
        open.push_back(1);
        most = std::max(most, ++depth);
        break;
      case Op::PARALLEL_FOR:
      case Op::COMBINE:
        open.push_back(0);
        break;
      case Op::END:
        depth -= open.back();
        open.pop_back();
        break;
      case Op::TASK:
        pc += instr.operand1;
        break;
      case Op::HALT:
        return most;
      default:
        break;
    }
  }
  return most;
}

Flow::Made Flow::submit(u32* slot, bool* is_ready, Error* error) {
  if (live_ >= window_) return Made::Full;
  const u32 site = cursor_.site;
  const BoundSite& bound = plan_.sites()[site];
  if (tracking_.needs_regions(site) && !check_regions(site, error)) return Made::Failed;
  const u32 needed = 1 + static_cast<u32>(open_.size());  // itself and a join per phase
  if (table_.available() < needed) collect();
  if (table_.available() < needed) return Made::Full;
  const u32 s = table_.acquire();
  live_ += 1;
  live_high_ = std::max<u64>(live_high_, live_);
  TaskTable::Record& r = table_[s];
  r.site = site;
  r.task_id = cursor_.task_id;
  std::copy(cursor_.loops, cursor_.loops + bound.level, table_.loops(s));
  found_.clear();
  if (!open_.empty()) enter_phase(s);
  find_conflicts(s, table_.ref(s).tag);
  map_high_ = std::max<u64>(map_high_, tiles_.live() + boxes_.live());
  *slot = s;
  *is_ready = table_.publish(s);
  return Made::Task;
}

bool Flow::check_regions(u32 site, Error* error) {
  const BoundSite& bound = plan_.sites()[site];
  bounds_checked_ += bound.num_checked;
  for (u32 p = 0; p < bound.num_accesses; ++p) {
    if (plan_.region(plan_.site_access(bound, p), cursor_.loops, &regions_[p], error)) continue;
    error->at_task(site, cursor_.task_id, cursor_.loops, bound.level);
    return false;
  }
  return true;
}

void Flow::depend(TaskRef before, u32 slot) {
  if (before.slot == kNil || before.slot == slot) return;
  for (const TaskRef& f : found_) {
    if (f.slot == before.slot) return;
  }
  if (!table_.add_edge(before, slot)) return;
  found_.push_back(before);
  edges_ += 1;
}

void Flow::find_conflicts(u32 slot, u32 tag) {
  const auto before = [&](TaskRef t) { depend(t, slot); };
  tiles_.forget(slot);
  if (!box_entries_.empty()) boxes_.remove(&box_entries_[slot]);
  tags_[slot] = tag;
  const auto& accesses = tracking_.site(cursor_.site);
  u32 tile = 0;
  for (const TrackedAccess& a : accesses) {
    if (!a.tile) {
      boxes_.query(regions_[a.argument], [&](u32 other) { before({other, tags_[other]}); });
      continue;
    }
    const u64 number = a.affine ? static_cast<u64>(a.number.at(cursor_.loops))
                                : tracking_.tile_of(regions_[a.argument]);
    if (a.write) {
      tiles_.write(number, slot, tag, tile++, before);
    } else {
      tiles_.read(number, slot, tag, tile++, before);
    }
  }
  if (box_entries_.empty()) return;
  for (const TrackedAccess& a : accesses) {
    if (!a.tile) boxes_.insert(regions_[a.argument], slot, &box_entries_[slot]);
  }
}

// The task belongs to the innermost open phase and, through joins, to all phases around it.
void Flow::enter_phase(u32 slot) {
  for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
    if (open_[i].join == kNil) make_join(i);
  }
  Phase& p = open_.back();
  depend(p.gate, slot);
  p.used = true;
  p.tasks += 1;
  if (p.tasks > 1 && p.join == kNil) make_join(open_.size() - 1);
  const std::size_t depth = open_.size();
  const u32 counted_by = p.join != kNil ? p.join : depth > 1 ? open_[depth - 2].join : kNil;
  table_[slot].join = counted_by;
  if (counted_by == kNil) {
    p.end = table_.ref(slot);
  } else if (p.join != kNil) {
    p.members += 1;
  } else {
    open_[depth - 2].members += 1;
    p.end = table_.ref(slot);
  }
}

// Gives an open phase a join record, which the phase around it counts like a task.
u32 Flow::make_join(std::size_t phase) {
  const u32 join = table_.acquire();
  Phase& p = open_[phase];
  table_[join].site = kJoinSite;
  table_[join].join = phase > 0 ? open_[phase - 1].join : kNil;
  if (phase > 0) open_[phase - 1].members += 1;
  if (p.tasks >= 1 && p.end.slot != kNil) table_.add_edge(p.end, join);
  tiles_.forget(join);
  if (!box_entries_.empty()) boxes_.remove(&box_entries_[join]);
  p.join = join;
  p.end = table_.ref(join);
  p.used = true;
  return join;
}

std::string Flow::waiting_report() {
  constexpr u32 kMostLines = 20;
  std::string text = "nothing can run: " + std::to_string(live_) + " tasks wait, window " +
                     std::to_string(live_) + " of " + std::to_string(window_);
  std::vector<std::string> waits(table_.capacity());
  const auto name = [this](u32 s) {
    if (table_[s].site == kJoinSite) return std::string("the phase before it");
    return describe_task(plan_, table_[s].site, table_[s].task_id, table_.loops(s));
  };
  const auto alive = [this](u32 s) { return !table_.ended(table_.ref(s)); };
  for (u32 s = 0; s < table_.capacity(); ++s) {
    if (!alive(s)) continue;
    table_.each_successor(s, [&](u32 next) { waits[next] += "\n    " + name(s); });
  }
  u32 lines = 0;
  for (u32 s = 0; s < table_.capacity(); ++s) {
    if (!alive(s) || table_[s].site == kJoinSite) continue;
    if (lines++ == kMostLines) return text + "\n  ...";
    const u32 count = table_[s].fanin.load(std::memory_order_relaxed);
    text += "\n  " + name(s) + " waits for " + std::to_string(count) + ":" + waits[s];
  }
  return text;
}

}  // namespace ptowsp
