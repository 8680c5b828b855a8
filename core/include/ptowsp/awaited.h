// Tasks that explicit dependences (AFTER) name, as long as they may be alive.
//
// For a site that is waited for "in the current iteration of the shared loops" there is a list per
// number of shared loops, dropped when one of those loops goes on, and of a replicated process one
// for each replica, since these go on by themselves; for a site that is waited for by its indices,
// a map from them. Tasks that have ended are dropped now and then: both hold about as many entries
// as there are live tasks.
//
// Thread roles: belongs to the holder of the generation token; nothing is atomic.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "ptowsp/bind.h"
#include "ptowsp/task_table.h"

namespace ptowsp {

class Awaited {
 public:
  Awaited(const BoundPlan& plan, const TaskTable* table)
      : plan_(plan), table_(table), groups_(plan.sites().size()), by_index_(plan.sites().size()) {
    for (const BoundSite& site : plan.sites()) {
      for (u32 i = site.afters; i < site.afters + site.num_afters; ++i) {
        const BoundAfter& a = plan.after(i);
        if (a.num_indices > 0) {
          by_index_[a.site].used = true;
        } else if (find(a.site, a.shared) == nullptr) {
          groups_[a.site].push_back({a.shared, {}});
          groups_[a.site].back().iterations.resize(plan.sites()[a.site].replicas);
        }
      }
    }
  }

  // A task of an awaited site was made.
  void add(u32 site, const i64* vars, TaskRef task) {
    for (Group& g : groups_[site]) {
      Iteration& now = g.iterations[replica(site, vars)];
      if (!std::equal(vars, vars + g.shared, now.prefix)) now.members.clear();
      std::copy(vars, vars + g.shared, now.prefix);
      if (now.members.size() >= now.limit) drop_ended(&now);
      now.members.push_back(task);
    }
    Index& index = by_index_[site];
    if (!index.used) return;
    if (index.tasks.size() >= index.limit) drop_ended(&index);
    index.tasks[Key(vars, vars + plan_.sites()[site].level)] = task;
  }

  // The tasks of the current iteration of the shared loops; null if there are none.
  std::vector<TaskRef>* group(u32 site, u32 shared, const i64* vars) {
    Group* g = find(site, shared);
    if (g == nullptr) return nullptr;
    Iteration& now = g->iterations[replica(site, vars)];
    return std::equal(vars, vars + shared, now.prefix) ? &now.members : nullptr;
  }

  // The task at these loop indices; none if it has not been made, or was dropped.
  TaskRef at(u32 site, const i64* indices) const {
    const Index& index = by_index_[site];
    const auto found = index.tasks.find(Key(indices, indices + plan_.sites()[site].level));
    return found == index.tasks.end() ? TaskRef{} : found->second;
  }

 private:
  using Key = std::vector<i64>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      u64 h = key.size();
      for (const i64 v : key) h = fmix(h ^ static_cast<u64>(v));
      return h;
    }
  };
  static constexpr std::size_t kFew = 1024;
  struct Iteration {
    i64 prefix[kMaxLoops] = {};
    std::vector<TaskRef> members;
    std::size_t limit = kFew;
  };
  struct Group {
    u32 shared;
    std::vector<Iteration> iterations;  // by replica
  };
  struct Index {
    bool used = false;
    std::unordered_map<Key, TaskRef, KeyHash> tasks;
    std::size_t limit = kFew;
  };

  // Which replica of its process a task belongs to: the index of its outermost loop.
  std::size_t replica(u32 site, const i64* vars) const {
    return plan_.sites()[site].replicas > 1 ? static_cast<std::size_t>(vars[0]) : 0;
  }
  Group* find(u32 site, u32 shared) {
    for (Group& g : groups_[site]) {
      if (g.shared == shared) return &g;
    }
    return nullptr;
  }
  void drop_ended(Iteration* now) const {
    std::erase_if(now->members, [this](TaskRef t) { return table_->ended(t); });
    now->limit = std::max(kFew, 2 * now->members.size());
  }
  void drop_ended(Index* index) const {
    std::erase_if(index->tasks, [this](const auto& entry) { return table_->ended(entry.second); });
    index->limit = std::max(kFew, 2 * index->tasks.size());
  }

  const BoundPlan& plan_;
  const TaskTable* table_;
  std::vector<std::vector<Group>> groups_;  // by site
  std::vector<Index> by_index_;             // by site
};

}  // namespace ptowsp
