// Opcodes and their operands as tables, made from opcodes.def. Private to core/src/validate*.cpp.
#pragma once

#include "validate_context.h"

namespace ptowsp::check {

enum class Place { Open, Item, Word, Close, Axis, Directive, Device };

enum class Operand {
  None,
  Pc,
  Count,
  Level,
  Flags,
  Axis,
  Expr,
  Entry,
  Site,
  Const,
  Access,
  After,
  Slot,
  Channel,
  Alloc
};

struct OpInfo {
  const char* name;
  Place place;
  Operand operand1;
  Operand operand2;
};

// What is known of an opcode; null if it has no meaning.
const OpInfo* find_op(u32 opcode);

// The first number that an operand may not be: the records of its table, or none.
u64 operand_limit(const Context& c, Operand operand);

}  // namespace ptowsp::check
