// A bound plan used again for bindings that differ only in where data lies and what arrays hold.
//
// bind() works out forms, ranges and proofs from numbers, shapes, strides and what arrays hold.
// Addresses enter in two ways only: as the tensors' own, which paged ones have from their pools,
// and by saying which tensors share memory. Temporaries stay where they are: they have the same
// sizes. What page tables hold is read when tasks run and decides nothing here. So everything else
// is compared with what the plan was bound to; then the tensors are moved and join_storages() says
// who shares memory now. Any difference means that the plan is bound anew: nothing is patched up.
//
// Arrays are compared by their contents, since these may be changed in place. Contents enter in
// three ways: by the ranges that are expected of them, for which everything is proved; by values
// of expressions that are read from them and nothing else (PlanFacts::reads), of which those that
// something hangs on have to be the same; and by the number of tasks of each iteration, where it is
// counted. The first time that contents leave what was expected, which is just what they were, some
// more is expected: lengths that grow at each run are then bound anew once in a while.
#include <algorithm>
#include <bit>
#include <cstring>

#include "binder.h"

namespace ptowsp {

namespace {

constexpr u64 kMostContents = 1u << 16;  // bytes of all arrays; longer ones are not worth a copy

u64 bytes_of(const BoundArray& a) {
  const u64 rows = static_cast<u64>(a.shape[0]);
  const u64 columns = static_cast<u64>(a.shape[1]);
  if (rows == 0 || columns == 0) return 0;
  if (rows > kMostContents || columns > kMostContents) return kMostContents + 1;
  return rows * columns * dtype_size(a.dtype);
}

// Calls fn(first byte, bytes) for each piece of an array that lies in one piece, in order, until
// one returns false.
template <class Fn>
bool each_piece(const BoundArray& a, Fn fn) {
  if (bytes_of(a) == 0) return true;
  const u32 item = dtype_size(a.dtype);
  const i64 rows = a.rank == 2 ? a.shape[0] : 1;
  const i64 columns = a.rank == 2 ? a.shape[1] : a.shape[0];
  const i64 row_stride = a.rank == 2 ? a.stride[0] : 0;
  const i64 stride = a.rank == 2 ? a.stride[1] : a.stride[0];
  const i64 pieces = stride == 1 ? 1 : columns;
  const std::size_t bytes = static_cast<std::size_t>(columns / pieces) * item;
  const u8* const data = static_cast<const u8*>(a.data);
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < pieces; ++j) {
      if (!fn(data + (i * row_stride + j * stride) * static_cast<i64>(item), bytes)) return false;
    }
  }
  return true;
}

// Whether what two bindings say besides an address is the same.
bool same_form(const ptowsp_binding& a, const ptowsp_binding& b, SymbolKind kind) {
  if (a.symbol != b.symbol) return false;
  if (kind != SymbolKind::ARRAY && kind != SymbolKind::TENSOR) return a.value == b.value;
  if (a.rank > kMaxRank) return false;  // of a tensor that nothing uses, so nothing looked at it
  return a.dtype == b.dtype && a.rank == b.rank && a.read_only == b.read_only &&
         std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::equal(a.stride, a.stride + a.rank, b.stride);
}

}  // namespace

void BoundPlan::remember(const ptowsp_binding* bindings, std::size_t count) {
  u64 bytes = 0;
  for (const BoundArray& a : arrays_) {
    if (a.data != nullptr) bytes += bytes_of(a);
    if (bytes > kMostContents) return;
  }
  bound_to_.bindings.assign(bindings, bindings + count);
  bound_to_.tensor.reserve(count);
  for (const ptowsp_binding& b : bound_to_.bindings)
    bound_to_.tensor.push_back(facts_->tensor_of[b.symbol]);
  std::vector<u8>& contents = bound_to_.contents;
  contents.reserve(bytes);
  for (const BoundArray& a : arrays_) {
    if (a.data == nullptr) continue;
    each_piece(a, [&](const u8* data, std::size_t size) {
      contents.insert(contents.end(), data, data + size);
      return true;
    });
  }
  bound_to_.known = true;
}

bool BoundPlan::rebind(const ptowsp_binding* bindings, std::size_t count) {
  if (!bound_to_.known || count != bound_to_.bindings.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const ptowsp_binding& before = bound_to_.bindings[i];
    const auto kind = static_cast<SymbolKind>(plan_->get<Section::SYMBOL>(before.symbol).kind);
    if (!same_form(before, bindings[i], kind)) return false;
  }
  forget_values();  // before anything is worked out from what arrays hold now
  Error ignored;
  return Binder(*plan_, this, &ignored, {}).move(bindings);
}

bool Binder::move(const ptowsp_binding* bindings) {
  const BoundTo& to = out_.bound_to_;
  const auto place = [](auto* was, void* data, bool* moved) {
    *moved = *moved || *was != data;
    *was = static_cast<std::remove_pointer_t<decltype(was)>>(data);
  };
  bool arrays_moved = false;
  bool tensors_moved = false;
  for (std::size_t i = 0; i < to.bindings.size(); ++i) {
    BoundArray& array = out_.arrays_[bindings[i].symbol];
    if (array.data != nullptr) place(&array.data, bindings[i].data, &arrays_moved);
  }
  if (!take_contents()) return false;  // what changes most often comes first
  for (std::size_t i = 0; i < to.bindings.size(); ++i) {
    if (to.tensor[i] == kNone) continue;
    place(&out_.tensors_[to.tensor[i]].data, bindings[i].data, &tensors_moved);
  }
  if (!tensors_moved) {
    if (arrays_moved) find_written();
    return !arrays_moved || check_arrays_unwritten();
  }
  for (BoundTensor& t : out_.tensors_) {
    if (t.pool != kNone) t.data = out_.tensors_[t.pool].data;
  }
  return same_sharing();
}

// What arrays hold now becomes what the plan is bound to. False: that makes another plan.
bool Binder::take_contents() {
  u8* before = out_.bound_to_.contents.data();
  bool same = true;
  bool expected = true;
  for (u32 s = 0; s < out_.arrays_.size(); ++s) {
    BoundArray& a = out_.arrays_[s];
    if (a.data == nullptr) continue;
    bool changed = false;
    each_piece(a, [&](const u8* data, std::size_t size) {
      if (std::memcmp(before, data, size) != 0) {
        std::memcpy(before, data, size);
        changed = true;
      }
      before += size;
      return true;
    });
    if (!changed) continue;
    same = false;
    find_range(s);
    expected = expected && a.expected.elements.holds(a.holds.elements) &&
               a.expected.rows.holds(a.holds.rows);
  }
  if (same || (expected && !out_.settled_ && work_out_reads())) return true;
  if (!out_.exact_) expect_more();
  return false;
}

// Values that are read from arrays, worked out as run() does it.
bool Binder::work_out_reads() {
  is_branch_ = out_.facts_->branch;
  for (const PlanFacts::Read& read : out_.facts_->reads) {
    BoundExpr& bound = out_.exprs_[read.node];
    Affine& form = out_.forms_[read.node];  // nothing but its base is ever set
    const bool was = bound.affine;
    const i64 before = form.base;
    bound.affine = affine_constant(read.node, plan_.expr(read.node), &form);
    const bool same = bound.affine == was && (!was || form.base == before);
    if (read.shown && !same) return false;
  }
  if (out_.independent_axis_ == kNone) return true;
  out_.outer_tasks_.clear();
  return count_outer_tasks(out_.independent_axis_);
}

namespace {

// About a sixteenth of a number: the bits that are left open where it is rounded.
i64 sixteenth(i64 v) {
  const u64 size = v < 0 ? u64{0} - static_cast<u64>(v) : static_cast<u64>(v);
  const auto bits = static_cast<int>(std::bit_width(size));
  return bits > 4 ? (i64{1} << (bits - 4)) - 1 : 0;
}

}  // namespace

// What arrays have held, and a little more on either side. Not beyond the extent of a tensor, where
// proofs of bounds end: `lengths` may be as large, indices less by one.
void Binder::expect_more() {
  const auto within = [this](i64 most, i64 limit) {
    for (const BoundTensor& t : out_.tensors_) {
      if (t.alloc != kNone) continue;
      for (u32 d = 0; d < t.rank; ++d) {
        if (t.shape[d] >= most) limit = std::min(limit, t.shape[d]);
        if (t.shape[d] > most) limit = std::min(limit, t.shape[d] - 1);
      }
    }
    return limit;
  };
  std::vector<ArrayRange>& expected = out_.bound_to_.expected;
  expected.assign(out_.arrays_.size(), {});
  for (u32 s = 0; s < out_.arrays_.size(); ++s) {
    const BoundArray& a = out_.arrays_[s];
    const Symbol symbol = plan_.get<Section::SYMBOL>(s);
    expected[s] = a.expected;
    if (a.data == nullptr || a.holds.elements.lo > a.holds.elements.hi) continue;
    const auto widen = [&](const ValueRange& r, ValueRange* out) {
      out->add({r.lo & ~sixteenth(r.lo), within(r.hi, r.hi | sixteenth(r.hi))});
    };
    widen(a.holds.elements, &expected[s].elements);
    if (out_.facts_->begins_rows[s] != 0) widen(a.holds.rows, &expected[s].rows);
    ValueRange& elements = expected[s].elements;
    elements.lo = std::max(elements.lo, symbol.min_value);
    elements.hi = std::min(elements.hi, symbol.max_value);
    elements.add(a.holds.elements);  // what is illegal is refused by bind()
  }
}

// Storages are numbered by address, so the same groups of tensors may come out with other numbers.
// The plan keeps those that it has been made with.
bool Binder::same_sharing() {
  struct Group {
    u32 storage;
    u32 geometry;
  };
  std::vector<Group> before;
  before.reserve(out_.tensors_.size());
  for (const BoundTensor& t : out_.tensors_) before.push_back({t.storage, t.geometry});
  const u32 storages = out_.num_storages_;
  if (!check_tensor_modes()) return false;
  join_storages();
  if (!check_arrays_unwritten() || out_.num_storages_ != storages) return false;
  std::vector<u32> now(storages, kNone);  // by storage before
  for (std::size_t t = 0; t < before.size(); ++t) {
    BoundTensor& tensor = out_.tensors_[t];
    u32& storage = now[before[t].storage];
    if (storage == kNone) storage = tensor.storage;
    if (storage != tensor.storage || before[t].geometry != tensor.geometry) return false;
    tensor.storage = before[t].storage;
  }
  return true;
}

}  // namespace ptowsp
