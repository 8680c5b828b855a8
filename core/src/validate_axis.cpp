// Loops: an axis against the loop instruction that uses it.
//
// RAGGED and SPARSE axes name their arrays and also give extent and value as expressions, so that
// one reader may use the arrays and another the expressions. Both must say the same, hence the
// fixed shapes below.
#include <string>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

class AxisChecker {
 public:
  AxisChecker(const Context& c, u32 index, const Scope& scope)
      : c_(c), index_(index), a_(c.get<Section::AXIS>(index)), scope_(scope) {}

  void check() const {
    check_exprs();
    check_fields();
    switch (static_cast<AxisKind>(a_.kind)) {
      case AxisKind::DENSE:
        if (!c_.is_const(a_.extent) || c_.const_value(a_.extent) < 0) {
          fail(offsetof(Axis, extent), "is DENSE and needs a constant extent of at least 0");
        }
        return;
      case AxisKind::DENSE_DYN:
        if (is_varying(a_.extent)) {
          fail(offsetof(Axis, extent), "is DENSE_DYN and needs an extent known at execute");
        }
        return;
      case AxisKind::RAGGED:
        check_parent();
        check_array(a_.lengths, offsetof(Axis, lengths));
        if (!is_load(a_.extent, a_.lengths) || !is_loop_var(index_of(a_.extent), parent_level())) {
          fail(offsetof(Axis, extent), "is RAGGED and needs the extent lengths[parent]");
        }
        return;
      case AxisKind::SPARSE:
        return check_sparse();
      case AxisKind::TILED:
      case AxisKind::EXPR:
        return;
    }
  }

 private:
  [[noreturn]] void fail(std::size_t field, const std::string& what) const {
    Context::fail(c_.at(Section::AXIS, index_, field),
                  "axis '" + std::string(c_.view.string(a_.name)) + "' " + what);
  }
  u64 at(std::size_t field) const { return c_.at(Section::AXIS, index_, field); }

  void check_exprs() const {
    Scope inner = scope_;
    ++inner.loops;
    c_.use(a_.start, ScalarType::I64, scope_, at(offsetof(Axis, start)), "Axis.start");
    c_.use(a_.extent, ScalarType::I64, scope_, at(offsetof(Axis, extent)), "Axis.extent");
    if (a_.tile != kNone) {
      c_.use(a_.tile, ScalarType::I64, scope_, at(offsetof(Axis, tile)), "Axis.tile");
    }
    if (a_.value != kNone) {
      c_.use(a_.value, ScalarType::I64, inner, at(offsetof(Axis, value)), "Axis.value");
    }
    if (a_.body_tasks != kNone) {
      c_.use(a_.body_tasks, ScalarType::I64, inner, at(offsetof(Axis, body_tasks)),
             "Axis.body_tasks");
    }
  }

  // A field is there exactly for the kinds that use it.
  void check_fields() const {
    const bool sparse = is(a_.kind, AxisKind::SPARSE);
    const bool by_array = sparse || is(a_.kind, AxisKind::RAGGED);
    const bool tiled = is(a_.kind, AxisKind::TILED);
    expect(offsetof(Axis, tile), a_.tile, tiled);
    expect(offsetof(Axis, value), a_.value, sparse);
    expect(offsetof(Axis, parent), a_.parent, by_array);
    expect(offsetof(Axis, lengths), a_.lengths, by_array);
    expect(offsetof(Axis, indices), a_.indices, sparse);
    if (a_.flags != 0 && !tiled) fail(offsetof(Axis, flags), "is padded and not TILED");
  }

  void expect(std::size_t field, u32 value, bool wanted) const {
    if ((value != kNone) == wanted) return;
    fail(field, wanted ? "lacks a field that its kind needs" : "has a field that its kind lacks");
  }

  bool is_varying(u32 expr) const {
    const ExprInfo& info = c_.exprs[expr];
    return info.loops != 0 || info.lets != 0 || info.has_slot;
  }

  void check_parent() const {
    for (u32 i = a_.outer; i != kNone; i = c_.get<Section::AXIS>(i).outer) {
      if (i == a_.parent) return;
    }
    fail(offsetof(Axis, parent), "has a parent that is not a loop around it");
  }

  void check_array(u32 symbol, std::size_t field) const {
    const Symbol s = c_.get<Section::SYMBOL>(symbol);
    if (!is(s.kind, SymbolKind::ARRAY) || s.rank != 1) fail(field, "needs an array of rank 1");
  }

  // extent = indptr[row + 1] - indptr[row]; value = indices[indptr[row] + index]
  void check_sparse() const {
    check_parent();
    check_array(a_.lengths, offsetof(Axis, lengths));
    check_array(a_.indices, offsetof(Axis, indices));
    if (!is_int(a_.start, 0)) fail(offsetof(Axis, start), "is SPARSE and must start at 0");
    const Expr extent = node(a_.extent);
    const bool good_extent = is(extent.op, ExprOp::SUB) && is_row_start(extent.b) &&
                             is_load(extent.a, a_.lengths) && is_next_row(index_of(extent.a));
    if (!good_extent) {
      fail(offsetof(Axis, extent), "is SPARSE and needs the extent indptr[row + 1] - indptr[row]");
    }
    const bool good_value = is_load(a_.value, a_.indices) && is_entry(index_of(a_.value));
    if (!good_value) {
      fail(offsetof(Axis, value), "is SPARSE and needs the value indices[indptr[row] + index]");
    }
  }

  Expr node(u32 i) const { return c_.get<Section::EXPR>(i); }
  u32 parent_level() const { return c_.get<Section::AXIS>(a_.parent).level; }
  u32 index_of(u32 load) const { return node(load).b; }

  bool is_int(u32 i, i64 value) const { return c_.is_const(i) && c_.const_value(i) == value; }
  bool is_loop_var(u32 i, u32 level) const {
    return is(node(i).op, ExprOp::LOOPVAR) && node(i).arg == level;
  }
  bool is_load(u32 i, u32 symbol) const {
    return is(node(i).op, ExprOp::LOAD) && node(i).a == symbol;
  }
  bool is_row_start(u32 i) const {
    return is_load(i, a_.lengths) && is_loop_var(index_of(i), parent_level());
  }
  bool is_next_row(u32 i) const {
    return is(node(i).op, ExprOp::ADD) && is_loop_var(node(i).a, parent_level()) &&
           is_int(node(i).b, 1);
  }
  bool is_entry(u32 i) const {
    return is(node(i).op, ExprOp::ADD) && is_row_start(node(i).a) &&
           is_loop_var(node(i).b, a_.level);
  }

  const Context& c_;
  u32 index_;
  Axis a_;
  const Scope& scope_;
};

}  // namespace

void check_axis(const Context& c, u32 axis, Op opcode, const Scope& scope, u32 outer, u64 offset) {
  const Axis a = c.get<Section::AXIS>(axis);
  if (a.level != scope.loops) {
    Context::fail(c.at(Section::AXIS, axis, offsetof(Axis, level)),
                  "Axis.level is " + std::to_string(a.level) + ", but " +
                      std::to_string(scope.loops) + " loops enclose it");
  }
  if (a.outer != outer) {
    Context::fail(c.at(Section::AXIS, axis, offsetof(Axis, outer)),
                  "Axis.outer is not the next axis around it");
  }
  if ((opcode == Op::SELECT) != is(a.kind, AxisKind::SPARSE)) {
    Context::fail(offset, "SELECT loops over SPARSE axes, the other loops over the other kinds");
  }
  AxisChecker(c, axis, scope).check();
}

}  // namespace ptowsp::check
