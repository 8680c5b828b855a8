// What the parts of the validator share. Private to core/src/validate*.cpp.
//
// Each part is one function that throws PlanFault at the first record that breaks a rule;
// validate() runs them in the order below and turns the exception into its result. Every part may
// rely on what the parts before it have established, and costs time and memory linear in the file
// (sorting names: times a logarithm).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ptowsp/plan_view.h"
#include "ptowsp/validate.h"

namespace ptowsp {

// The only writer of PlanView's members.
struct PlanLoader {
  static Header& header(PlanView& view) { return view.header_; }
  static PlanView::Table& table(PlanView& view, Section s) {
    return view.tables_[static_cast<std::size_t>(s)];
  }
};

namespace check {

// What is known of an expression: everything that decides where it may be used.
struct ExprInfo {
  u64 lets = 0;           // bit n: it reads let n
  u32 tree = 0;           // nodes when written out as a tree
  u8 depth = 0;           // height of that tree
  u8 loops = 0;           // enclosing loops it needs: highest loop level it reads, plus one
  u8 free_bound = 0;      // bit n: it reads bound variable n, which nothing inside it binds
  u8 binder = kNoBinder;  // level of its outermost REDUCE or SEARCH nodes
  bool has_slot = false;
  bool reads_written = false;  // loads from an array that some task may write
  static constexpr u8 kNoBinder = 0xFF;
};

// What a place offers to an expression that stands there.
struct Scope {
  u32 loops = 0;  // enclosing loops
  u64 lets = 0;   // lets that have a value there
  bool slots = false;
};

// What the expressions of a record need of the place where the record is used.
struct Needs {
  u64 lets = 0;
  u8 loops = 0;
  u8 visible = 0;  // regions: dimensions that the kernel sees

  void add(const ExprInfo& info) {
    lets |= info.lets;
    loops = std::max(loops, info.loops);
  }
};

// A loop or a RECV of the code.
struct Loop {
  u32 outer;  // the next one around it, as an index of Context::loops, or kNone
  u32 level;  // how many are around it
};

// An AFTER word: the site that waits, and the record that says for whom.
struct AfterUse {
  u32 site;
  u32 after;
};

struct Context {
  const u8* bytes = nullptr;
  u64 size = 0;
  PlanView view;
  std::vector<bool> schedule_strings;  // bytes of SCHEDULE_STRING at which a string begins
  std::vector<ExprInfo> exprs;
  std::vector<ExprInfo> schedule_exprs;
  std::vector<Needs> accesses;
  std::vector<Needs> allocs;  // with the shapes of the temporaries in them
  std::vector<Needs> tier_sets;
  std::vector<AfterUse> afters;
  std::vector<u32> entry_of_site;  // which entry a site's instruction lies in
  std::vector<Loop> loops;         // in the order of the code
  std::vector<u32> loop_of_site;   // its innermost loop, as an index of loops, or kNone
  std::vector<u32> let_pc;         // LET instruction of each let number, or kNone
  bool let_needs_loops[kMaxLets] = {};

  [[noreturn]] static void fail(u64 offset, std::string message) {
    throw PlanFault{offset, std::move(message)};
  }

  // Byte of the file at which record `i` of section `s` begins, or a field of it; the section table
  // if the file does not have the section.
  u64 at(Section s, u32 i, std::size_t field = 0) const {
    const PlanView::Table& t = view.table(s);
    if (t.data == nullptr) return sizeof(Header);
    return static_cast<u64>(t.data - bytes) + static_cast<u64>(i) * t.stride + field;
  }
  template <Section S>
  typename RecordOf<S>::type get(u32 i) const {
    return view.get<S>(i);
  }
  u32 count(Section s) const { return view.count(s); }

  bool is_const(u32 expr) const {
    return get<Section::EXPR>(expr).op == static_cast<u8>(ExprOp::CONST);
  }
  i64 const_value(u32 expr) const { return constant_of(get<Section::EXPR>(expr)); }

  // Refuses expression `expr`, used at byte `offset` as `what`, unless it has the type and reads
  // only what the scope offers.
  void use(u32 expr, ScalarType type, const Scope& scope, u64 offset, std::string_view what) const;
};

template <class E>
constexpr bool is(u32 value, E constant) {
  return value == static_cast<u32>(constant);
}

// Refuses an expression that reads what the scope does not offer.
void require(const ExprInfo& info, const Scope& scope, u64 offset, std::string_view what);

// Refuses two records of section S that have the same name.
void check_unique(const Context& c, Section section, const std::vector<u32>& names,
                  const char* what);
template <Section S>
void check_unique(const Context& c, const char* what) {
  std::vector<u32> names;
  names.reserve(c.count(S));
  for (u32 i = 0; i < c.count(S); ++i) names.push_back(c.get<S>(i).name);
  check_unique(c, S, names, what);
}

// The scalar type in which expressions handle values of a dtype.
ScalarType scalar_type(u32 dtype);
bool is_integer(u32 dtype);
bool is_utf8(std::string_view text);

// In the order in which validate() runs them.
void load_file(Context& c);       // header, section table, checksums
void check_records(Context& c);   // every field of every record by its meaning in records.def
void check_exprs(Context& c);     // EXPR and SCHEDULE_EXPR
void check_data(Context& c);      // SYMBOL, ALLOC, STORAGE, TENSOR, MESH, LAYOUT, ACCESS
void check_kernels(Context& c);   // KERNEL, PARAM, TIER_SET, KERNEL_BODY
void check_network(Context& c);   // CHANNEL and PROCESS
void check_code(Context& c);      // CODE and ENTRY, and with them AXIS and SITE
void check_sites(Context& c);     // AFTER, DEPS, PLACE, DESCRIPTOR
void check_schedule(Context& c);  // SCHEDULE, DEBUG_LINE
void check_features(Context& c);  // the header's feature bits

// Parts of check_code. `scope` is that of the instruction, `outer` the innermost axis around it.
void check_axis(const Context& c, u32 axis, Op opcode, const Scope& scope, u32 outer, u64 offset);
// The argument words of the TASK or COLLECTIVE at `pc`. live[i]: the open block in which alloc i
// was made, or kNone if it has no buffer there.
void check_words(Context& c, u32 pc, const Scope& scope, const std::vector<u32>& live);
// An access that an instruction at byte `offset` makes.
void check_access_use(const Context& c, u32 access, const Scope& scope,
                      const std::vector<u32>& live, u64 offset);

}  // namespace check
}  // namespace ptowsp
