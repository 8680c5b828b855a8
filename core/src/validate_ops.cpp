#include "validate_ops.h"

namespace ptowsp::check {

const OpInfo* find_op(u32 opcode) {
  switch (opcode) {
#define PTOWSP_OP(name, number, place, operand1, operand2, doc)                              \
  case number: {                                                                             \
    static constexpr OpInfo info{#name, Place::place, Operand::operand1, Operand::operand2}; \
    return &info;                                                                            \
  }
#include "ptowsp/opcodes.def"
#undef PTOWSP_OP
    default:
      return nullptr;
  }
}

u64 operand_limit(const Context& c, Operand operand) {
  switch (operand) {
    case Operand::None:
      return 1;
    case Operand::Pc:
      return u64{c.count(Section::CODE)} + 1;
    case Operand::Axis:
      return c.count(Section::AXIS);
    case Operand::Expr:
      return c.count(Section::EXPR);
    case Operand::Entry:
      return c.count(Section::ENTRY);
    case Operand::Site:
      return c.count(Section::SITE);
    case Operand::Const:
      return c.count(Section::CONST);
    case Operand::Access:
      return c.count(Section::ACCESS);
    case Operand::After:
      return c.count(Section::AFTER);
    case Operand::Slot:
      return c.count(Section::SLOT);
    case Operand::Channel:
      return c.count(Section::CHANNEL);
    case Operand::Alloc:
      return c.count(Section::ALLOC);
    case Operand::Count:
    case Operand::Level:
    case Operand::Flags:
      break;
  }
  return u64{1} << 32;
}

}  // namespace ptowsp::check
