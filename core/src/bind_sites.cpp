// Binder, fourth part: how large tiles may be, sites whose tasks differ only by pointers, loops
// that are one task, and the proof that iterations of the outermost loop never touch each other's
// data.
#include <algorithm>
#include <cstdlib>

#include "binder.h"

namespace ptowsp {

// Which parameter of a kernel the nth region is for.
u32 Binder::region_param(u32 kernel, u32 nth) const {
  u32 param = plan_.get<Section::KERNEL>(kernel).params;
  for (u32 left = nth + 1;; ++param) {
    const auto kind = static_cast<ParamKind>(plan_.get<Section::PARAM>(param).kind);
    const bool is_value = kind == ParamKind::SCALAR || kind == ParamKind::CONSTEXPR;
    left -= is_value ? 0 : 1;
    if (left == 0) return param;
  }
}

// What is proved of an access holds for one argument word: where several words name one record, it
// is bound for each of them.
u32 Binder::own_access(u32 record) {
  u32 access = record;
  if (taken_[record] != 0) {
    access = static_cast<u32>(out_.accesses_.size());
    out_.accesses_.emplace_back();
  }
  taken_[record] = 1;
  out_.accesses_[access].dims = static_cast<u32>(out_.dims_.size());
  out_.dims_.resize(out_.dims_.size() + plan_.get<Section::ACCESS>(record).rank);
  spans_.resize(out_.dims_.size());
  return access;
}

// How large a region of a tile parameter may be.
bool Binder::bind_tile(u32 record, u32 access, u32 param) {
  const Access a = plan_.get<Section::ACCESS>(record);
  const Param p = plan_.get<Section::PARAM>(param);
  const bool is_tile = static_cast<ParamKind>(p.kind) == ParamKind::TILE;
  const i64 no_vars[kMaxVars] = {};
  out_.accesses_[access].param = param;
  for (u32 d = 0, seen = 0; is_tile && d < a.rank; ++d) {
    BoundDim& dim = out_.dims_[out_.accesses_[access].dims + d];
    if ((plan_.get<Section::ACCESS_DIM>(a.dims + d).flags & 1u) != 0) continue;
    const u32 node = plan_.get<Section::EXPR_LIST>(p.shape + seen).expr;
    if (!out_.value(node, no_vars, &dim.limit, &error_)) return false;
    seen += 1;
  }
  return true;
}

// Called while the loops around the access are open, so that ranges_ are theirs.
void Binder::note_span(u32 access) {
  const BoundAccess& a = out_.accesses_[access];
  for (u32 d = 0; d < a.rank; ++d) {
    const BoundDim& dim = out_.dims_[a.dims + d];
    Span& span = spans_[a.dims + d];
    if (!dim.start.affine || dim.start.node == kNone) continue;  // kNone: the copy it has
    Affine rest = *dim.start.form;
    span.coef = rest.top > 0 ? rest.coef[0] : 0;
    rest.coef[0] = 0;
    const Interval start = range_of_affine(rest);
    const Interval extent = range_of(dim.extent.node);
    const Interval step = range_of(dim.step.node);
    const Interval reach = (extent - Interval::point(1)) * step;
    span.rest = Interval{start.lo, start.hi + std::max<i128>(reach.hi, 0)};
    span.known = span.rest.within_i64();
  }
}

void Binder::prepare_sites() {
  out_.offsets_.resize(out_.accesses_.size());
  out_.views_.resize(out_.accesses_.size());
  for (BoundSite& site : out_.sites_) {
    site.simple = true;
    for (u32 p = 0; p < site.num_accesses; ++p) {
      const u32 access = out_.site_access(site, p);
      site.simple = prepare_access(access) && site.simple;
      const BoundAccess& a = out_.accesses_[access];
      site.num_checked += a.checked || a.limited ? 1u : 0u;
    }
  }
}

bool Binder::prepare_access(u32 access) {
  const BoundAccess& a = out_.accesses_[access];
  const BoundTensor& t = out_.tensors_[a.tensor];
  ptowsp_view& view = out_.views_[access];
  Affine& offset = out_.offsets_[access];
  if (a.checked || a.limited || t.pool != kNone) return false;
  view.dtype = static_cast<u32>(t.dtype);
  view.rank = a.seen_rank;
  for (u32 d = 0, seen = 0; d < a.rank; ++d) {
    const BoundDim& dim = out_.dims_[a.dims + d];
    if (!dim.start.affine || !dim.extent.constant() || !dim.step.constant()) return false;
    if (dim.extent.form->base == 0) return false;
    // Proved bounds keep every partial sum inside the tensor's bytes, except for the base, which
    // wraps and comes back.
    const u64 scale = static_cast<u64>(t.stride[d]) * t.item;
    offset.base = static_cast<i64>(static_cast<u64>(offset.base) +
                                   static_cast<u64>(dim.start.form->base) * scale);
    for (u32 l = 0; l < dim.start.form->top; ++l) {
      offset.coef[l] = static_cast<i64>(static_cast<u64>(offset.coef[l]) +
                                        static_cast<u64>(dim.start.form->coef[l]) * scale);
    }
    offset.top = std::max(offset.top, dim.start.form->top);
    for (u32 r = 0; r < dim.start.form->num_regs; ++r) {
      const u64 factor = static_cast<u64>(dim.start.form->reg_coef[r]) * scale;
      if (!offset.add_register(dim.start.form->reg[r], static_cast<i64>(factor))) return false;
    }
    if (dim.dropped) continue;
    view.shape[seen] = dim.extent.form->base;
    view.stride[seen] = dim.step.form->base * t.stride[d];
    seen += 1;
  }
  return true;
}

void Binder::find_leaves() {
  for (u32 i = 0; i < out_.loops_.size(); ++i) out_.loops_[i].alike = out_.facts_->alike[i] != 0;
  for (u32 pc = 0; pc + 2 < out_.code_.size(); ++pc) {
    const auto op = static_cast<Op>(out_.code_[pc].opcode);
    if (op != Op::PARALLEL_FOR && op != Op::FOR_EACH) continue;
    const Instr body = out_.code_[pc + 1];
    if (static_cast<Op>(body.opcode) != Op::TASK) continue;
    const u32 after = pc + 2 + body.operand1;
    if (static_cast<Op>(out_.code_[after].opcode) != Op::END) continue;
    out_.loops_[out_.code_[pc].operand1].leaf_site = body.operand2;
  }
}

void Binder::find_independent_axis() {
  const u32 pc = plan_.get<Section::ENTRY>(0).pc;
  const Instr first = out_.code_[pc];
  if (static_cast<Op>(first.opcode) != Op::PARALLEL_FOR) return;
  if (static_cast<Op>(out_.code_[first.operand2].opcode) != Op::HALT) return;
  // Control that reads what tasks write, or carries values from iteration to iteration, has an
  // order.
  if (plan_.has(Feature::DATA_DEPENDENT) || plan_.has(Feature::AFTER)) return;
  for (u32 s = 0; s < plan_.count(Section::SLOT); ++s) {
    if (plan_.get<Section::SLOT>(s).level == 0) return;
  }
  for (u32 i = 0; i < out_.allocs_.size(); ++i) {  // each worker needs a copy of its own
    if (out_.allocs_[i].copies < static_cast<i64>(options_.workers)) return;
  }
  const BoundLoop& loop = out_.loops_[first.operand1];
  if (!loop.start.constant() || !loop.extent.constant()) return;
  if (plan_.get<Section::AXIS>(first.operand1).body_tasks == kNone) return;
  if (!iterations_independent()) return;
  if (count_outer_tasks(first.operand1)) {
    out_.independent_axis_ = first.operand1;
  } else {
    out_.settled_ = true;
  }
}

bool Binder::iterations_independent() const {
  const std::vector<u32>& used = out_.site_accesses_;
  for (std::size_t i = 0; i < used.size(); ++i) {
    for (std::size_t j = i; j < used.size(); ++j) {
      const BoundAccess& a = out_.accesses_[used[i]];
      const BoundAccess& b = out_.accesses_[used[j]];
      if (!writes(a.mode) && !writes(b.mode)) continue;
      if (out_.tensors_[a.tensor].storage != out_.tensors_[b.tensor].storage) continue;
      const u32 alloc = out_.tensors_[a.tensor].alloc;  // each iteration has its own
      if (alloc != kNone && plan_.get<Section::ALLOC>(alloc).level > 0) continue;
      if (!apart(used[i], used[j])) return false;
    }
  }
  return true;
}

// True if the regions of a and b in different iterations of the outermost loop never meet: in some
// dimension both move by the same stride per iteration and together stay within one stride.
bool Binder::apart(u32 a, u32 b) const {
  const BoundAccess& first = out_.accesses_[a];
  const BoundAccess& second = out_.accesses_[b];
  const BoundTensor& t = out_.tensors_[first.tensor];
  if (t.geometry != out_.tensors_[second.tensor].geometry || t.by_bytes) return false;
  for (u32 d = 0; d < first.rank; ++d) {
    const Span& x = spans_[first.dims + d];
    const Span& y = spans_[second.dims + d];
    if (!x.known || !y.known || x.coef != y.coef || x.coef == 0) continue;
    const i128 width = std::max(x.rest.hi, y.rest.hi) - std::min(x.rest.lo, y.rest.lo) + 1;
    if (width <= (x.coef < 0 ? -static_cast<i128>(x.coef) : x.coef)) return true;
  }
  return false;
}

// Where each iteration's tasks begin in program order. Not worth it for very long loops whose
// iterations differ. False: the numbers cannot be had, with what arrays hold now.
bool Binder::count_outer_tasks(u32 axis) {
  constexpr i64 kMostIterations = 1 << 20;
  const Axis a = plan_.get<Section::AXIS>(axis);
  const BoundLoop& loop = out_.loops_[axis];
  const i64 extent = loop.extent.form->base;
  const BoundExpr& body = out_.exprs_[a.body_tasks];
  if (body.constant()) {
    out_.outer_tasks_ = {static_cast<u64>(body.form->base)};
    return true;
  }
  if (extent > kMostIterations) return false;
  out_.outer_tasks_.reserve(static_cast<std::size_t>(std::max<i64>(extent, 0)) + 1);
  u64 total = 0;
  i64 loops[kMaxVars] = {};
  for (i64 i = 0; i <= extent; ++i) {
    out_.outer_tasks_.push_back(total);
    loops[0] = loop.start.form->base + i;
    i64 tasks = 0;
    Error ignored;
    if (i < extent && !out_.eval(body, loops, &tasks, &ignored)) return false;
    total += static_cast<u64>(tasks);
  }
  return true;
}

bool BoundPlan::total_tasks(u64* out) const {
  *out = 0;
  if (is_network()) return false;
  i64 vars[kMaxVars] = {};
  for (u32 pc = plan_->get<Section::ENTRY>(0).pc;;) {
    const Instr instr = code_[pc];
    switch (static_cast<Op>(instr.opcode)) {
      case Op::HALT:
        return true;
      case Op::TASK:
        *out += 1;
        pc += 1 + instr.operand1;
        break;
      case Op::COMBINE:  // its children count as if they stood alone
      case Op::SEQUENTIAL:
      case Op::END:
      case Op::NOP:
      case Op::ALLOC:
        pc += 1;
        break;
      case Op::PARALLEL_FOR:
      case Op::FOR_EACH: {
        const Axis axis = plan_->get<Section::AXIS>(instr.operand1);
        const BoundLoop& loop = loops_[instr.operand1];
        if (axis.body_tasks == kNone || !loop.start.constant() || !loop.extent.constant()) {
          return false;
        }
        const BoundExpr& body = exprs_[axis.body_tasks];
        const i64 extent =
            body.constant() ? std::min<i64>(loop.extent.form->base, 1) : loop.extent.form->base;
        for (i64 i = 0; i < extent; ++i) {
          i64 tasks = 0;
          Error ignored;
          vars[0] = loop.start.form->base + i;
          if (!eval(body, vars, &tasks, &ignored)) return false;
          *out += static_cast<u64>(tasks) *
                  (body.constant() ? static_cast<u64>(loop.extent.form->base) : 1);
        }
        pc = instr.operand2;
        break;
      }
      default:
        return false;
    }
  }
}

bool BoundPlan::tasks_before(i64 index, u64* out) const {
  if (outer_tasks_.empty()) return false;
  const i64 i = index - loops_[independent_axis_].start.form->base;
  *out = outer_tasks_.size() == 1 ? static_cast<u64>(i) * outer_tasks_[0]
                                  : outer_tasks_[static_cast<std::size_t>(i)];
  return true;
}

}  // namespace ptowsp
