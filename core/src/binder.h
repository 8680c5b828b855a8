// Makes a BoundPlan. One Binder serves one bind() and is thrown away. Private to the binder's
// files.
#pragma once

#include <string>
#include <vector>

#include "interval.h"
#include "plan_facts.h"
#include "ptowsp/bind.h"

namespace ptowsp {

class Binder {
 public:
  Binder(const PlanView& plan, BoundPlan* out, Error* error, const BindOptions& options)
      : plan_(plan), out_(*out), error_(*error), options_(options) {}

  bool run(const ptowsp_binding* bindings, std::size_t count);
  // rebind.cpp: the same plan with data elsewhere; false if that would make it another plan.
  bool move(const ptowsp_binding* bindings);

 private:
  // Of an expression, at one point of the walk.
  struct Known {
    u32 when = 0;
    bool exact = false;  // it is affine, and no partial sum overflows
    Interval range;
  };

  // rebind.cpp
  bool take_contents();
  bool work_out_reads();
  void expect_more();
  bool same_sharing();

  // bind_values.cpp: symbols, arrays, tensors
  bool take_bindings(const ptowsp_binding* bindings, std::size_t count);
  bool take_scalar(u32 symbol, i64 value);
  bool take_array(u32 symbol, const ptowsp_binding& b);
  bool take_tensor(u32 tensor, const ptowsp_binding& b);
  void find_range(u32 symbol);
  void find_written();
  bool check_tensor_modes();
  void join_storages();
  bool check_arrays_unwritten();
  bool check_extents();
  bool check_strides();
  std::string name(u32 symbol) const;
  bool fail(u32 symbol, std::string message, Status status = Status::BIND_ERROR);

  // bind_exprs.cpp: expressions
  void work_out(u32 node);
  void make_affine(u32 node);
  bool affine_sum(const Expr& e, i64 sign, Affine* out) const;
  bool affine_product(const Expr& e, Affine* out) const;
  bool affine_constant(u32 node, const Expr& e, Affine* out) const;
  // All of these speak of the loops that are open at this point of the walk.
  Interval range_of(u32 node);
  static Interval range_of(const ValueRange& r) { return {r.lo, r.hi}; }
  const Known& known(u32 node);
  Interval find_range_of(u32 node);
  Interval range_of_affine(const Affine& form) const;
  BoundExpr use(u32 node);
  // A loop, slot, let or buffer has another range from here on.
  void forget_ranges() { now_ += 1; }

  // bind.cpp: loops, sites, accesses
  static constexpr i64 kMostMessages = i64{1} << 62;  // of one channel
  bool walk_code(u32 entry);
  Interval range_of_register(u32 variable) const;
  bool bind_axis(Instr instr, u32 level, bool alive);
  bool check_ragged(const Axis& a);
  bool bind_site(u32 site, bool alive);
  bool keep_registers(u32 site);
  void bind_after(u32 after, u32 site);
  bool may_be_later(const BoundAfter& after, u32 site) const;
  void bind_access(u32 record, u32 access, bool alive);
  bool prove_dim(const BoundDim& dim, i64 shape);
  void choose_cells();

  // bind_tensors.cpp: tensors that nobody binds
  bool is_class(u32 tensor, StorageClass cls) const {
    return out_.tensors_[tensor].storage_class == cls;
  }
  void number_copies();
  bool make_unbound();
  bool make_token(u32 tensor);
  bool make_paged(u32 tensor);
  bool bind_alloc(u32 alloc, bool alive);
  i64 most_iterations(u32 loops) const;
  bool shape_temp(u32 tensor, bool alive);
  void number_buffers(u32 alloc);
  static u64 buffer_bytes(u64 bytes);
  bool prove_temp(const BoundAccess& a, u32 dim);
  void make_copy_forms();
  void add_copy_dim(u32 access);
  bool make_workspace();
  // bind_network.cpp
  bool bind_network();
  bool bind_channel(u32 channel);
  bool bind_process(u32 process);
  bool find_ends();
  u32 replicas_of(u32 entry) const;
  bool fail_tensor(u32 tensor, Status status, std::string message);

  // bind_sites.cpp: tiles, and what makes tasks of simple nests cheap
  u32 region_param(u32 kernel, u32 nth) const;
  u32 own_access(u32 record);
  bool bind_tile(u32 record, u32 access, u32 param);
  void note_span(u32 access);
  void prepare_sites();
  bool prepare_access(u32 access);
  void find_leaves();
  void find_independent_axis();
  bool iterations_independent() const;
  bool apart(u32 a, u32 b) const;
  bool count_outer_tasks(u32 axis);

  const PlanView& plan_;
  BoundPlan& out_;
  Error& error_;
  const BindOptions options_;
  std::vector<u8> bound_;           // by SYMBOL: a value is there
  u32 replicas_ = 1;                // of the process at this point of the walk
  std::vector<u8> written_;         // by TENSOR: some access writes it
  Interval ranges_[kMaxLoops + 1];  // of the loop variables open at this point of the walk
  Interval columns_[kMaxLoops];     // of the columns of sparse loops, by level
  std::vector<Interval> lets_;      // of slots, then of lets
  std::vector<Known> known_;        // by EXPR: what was worked out at this point of the walk
  u32 now_ = 1;
  std::vector<u8> is_branch_;  // by EXPR: PlanFacts::branch, and it has not been worked out

  // Where a dimension of an access lies: coef * (outermost loop variable) + [lo, hi].
  struct Span {
    bool known = false;
    i64 coef = 0;
    Interval rest;
  };
  std::vector<Span> spans_;  // by dimension of bound accesses
  std::vector<u8> taken_;    // by ACCESS: some argument word is bound to it
};

}  // namespace ptowsp
