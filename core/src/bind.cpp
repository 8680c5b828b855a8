// Binder, second part: the order of the parts; loops get ranges, accesses get proofs.
#include "ptowsp/bind.h"

#include <algorithm>

#include "binder.h"

namespace ptowsp {

std::unique_ptr<BoundPlan> BoundPlan::bind(const PlanView& plan, const ptowsp_binding* bindings,
                                           std::size_t count, Error* error,
                                           const BindOptions& options,
                                           std::unique_ptr<BoundPlan> used) {
  std::unique_ptr<BoundPlan> out = std::move(used);
  if (out == nullptr) {
    out = std::make_unique<BoundPlan>();
  } else {
    out->clear();
  }
  if (out->facts_ == nullptr || out->plan_ != &plan) {
    out->facts_ = std::make_shared<const PlanFacts>(plan);
  }
  out->plan_ = &plan;
  out->forget_values();
  if (!Binder(plan, out.get(), error, options).run(bindings, count)) return nullptr;
  out->forget_values();  // those of what was half bound
  return out;
}

void BoundPlan::clear() {
  BoundPlan fresh;
  const auto keep = [](auto* to, auto* from) {
    from->clear();
    to->swap(*from);
  };
  keep(&fresh.code_, &code_);
  keep(&fresh.symbols_, &symbols_);
  keep(&fresh.arrays_, &arrays_);
  keep(&fresh.tensors_, &tensors_);
  keep(&fresh.exprs_, &exprs_);
  fresh.forms_.swap(forms_);  // those that are looked at are written before
  fresh.plan_ = plan_;
  fresh.facts_.swap(facts_);
  fresh.exact_ = exact_;
  keep(&fresh.loops_, &loops_);
  keep(&fresh.accesses_, &accesses_);
  keep(&fresh.dims_, &dims_);
  keep(&fresh.sites_, &sites_);
  keep(&fresh.site_accesses_, &site_accesses_);
  keep(&fresh.scalars_, &scalars_);
  keep(&fresh.afters_, &afters_);
  keep(&fresh.after_indices_, &after_indices_);
  keep(&fresh.offsets_, &offsets_);
  keep(&fresh.views_, &views_);
  keep(&fresh.outer_tasks_, &outer_tasks_);
  keep(&fresh.bound_to_.bindings, &bound_to_.bindings);
  keep(&fresh.bound_to_.tensor, &bound_to_.tensor);
  keep(&fresh.bound_to_.contents, &bound_to_.contents);
  *this = std::move(fresh);
}

// What looks at addresses or at the contents of arrays has to be looked at again by move().
bool Binder::run(const ptowsp_binding* bindings, std::size_t count) {
  const u32 nodes = plan_.count(Section::EXPR);
  out_.exprs_.resize(nodes);  // of which nothing is known yet
  known_.resize(nodes);
  if (!take_bindings(bindings, count)) return false;
  number_copies();
  if (!make_unbound()) return false;
  if (!check_tensor_modes()) return false;
  join_storages();
  if (!check_arrays_unwritten() || !check_extents() || !check_strides()) return false;
  make_copy_forms();
  is_branch_ = out_.facts_->branch;
  for (u32 i = 0; i < nodes; ++i) make_affine(i);
  out_.code_.resize(plan_.count(Section::CODE));
  for (u32 pc = 0; pc < out_.code_.size(); ++pc) out_.code_[pc] = plan_.code(pc);
  out_.loops_.resize(plan_.count(Section::AXIS));
  out_.accesses_.resize(plan_.count(Section::ACCESS));
  out_.dims_.reserve(plan_.count(Section::ACCESS_DIM));
  out_.sites_.resize(plan_.count(Section::SITE));
  if (options_.fields) out_.fields_.resize(plan_.count(Section::DESCRIPTOR));
  spans_.reserve(plan_.count(Section::ACCESS_DIM));
  taken_.assign(plan_.count(Section::ACCESS), 0);
  if (!bind_network()) return false;
  for (u32 entry = 0; entry < plan_.count(Section::ENTRY); ++entry) {
    if (!walk_code(entry)) return false;
  }
  if (!make_workspace()) return false;
  choose_cells();
  prepare_sites();
  find_leaves();
  if (options_.splits && !out_.is_network()) find_independent_axis();
  return true;
}

// Visits loops and sites with the ranges of the loop variables around them. `alive` is false below
// a loop that cannot run: nothing there needs a proof.
bool Binder::walk_code(u32 entry) {
  replicas_ = replicas_of(entry);
  struct Block {
    u32 end;
    bool loop;
    bool alive;
  };
  std::vector<Block> open;
  u32 level = 0;
  u32 pc = plan_.get<Section::ENTRY>(entry).pc;
  for (; pc < out_.code_.size(); ++pc) {
    const Instr instr = out_.code_[pc];
    const bool alive = open.empty() || open.back().alive;
    switch (static_cast<Op>(instr.opcode)) {
      case Op::PARALLEL_FOR:
      case Op::FOR_EACH:
      case Op::SELECT:
      case Op::LOOP_WHILE:
        if (!bind_axis(instr, level, alive)) return false;
        open.push_back({instr.operand2, true, alive && !ranges_[level].empty()});
        level += 1;
        break;
      case Op::RECV:
        ranges_[level] = Interval{0, kMostMessages};
        forget_ranges();
        open.push_back({instr.operand2, true, alive});
        level += 1;
        break;
      case Op::COMBINE:
      case Op::SEQUENTIAL:
      case Op::COND:
      case Op::ELSE:
        open.push_back({instr.operand2, false, alive});
        break;
      case Op::END:
        if (open.back().loop) level -= 1;
        open.pop_back();
        break;
      case Op::TASK:
        if (!bind_site(instr.operand2, alive)) return false;
        pc += instr.operand1;
        break;
      case Op::SLOT_LOAD:
        if (!bind_site(instr.operand2, alive)) return false;
        pc += 1;
        break;
      case Op::SLOT_SET:
        if (out_.facts_->setters[instr.operand1] == 1) {
          const Interval range = range_of(instr.operand2);  // or 0, where it was not set
          lets_[instr.operand1] = {std::min<i128>(range.lo, 0), std::max<i128>(range.hi, 0)};
          forget_ranges();
        }
        break;
      case Op::LET:
        lets_[out_.target(instr) - kFirstSlot] = range_of(instr.operand2);
        forget_ranges();
        break;
      case Op::ALLOC:
        if (!bind_alloc(instr.operand1, alive)) return false;
        forget_ranges();
        break;
      case Op::HALT:
        return true;
      default:
        break;
    }
  }
  return true;
}

// A slot that is set at several places, or from data, may hold anything.
Interval Binder::range_of_register(u32 variable) const {
  if (variable < kFirstSlot) return columns_[variable - kFirstColumn];
  if (variable < out_.first_copy_) return lets_[variable - kFirstSlot];
  return Interval{0, out_.allocs_[variable - out_.first_copy_].copies - 1};
}

bool Binder::bind_axis(Instr instr, u32 level, bool alive) {
  const u32 axis = instr.operand1;
  const Axis a = plan_.get<Section::AXIS>(axis);
  BoundLoop& loop = out_.loops_[axis];
  loop.start = use(a.start);
  loop.extent = use(a.extent);
  const Interval start = range_of(a.start);
  const bool sparse = static_cast<Op>(instr.opcode) == Op::SELECT;
  const Interval extent =
      sparse ? range_of(out_.arrays_[a.lengths].expected.rows) : range_of(a.extent);
  ranges_[level] = Interval{start.lo, start.hi + extent.hi - 1};
  if (extent.hi <= 0) ranges_[level] = Interval{0, -1};
  loop.repeats = static_cast<Op>(instr.opcode) == Op::LOOP_WHILE;
  if (sparse) {
    const BoundArray& indices = out_.arrays_[a.indices];
    loop.rows = &out_.arrays_[a.lengths];
    loop.columns = &indices;
    loop.row = plan_.get<Section::AXIS>(a.parent).level;
    columns_[level] = range_of(indices.expected.elements);
    if (columns_[level].empty()) columns_[level] = Interval::point(0);
  }
  forget_ranges();
  return !alive || check_ragged(a);
}

// The lengths of a ragged axis are as many as the iterations of the loop that indexes them.
bool Binder::check_ragged(const Axis& a) {
  if (static_cast<AxisKind>(a.kind) != AxisKind::RAGGED) return true;
  if (a.lengths == kNone || a.parent == kNone) return true;
  const BoundLoop& parent = out_.loops_[a.parent];
  if (!parent.start.constant() || !parent.extent.constant() || parent.repeats) return true;
  const i64 needed = parent.start.form->base + parent.extent.form->base;
  const i64 there = out_.arrays_[a.lengths].shape[0];
  if (needed == there) return true;
  const Axis outer = plan_.get<Section::AXIS>(a.parent);
  return fail(a.lengths,
              "array " + name(a.lengths) + " has " + std::to_string(there) +
                  " lengths, but axis '" + std::string(plan_.string(outer.name)) + "' has " +
                  std::to_string(needed) + " iterations",
              Status::LENGTH_ERROR);
}

bool Binder::bind_site(u32 site, bool alive) {
  const HashKeys& keys = HashKeys::get();
  const Site s = plan_.get<Section::SITE>(site);
  const bool is_load = static_cast<TaskKind>(s.kind) == TaskKind::LOAD;
  const u32 words = is_load ? 1 : out_.code_[s.pc].operand1;
  BoundSite& out = out_.sites_[site];
  out.kernel = s.kernel;
  out.kind = static_cast<TaskKind>(s.kind);
  out.replicas = replicas_;
  out.scalars = static_cast<u32>(out_.scalars_.size());
  out.afters = static_cast<u32>(out_.afters_.size());
  out.level = s.level;
  for (u32 l = 0; l < s.level; ++l) {
    const Interval r = ranges_[l];
    const bool known = r.lo >= INT32_MIN && r.hi <= INT32_MAX;
    out.narrow = out.narrow && known;
    out.reach[l] = known ? static_cast<i64>(std::max<i128>(r.hi - r.lo, 0)) : -1;
  }
  out.accesses = static_cast<u32>(out_.site_accesses_.size());
  for (u32 w = 1; w <= words; ++w) {
    const Instr word = out_.code_[s.pc + w];
    const auto op = static_cast<Op>(word.opcode);
    if (op == Op::SCALAR) {
      const Kernel k = plan_.get<Section::KERNEL>(s.kernel);
      u32 param = k.params;
      for (u32 nth = out.num_scalars + 1; nth > 0; ++param) {
        const auto kind = static_cast<ParamKind>(plan_.get<Section::PARAM>(param).kind);
        nth -= kind == ParamKind::SCALAR ? 1 : 0;
      }
      const auto dtype = static_cast<DType>(plan_.get<Section::PARAM>(param - 1).dtype);
      out_.scalars_.push_back({use(word.operand2), dtype});
      out.num_scalars += 1;
    }
    if (op == Op::AFTER) bind_after(word.operand2, site);
    if (op < Op::IO_INPUT || op > Op::IO_ACCUM) continue;
    const u32 access = own_access(word.operand2);
    const u32 param = is_load ? kNone : region_param(s.kernel, out.num_accesses);
    if (!is_load && !bind_tile(word.operand2, access, param)) return false;
    bind_access(word.operand2, access, alive);
    const BoundAccess& a = out_.accesses_[access];
    const u32 at = kHashTensor + 32 * out.num_accesses;
    out.hash.add(keys, at, a.tensor);
    out.hash.add(keys, at + 1, a.mode);
    out.hash.add(keys, at + 2, a.plan_rank);
    out_.site_accesses_.push_back(access);
    out.num_accesses += 1;
  }
  if (!keep_registers(site)) return false;
  for (u32 i = 0; i < out_.fields_.size(); ++i) {
    const Descriptor d = plan_.get<Section::DESCRIPTOR>(i);
    if (d.site == site) out_.fields_[i] = use(d.expr);
  }
  if (is_load) return true;
  const Kernel k = plan_.get<Section::KERNEL>(s.kernel);
  out.hash.add(keys, kHashKernel, k.name_hash);
  out.hash.add(keys, kHashPath, s.path_hash);
  out.hash.add(keys, kHashCounts,
               s.level | (static_cast<u64>(out.num_scalars) << 16) |
                   (static_cast<u64>(out.num_accesses) << 32));
  return true;
}

namespace {

// How many loops are around both sites.
u32 common_loops(const PlanView& plan, u32 a, u32 b) {
  const auto axes_of = [&plan](u32 site) {
    std::vector<u32> axes;
    for (u32 x = plan.get<Section::SITE>(site).axis; x != kNone;
         x = plan.get<Section::AXIS>(x).outer) {
      axes.insert(axes.begin(), x);
    }
    return axes;
  };
  const std::vector<u32> first = axes_of(a);
  const std::vector<u32> second = axes_of(b);
  u32 common = 0;
  while (common < std::min(first.size(), second.size()) && first[common] == second[common]) {
    common += 1;
  }
  return common;
}

}  // namespace

// False if the indices show that the awaited task comes first: the first one that differs from the
// waiting task's own is behind it by a constant.
bool Binder::may_be_later(const BoundAfter& after, u32 site) const {
  if (after.num_indices == 0) return false;
  for (u32 l = after.shared; l < after.common; ++l) {
    const BoundExpr& index = out_.after_indices_[after.indices + l - after.shared];
    const Affine& f = *index.form;
    if (!index.affine || f.num_regs > 0) return true;
    for (u32 k = 0; k < f.top; ++k) {
      if (f.coef[k] != (k == l ? 1 : 0)) return true;
    }
    if (f.top <= l || f.base > 0) return true;
    if (f.base < 0) return false;
  }
  return after.site == site;  // the task itself
}

void Binder::bind_after(u32 after, u32 site) {
  const After a = plan_.get<Section::AFTER>(after);
  BoundAfter out;
  out.site = a.site;
  out.shared = a.shared_levels;
  out.indices = static_cast<u32>(out_.after_indices_.size());
  out.num_indices = a.num_indices;
  for (u32 i = a.indices; i < a.indices + a.num_indices; ++i) {
    out_.after_indices_.push_back(use(plan_.get<Section::EXPR_LIST>(i).expr));
  }
  out.common = common_loops(plan_, site, a.site);
  out.may_be_later = may_be_later(out, site);
  out_.sites_[a.site].awaited = true;
  out_.afters_.push_back(out);
  BoundSite& waiting = out_.sites_[site];
  waiting.num_afters += 1;
  waiting.checks_afters = waiting.checks_afters || out.may_be_later;
}

// Which registers a task of the site needs when it runs.
bool Binder::keep_registers(u32 site) {
  const std::vector<u64>& registers_in = out_.facts_->registers_in;
  if (registers_in.empty()) return true;
  BoundSite& out = out_.sites_[site];
  u64 used = 0;
  for (u32 k = 0; k < out.num_scalars; ++k) {
    used |= registers_in[out_.scalars_[out.scalars + k].value.node];
  }
  for (u32 p = 0; p < out.num_accesses; ++p) {
    const BoundAccess& a = out_.accesses_[out_.site_access(out, p)];
    const BoundTensor& t = out_.tensors_[a.tensor];
    if (t.alloc != kNone) used |= u64{1} << out_.copy_variable(t.alloc);
    for (u32 d = 0; d < a.plan_rank; ++d) {
      const BoundDim& dim = out_.dims_[a.dims + d];
      used |= registers_in[dim.start.node] | registers_in[dim.extent.node] |
              registers_in[dim.step.node];
      if (t.alloc != kNone && t.shape_node[d] != kNone) used |= registers_in[t.shape_node[d]];
    }
  }
  for (u32 v = kFirstColumn; v < kMaxVars; ++v) {
    if ((used >> v & 1u) == 0) continue;
    if (out.num_registers == BoundSite::kMostRegisters) {
      error_ = Error::make(Status::UNSUPPORTED, "a task reads more than " +
                                                    std::to_string(BoundSite::kMostRegisters) +
                                                    " slots, columns and temporaries");
      error_.site = site;
      return false;
    }
    const Interval r = range_of_register(v);
    out.narrow = out.narrow && r.lo >= INT32_MIN && r.hi <= INT32_MAX;
    out.registers[out.num_registers++] = static_cast<u8>(v);
  }
  return true;
}

void Binder::bind_access(u32 record, u32 access, bool alive) {
  const Access a = plan_.get<Section::ACCESS>(record);
  const BoundTensor& t = out_.tensors_[a.tensor];
  BoundAccess& out = out_.accesses_[access];
  out.tensor = a.tensor;
  out.mode = a.mode;
  out.rank = out.plan_rank = a.rank;
  out.seen_rank = 0;
  bool proved = true;
  bool fits = true;
  for (u32 d = 0; d < a.rank; ++d) {
    const AccessDim dim = plan_.get<Section::ACCESS_DIM>(a.dims + d);
    BoundDim& bound = out_.dims_[out.dims + d];
    bound.start = use(dim.start);
    bound.extent = use(dim.extent);
    bound.step = use(dim.step);
    bound.dropped = (dim.flags & 1u) != 0;
    if (!bound.dropped) out.seen_rank += 1;
    proved = proved && (prove_dim(bound, t.shape[d]) && prove_temp(out, d));
    fits = fits && (bound.limit == INT64_MAX || range_of(dim.extent).hi <= bound.limit);
  }
  if (t.alloc != kNone) add_copy_dim(access);
  if (options_.splits) note_span(access);
  out.checked = alive && !proved;
  out.limited = alive && !fits;
  if (alive) (out.checked || out.limited ? out_.accesses_checked_ : out_.accesses_proved_) += 1;
}

// True if 0 <= start and start + (extent - 1) * step < shape for every task.
bool Binder::prove_dim(const BoundDim& dim, i64 shape) {
  const Interval start = range_of(dim.start.node);
  const Interval extent = range_of(dim.extent.node);
  const Interval step = range_of(dim.step.node);
  if (step.lo < 1 || extent.lo < 0) return false;
  if (extent.hi == 0) return true;
  const Interval reach = (extent - Interval::point(1)) * step;
  return start.lo >= 0 && (start + reach).hi < shape;
}

// Cells as large as the largest region that is not the whole, so that a region meets few of them. A
// dimension of which every region has the whole is one cell.
void Binder::choose_cells() {
  constexpr i64 kWhole = 0;
  for (BoundTensor& t : out_.tensors_) std::fill(t.cell, t.cell + kMaxRank, kWhole);
  for (const u32 i : out_.site_accesses_) {
    const BoundAccess& a = out_.accesses_[i];
    BoundTensor& t = out_.tensors_[out_.tensors_[a.tensor].geometry];
    for (u32 d = 0; d < a.rank; ++d) {
      const BoundDim& dim = out_.dims_[a.dims + d];
      i64 span = 1;
      if (dim.extent.constant() && dim.step.constant()) {
        span = (dim.extent.form->base - 1) * dim.step.form->base + 1;
      }
      if (span < t.shape[d]) t.cell[d] = std::max(t.cell[d], std::max<i64>(span, 1));
    }
  }
  for (BoundTensor& t : out_.tensors_) {
    for (u32 d = 0; d < kMaxRank; ++d) {
      if (t.cell[d] == kWhole) t.cell[d] = std::max<i64>(t.shape[d], 1);
    }
  }
  for (BoundTensor& t : out_.tensors_) {
    const BoundTensor& first = out_.tensors_[t.geometry];
    std::copy(first.cell, first.cell + kMaxRank, t.cell);
  }
}

}  // namespace ptowsp
