// Builds small plans for C++ tests, byte for byte as a plan file holds them.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ptowsp/hash.h"
#include "ptowsp/ptowsp.h"
#include "ptowsp/validate.h"

namespace ptowsp::test {

class PlanMaker {
 public:
  struct DimSpec {
    u32 start, extent, step;
    bool dropped = false;
  };
  struct AccessSpec {
    u32 tensor;
    AccessMode mode;
    std::vector<DimSpec> dims;
    u32 record = kNone;  // one that is there already, instead
  };

  PlanMaker() { add<Section::ENTRY>(Entry{0, kNone}); }

  template <Section S>
  u32 add(const typename RecordOf<S>::type& record) {
    std::vector<u8>& data = sections_[static_cast<u16>(S)];
    const auto* bytes = reinterpret_cast<const u8*>(&record);
    data.insert(data.end(), bytes, bytes + sizeof(record));
    return static_cast<u32>(data.size() / sizeof(record)) - 1;
  }

  u32 string(const std::string& text) {
    std::vector<u8>& data = sections_[static_cast<u16>(Section::STRING)];
    const auto at = static_cast<u32>(data.size());
    data.push_back(static_cast<u8>(text.size() & 0xFF));
    data.push_back(static_cast<u8>(text.size() >> 8));
    data.insert(data.end(), text.begin(), text.end());
    return at;
  }

  // --- expressions ---
  u32 node(ExprOp op, u16 arg, u32 a = kNone, u32 b = kNone, u32 c = kNone) {
    return add<Section::EXPR>(Expr{static_cast<u8>(op), 0, arg, a, b, c});
  }
  u32 number(i64 v) {
    const u64 bits = static_cast<u64>(v);
    return node(ExprOp::CONST, 0, static_cast<u32>(bits), static_cast<u32>(bits >> 32));
  }
  u32 var(u32 level) { return node(ExprOp::LOOPVAR, static_cast<u16>(level)); }
  u32 value(u32 symbol) { return node(ExprOp::SYMBOL, 0, symbol); }
  u32 load(u32 symbol, u32 index) { return node(ExprOp::LOAD, 0, symbol, index); }
  u32 plus(u32 a, i64 b) { return node(ExprOp::ADD, 0, a, number(b)); }
  u32 times(u32 a, i64 b) { return node(ExprOp::MUL, 0, a, number(b)); }

  // --- names ---
  u32 symbol(const std::string& name, SymbolKind kind, DType dtype, u32 rank) {
    Symbol s{};
    s.name = string(name);
    s.kind = static_cast<u8>(kind);
    s.dtype = static_cast<u8>(dtype);
    s.rank = static_cast<u8>(rank);
    s.flags = kind == SymbolKind::TENSOR ? 1 : 0;  // tasks may write it
    s.default_value = kNone;
    s.min_value = 0;
    s.max_value = INT64_MAX;
    return add<Section::SYMBOL>(s);
  }
  u32 extent(const std::string& name) { return symbol(name, SymbolKind::EXTENT, DType::I64, 0); }
  u32 array(const std::string& name) { return symbol(name, SymbolKind::ARRAY, DType::I64, 1); }
  // The largest value that a symbol may have.
  void limit(u32 symbol, i64 most) {
    std::vector<u8>& data = sections_[static_cast<u16>(Section::SYMBOL)];
    std::memcpy(&data[symbol * sizeof(Symbol) + offsetof(Symbol, max_value)], &most, sizeof(most));
  }
  // `strides` are nodes, or none at all.
  u32 tensor(const std::string& name, u32 rank, DType dtype = DType::F32,
             const std::vector<u32>& strides = {}, const std::vector<u32>& shape = {}) {
    Tensor t{};
    t.name = string(name);
    t.symbol = symbol(name + "", SymbolKind::TENSOR, dtype, rank);
    Storage storage{};
    storage.alloc = kNone;
    t.storage = add<Section::STORAGE>(storage);
    t.dtype = static_cast<u8>(dtype);
    t.dims = count<Section::DIM>();
    t.rank = rank;
    t.layout = t.pool = t.table = t.page = kNone;
    for (u32 d = 0; d < rank; ++d) {
      add<Section::DIM>(
          Dim{shape.empty() ? kNone : shape[d], strides.empty() ? kNone : strides[d]});
    }
    tensor_symbols_.push_back(t.symbol);
    return add<Section::TENSOR>(t);
  }
  u32 symbol_of(u32 tensor) const { return tensor_symbols_[tensor]; }

  // With `tile`, nodes of its shape, all parameters are tiles.
  u32 kernel(const std::string& name, const std::vector<AccessMode>& modes, u32 rank = 0,
             DType dtype = DType::F32, const std::vector<u32>& tile = {}) {
    Kernel k{};
    k.name = string(name);
    k.params = count<Section::PARAM>();
    k.num_params = static_cast<u32>(modes.size());
    k.block_dim = 1;
    k.scratch = k.cost = kNone;
    k.name_hash = fnv1a(name);
    std::string signature;
    for (std::size_t i = 0; i < modes.size(); ++i) {
      Param p{};
      p.name = string("p" + std::to_string(i));
      p.dtype = static_cast<u8>(dtype);
      p.mode = static_cast<u8>(modes[i]);
      p.rank = static_cast<u8>(rank);
      p.kind = static_cast<u8>(tile.empty() ? ParamKind::TENSOR : ParamKind::TILE);
      p.shape = tile.empty() ? 0 : count<Section::EXPR_LIST>();
      p.shape_rank = static_cast<u32>(tile.size());
      for (const u32 size : tile) add<Section::EXPR_LIST>(ExprRef{size});
      add<Section::PARAM>(p);
      signature += (i > 0 ? ";p" : "p") + std::to_string(i) + ":" + std::to_string(p.kind) + ":" +
                   std::to_string(p.dtype) + ":" + std::to_string(p.mode) + ":" +
                   std::to_string(p.rank);
    }
    k.abi_hash = fnv1a(signature);
    return add<Section::KERNEL>(k);
  }

  // --- code ---
  void loop(Op op, const std::string& name, u32 extent, u32 lengths = kNone, u32 parent = kNone,
            u32 body_tasks = kNone) {
    Axis a{};
    a.name = string(name);
    a.kind = static_cast<u8>(lengths == kNone ? AxisKind::EXPR : AxisKind::RAGGED);
    a.level = static_cast<u8>(level_++);
    a.start = number(0);
    a.extent = extent;
    a.tile = a.value = a.indices = kNone;
    a.body_tasks = body_tasks;
    a.parent = parent;
    a.lengths = lengths;
    a.outer = axis_;
    if (lengths != kNone) ragged_ = true;
    last_axis_ = add<Section::AXIS>(a);
    open(op, last_axis_, true);
  }
  // Some extent is read from an array, in whatever way.
  void set_ragged() { ragged_ = true; }
  u32 last_axis() const { return last_axis_; }
  void open(Op op, u32 operand1 = 0, bool is_loop = false) {
    blocks_.push_back({emit(op, operand1, 0), 0, is_loop, axis_, path_});
    if (is_loop) axis_ = operand1;
    path_.push_back(0);
  }
  void end() {
    const u32 pc = emit(Op::END, 0, 0, false);
    Block block = blocks_.back();
    blocks_.pop_back();
    if (block.is_loop) level_ -= 1;
    axis_ = block.outer_axis;
    path_ = block.path;
    Instr i = code_[block.pc];
    i.operand2 = pc + 1;
    if (!block.is_loop) i.operand1 = static_cast<u16>(block.children);
    code_[block.pc] = i;
    path_.back() += 1;
  }
  u32 task(u32 kernel, const std::vector<AccessSpec>& accesses) {
    Site s{};
    s.kernel = kernel;
    s.tiers = s.stage = kNone;
    s.level = static_cast<u8>(level_);
    s.axis = axis_;
    s.pc = static_cast<u32>(code_.size());
    s.path_hash = path_hash();
    const u32 site = add<Section::SITE>(s);
    emit(Op::TASK, static_cast<u32>(accesses.size()), site);
    for (const AccessSpec& spec : accesses) {
      const Op op = spec.mode == AccessMode::IN    ? Op::IO_INPUT
                    : spec.mode == AccessMode::OUT ? Op::IO_OUTPUT
                                                   : Op::IO_INOUT;
      if (spec.record != kNone) {
        emit(op, 0, spec.record, false);
        continue;
      }
      Access a{};
      a.tensor = spec.tensor;
      a.mode = static_cast<u8>(spec.mode);
      a.dims = count<Section::ACCESS_DIM>();
      a.rank = static_cast<u32>(spec.dims.size());
      for (const DimSpec& d : spec.dims) {
        add<Section::ACCESS_DIM>(AccessDim{d.start, d.extent, d.step, d.dropped ? 1u : 0u});
      }
      emit(op, 0, add<Section::ACCESS>(a), false);
    }
    path_.back() += 1;
    return site;
  }
  // An element: every dimension is one index and dropped.
  AccessSpec element(u32 tensor, AccessMode mode, const std::vector<u32>& indices) {
    AccessSpec spec{tensor, mode, {}};
    for (const u32 i : indices) spec.dims.push_back({i, number(1), number(1), true});
    return spec;
  }

  void directive(Directive id, const std::vector<i64>& args) {
    ScheduleEntry entry{};
    entry.id = static_cast<u16>(id);
    entry.version = 1;
    entry.args = count<Section::SCHEDULE_ARG>();
    entry.num_args = static_cast<u32>(args.size());
    for (const i64 v : args) {
      add<Section::SCHEDULE_ARG>(ScheduleArg{0, 0, static_cast<u64>(v)});
    }
    add<Section::SCHEDULE>(entry);
  }

  // Ends the code and returns the file.
  std::vector<u8> bytes() {
    emit(Op::HALT, 0, 0, false);
    for (const Instr& i : code_) add<Section::CODE>(i);
    std::map<u16, std::vector<u8>> used;
    for (auto& [kind, data] : sections_) {
      if (!data.empty()) used[kind] = data;
    }
    Header h{};
    h.magic = kMagic;
    h.version = kVersion;
    h.num_instructions = count<Section::CODE>();
    h.num_axes = count<Section::AXIS>();
    h.num_kernels = count<Section::KERNEL>();
    h.num_tensors = count<Section::TENSOR>();
    h.num_sections = static_cast<u32>(used.size());
    h.features = ragged_ ? 1u << static_cast<u32>(Feature::RAGGED) : 0;
    std::size_t at = sizeof(Header) + used.size() * sizeof(SectionEntry);
    std::vector<SectionEntry> table;
    for (const auto& [kind, data] : used) {
      at = (at + 7) / 8 * 8;
      table.push_back({kind, 1, kSectionRequired, record_size(kind),
                       crc32(data.data(), data.size()), at, data.size()});
      at += data.size();
    }
    h.file_bytes = at;
    std::vector<u8> out(at);
    std::memcpy(out.data(), &h, sizeof(h));
    std::memcpy(out.data() + sizeof(h), table.data(), table.size() * sizeof(SectionEntry));
    for (const SectionEntry& e : table) {
      std::memcpy(out.data() + e.offset, used[e.kind].data(), e.length);
    }
    const std::size_t head = sizeof(h) + table.size() * sizeof(SectionEntry);
    h.header_crc = crc32(out.data(), head);
    std::memcpy(out.data(), &h, sizeof(h));
    return out;
  }

 private:
  struct Block {
    u32 pc;
    u32 children;
    bool is_loop;
    u32 outer_axis;
    std::vector<u32> path;
  };

  template <Section S>
  u32 count() {
    return static_cast<u32>(sections_[static_cast<u16>(S)].size() /
                            sizeof(typename RecordOf<S>::type));
  }
  static u32 record_size(u16 kind) {
#define PTOWSP_SECTION(name, number, record, cls, doc) \
  if (kind == number) return sizeof(record);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
    return 0;
  }
  u32 emit(Op op, u32 operand1, u32 operand2, bool child = true) {
    if (child && !blocks_.empty()) blocks_.back().children += 1;
    code_.push_back({static_cast<u8>(op), 0, static_cast<u16>(operand1), operand2});
    return static_cast<u32>(code_.size()) - 1;
  }
  u64 path_hash() const {
    u64 h = fnv1a(std::string_view("\0\0\0\0", 4));  // entry 0
    for (const u32 child : path_) {
      char bytes[4];
      std::memcpy(bytes, &child, 4);
      h = fnv1a(std::string_view(bytes, 4), h);
    }
    return h;
  }

  std::map<u16, std::vector<u8>> sections_;
  std::vector<Instr> code_;
  std::vector<Block> blocks_;
  std::vector<u32> path_{0};
  std::vector<u32> tensor_symbols_;
  u32 level_ = 0;
  u32 last_axis_ = kNone;
  u32 axis_ = kNone;  // the innermost open one
  bool ragged_ = false;
};

// Bindings, by symbol.
inline ptowsp_binding bind_value(u32 symbol, i64 value) {
  ptowsp_binding b{};
  b.symbol = symbol;
  b.value = value;
  return b;
}

// A row-major array over `data`.
inline ptowsp_binding bind_data(u32 symbol, void* data, DType dtype,
                                const std::vector<i64>& shape) {
  ptowsp_binding b{};
  b.symbol = symbol;
  b.dtype = static_cast<u32>(dtype);
  b.rank = static_cast<u32>(shape.size());
  b.data = data;
  i64 stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    b.shape[d] = shape[d];
    b.stride[d] = stride;
    stride *= shape[d];
  }
  return b;
}

}  // namespace ptowsp::test
