// The generation-only pass: walks a bound plan without running anything and hashes its tasks.
//
// Each task is written as a record {site, loop indices, first byte of each region} into a ring, as
// a device that generates its own tasks would, and folded into the hash. Both are affine in the
// loop index of a leaf loop, so there they advance by constants.
#pragma once

#include <vector>

#include "ptowsp/cursor.h"

namespace ptowsp {

class Generator {
 public:
  explicit Generator(const BoundPlan& plan);

  // Generates everything. False: `error` says why not. `interrupt` may be null.
  bool run(ptowsp_interrupt_fn interrupt, void* user, Error* error);

  u64 tasks() const { return cursor_.next_task; }
  const TaskHash& hash() const { return hash_; }

 private:
  // The hash sum of a simple site's task as an affine form, lane by lane.
  struct HashForm {
    u64 base[2] = {0, 0};
    u64 coef[2][kMaxLoops] = {};
  };

  static constexpr u32 kLines = 1024;  // records in the ring

  void add_word(HashForm* form, u32 position, const BoundExpr& e) const;
  // Whether the words of a site's tasks are affine in the loop indices alone.
  static bool has_form(const BoundSite& s) {
    return s.simple && s.num_scalars == 0 && s.num_registers == 0;
  }
  HashForm make_form(const BoundSite& site) const;
  bool one_task(Error* error);
  void leaf_tasks(i64 count);
  u64* line(u64 task) { return &ring_[(task % kLines) * line_words_]; }

  const BoundPlan& plan_;
  Cursor cursor_;
  TaskHash hash_;
  std::vector<HashForm> forms_;  // by SITE; meaningful for simple sites
  std::vector<Region> regions_;
  std::size_t line_words_ = 1;
  std::vector<u64> ring_;
};

}  // namespace ptowsp
