// A plan with values: what a run needs to generate tasks, worked out once per execute in time that
// depends on the plan, never on the number of tasks.
//
// Symbols become numbers, so most index expressions become `base + sum(coefficient * loop index)`.
// Tensors that share bytes join one storage. Bounds are proved by interval analysis where possible;
// what cannot be proved is marked and checked per task. A BoundPlan is immutable after bind() and
// is read by all workers without synchronisation.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ptowsp/error.h"
#include "ptowsp/hash.h"
#include "ptowsp/plan_view.h"
#include "ptowsp/ptowsp.h"

namespace ptowsp {

// value = base + sum over levels < top of coef[level] * vars[level], and the same for a few
// registers; exact, no overflow (proved).
struct Affine {
  static constexpr u32 kMostRegisters = 2;
  i64 base = 0;
  u32 top = 0;  // 1 + highest level with a coefficient
  u32 num_regs = 0;
  u32 reg[kMostRegisters] = {};  // numbers of variables
  i64 reg_coef[kMostRegisters] = {};
  i64 coef[kMaxLoops] = {};

  i64 at(const i64* vars) const {
    i64 v = base;
    for (u32 l = 0; l < top; ++l) v += coef[l] * vars[l];
    for (u32 r = 0; r < num_regs; ++r) v += reg_coef[r] * vars[reg[r]];
    return v;
  }
  i64 coef_of(u32 variable) const {
    if (variable < kMaxLoops) return coef[variable];
    for (u32 r = 0; r < num_regs; ++r) {
      if (reg[r] == variable) return reg_coef[r];
    }
    return 0;
  }
  // False if there is no room for the register, or the sum overflows.
  bool add_register(u32 variable, i64 factor) {
    u32 r = 0;
    while (r < num_regs && reg[r] != variable) ++r;
    if (r == num_regs) {
      if (num_regs == kMostRegisters) return false;
      reg[num_regs++] = variable;
      reg_coef[r] = 0;
    }
    return !__builtin_add_overflow(reg_coef[r], factor, &reg_coef[r]);
  }
};

// An expression ready to be evaluated. Where it is not affine, `node` is walked with checks. Forms
// are those of the plan's expressions, which many accesses share.
struct BoundExpr {
  u32 node = kNone;
  bool affine = false;
  bool kept = false;             // its last values are
  const Affine* form = nullptr;  // if it is affine

  bool constant() const { return affine && form->top == 0 && form->num_regs == 0; }
};

// Values from `lo` to `hi`; none if lo > hi.
struct ValueRange {
  i64 lo = INT64_MAX;
  i64 hi = INT64_MIN;

  bool holds(const ValueRange& other) const { return lo <= other.lo && other.hi <= hi; }
  void add(const ValueRange& other) {
    lo = std::min(lo, other.lo);
    hi = std::max(hi, other.hi);
  }
};

// What a plan takes for granted of an array's contents.
struct ArrayRange {
  ValueRange elements;
  ValueRange rows;  // of an array in which the rows of a sparse loop begin: their lengths
};

struct BoundArray {
  const void* data = nullptr;
  DType dtype = DType::I64;
  u32 rank = 0;
  i64 shape[2] = {1, 1};
  i64 stride[2] = {0, 0};
  ArrayRange holds;     // what it holds now,
  ArrayRange expected;  // and what may come: plans are proved for that

  i64 at(i64 i, i64 j) const;
};

// Values of an expression for several elements of a reduction.
struct BlockValues {
  const i64* values = nullptr;  // one for each element, or null:
  i64 value = 0;                // all of them

  bool all_alike() const { return values == nullptr; }
};

struct BoundTensor {
  StorageClass storage_class = StorageClass::BOUND;
  char* data = nullptr;
  DType dtype = DType::F32;
  u32 item = 4;  // bytes of an element
  u32 rank = 0;
  u32 storage = 0;        // tensors with equal storage may share bytes
  u32 geometry = 0;       // tensors with equal geometry have the same base, shape and strides
  bool by_bytes = false;  // its elements overlap one another: compare by byte interval only
  bool read_only = false;
  u64 byte_lo = 0;  // of what is bound: address of the first byte
  u64 byte_hi = 0;  // and past the last one; equal if there are none
  i64 shape[kMaxRank] = {};
  i64 stride[kMaxRank] = {};
  i64 cell[kMaxRank] = {};  // size of the tensor map's cells, per dimension
  // TEMP: which buffer it lies in. Its last dimension, which the plan does not know, numbers the
  // copies of the buffer; the extents of the others are the largest there can be.
  u32 alloc = kNone;
  u32 shape_node[kMaxRank] = {};  // of extents that differ from iteration to iteration, else kNone
  // PAGED: the data is the pool's; strides are those inside a page.
  u32 pool = kNone;   // TENSOR
  u32 table = kNone;  // TENSOR
  i64 page = 0;       // tokens a page
};

// A buffer of which each iteration has a copy, reused in turn: the tasks that write a copy again
// come behind those that used it before, by the same hazards as in any tensor.
struct BoundAlloc {
  i64 copies = 0;
  u64 bytes = 0;  // of one copy
  std::vector<u32> tensors;
};

// Room for temporaries, kept from run to run.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char* data_;
  std::size_t bytes_;
};

// What a run brings along. Without a workspace, temporaries have no memory: nothing can run.
struct BindOptions {
  u32 workers = 1;
  u32 lanes = 1;  // iterations of one loop that are generated at a time
  std::shared_ptr<Workspace>* workspace = nullptr;  // what earlier runs had; grows as needed
  bool fields = false;                              // of descriptors are bound as well
  u64 workspace_limit = 0;                          // most bytes for temporaries; 0: no limit
  bool splits = true;  // somebody asks for independent_axis(); else it is not looked for
  // By SYMBOL: what arrays may hold, at least what they hold; none: just that.
  std::vector<ArrayRange> expected = {};
};

// What one task touches of one tensor.
struct Region {
  u32 tensor = 0;
  u32 storage = 0;
  u32 geometry = 0;
  u32 mode = 0;
  u32 rank = 0;
  bool by_bytes = false;
  bool empty = false;
  i64 start[kMaxRank];
  i64 extent[kMaxRank];
  i64 step[kMaxRank];
  u64 byte_lo = 0;  // address of the first byte
  u64 byte_hi = 0;  // address past the last byte
};

struct BoundDim {
  BoundExpr start, extent, step;
  bool dropped = false;
  i64 limit = INT64_MAX;  // most elements that the parameter, a tile, takes
};

struct BoundAccess {
  u32 tensor = 0;
  u32 mode = 0;
  u32 rank = 0;
  u32 plan_rank = 0;     // without the dimension that numbers copies, which is the last one
  u32 dims = 0;          // first of its dimensions in BoundPlan::dims
  u32 seen_rank = 0;     // dimensions that the kernel sees
  bool checked = true;   // bounds are checked per task
  bool limited = false;  // limits are checked per task
  u32 param = kNone;     // the kernel's
};

// An explicit dependence: on the task of a site at some indices, or on all of the current iteration
// of the loops that both share.
struct BoundAfter {
  u32 site = 0;
  u32 shared = 0;   // loops
  u32 indices = 0;  // first of its entries in BoundPlan::after_index
  u32 num_indices = 0;
  u32 common = 0;             // loops around both calls; the indices of some of them may differ
  bool may_be_later = false;  // nothing shows that the task comes before the one that waits
};

// A scalar argument: its expression, and the dtype that the kernel gets.
struct BoundScalar {
  BoundExpr value;
  DType dtype = DType::I64;
};

struct BoundSite {
  static constexpr u32 kMostRegisters = 16;
  u32 kernel = 0;
  TaskKind kind = TaskKind::KERNEL;
  u32 level = 0;
  u32 replicas = 1;  // of its process
  u32 scalars = 0;   // first of its entries in BoundPlan::scalars
  u32 num_scalars = 0;
  u32 afters = 0;  // first of its entries in BoundPlan::afters
  u32 num_afters = 0;
  bool awaited = false;        // some AFTER names it
  bool checks_afters = false;  // one of its AFTERs may name a later task
  // What a record keeps of a task: its loop indices, then these variables.
  u32 num_registers = 0;
  u8 registers[kMostRegisters] = {};
  u32 accesses = 0;  // first of its entries in BoundPlan::site_accesses
  u32 num_accesses = 0;
  HashSum hash;  // the part that is equal for all its tasks
  // All regions have fixed shapes, proved bounds and affine starts: only the pointers of its views
  // differ from task to task, and each is affine in the loop indices.
  bool simple = false;
  u32 num_checked = 0;        // accesses whose bounds are checked per task
  bool narrow = true;         // its loop indices fit into 32 bits
  i64 reach[kMaxLoops] = {};  // by level: largest loop index minus smallest; -1: unknown
};

struct BoundLoop {
  BoundExpr start, extent;
  // SELECT: the column is columns[rows[index of loop `row`] + own index].
  const BoundArray* rows = nullptr;
  const BoundArray* columns = nullptr;
  u32 row = 0;
  bool repeats = false;   // LOOP_WHILE: the extent is only a limit
  u32 leaf_site = kNone;  // the loop's body is one task of this site and nothing else
  bool alike = false;     // all its iterations go the same way, to at most one task each
  bool forks = false;     // the schedule has several iterations generated at a time
};

// A queue between processes; see Network.
struct BoundChannel {
  u32 element = 0;  // TENSOR
  u32 alloc = 0;
  u32 depth = 0;  // 0: a message is passed on only to somebody who waits
  u32 buffers = 1;
  u32 initial = 0;       // messages that are there at the start
  u32 latency = 0;       // cycles, on a virtual clock
  u32 producer = kNone;  // in BoundPlan::processes
  u32 consumer = kNone;
};

struct BoundProcess {
  u32 entry = 0;
  u32 record = kNone;  // PROCESS; none of main
  u32 replicas = 1;
  bool replicated = false;  // its code is one loop, of which each replica has an iteration
};

// What a plan was bound to; see rebind.cpp.
struct BoundTo {
  bool known = false;  // false: rebind() refuses everything
  std::vector<ptowsp_binding> bindings;
  std::vector<u32> tensor;   // of each binding: the TENSOR that it places, or kNone
  std::vector<u8> contents;  // of the bound arrays, one behind the other
  std::vector<ArrayRange> expected;
};

struct PlanFacts;

class BoundPlan {
 public:
  // Checks the bindings against the plan. On failure `error` says which symbol and why. `used` is a
  // plan that nobody needs any more: its memory serves again, and the result is the same object.
  static std::unique_ptr<BoundPlan> bind(const PlanView& plan, const ptowsp_binding* bindings,
                                         std::size_t count, Error* error,
                                         const BindOptions& options = {},
                                         std::unique_ptr<BoundPlan> used = nullptr);

  // Keeps what the plan was bound to, for rebind(). Comes right behind bind(), with its bindings.
  void remember(const ptowsp_binding* bindings, std::size_t count);
  // True: the plan is now what bind() would make of these bindings, with the same expectations.
  // They differ from those before in nothing but where data lies and, as far as it was expected,
  // in what arrays hold. False: it has to be bound anew, and must not be used any more.
  bool rebind(const ptowsp_binding* bindings, std::size_t count);
  // Behind a rebind() that has failed because of what arrays hold: what to expect of them from now
  // on. Otherwise empty.
  std::vector<ArrayRange> take_expected() { return std::exchange(bound_to_.expected, {}); }
  // Expecting more than there is costs proofs: from now on take_expected() is empty.
  void expect_nothing() { exact_ = true; }
  const BoundArray& array(u32 symbol) const { return arrays_[symbol]; }

  const PlanView& plan() const { return *plan_; }
  const PlanFacts& facts() const { return *facts_; }
  const std::vector<Instr>& code() const { return code_; }
  const std::vector<BoundSite>& sites() const { return sites_; }
  const std::vector<BoundTensor>& tensors() const { return tensors_; }
  const BoundLoop& loop(u32 axis) const { return loops_[axis]; }
  // Whether the block that opens at `pc` is a loop around one task of this site and nothing else.
  bool is_leaf(u32 pc, u32 site) const {
    const auto op = static_cast<Op>(code_[pc].opcode);
    if (op != Op::PARALLEL_FOR && op != Op::FOR_EACH) return false;
    return loops_[code_[pc].operand1].leaf_site == site;
  }
  const BoundAccess& access(u32 i) const { return accesses_[i]; }
  // The access behind tensor argument `p` of a site.
  u32 site_access(const BoundSite& s, u32 p) const { return site_accesses_[s.accesses + p]; }
  // Of the site that has the most.
  u32 most_accesses() const {
    u32 most = 0;
    for (const BoundSite& site : sites_) most = std::max(most, site.num_accesses);
    return most;
  }
  const BoundDim& dim(u32 i) const { return dims_[i]; }
  u32 num_storages() const { return num_storages_; }
  // By CHANNEL; the processes are none if there are none but main.
  const std::vector<BoundChannel>& channels() const { return channels_; }
  const std::vector<BoundProcess>& processes() const { return processes_; }
  bool is_network() const { return !processes_.empty(); }

  // The parallel loop that is the whole program, if its iterations are proved independent; else
  // kNone.
  u32 independent_axis() const { return independent_axis_; }
  // Tasks of iterations before `index` of that loop. False if the plan does not say.
  bool tasks_before(i64 index, u64* out) const;

  // Where the schedule has several iterations of a loop generated at a time; none to begin with.
  void set_forks(const std::vector<u32>& axes) {
    for (BoundLoop& loop : loops_) loop.forks = false;
    for (const u32 axis : axes) loops_[axis].forks = true;
  }
  // Tasks of the current iteration of a loop; false if they cannot be counted.
  bool iteration_tasks(u32 axis, const i64* vars, i64* out, Error* error) const {
    const u32 tasks = plan_->get<Section::AXIS>(axis).body_tasks;
    return tasks != kNone && eval(exprs_[tasks], vars, out, error);
  }

  // Tasks of the whole program. False if nobody knows before it runs.
  bool total_tasks(u64* out) const;

  // Byte offset of the first element of access `i`, for simple sites.
  const Affine& offset(u32 i) const { return offsets_[i]; }
  // The view of access `i`, complete but for its pointer, for simple sites.
  const ptowsp_view& view(u32 i) const { return views_[i]; }
  u64 accesses_checked() const { return accesses_checked_; }
  u64 accesses_proved() const { return accesses_proved_; }

  // Value of a node as it stands, every operation checked.
  bool value(u32 node, const i64* vars, i64* out, Error* error) const {
    return eval_node(node, Env{vars, {}}, out, error);
  }
  // The variable that SLOT_SET or LET sets.
  u32 target(Instr instr) const {
    return kFirstSlot + instr.operand1 +
           (static_cast<Op>(instr.opcode) == Op::LET ? plan_->count(Section::SLOT) : 0);
  }
  // The variable that holds which copy of a buffer the current iteration has.
  u32 copy_variable(u32 alloc) const { return first_copy_ + alloc; }
  const BoundAlloc& alloc(u32 i) const { return allocs_[i]; }
  // False if the current iteration asks for a temporary of negative extent.
  bool check_shapes(u32 alloc, const i64* vars, Error* error) const;
  u64 workspace_bytes() const { return workspace_ ? workspace_->bytes() : 0; }
  // Finds the pages of a region of a paged tensor. False: a page number is outside the pool, or the
  // region leaves its page and the parameter wants it whole.
  bool find_pages(const Region& region, bool whole, ptowsp_view* view, ptowsp_pages* out,
                  Error* error) const;
  const BoundScalar& scalar(u32 i) const { return scalars_[i]; }
  // By DESCRIPTOR, where BindOptions asked for them.
  const BoundExpr& field(u32 i) const { return fields_[i]; }
  const BoundAfter& after(u32 i) const { return afters_[i]; }
  const BoundExpr& after_index(u32 i) const { return after_indices_[i]; }
  // Scalar argument `i` as the kernel gets it; false if it has no value or does not fit its dtype.
  bool scalar_bits(u32 i, const i64* vars, u64* out, Error* error) const;
  // The element that a LOAD site's region names.
  bool load(u32 site, const Region& region, i64* out, Error* error) const;

  // The column of a sparse loop at these variables.
  bool column(const BoundLoop& loop, const i64* vars, i64 index, i64* out, Error* error) const;

  // Variables of a site's task, as records keep them.
  static void pack(const BoundSite& site, const i64* vars, i64* out) {
    for (u32 l = 0; l < site.level; ++l) out[l] = vars[l];
    for (u32 r = 0; r < site.num_registers; ++r) out[site.level + r] = vars[site.registers[r]];
  }
  static void unpack(const BoundSite& site, const i64* packed, i64* vars) {
    for (u32 l = 0; l < site.level; ++l) vars[l] = packed[l];
    for (u32 r = 0; r < site.num_registers; ++r) vars[site.registers[r]] = packed[site.level + r];
  }

  // Value of an expression for given variables. False: overflow, division by zero or an array
  // index out of range, described in `error`.
  bool eval(const BoundExpr& e, const i64* vars, i64* out, Error* error) const {
    if (!e.affine) return eval_node(e.node, Env{vars, {}}, out, error);
    *out = e.form->at(vars);
    return true;
  }

  // The region that access `i` touches; false if it leaves its tensor or cannot be evaluated.
  bool region(u32 i, const i64* vars, Region* out, Error* error) const;

  // The regions of all accesses of a site; an error names the task.
  bool regions(u32 site, u64 task_id, const i64* vars, Region* out, Error* error) const;

  // Adds the task with these variables to a hash.
  bool hash_task(u32 site, const i64* vars, const Region* regions, TaskHash* hash,
                 Error* error) const;

 private:
  friend class Binder;

  // What is kept of expressions from before does not count any more.
  void forget_values();

  // Back to what a new one is, but for the room that its tables have and what is expected of it.
  void clear();

  // Values of the variables that an expression may name.
  struct Env {
    const i64* vars;
    i64 bound[kMaxBoundVars];  // of enclosing REDUCE and SEARCH nodes
  };
  bool eval_node(u32 node, const Env& env, i64* out, Error* error) const {
    const Expr& e = plan_->expr(node);
    const BoundExpr& known = exprs_[node];
    const bool costly = e.op >= static_cast<u8>(ExprOp::SELECT);
    if (costly && known.constant()) {
      *out = known.form->base;
      return true;
    }
    if (known.kept) return eval_kept(node, env, out, error);
    return eval_expr(e, env, out, error);
  }
  static constexpr u32 kBlock = 64;  // elements of a reduction that are evaluated at a time
  bool eval_block(u32 node, const Env& env, u32 level, u32 count, i64* room,
                  BlockValues* out) const;
  bool block_select(const Expr& e, const Env& env, u32 level, u32 count, i64* room,
                    BlockValues* out) const;
  bool block_load(const Expr& e, const Env& env, u32 level, u32 count, i64* room,
                  BlockValues* out) const;
  bool eval_expr(const Expr& e, const Env& env, i64* out, Error* error) const;
  bool eval_kept(u32 node, const Env& env, i64* out, Error* error) const;
  bool eval_binary(const Expr& e, const Env& env, i64* out, Error* error) const;
  bool eval_load(const Expr& e, const Env& env, i64* out, Error* error) const;
  bool eval_fold(const Expr& e, const Env& env, i64* out, Error* error) const;
  // Which part of its page table is the extent of a paged tensor, for messages; else nothing.
  std::string table_extent(const BoundAccess& a, u32 dim) const;
  bool out_of_bounds(const BoundAccess& a, u32 dim, const Region& r, i64 shape, Error* error) const;
  bool fits_tile(const BoundAccess& a, const Region& r, Error* error) const;

  const PlanView* plan_ = nullptr;
  std::vector<Instr> code_;
  std::vector<i64> symbols_;          // by SYMBOL: value of extents, scalars and facts
  std::vector<BoundArray> arrays_;    // by SYMBOL
  std::vector<BoundTensor> tensors_;  // by TENSOR
  std::vector<BoundExpr> exprs_;      // by EXPR
  // By EXPR, written where it is affine; then for each ALLOC the number of the copy; then 1.
  std::vector<Affine> forms_;
  std::shared_ptr<const PlanFacts> facts_;
  std::vector<BoundLoop> loops_;       // by AXIS
  std::vector<BoundAccess> accesses_;  // by ACCESS, then for words that name one again
  std::vector<BoundDim> dims_;
  std::vector<BoundSite> sites_;    // by SITE
  std::vector<u32> site_accesses_;  // the accesses of each site, in argument order
  std::vector<BoundScalar> scalars_;
  std::vector<BoundExpr> fields_;  // by DESCRIPTOR
  std::vector<BoundAfter> afters_;
  std::vector<BoundExpr> after_indices_;
  u32 num_storages_ = 0;
  std::vector<Affine> offsets_;     // by access
  std::vector<ptowsp_view> views_;  // by access
  std::vector<u64> outer_tasks_;    // of the independent loop: tasks before each iteration
  u32 independent_axis_ = kNone;
  u32 first_copy_ = kMaxVars;
  std::vector<BoundAlloc> allocs_;  // by ALLOC
  std::vector<BoundChannel> channels_;
  std::vector<BoundProcess> processes_;
  std::shared_ptr<Workspace> workspace_;
  u64 accesses_checked_ = 0;
  u64 accesses_proved_ = 0;
  BoundTo bound_to_;
  u64 epoch_ = 0;         // another one whenever values may be others
  bool settled_ = false;  // other contents of arrays make another plan, in ways nobody looks for
  bool exact_ = false;    // see expect_nothing()
};

}  // namespace ptowsp
