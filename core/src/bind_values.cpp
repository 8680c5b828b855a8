// Binder, first half: what the user bound, checked against the plan; which tensors share bytes.
#include <algorithm>
#include <numeric>

#include "binder.h"

namespace ptowsp {

std::string Binder::name(u32 symbol) const {
  return "'" + std::string(plan_.string(plan_.get<Section::SYMBOL>(symbol).name)) + "'";
}

bool Binder::fail(u32 symbol, std::string message, Status status) {
  error_ = Error::make(status, std::move(message));
  error_.symbol = symbol;
  return false;
}

bool Binder::take_bindings(const ptowsp_binding* bindings, std::size_t count) {
  const u32 symbols = plan_.count(Section::SYMBOL);
  const u32 tensors = plan_.count(Section::TENSOR);
  out_.symbols_.assign(symbols, 0);
  out_.arrays_.assign(symbols, BoundArray{});
  out_.tensors_.assign(tensors, BoundTensor{});
  bound_.assign(symbols, 0);
  const std::vector<u32>& tensor_of = out_.facts_->tensor_of;
  for (std::size_t i = 0; i < count; ++i) {
    const ptowsp_binding& b = bindings[i];
    if (b.symbol >= symbols) return fail(kNone, "a binding names a symbol that does not exist");
    const auto kind = static_cast<SymbolKind>(plan_.get<Section::SYMBOL>(b.symbol).kind);
    bound_[b.symbol] = 1;
    bool ok = true;
    if (kind == SymbolKind::ARRAY) {
      ok = take_array(b.symbol, b);
    } else if (kind == SymbolKind::TENSOR) {
      ok = tensor_of[b.symbol] == kNone || take_tensor(tensor_of[b.symbol], b);
    } else {
      ok = take_scalar(b.symbol, b.value);
    }
    if (!ok) return false;
  }
  for (u32 s = 0; s < symbols; ++s) {
    if (bound_[s] != 0) continue;
    const Symbol symbol = plan_.get<Section::SYMBOL>(s);
    if (symbol.default_value == kNone) return fail(s, "nothing is bound to " + name(s));
    const u64 bits = plan_.get<Section::CONST>(symbol.default_value).bits;
    if (!take_scalar(s, static_cast<i64>(bits))) return false;
  }
  return true;
}

bool Binder::take_scalar(u32 symbol, i64 value) {
  const Symbol s = plan_.get<Section::SYMBOL>(symbol);
  const bool is_float = s.dtype <= static_cast<u32>(DType::BF16);
  if (is_float) {  // has no range
    out_.symbols_[symbol] = value;
    return true;
  }
  if (value < s.min_value || value > s.max_value) {
    return fail(symbol,
                name(symbol) + " is " + std::to_string(value) + ", legal are " +
                    std::to_string(s.min_value) + " to " + std::to_string(s.max_value),
                Status::RANGE_ERROR);
  }
  out_.symbols_[symbol] = value;
  return true;
}

bool Binder::take_array(u32 symbol, const ptowsp_binding& b) {
  const Symbol s = plan_.get<Section::SYMBOL>(symbol);
  if (b.dtype != s.dtype) return fail(symbol, "array " + name(symbol) + " has another dtype");
  if (b.rank != s.rank || b.rank > 2) {
    return fail(symbol, "array " + name(symbol) + " has " + std::to_string(b.rank) +
                            " dimensions, the plan expects " + std::to_string(s.rank));
  }
  BoundArray& a = out_.arrays_[symbol];
  a.data = b.data;
  a.dtype = static_cast<DType>(b.dtype);
  a.rank = b.rank;
  for (u32 d = 0; d < b.rank; ++d) {
    if (b.shape[d] < 0) return fail(symbol, "array " + name(symbol) + " has a negative length");
    a.shape[d] = b.shape[d];
    a.stride[d] = b.stride[d];
  }
  find_range(symbol);
  a.expected = options_.expected.empty() ? a.holds : options_.expected[symbol];
  const ValueRange& there = a.holds.elements;
  if (there.lo <= there.hi && (there.lo < s.min_value || there.hi > s.max_value)) {
    const i64 bad = there.lo < s.min_value ? there.lo : there.hi;
    return fail(symbol,
                "array " + name(symbol) + " holds " + std::to_string(bad) + ", legal are " +
                    std::to_string(s.min_value) + " to " + std::to_string(s.max_value),
                Status::RANGE_ERROR);
  }
  return true;
}

void Binder::find_range(u32 symbol) {
  BoundArray& a = out_.arrays_[symbol];
  const i64 columns = a.rank == 2 ? a.shape[1] : 1;
  a.holds = {};
  for (i64 i = 0; i < a.shape[0]; ++i) {
    for (i64 j = 0; j < columns; ++j) {
      const i64 v = a.at(i, j);
      a.holds.elements.add({v, v});
    }
  }
  if (out_.facts_->begins_rows[symbol] == 0) return;
  a.holds.rows = {0, 0};
  for (i64 i = 0; i + 1 < a.shape[0]; ++i) {
    const i64 begin = a.at(i, 0);
    const i64 end = a.at(i + 1, 0);
    i64 length = 0;  // beyond 64 bits the run fails before it asks for more
    if (__builtin_sub_overflow(end, begin, &length)) length = end < begin ? INT64_MIN : INT64_MAX;
    a.holds.rows.add({length, length});
  }
}

bool Binder::take_tensor(u32 tensor, const ptowsp_binding& b) {
  const Tensor t = plan_.get<Section::TENSOR>(tensor);
  if (b.dtype != t.dtype) return fail(b.symbol, "tensor " + name(b.symbol) + " has another dtype");
  if (b.rank != t.rank) {
    return fail(b.symbol, "tensor " + name(b.symbol) + " has " + std::to_string(b.rank) +
                              " dimensions, the plan expects " + std::to_string(t.rank));
  }
  BoundTensor& out = out_.tensors_[tensor];
  out.data = static_cast<char*>(b.data);
  out.dtype = static_cast<DType>(b.dtype);
  out.item = dtype_size(out.dtype);
  out.rank = b.rank;
  out.read_only = b.read_only != 0;
  for (u32 d = 0; d < b.rank; ++d) {
    if (b.shape[d] < 0)
      return fail(b.symbol, "tensor " + name(b.symbol) + " has a negative extent");
    out.shape[d] = b.shape[d];
    out.stride[d] = b.stride[d];
  }
  return true;
}

// A plan may say of what extent a tensor has to be.
bool Binder::check_extents() {
  const i64 no_vars[kMaxVars] = {};
  for (u32 i = 0; i < out_.tensors_.size(); ++i) {
    const BoundTensor& t = out_.tensors_[i];
    if (t.storage_class != StorageClass::BOUND) continue;
    const Tensor record = plan_.get<Section::TENSOR>(i);
    for (u32 d = 0; d < t.rank; ++d) {
      const u32 node = plan_.get<Section::DIM>(record.dims + d).shape;
      i64 wanted = 0;
      if (node == kNone) continue;
      if (!out_.value(node, no_vars, &wanted, &error_)) return false;
      if (wanted == t.shape[d]) continue;
      return fail(record.symbol,
                  "tensor " + name(record.symbol) + " has the extent " +
                      std::to_string(t.shape[d]) + " in dimension " + std::to_string(d) +
                      ", the workload is made for " + std::to_string(wanted),
                  Status::EXTENT_ERROR);
    }
  }
  return true;
}

// A plan may say how a tensor lies in memory. Strides by which no element is reached say nothing.
bool Binder::check_strides() {
  const i64 no_vars[kMaxVars] = {};
  for (u32 i = 0; i < out_.tensors_.size(); ++i) {
    const BoundTensor& t = out_.tensors_[i];
    if (t.storage_class != StorageClass::BOUND || t.byte_lo == t.byte_hi) continue;
    const Tensor record = plan_.get<Section::TENSOR>(i);
    for (u32 d = 0; d < t.rank; ++d) {
      const u32 node = plan_.get<Section::DIM>(record.dims + d).stride;
      i64 wanted = 0;
      if (node == kNone || t.shape[d] <= 1) continue;
      if (!out_.value(node, no_vars, &wanted, &error_)) return false;
      if (wanted == t.stride[d]) continue;
      return fail(record.symbol,
                  "tensor " + name(record.symbol) + " has the stride " +
                      std::to_string(t.stride[d]) + " in dimension " + std::to_string(d) +
                      ", its layout says " + std::to_string(wanted),
                  Status::STRIDE_ERROR);
    }
  }
  return true;
}

void Binder::find_written() {
  written_.assign(out_.tensors_.size(), 0);
  for (u32 i = 0; i < plan_.count(Section::ACCESS); ++i) {
    const Access a = plan_.get<Section::ACCESS>(i);
    if (!writes(a.mode)) continue;
    written_[a.tensor] = 1;
    const u32 pool = out_.tensors_[a.tensor].pool;
    if (pool != kNone) written_[pool] = 1;
  }
}

bool Binder::check_tensor_modes() {
  find_written();
  for (u32 t = 0; t < out_.tensors_.size(); ++t) {
    if (written_[t] == 0 || !out_.tensors_[t].read_only) continue;
    const u32 symbol = plan_.get<Section::TENSOR>(t).symbol;
    return fail(symbol, "tensor " + name(symbol) + " is read-only, but tasks write it",
                Status::READ_ONLY);
  }
  return true;
}

namespace {

// True if two elements of the tensor may share bytes: a broadcast or overlapping view.
bool overlaps_itself(const BoundTensor& t) {
  u32 order[kMaxRank] = {};  // dimensions of more than one element, by growing stride
  u32 n = 0;
  for (u32 d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 0) return false;  // whatever its strides are
    if (t.shape[d] == 1) continue;
    u32 k = n++;
    for (; k > 0 && std::abs(t.stride[order[k - 1]]) > std::abs(t.stride[d]); --k) {
      order[k] = order[k - 1];
    }
    order[k] = d;
  }
  i64 reach = 0;  // farthest element of the dimensions so far
  for (u32 k = 0; k < n; ++k) {
    const i64 stride = std::abs(t.stride[order[k]]);
    if (stride <= reach) return true;
    reach += stride * (t.shape[order[k]] - 1);
  }
  return false;
}

bool same_geometry(const BoundTensor& a, const BoundTensor& b) {
  if (a.storage_class != StorageClass::BOUND || b.storage_class != StorageClass::BOUND)
    return false;
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank &&
         std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::equal(a.stride, a.stride + a.rank, b.stride);
}

}  // namespace

// Tensors whose byte intervals meet get one storage number; equal views get one geometry number.
void Binder::join_storages() {
  const u32 n = static_cast<u32>(out_.tensors_.size());
  for (u32 i = 0; i < n; ++i) {
    BoundTensor& t = out_.tensors_[i];
    t.geometry = i;
    // Paged ones lie where their pools lie; nothing else lies where temporaries will.
    if (t.pool != kNone || t.alloc != kNone) continue;
    i64 lo = 0;
    i64 hi = 0;
    bool empty = false;
    for (u32 d = 0; d < t.rank; ++d) {
      empty = empty || t.shape[d] == 0;
      const i64 reach = (t.shape[d] - 1) * t.stride[d];
      lo += std::min<i64>(reach, 0);
      hi += std::max<i64>(reach, 0);
    }
    const u64 base = reinterpret_cast<u64>(t.data);
    t.byte_lo = empty ? base : base + static_cast<u64>(lo * static_cast<i64>(t.item));
    t.byte_hi = empty ? base : base + static_cast<u64>((hi + 1) * static_cast<i64>(t.item));
    t.by_bytes = overlaps_itself(t);
    for (u32 j = 0; j < i; ++j) {
      if (same_geometry(t, out_.tensors_[j])) {
        t.geometry = out_.tensors_[j].geometry;
        break;
      }
    }
  }
  for (u32 i = 0; i < n; ++i) {
    BoundTensor& t = out_.tensors_[i];
    if (t.pool == kNone) continue;
    t.byte_lo = out_.tensors_[t.pool].byte_lo;
    t.byte_hi = out_.tensors_[t.pool].byte_hi;
  }
  std::vector<u32> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [this](u32 a, u32 b) { return out_.tensors_[a].byte_lo < out_.tensors_[b].byte_lo; });
  u64 end = 0;
  u32 storages = 0;
  u32 current = 0;
  for (const u32 i : order) {
    BoundTensor& t = out_.tensors_[i];
    const bool is_empty = t.byte_lo == t.byte_hi;  // shares nothing, wherever it is said to lie
    if (is_empty || t.byte_lo >= end) t.storage = storages++;
    if (is_empty) continue;
    if (t.byte_lo >= end) current = t.storage;
    t.storage = current;
    end = std::max(end, t.byte_hi);
  }
  out_.num_storages_ = storages;
  for (const BoundAlloc& alloc : out_.allocs_) {
    for (const u32 i : alloc.tensors) {
      out_.tensors_[i].storage = out_.tensors_[alloc.tensors[0]].storage;
    }
  }
}

// Control reads arrays while tasks run, and views are made of page tables; what tasks may change
// would make that a race.
bool Binder::check_arrays_unwritten() {
  for (u32 p = 0; p < out_.tensors_.size(); ++p) {
    const u32 table = out_.tensors_[p].table;
    for (u32 t = 0; table != kNone && t < out_.tensors_.size(); ++t) {
      if (written_[t] == 0 || out_.tensors_[t].byte_lo >= out_.tensors_[table].byte_hi ||
          out_.tensors_[table].byte_lo >= out_.tensors_[t].byte_hi) {
        continue;
      }
      const u32 symbol = plan_.get<Section::TENSOR>(table).symbol;
      return fail(symbol,
                  "page table " + name(symbol) +
                      " shares memory with a tensor that tasks write; the pages of a run must stay "
                      "where they are",
                  Status::ARRAY_WRITTEN);
    }
  }
  for (u32 s = 0; s < out_.arrays_.size(); ++s) {
    const BoundArray& a = out_.arrays_[s];
    if (a.data == nullptr || a.shape[0] == 0 || a.shape[1] == 0) continue;
    i64 below = 0;  // farthest elements on either side of the first
    i64 above = 0;
    for (u32 d = 0; d < a.rank; ++d) {
      const i64 reach = (a.shape[d] - 1) * a.stride[d];
      below += std::min<i64>(reach, 0);
      above += std::max<i64>(reach, 0);
    }
    const u64 base = reinterpret_cast<u64>(a.data);
    const i64 item = dtype_size(a.dtype);
    const u64 lo = base + static_cast<u64>(below * item);
    const u64 hi = base + static_cast<u64>((above + 1) * item);
    for (u32 t = 0; t < out_.tensors_.size(); ++t) {
      if (written_[t] == 0 || out_.tensors_[t].byte_lo >= hi || lo >= out_.tensors_[t].byte_hi)
        continue;
      const u32 symbol = plan_.get<Section::TENSOR>(t).symbol;
      return fail(s,
                  "array " + name(s) + " shares memory with tensor " + name(symbol) +
                      ", which tasks write; control may only read arrays that no task writes",
                  Status::ARRAY_WRITTEN);
    }
  }
  return true;
}

}  // namespace ptowsp
