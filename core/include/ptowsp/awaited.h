// Tasks that explicit dependences (AFTER) name, as long as they may be alive.
//
// For a site that is waited for "in the current iteration of the shared loops" there is a list per
// number of shared loops, dropped when one of those loops goes on; for a site that is waited for by
// its indices, a map from them. Tasks that have ended are dropped now and then: both hold about as
// many entries as there are live tasks.
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
          groups_[a.site].push_back({a.shared, {}, {}});
        }
      }
    }
  }

  // A task of an awaited site was made.
  void add(u32 site, const i64* vars, TaskRef task) {
    for (Group& g : groups_[site]) {
      if (!std::equal(vars, vars + g.shared, g.prefix)) g.members.clear();
      std::copy(vars, vars + g.shared, g.prefix);
      if (g.members.size() >= g.limit) drop_ended(&g);
      g.members.push_back(task);
    }
    Index& index = by_index_[site];
    if (!index.used) return;
    if (index.tasks.size() >= index.limit) drop_ended(&index);
    index.tasks[Key(vars, vars + plan_.sites()[site].level)] = task;
  }

  // The tasks of the current iteration of the shared loops; null if there are none.
  std::vector<TaskRef>* group(u32 site, u32 shared, const i64* vars) {
    Group* g = find(site, shared);
    if (g == nullptr || !std::equal(vars, vars + shared, g->prefix)) return nullptr;
    return &g->members;
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
  struct Group {
    u32 shared;
    i64 prefix[kMaxLoops];
    std::vector<TaskRef> members;
    std::size_t limit = kFew;
  };
  struct Index {
    bool used = false;
    std::unordered_map<Key, TaskRef, KeyHash> tasks;
    std::size_t limit = kFew;
  };

  Group* find(u32 site, u32 shared) {
    for (Group& g : groups_[site]) {
      if (g.shared == shared) return &g;
    }
    return nullptr;
  }
  void drop_ended(Group* g) const {
    std::erase_if(g->members, [this](TaskRef t) { return table_->ended(t); });
    g->limit = std::max(kFew, 2 * g->members.size());
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
