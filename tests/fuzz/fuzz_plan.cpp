// libFuzzer target: no bytes make the validator misbehave, and a plan that it accepts can be read
// without further checks.
//
// Checksums, counts and feature bits are repaired first, so that the fuzzer reaches the rules
// behind them. An accepted plan is then read in full through PlanView: every record, string and
// run, every expression as a tree, and the code as a reader walks it. AddressSanitizer sees any
// hole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "ptowsp/validate.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace ptowsp {
namespace {

void insist(bool holds) {
  if (!holds) std::abort();
}

// --- repair ---

template <class T>
T read(const std::vector<u8>& file, std::size_t at) {
  T out;
  std::memcpy(&out, file.data() + at, sizeof(out));
  return out;
}

template <class T>
void write(std::vector<u8>& file, std::size_t at, const T& value) {
  std::memcpy(file.data() + at, &value, sizeof(value));
}

std::size_t entry_at(std::size_t i) { return sizeof(Header) + i * sizeof(SectionEntry); }

bool lies_inside(const SectionEntry& e, std::size_t size) {
  return e.offset <= size && e.length <= size - e.offset;
}

void repair_counts(Header& h, const SectionEntry& e) {
  const u32 n = e.record_size == 0 ? 0 : static_cast<u32>(e.length / e.record_size);
  if (e.kind == static_cast<u16>(Section::CODE)) h.num_instructions = n;
  if (e.kind == static_cast<u16>(Section::AXIS)) h.num_axes = n;
  if (e.kind == static_cast<u16>(Section::KERNEL)) h.num_kernels = n;
  if (e.kind == static_cast<u16>(Section::TENSOR)) h.num_tensors = n;
}

void repair(std::vector<u8>& file) {
  if (file.size() < sizeof(Header)) return;
  Header h = read<Header>(file, 0);
  h.magic = kMagic;
  h.version = kVersion;
  h.file_bytes = file.size();
  h.num_sections = std::min<u32>(
      h.num_sections, static_cast<u32>((file.size() - sizeof(Header)) / sizeof(SectionEntry)));
  for (u32 i = 0; i < h.num_sections; ++i) {
    SectionEntry e = read<SectionEntry>(file, entry_at(i));
    if (!lies_inside(e, file.size())) continue;
    e.crc32 = crc32(file.data() + e.offset, e.length);
    write(file, entry_at(i), e);
    repair_counts(h, e);
  }
  h.header_crc = 0;
  write(file, 0, h);
  h.header_crc = crc32(file.data(), entry_at(h.num_sections));
  write(file, 0, h);
}

constexpr std::string_view kFeatureFault = "feature bit ";

// Validates; a wrong feature bit is flipped and the file tried again.
bool accept(std::vector<u8>& file, PlanView& view) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    repair(file);
    PlanFault fault;
    if (validate(file.data(), file.size(), &view, &fault)) return true;
    insist(!fault.message.empty());
    insist(fault.offset <= file.size());
    if (!fault.message.starts_with(kFeatureFault)) return false;
    Header h = read<Header>(file, 0);
    h.features ^= u64{1} << std::atoi(fault.message.c_str() + kFeatureFault.size());
    write(file, 0, h);
  }
  return false;
}

// --- reading ---

volatile u64 sink;  // keeps reads from being optimised away
u64 total = 0;

void touch(std::string_view text) {
  for (const char c : text) total += static_cast<u8>(c);
}

struct Reader {
  const PlanView& view;
  u64 span_first = 0;

  void ref(u64 value, Section target) const { insist(value < view.count(target)); }
  void run(u64 n, Section target) const {
    insist(span_first + n <= view.count(target));
    for (u64 i = span_first; i < span_first + n; ++i) {
      total += view.table(target).data[i * view.table(target).stride];
    }
  }
};

#define READ_Plain(target)
#define READ_Zero(target) insist(value == 0);
#define READ_Bits(target) insist((value & ~u64{target}) == 0);
#define READ_Ref(target) r.ref(value, Section::target);
#define READ_Opt(target) \
  if (value != kNone) r.ref(value, Section::target);
#define READ_Str(target) touch(r.view.string(static_cast<u32>(value)));
#define READ_OptStr(target) touch(r.view.string(static_cast<u32>(value)));
#define READ_DebugStr(target) touch(r.view.string(static_cast<u32>(value), Section::DEBUG_STRING));
#define READ_DepsStr(target) touch(r.view.string(static_cast<u32>(value), Section::DEPS_STRING));
#define READ_Span(target) \
  r.span_first = value;   \
  span = Section::target;
#define READ_Count(target) r.run(value, span);
#define READ_Enum(target)

#define PTOWSP_RECORD_BEGIN(record, doc)                                           \
  [[maybe_unused]] void read_record([[maybe_unused]] Reader& r, const record& x) { \
    [[maybe_unused]] Section span = Section::STRING;
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc)  \
  {                                                              \
    [[maybe_unused]] const u64 value = static_cast<u64>(x.name); \
    total += value;                                              \
    READ_##meaning(target)                                       \
  }
#define PTOWSP_RECORD_END(record) }
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END

template <Section S>
void read_section(Reader& r) {
  for (u32 i = 0; i < r.view.count(S); ++i) read_record(r, r.view.get<S>(i));
}

void read_records(const PlanView& view) {
  Reader r{view};
#define PTOWSP_SECTION(name, kind, record, cls, doc) read_section<Section::name>(r);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
}

// Reads an expression as an evaluator without a memory does; returns the nodes it met.
u32 read_tree(const PlanView& view, u32 i, u32 height) {
  insist(height <= kMaxExprDepth);
  insist(i < view.count(Section::EXPR));
  const Expr e = view.expr(i);
  const auto op = static_cast<ExprOp>(e.op);
  u32 nodes = 1;
  const auto operand = [&](u32 child) {
    insist(child < i);
    nodes += read_tree(view, child, height + 1);
  };
  if (op == ExprOp::LOAD) {
    insist(e.a < view.count(Section::SYMBOL));
    operand(e.b);
    if (e.c != kNone) operand(e.c);
  } else if (op >= ExprOp::ADD) {
    operand(e.a);
    if (e.b != kNone) operand(e.b);
    if (e.c != kNone) operand(e.c);
  }
  insist(nodes <= kMaxExprTree);
  return nodes;
}

void read_exprs(const PlanView& view) {
  u64 budget = 1u << 18;
  for (u32 i = 0; i < view.count(Section::EXPR); ++i) {
    const u32 nodes = read_tree(view, i, 1);
    if (nodes > budget) return;
    budget -= nodes;
  }
}

bool is_open(Op op) {
  switch (op) {
#define PTOWSP_OP(name, number, place, operand1, operand2, doc) \
  case Op::name:                                                \
    return std::string_view(#place) == "Open";
#include "ptowsp/opcodes.def"
#undef PTOWSP_OP
  }
  return false;
}

// Walks the code as a cursor does, each block once, with a stack of the size that plan.h promises.
void read_code(const PlanView& view) {
  u32 ends[kMaxBlocks + 1] = {};
  u32 depth = 0;
  for (u32 pc = 0; pc < view.count(Section::CODE); ++pc) {
    const Instr instr = view.code(pc);
    const Op op = static_cast<Op>(instr.opcode);
    if (op == Op::TASK || op == Op::COLLECTIVE || op == Op::SLOT_LOAD) {
      insist(view.get<Section::SITE>(instr.operand2).pc == pc);
      const u32 words = op == Op::SLOT_LOAD ? 1u : u32{instr.operand1};
      for (u32 i = 0; i < words; ++i) total += view.code(++pc).operand2;
    } else if (op == Op::END) {
      insist(depth > 0 && ends[depth] == pc + 1);
      --depth;
    } else if (op == Op::HALT) {
      insist(depth == 0);
    } else if (is_open(op)) {
      insist(depth < kMaxBlocks);
      ends[++depth] = instr.operand2;
    }
  }
  insist(depth == 0);
}

// Finds the loops around every site as a device does, without the code.
void read_nests(const PlanView& view) {
  for (u32 i = 0; i < view.count(Section::SITE); ++i) {
    const Site site = view.get<Section::SITE>(i);
    insist(site.level <= kMaxLoops);
    u32 level = site.level;
    for (u32 axis = site.axis; axis != kNone;) {
      const Axis a = view.get<Section::AXIS>(axis);
      insist(a.level < level);
      level = a.level;
      axis = a.outer;
    }
  }
}

}  // namespace
}  // namespace ptowsp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ptowsp;
  PlanView view;
  PlanFault fault;
  validate(data, size, &view, &fault);  // as it comes
  std::vector<u8> file(data, data + size);
  if (!accept(file, view)) return 0;
  read_records(view);
  read_exprs(view);
  read_code(view);
  read_nests(view);
  sink = total;
  return 0;
}

// Half of the time changes one aligned word of a section to something that may well be legal there.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  using namespace ptowsp;
  const std::size_t table_end = entry_at(size >= sizeof(Header) ? data[24] : 0);
  if (seed % 2 == 0 || size < table_end + 8) return LLVMFuzzerMutate(data, size, max_size);
  u64 random = (u64{seed} + 1) * 0x9E3779B97F4A7C15u;
  const auto next = [&](u64 limit) {
    random ^= random >> 29;
    random *= 0xBF58476D1CE4E5B9u;
    random ^= random >> 32;
    return random % limit;
  };
  const std::size_t words = (size - table_end) / 4;
  const std::size_t at = table_end + 4 * next(words);
  const std::size_t from = table_end + 4 * next(words);
  u32 value = 0;
  std::memcpy(&value, data + at, sizeof(value));
  switch (next(6)) {
    case 0:
      value = static_cast<u32>(next(16));
      break;
    case 1:
      value += 1;
      break;
    case 2:
      value -= 1;
      break;
    case 3:
      value ^= 1u << next(32);
      break;
    case 4:
      value = kNone;
      break;
    default:
      std::memcpy(&value, data + from, sizeof(value));
      break;
  }
  std::memcpy(data + at, &value, sizeof(value));
  return size;
}
