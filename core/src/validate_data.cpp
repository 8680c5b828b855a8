// What programs compute on: symbols, storages, tensors, layouts and regions.
#include <algorithm>
#include <string>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

// --- symbols ---

class SymbolChecker {
 public:
  explicit SymbolChecker(const Context& c) : c_(c) {}

  void check(u32 i) {
    index_ = i;
    s_ = c_.get<Section::SYMBOL>(i);
    if (s_.min_value > s_.max_value) fail(offsetof(Symbol, min_value), "has min_value > max_value");
    check_kind();
    if (s_.default_value != kNone) check_default();
  }

 private:
  [[noreturn]] void fail(std::size_t field, const std::string& what) const {
    Context::fail(c_.at(Section::SYMBOL, index_, field),
                  "symbol '" + std::string(c_.view.string(s_.name)) + "' " + what);
  }

  void check_kind() const {
    switch (static_cast<SymbolKind>(s_.kind)) {
      case SymbolKind::EXTENT:
        if (s_.min_value < 0)
          fail(offsetof(Symbol, min_value), "is an extent that may be negative");
        [[fallthrough]];
      case SymbolKind::FACT:
        if (!is_integer(s_.dtype)) fail(offsetof(Symbol, dtype), "must have an integer dtype");
        return check_value();
      case SymbolKind::SCALAR:
        if (scalar_type(s_.dtype) == ScalarType::F64 && (s_.min_value != 0 || s_.max_value != 0)) {
          fail(offsetof(Symbol, min_value), "is floating point and must have the range 0, 0");
        }
        return check_value();
      case SymbolKind::ARRAY:
        if (!is_integer(s_.dtype)) fail(offsetof(Symbol, dtype), "must have an integer dtype");
        if (s_.rank != 1 && s_.rank != 2) fail(offsetof(Symbol, rank), "must have rank 1 or 2");
        return check_no_default();
      case SymbolKind::TENSOR:
        if (s_.rank > kMaxRank) fail(offsetof(Symbol, rank), "has too many dimensions");
        return check_no_default();
    }
  }

  void check_value() const {
    if (s_.rank != 0) fail(offsetof(Symbol, rank), "is a single value and must have rank 0");
    if (s_.flags != 0) fail(offsetof(Symbol, flags), "is a value; tasks cannot write it");
  }

  void check_no_default() const {
    if (s_.default_value != kNone) fail(offsetof(Symbol, default_value), "cannot have a default");
  }

  void check_default() const {
    if (!is_integer(s_.dtype)) return;
    const i64 value = static_cast<i64>(c_.get<Section::CONST>(s_.default_value).bits);
    if (value < s_.min_value || value > s_.max_value) {
      fail(offsetof(Symbol, default_value), "has a default outside its range");
    }
  }

  const Context& c_;
  u32 index_ = 0;
  Symbol s_{};
};

void check_symbols(const Context& c) {
  check_unique<Section::SYMBOL>(c, "symbols");
  SymbolChecker checker(c);
  for (u32 i = 0; i < c.count(Section::SYMBOL); ++i) checker.check(i);
}

// --- buffers ---

void check_allocs(Context& c) {
  c.allocs.reserve(c.count(Section::ALLOC));
  for (u32 i = 0; i < c.count(Section::ALLOC); ++i) {
    const Alloc a = c.get<Section::ALLOC>(i);
    if (a.align == 0 || (a.align & (a.align - 1)) != 0) {
      Context::fail(c.at(Section::ALLOC, i, offsetof(Alloc, align)),
                    "Alloc.align is not a power of two");
    }
    if (a.level > kMaxLoops) {
      Context::fail(c.at(Section::ALLOC, i, offsetof(Alloc, level)), "Alloc.level is too high");
    }
    c.use(a.size, ScalarType::I64, Scope{.loops = a.level, .lets = ~u64{0}, .slots = true},
          c.at(Section::ALLOC, i, offsetof(Alloc, size)), "Alloc.size");
    c.allocs.push_back({});
    c.allocs.back().add(c.exprs[a.size]);
    if (a.cap != kNone) {
      c.use(a.cap, ScalarType::I64, Scope{}, c.at(Section::ALLOC, i, offsetof(Alloc, cap)),
            "Alloc.cap");
    }
  }
}

void check_slots(const Context& c) {
  if (c.count(Section::SLOT) > kMaxSlots) {
    Context::fail(c.at(Section::SLOT, kMaxSlots),
                  "a plan has at most " + std::to_string(kMaxSlots) + " slots");
  }
  for (u32 i = 0; i < c.count(Section::SLOT); ++i) {
    if (c.get<Section::SLOT>(i).level > kMaxLoops) {
      Context::fail(c.at(Section::SLOT, i, offsetof(Slot, level)), "Slot.level is too high");
    }
  }
}

bool has_alloc(u32 storage_class) {
  return is(storage_class, StorageClass::TEMP) || is(storage_class, StorageClass::WORKSPACE) ||
         is(storage_class, StorageClass::CHANNEL);
}

void check_storages(const Context& c) {
  for (u32 i = 0; i < c.count(Section::STORAGE); ++i) {
    const Storage s = c.get<Section::STORAGE>(i);
    if (has_alloc(s.storage_class) == (s.alloc == kNone)) {
      Context::fail(c.at(Section::STORAGE, i, offsetof(Storage, alloc)),
                    "TEMP, WORKSPACE and CHANNEL storages have an alloc, the others have none");
    }
    if (s.alloc != kNone && c.get<Section::ALLOC>(s.alloc).location != s.location) {
      Context::fail(c.at(Section::STORAGE, i, offsetof(Storage, location)),
                    "Storage.location is not that of its alloc");
    }
  }
}

// --- meshes and layouts ---

void check_expr_run(const Context& c, u32 first, u32 n, const Scope& scope, const char* what) {
  for (u32 i = first; i < first + n; ++i) {
    c.use(c.get<Section::EXPR_LIST>(i).expr, ScalarType::I64, scope, c.at(Section::EXPR_LIST, i),
          what);
  }
}

void check_meshes(const Context& c) {
  check_unique<Section::MESH>(c, "meshes");
  for (u32 i = 0; i < c.count(Section::MESH); ++i) {
    const Mesh m = c.get<Section::MESH>(i);
    if (m.rank == 0 || m.rank > kMaxRank) {
      Context::fail(c.at(Section::MESH, i, offsetof(Mesh, rank)),
                    "a mesh has 1 to " + std::to_string(kMaxRank) + " dimensions");
    }
    check_expr_run(c, m.shape, m.rank, Scope{}, "Mesh.shape");
  }
}

void check_layout_dims(const Context& c, const Layout& layout) {
  u32 used = 0;  // bit n: mesh dimension n is taken
  for (u32 i = layout.dims; i < layout.dims + layout.rank; ++i) {
    const LayoutDim d = c.get<Section::LAYOUT_DIM>(i);
    const u64 at = c.at(Section::LAYOUT_DIM, i, offsetof(LayoutDim, mesh_axis));
    if (is(d.kind, LayoutKind::REPLICATE)) {
      if (d.mesh_axis != 0) Context::fail(at, "a replicated dimension names no mesh dimension");
      continue;
    }
    if (layout.mesh == kNone) Context::fail(at, "a sharded dimension needs a mesh");
    if (d.mesh_axis >= c.get<Section::MESH>(layout.mesh).rank) {
      Context::fail(at, "the mesh does not have this dimension");
    }
    if ((used >> d.mesh_axis & 1u) != 0) Context::fail(at, "the mesh dimension is sharded twice");
    used |= 1u << d.mesh_axis;
  }
}

void check_layouts(const Context& c) {
  for (u32 i = 0; i < c.count(Section::LAYOUT); ++i) {
    const Layout layout = c.get<Section::LAYOUT>(i);
    if (layout.rank > kMaxRank) {
      Context::fail(c.at(Section::LAYOUT, i, offsetof(Layout, rank)), "Layout.rank is too high");
    }
    check_layout_dims(c, layout);
  }
}

// --- tensors ---

class TensorChecker {
 public:
  explicit TensorChecker(Context& c) : c_(c), taken_(c.count(Section::SYMBOL), false) {}

  void check(u32 i) {
    index_ = i;
    t_ = c_.get<Section::TENSOR>(i);
    storage_ = c_.get<Section::STORAGE>(t_.storage);
    if (t_.rank > kMaxRank) fail(offsetof(Tensor, rank), "has too many dimensions");
    if (t_.location != storage_.location) {
      fail(offsetof(Tensor, location), "does not lie where its storage lies");
    }
    if (t_.layout != kNone && c_.get<Section::LAYOUT>(t_.layout).rank != t_.rank) {
      fail(offsetof(Tensor, layout), "has a layout of another rank");
    }
    check_symbol();
    check_pages();
    check_dims();
  }

 private:
  [[noreturn]] void fail(std::size_t field, const std::string& what) const {
    Context::fail(c_.at(Section::TENSOR, index_, field),
                  "tensor '" + std::string(c_.view.string(t_.name)) + "' " + what);
  }

  bool is_class(StorageClass cls) const { return is(storage_.storage_class, cls); }

  void check_symbol() {
    if (!is_class(StorageClass::BOUND)) {
      if (t_.symbol != kNone) fail(offsetof(Tensor, symbol), "is not bound and has a symbol");
      return;
    }
    if (t_.symbol == kNone) fail(offsetof(Tensor, symbol), "is bound and has no symbol");
    const Symbol s = c_.get<Section::SYMBOL>(t_.symbol);
    if (!is(s.kind, SymbolKind::TENSOR))
      fail(offsetof(Tensor, symbol), "is bound by a symbol of another kind");
    if (c_.view.string(s.name) != c_.view.string(t_.name)) {
      fail(offsetof(Tensor, name), "has another name than its symbol");
    }
    if (s.dtype != t_.dtype) fail(offsetof(Tensor, dtype), "has another dtype than its symbol");
    if (s.rank != t_.rank) fail(offsetof(Tensor, rank), "has another rank than its symbol");
    if (taken_[t_.symbol]) fail(offsetof(Tensor, symbol), "shares its symbol with another tensor");
    taken_[t_.symbol] = true;
  }

  bool is_bound(u32 tensor) const {
    const Tensor t = c_.get<Section::TENSOR>(tensor);
    return is(c_.get<Section::STORAGE>(t.storage).storage_class, StorageClass::BOUND);
  }

  void check_pages() const {
    const bool paged = is_class(StorageClass::PAGED);
    const bool all = t_.pool != kNone && t_.table != kNone && t_.page != kNone;
    const bool none = t_.pool == kNone && t_.table == kNone && t_.page == kNone;
    if (paged ? !all : !none) {
      fail(offsetof(Tensor, pool), "must have pool, table and page exactly if it is PAGED");
    }
    if (!paged) return;
    if (!is_bound(t_.pool)) fail(offsetof(Tensor, pool), "needs a bound tensor as its pool");
    if (!is_bound(t_.table) || !is_integer(c_.get<Section::TENSOR>(t_.table).dtype)) {
      fail(offsetof(Tensor, table), "needs a bound tensor of integers as its table");
    }
    const Tensor pool = c_.get<Section::TENSOR>(t_.pool);
    const Tensor table = c_.get<Section::TENSOR>(t_.table);
    if (pool.dtype != t_.dtype || pool.rank != t_.rank || t_.rank < 2) {
      fail(offsetof(Tensor, pool), "must have the dtype and the rank of its pool, at least 2");
    }
    const bool fits = is(table.dtype, DType::I32) || is(table.dtype, DType::I64);
    if (table.rank != 2 || !fits) {
      fail(offsetof(Tensor, table), "needs a matrix of i32 or i64 as its table");
    }
    c_.use(t_.page, ScalarType::I64, Scope{}, at(offsetof(Tensor, page)), "Tensor.page");
  }

  void check_dims() {
    const bool bound = is_class(StorageClass::BOUND) || is_class(StorageClass::PAGED);
    const bool temp = is_class(StorageClass::TEMP);
    // A temporary's shape is read where its ALLOC stands.
    const u32 level = temp ? c_.get<Section::ALLOC>(storage_.alloc).level : 0;
    const Scope scope{.loops = level, .lets = temp ? ~u64{0} : 0, .slots = temp};
    const bool copied = temp || is_class(StorageClass::CHANNEL);
    if (copied && t_.rank >= kMaxRank) fail(offsetof(Tensor, rank), "has too many dimensions");
    for (u32 i = t_.dims; i < t_.dims + t_.rank; ++i) {
      const Dim d = c_.get<Section::DIM>(i);
      const u64 shape_at = c_.at(Section::DIM, i, offsetof(Dim, shape));
      if (d.shape != kNone) {
        c_.use(d.shape, ScalarType::I64, scope, shape_at, "Dim.shape");
        if (temp) c_.allocs[storage_.alloc].add(c_.exprs[d.shape]);
      } else if (!bound) {
        Context::fail(shape_at, "a tensor that is not bound needs its shape in the plan");
      }
      if (d.stride != kNone) {
        c_.use(d.stride, ScalarType::I64, Scope{}, c_.at(Section::DIM, i, offsetof(Dim, stride)),
               "Dim.stride");
      }
    }
  }

  u64 at(std::size_t field) const { return c_.at(Section::TENSOR, index_, field); }

  Context& c_;
  std::vector<bool> taken_;
  u32 index_ = 0;
  Tensor t_{};
  Storage storage_{};
};

// --- regions ---

constexpr u32 kDropped = 1;

// One dimension of a region; what it reads is added to `needs`.
void check_access_dim(const Context& c, u32 i, Needs& needs) {
  const AccessDim d = c.get<Section::ACCESS_DIM>(i);
  // The scope is that of the TASK that uses the region; all that can be known here is what it
  // needs.
  const Scope any{.loops = 255, .lets = ~u64{0}, .slots = true};
  const auto use = [&](u32 expr, std::size_t field, const char* what) {
    c.use(expr, ScalarType::I64, any, c.at(Section::ACCESS_DIM, i, field), what);
    needs.add(c.exprs[expr]);
  };
  use(d.start, offsetof(AccessDim, start), "AccessDim.start");
  use(d.extent, offsetof(AccessDim, extent), "AccessDim.extent");
  use(d.step, offsetof(AccessDim, step), "AccessDim.step");
  if (c.is_const(d.extent) && c.const_value(d.extent) < 0) {
    Context::fail(c.at(Section::ACCESS_DIM, i, offsetof(AccessDim, extent)),
                  "AccessDim.extent is negative");
  }
  if (c.is_const(d.step) && c.const_value(d.step) < 1) {
    Context::fail(c.at(Section::ACCESS_DIM, i, offsetof(AccessDim, step)),
                  "AccessDim.step is less than 1");
  }
  if ((d.flags & kDropped) == 0) {
    ++needs.visible;
  } else if (!c.is_const(d.extent) || c.const_value(d.extent) != 1) {
    Context::fail(c.at(Section::ACCESS_DIM, i, offsetof(AccessDim, extent)),
                  "a dimension that the kernel does not see must have the constant extent 1");
  }
}

void check_accesses(Context& c) {
  c.accesses.reserve(c.count(Section::ACCESS));
  for (u32 i = 0; i < c.count(Section::ACCESS); ++i) {
    const Access a = c.get<Section::ACCESS>(i);
    const Tensor t = c.get<Section::TENSOR>(a.tensor);
    if (a.rank != t.rank) {
      Context::fail(c.at(Section::ACCESS, i, offsetof(Access, rank)),
                    "Access.rank is not the rank of its tensor");
    }
    const bool says_written =
        t.symbol == kNone || (c.get<Section::SYMBOL>(t.symbol).flags & 1u) != 0;
    if (writes(a.mode) && !says_written) {
      Context::fail(c.at(Section::ACCESS, i, offsetof(Access, mode)),
                    "writes a tensor whose symbol says that no task writes it");
    }
    Needs needs;
    for (u32 d = a.dims; d < a.dims + a.rank; ++d) check_access_dim(c, d, needs);
    c.accesses.push_back(needs);
  }
}

}  // namespace

void check_data(Context& c) {
  check_symbols(c);
  check_allocs(c);
  check_slots(c);
  check_storages(c);
  check_meshes(c);
  check_layouts(c);
  TensorChecker tensors(c);
  for (u32 i = 0; i < c.count(Section::TENSOR); ++i) tensors.check(i);
  check_accesses(c);
}

}  // namespace ptowsp::check
