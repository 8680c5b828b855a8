// The argument words behind a TASK or COLLECTIVE, against the kernel that it calls.
#include <string>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

bool is_identity(u32 opcode) {
  return is(opcode, Op::PARAM_CONST) || is(opcode, Op::PARAM_LOOPVAR) || is(opcode, Op::PARAM_EXPR);
}

Op region_word(u32 mode) {
  switch (static_cast<AccessMode>(mode)) {
    case AccessMode::IN:
      return Op::IO_INPUT;
    case AccessMode::OUT:
      return Op::IO_OUTPUT;
    case AccessMode::INOUT:
      return Op::IO_INOUT;
    default:
      return Op::IO_ACCUM;
  }
}

class WordChecker {
 public:
  WordChecker(Context& c, u32 pc, const Scope& scope, const std::vector<u32>& live)
      : c_(c),
        scope_(scope),
        live_(live),
        site_(c.view.code(pc).operand2),
        next_(pc + 1),
        end_(pc + 1 + c.view.code(pc).operand1) {}

  void check() {
    while (next_ < end_ && is_identity(word().opcode)) check_identity();
    const Kernel k = kernel();
    for (u32 i = k.params; i < k.params + k.num_params; ++i) {
      const Param p = c_.get<Section::PARAM>(i);
      if (!is(p.kind, ParamKind::CONSTEXPR)) check_argument(p);
    }
    while (next_ < end_ && is(word().opcode, Op::AFTER)) check_after();
    if (next_ != end_) fail("is not one that the kernel's parameters call for here");
  }

 private:
  Instr word() const { return c_.view.code(next_); }
  u64 at() const { return c_.at(Section::CODE, next_); }
  [[noreturn]] void fail(const std::string& what) const {
    Context::fail(at(), "argument word " + what);
  }

  Kernel kernel() const {
    const Site s = c_.get<Section::SITE>(site_);
    if (s.kernel != kNone) return c_.get<Section::KERNEL>(s.kernel);
    const TierSet set = c_.get<Section::TIER_SET>(s.tiers);
    return c_.get<Section::KERNEL>(c_.get<Section::TIER>(set.tiers).kernel);
  }

  void check_identity() {
    const Instr w = word();
    if (is(w.opcode, Op::PARAM_LOOPVAR) && w.operand1 >= scope_.loops) {
      fail("PARAM_LOOPVAR names a loop that does not enclose the task");
    }
    if (is(w.opcode, Op::PARAM_EXPR))
      c_.use(w.operand2, ScalarType::I64, scope_, at(), "PARAM_EXPR");
    ++next_;
  }

  void check_argument(const Param& p) {
    const std::string name(c_.view.string(p.name));
    if (next_ >= end_) {
      Context::fail(c_.at(Section::CODE, end_ - 1),
                    "the task has no argument word for parameter '" + name + "'");
    }
    const Instr w = word();
    if (is(p.kind, ParamKind::SCALAR)) {
      if (!is(w.opcode, Op::SCALAR)) fail("must be SCALAR for parameter '" + name + "'");
      c_.use(w.operand2, scalar_type(p.dtype), scope_, at(), "SCALAR");
    } else {
      check_region(p, name, w);
    }
    ++next_;
  }

  void check_region(const Param& p, const std::string& name, const Instr& w) const {
    if (!is(w.opcode, region_word(p.mode)))
      fail("does not fit the mode of parameter '" + name + "'");
    const Access a = c_.get<Section::ACCESS>(w.operand2);
    if (a.mode != p.mode) fail("names an access of another mode than parameter '" + name + "'");
    if (c_.get<Section::TENSOR>(a.tensor).dtype != p.dtype) {
      fail("names a tensor of another dtype than parameter '" + name + "'");
    }
    if (c_.accesses[w.operand2].visible != p.rank) {
      fail("names a region of another rank than parameter '" + name + "' sees");
    }
    check_view(p, name, a);
    check_access_use(c_, w.operand2, scope_, live_, at());
  }

  // Tokens show nothing; pages belong to one sequence each.
  void check_view(const Param& p, const std::string& name, const Access& a) const {
    const Storage s = c_.get<Section::STORAGE>(c_.get<Section::TENSOR>(a.tensor).storage);
    const bool paged = is(s.storage_class, StorageClass::PAGED);
    if (is(s.storage_class, StorageClass::TOKEN) != is(p.kind, ParamKind::TOKEN)) {
      fail("gives parameter '" + name + "' a token, or a token parameter something else");
    }
    if (is(p.kind, ParamKind::PAGED) && !paged) {
      fail("gives the paged parameter '" + name + "' a tensor without pages");
    }
    if (!paged) return;
    const AccessDim sequence = c_.get<Section::ACCESS_DIM>(a.dims);
    const AccessDim tokens = c_.get<Section::ACCESS_DIM>(a.dims + 1);
    if ((sequence.flags & 1u) == 0) fail("names several sequences of a paged tensor");
    if (!is(p.kind, ParamKind::PAGED)) return;
    const bool in_a_row = c_.is_const(tokens.step) && c_.const_value(tokens.step) == 1;
    if ((tokens.flags & 1u) != 0 || !in_a_row) {
      fail("gives the paged parameter '" + name + "' tokens that are not a range");
    }
  }

  void check_after() {
    const u32 index = word().operand2;
    const After after = c_.get<Section::AFTER>(index);
    if (after.num_indices > kMaxLoops) {
      Context::fail(c_.at(Section::AFTER, index, offsetof(After, num_indices)),
                    "After.num_indices is higher than loops can nest");
    }
    for (u32 i = after.indices; i < after.indices + after.num_indices; ++i) {
      c_.use(c_.get<Section::EXPR_LIST>(i).expr, ScalarType::I64, scope_,
             c_.at(Section::EXPR_LIST, i), "After.indices");
    }
    c_.afters.push_back({site_, index});
    ++next_;
  }

  Context& c_;
  const Scope& scope_;
  const std::vector<u32>& live_;
  u32 site_;
  u32 next_;
  u32 end_;
};

}  // namespace

void check_access_use(const Context& c, u32 access, const Scope& scope,
                      const std::vector<u32>& live, u64 offset) {
  const Needs& needs = c.accesses[access];
  if (needs.loops > scope.loops) {
    Context::fail(offset, "the region reads a variable of a loop that does not enclose it");
  }
  if ((needs.lets & ~scope.lets) != 0) {
    Context::fail(offset, "the region reads a let that has no value there");
  }
  const Tensor t = c.get<Section::TENSOR>(c.get<Section::ACCESS>(access).tensor);
  const Storage s = c.get<Section::STORAGE>(t.storage);
  const bool has_scope =
      is(s.storage_class, StorageClass::TEMP) || is(s.storage_class, StorageClass::CHANNEL);
  if (has_scope && live[s.alloc] == kNone) {
    Context::fail(offset, "the region lies in a temporary or a message that is not there");
  }
}

void check_words(Context& c, u32 pc, const Scope& scope, const std::vector<u32>& live) {
  WordChecker(c, pc, scope, live).check();
}

}  // namespace ptowsp::check
