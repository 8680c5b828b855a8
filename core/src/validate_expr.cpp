// Expressions: types, order, size, and which variables they read.
//
// Nodes come after their operands, so one pass suffices and nothing here recurses. Nodes are
// shared: a small table can stand for a huge tree, hence the limit on the tree and not only on its
// height.
#include <algorithm>
#include <string>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

// name_of(value): the name of an enumeration's value.
// clang-format off
#define PTOWSP_ENUM_BEGIN(name, doc) [[maybe_unused]] const char* name_of(name value) { switch (value) {
#define PTOWSP_VALUE(enumeration, name, number, doc) case enumeration::name: return #name;
#define PTOWSP_ENUM_END(name) } return "?"; }
#include "ptowsp/enums.def"
#undef PTOWSP_ENUM_BEGIN
#undef PTOWSP_VALUE
#undef PTOWSP_ENUM_END
// clang-format on

// Checks one node and collects what is known of it.
class NodeChecker {
 public:
  NodeChecker(const Context& c, Section section, const std::vector<ExprInfo>& earlier, u32 index)
      : c_(c),
        section_(section),
        earlier_(earlier),
        index_(index),
        e_(node(index)),
        type_(static_cast<ScalarType>(e_.type)) {}

  ExprInfo check() {
    info_.tree = 1;
    info_.depth = 1;
    check_by_op();
    if (info_.depth > kMaxExprDepth) {
      fail("is part of a tree higher than " + std::to_string(kMaxExprDepth));
    }
    if (info_.tree > kMaxExprTree) {
      fail("stands for a tree of more than " + std::to_string(kMaxExprTree) + " nodes");
    }
    return info_;
  }

 private:
  enum Field { kA, kB, kC };

  Expr node(u32 i) const {
    return section_ == Section::EXPR ? c_.get<Section::EXPR>(i) : c_.get<Section::SCHEDULE_EXPR>(i);
  }
  u64 at(std::size_t field) const { return c_.at(section_, index_, field); }
  u64 at(Field f) const {
    return at(f == kA ? offsetof(Expr, a) : f == kB ? offsetof(Expr, b) : offsetof(Expr, c));
  }
  u32 value(Field f) const { return f == kA ? e_.a : f == kB ? e_.b : e_.c; }

  [[noreturn]] void fail_at(u64 offset, const std::string& what) const {
    Context::fail(offset,
                  std::string("expression ") + name_of(static_cast<ExprOp>(e_.op)) + " " + what);
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(at(std::size_t{0}), what); }

  bool is_number() const { return type_ != ScalarType::BOOL; }

  void expect_type(bool good) const {
    if (!good) {
      fail_at(at(offsetof(Expr, type)), std::string("cannot have the type ") + name_of(type_));
    }
  }
  void expect_arg(bool good) const {
    if (!good) fail_at(at(offsetof(Expr, arg)), "has a bad arg");
  }
  void expect_none(Field f) const {
    if (value(f) != kNone) fail_at(at(f), "does not use this operand; it must be 0xFFFFFFFF");
  }
  void expect_leaf() const {
    expect_none(kB);
    expect_none(kC);
  }
  u32 expect_index(Field f, Section target, const char* table) const {
    if (value(f) >= c_.count(target)) {
      fail_at(at(f), std::string("names a record that ") + table + " does not have");
    }
    return value(f);
  }
  void expect_section(Section section) const {
    if (section_ != section) {
      fail(section == Section::EXPR ? "has no meaning in a schedule" : "is for schedules only");
    }
  }

  ScalarType operand_type(Field f) const {
    if (value(f) >= index_) fail_at(at(f), "must come after its operands");
    return static_cast<ScalarType>(node(value(f)).type);
  }

  // Operand f, of the given type. `inside` says whether this node's own variable is bound in it.
  void operand(Field f, ScalarType type, bool inside = false) {
    if (operand_type(f) != type) {
      fail_at(at(f), std::string("needs an operand of type ") + name_of(type));
    }
    const ExprInfo& child = earlier_[value(f)];
    info_.tree += child.tree;
    info_.depth = std::max(info_.depth, static_cast<u8>(child.depth + 1));
    info_.loops = std::max(info_.loops, child.loops);
    info_.lets |= child.lets;
    info_.has_slot |= child.has_slot;
    info_.reads_written |= child.reads_written;
    if (inside) {
      body_operand(f, child);
    } else {
      info_.free_bound |= child.free_bound;
      if (child.binder != ExprInfo::kNoBinder) merge_binder(f, child.binder);
    }
  }

  void merge_binder(Field f, u8 level) {
    if (info_.binder != ExprInfo::kNoBinder && info_.binder != level) {
      fail_at(at(f), "joins REDUCE or SEARCH nodes that bind different levels at the same depth");
    }
    info_.binder = level;
  }

  void body_operand(Field f, const ExprInfo& body) {
    const u32 level = bound_level();
    if (body.binder != ExprInfo::kNoBinder && body.binder != level + 1) {
      fail_at(at(f), "binds level " + std::to_string(level) +
                         ", so a REDUCE or SEARCH directly inside it must bind the next level");
    }
    info_.free_bound = static_cast<u8>(info_.free_bound | (body.free_bound & ~(1u << level)));
  }

  u32 bound_level() const { return e_.arg >> 8; }

  void check_by_op() {
    switch (static_cast<ExprOp>(e_.op)) {
      case ExprOp::CONST:
      case ExprOp::LOOPVAR:
      case ExprOp::SYMBOL:
      case ExprOp::SHAPE:
      case ExprOp::LOAD:
      case ExprOp::SLOT:
      case ExprOp::LETVAR:
      case ExprOp::BOUNDVAR:
        return check_source();
      case ExprOp::TASK_AXIS:
      case ExprOp::TASK_SITE:
      case ExprOp::TASK_ORDINAL:
        return check_task_key();
      case ExprOp::REDUCE:
      case ExprOp::SEARCH:
        return check_fold();
      default:
        expect_arg(e_.arg == 0);
        return check_operator();
    }
  }

  void check_source() {
    switch (static_cast<ExprOp>(e_.op)) {
      case ExprOp::CONST:
        expect_arg(e_.arg == 0);
        expect_none(kC);
        if (type_ == ScalarType::BOOL && (e_.a > 1 || e_.b != 0))
          fail_at(at(kA), "is neither 0 nor 1");
        return;
      case ExprOp::LOOPVAR:
        expect_section(Section::EXPR);
        expect_type(type_ == ScalarType::I64);
        expect_arg(e_.arg < kMaxLoops);
        expect_none(kA);
        info_.loops = static_cast<u8>(e_.arg + 1);
        return expect_leaf();
      case ExprOp::BOUNDVAR:
        expect_type(type_ == ScalarType::I64);
        expect_arg(e_.arg < kMaxBoundVars);
        expect_none(kA);
        info_.free_bound = static_cast<u8>(1u << e_.arg);
        return expect_leaf();
      case ExprOp::SYMBOL:
        return check_symbol();
      case ExprOp::SHAPE:
        return check_shape();
      case ExprOp::LOAD:
        return check_load();
      case ExprOp::SLOT:
        return check_slot();
      default:
        return check_let();
    }
  }

  void check_symbol() {
    const Symbol s = c_.get<Section::SYMBOL>(expect_index(kA, Section::SYMBOL, "SYMBOL"));
    if (is(s.kind, SymbolKind::ARRAY) || is(s.kind, SymbolKind::TENSOR)) {
      fail_at(at(kA), "needs a symbol of kind EXTENT, SCALAR or FACT");
    }
    expect_arg(e_.arg == 0);
    expect_type(type_ == scalar_type(s.dtype));
    expect_leaf();
  }

  // Only bound tensors: the shape of another one is itself an expression and could read this node.
  void check_shape() {
    const Tensor t = c_.get<Section::TENSOR>(expect_index(kA, Section::TENSOR, "TENSOR"));
    if (!is(c_.get<Section::STORAGE>(t.storage).storage_class, StorageClass::BOUND)) {
      fail_at(at(kA), "needs a tensor of class BOUND");
    }
    expect_type(type_ == ScalarType::I64);
    expect_arg(e_.arg < t.rank);
    expect_leaf();
  }

  void check_load() {
    const Symbol s = c_.get<Section::SYMBOL>(expect_index(kA, Section::SYMBOL, "SYMBOL"));
    if (!is(s.kind, SymbolKind::ARRAY)) fail_at(at(kA), "needs a symbol of kind ARRAY");
    expect_arg(e_.arg == 0);
    expect_type(type_ == ScalarType::I64);
    operand(kB, ScalarType::I64);
    if (s.rank == 2) {
      if (e_.c == kNone) fail_at(at(kC), "needs two indices for an array of rank 2");
      operand(kC, ScalarType::I64);
    } else {
      expect_none(kC);
    }
    if ((s.flags & 1u) == 0) return;
    if (section_ != Section::EXPR) fail_at(at(kA), "may not read what tasks write in a schedule");
    info_.reads_written = true;
  }

  void check_slot() {
    expect_section(Section::EXPR);
    const Slot slot = c_.get<Section::SLOT>(expect_index(kA, Section::SLOT, "SLOT"));
    expect_arg(e_.arg == 0);
    expect_type(e_.type == slot.type);
    expect_leaf();
    info_.has_slot = true;
    info_.loops = slot.level;
  }

  void check_let() {
    expect_section(Section::EXPR);
    if (e_.a >= kMaxLets || c_.let_pc[e_.a] == kNone)
      fail_at(at(kA), "names a let that no LET sets");
    expect_arg(e_.arg == 0);
    expect_type(e_.type == c_.get<Section::EXPR>(c_.view.code(c_.let_pc[e_.a]).operand2).type);
    expect_leaf();
    info_.lets = u64{1} << e_.a;
  }

  void check_task_key() {
    expect_section(Section::SCHEDULE_EXPR);
    expect_arg(e_.arg == 0);
    expect_type(type_ == ScalarType::I64);
    if (is(e_.op, ExprOp::TASK_AXIS) && e_.b != kNone) operand(kB, ScalarType::I64);
    if (!is(e_.op, ExprOp::TASK_AXIS)) {
      expect_none(kA);
    } else if (e_.a >= c_.schedule_strings.size() || !c_.schedule_strings[e_.a]) {
      fail_at(at(kA), "is not the offset of a string");
    }
    if (!is(e_.op, ExprOp::TASK_AXIS)) expect_none(kB);
    expect_none(kC);
  }

  void check_fold() {
    const bool is_search = is(e_.op, ExprOp::SEARCH);
    const u32 reduce = e_.arg & 0xFFu;
    expect_arg(bound_level() < kMaxBoundVars && reduce <= static_cast<u32>(ReduceOp::ALL) &&
               (!is_search || reduce == 0));
    const bool is_logic = is(reduce, ReduceOp::ANY) || is(reduce, ReduceOp::ALL);
    expect_type(is_search ? type_ == ScalarType::I64 : is_logic != is_number());
    info_.binder = static_cast<u8>(bound_level());
    operand(kA, ScalarType::I64);
    operand(kB, ScalarType::I64);
    operand(kC, is_search ? ScalarType::BOOL : type_, /*inside=*/true);
  }

  void check_operator() {
    switch (static_cast<ExprOp>(e_.op)) {
      case ExprOp::FLOORDIV:
      case ExprOp::MOD:
        expect_type(type_ == ScalarType::I64);
        return check_binary(type_);
      case ExprOp::DIV:
        expect_type(type_ == ScalarType::F64);
        return check_binary(type_);
      case ExprOp::EQ:
      case ExprOp::NE:
        expect_type(!is_number());
        return check_binary(operand_type(kA));
      case ExprOp::LT:
      case ExprOp::LE:
      case ExprOp::GT:
      case ExprOp::GE:
        expect_type(!is_number());
        if (operand_type(kA) == ScalarType::BOOL) fail_at(at(kA), "does not order truth values");
        return check_binary(operand_type(kA));
      case ExprOp::AND:
      case ExprOp::OR:
        expect_type(!is_number());
        return check_binary(type_);
      case ExprOp::NEG:
        expect_type(is_number());
        return check_unary(type_);
      case ExprOp::NOT:
        expect_type(!is_number());
        return check_unary(type_);
      case ExprOp::CAST:
        return check_unary(operand_type(kA));
      case ExprOp::SELECT:
        operand(kA, ScalarType::BOOL);
        operand(kB, type_);
        return operand(kC, type_);
      default:  // ADD, SUB, MUL, MIN, MAX
        expect_type(is_number());
        return check_binary(type_);
    }
  }

  void check_unary(ScalarType type) {
    operand(kA, type);
    expect_leaf();
  }

  void check_binary(ScalarType type) {
    operand(kA, type);
    operand(kB, type);
    expect_none(kC);
  }

  const Context& c_;
  Section section_;
  const std::vector<ExprInfo>& earlier_;
  u32 index_;
  Expr e_;
  ScalarType type_;
  ExprInfo info_;
};

std::vector<ExprInfo> check_section(const Context& c, Section section) {
  std::vector<ExprInfo> infos;
  infos.reserve(c.count(section));
  for (u32 i = 0; i < c.count(section); ++i) {
    infos.push_back(NodeChecker(c, section, infos, i).check());
  }
  return infos;
}

// Finds the LET of each let number, so that LETVAR nodes can be checked against it.
void find_lets(Context& c) {
  c.let_pc.assign(kMaxLets, kNone);
  for (u32 pc = 0; pc < c.count(Section::CODE); ++pc) {
    const Instr instr = c.view.code(pc);
    if (!is(instr.opcode, Op::LET)) continue;
    const u64 at = c.at(Section::CODE, pc);
    if (instr.operand1 >= kMaxLets) {
      Context::fail(at, "LET numbers end at " + std::to_string(kMaxLets - 1));
    }
    if (c.let_pc[instr.operand1] != kNone) Context::fail(at, "this let is set by another LET too");
    if (instr.operand2 >= c.count(Section::EXPR)) {
      Context::fail(at, "LET names an expression that EXPR does not have");
    }
    c.let_pc[instr.operand1] = pc;
  }
}

}  // namespace

void require(const ExprInfo& info, const Scope& scope, u64 offset, std::string_view what) {
  const auto fail = [&](const std::string& why) {
    Context::fail(offset, std::string(what) + " " + why);
  };
  if (info.loops > scope.loops) {
    fail("reads a variable of loop level " + std::to_string(info.loops - 1) + " where " +
         std::to_string(scope.loops) + " loops are in scope");
  }
  if ((info.lets & ~scope.lets) != 0) fail("reads a let that has no value there");
  if (info.has_slot && !scope.slots) fail("may not read slots");
  if (info.free_bound != 0) {
    fail("reads a bound variable outside the REDUCE or SEARCH that binds it");
  }
  if (info.binder != ExprInfo::kNoBinder && info.binder != 0) {
    fail("has an outermost REDUCE or SEARCH that does not bind level 0");
  }
}

void Context::use(u32 expr, ScalarType type, const Scope& scope, u64 offset,
                  std::string_view what) const {
  const Expr e = get<Section::EXPR>(expr);
  if (!is(e.type, type)) {
    fail(offset, std::string(what) + " must be of type " + name_of(type) + ", not " +
                     name_of(static_cast<ScalarType>(e.type)));
  }
  require(exprs[expr], scope, offset, what);
}

void check_exprs(Context& c) {
  find_lets(c);
  c.exprs = check_section(c, Section::EXPR);
  c.schedule_exprs = check_section(c, Section::SCHEDULE_EXPR);
}

}  // namespace ptowsp::check
