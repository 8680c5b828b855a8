// The generation-only pass: walks a bound plan without running anything and hashes its tasks.
//
// Each task is written as a record {site, loop indices, first byte of each region} into a ring, as
// a device that generates its own tasks would, and folded into the hash. Both are affine in the
// loop index, so where all iterations of a loop go the same way they advance by constants.
#pragma once

#include <vector>

#include "ptowsp/network.h"

namespace ptowsp {

class Generator {
 public:
  explicit Generator(const BoundPlan& plan);

  // Generates everything. False: `error` says why not. `interrupt` may be null.
  bool run(ptowsp_interrupt_fn interrupt, void* user, Error* error);

  u64 tasks() const { return walk_.cursor().next_task; }
  const TaskHash& hash() const { return hash_; }

 private:
  // The hash sum of a site's task as an affine form, lane by lane.
  struct HashForm {
    u64 base[2] = {0, 0};
    u64 coef[2][kMaxLoops] = {};
    u64 reg_coef[2][BoundSite::kMostRegisters] = {};  // in the order of the site's registers
  };

  static constexpr u32 kLines = 1024;  // records in the ring

  void add_word(HashForm* form, u32 position, const BoundSite& site, const BoundExpr& e) const;
  bool has_form(const BoundSite& s) const;
  void add_scalar(HashForm* form, const BoundSite& site, u32 k) const;
  HashSum sum_at(const BoundSite& site, const HashForm& form) const;
  void formed_task(const BoundSite& site);
  HashForm make_form(const BoundSite& site) const;
  bool one_task(Error* error);
  void tasks_alike(u32 frame, i64 count);
  u64* line(u64 task) { return &ring_[(task % kLines) * line_words_]; }

  const BoundPlan& plan_;
  Walk walk_;
  TaskHash hash_;
  std::vector<u8> formed_;       // by SITE: its form below is meaningful
  std::vector<HashForm> forms_;  // by SITE
  std::vector<Region> regions_;
  std::size_t line_words_ = 1;
  std::vector<u64> ring_;
};

}  // namespace ptowsp
