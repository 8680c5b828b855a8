// The plan format as plain C++ types, made from opcodes.def, enums.def and records.def.
// Nothing here allocates or checks; plan_view.h reads a file, validate.cpp says whether it may be
// read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ptowsp {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline constexpr u32 kMagic = 0x574F5450;  // "PTOW" read as little-endian
inline constexpr u32 kVersion = 1;
inline constexpr u32 kNone = 0xFFFFFFFFu;

// Limits of the format. A plan beyond them is refused, so readers may use fixed arrays.
inline constexpr u32 kMaxLoops = 16;           // loops around one site, RECV included
inline constexpr u32 kMaxBlocks = 48;          // open blocks, loops included
inline constexpr u32 kMaxRank = 8;             // dimensions of a tensor
inline constexpr u32 kMaxExprDepth = 64;       // height of an expression tree
inline constexpr u32 kMaxExprTree = 1u << 16;  // nodes of an expression written out as a tree
inline constexpr u32 kMaxBoundVars = 4;        // nested REDUCE and SEARCH
inline constexpr u32 kMaxTensorArgs = 64;      // tensor arguments of a kernel (Ascend: 32)
inline constexpr u32 kMaxScalarArgs = 32;      // scalar arguments of a kernel (Ascend: 16)
inline constexpr u32 kMaxArgWords = 160;       // words behind a TASK or COLLECTIVE
inline constexpr u32 kMaxLets = 64;            // LET instructions of a plan
inline constexpr u32 kMaxSlots = 64;           // SLOT records of a plan
inline constexpr u32 kMaxName = 1024;          // bytes of a name
inline constexpr u32 kMaxRecords = 1u << 24;   // records in one section

inline constexpr u32 kSectionRequired = 1u;
inline constexpr u32 kSectionDebug = 2u;

// Variables of expressions as a cursor holds them: loop variables by level, then the columns of
// sparse loops by level, then slots, then lets, then the copies that temporaries have. Those behind
// the loop variables are registers.
inline constexpr u32 kFirstColumn = kMaxLoops;
inline constexpr u32 kFirstSlot = 2 * kMaxLoops;
inline constexpr u32 kMaxVars = 64;
inline constexpr u32 kMaxKept =
    kMaxVars - kFirstSlot;  // slots, lets and temporaries that cpu_sim runs

// A site, loop or step in program order; see docs/bytecode.md for the limits above.
enum class Op : u8 {
#define PTOWSP_OP(name, number, place, operand1, operand2, doc) name = number,
#include "ptowsp/opcodes.def"
#undef PTOWSP_OP
};

#define PTOWSP_ENUM_BEGIN(name, doc) enum class name : u32 {
#define PTOWSP_VALUE(enumeration, name, number, doc) name = number,
#define PTOWSP_ENUM_END(name) \
  }                           \
  ;
#include "ptowsp/enums.def"
#undef PTOWSP_ENUM_BEGIN
#undef PTOWSP_VALUE
#undef PTOWSP_ENUM_END

enum class Section : u16 {
#define PTOWSP_SECTION(name, kind, record, cls, doc) name = kind,
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
};

#define PTOWSP_RECORD_BEGIN(record, doc) struct record {
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc) ctype name;
#define PTOWSP_RECORD_END(record) \
  }                               \
  ;
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END

// The record type of a section: RecordOf<Section::AXIS>::type is Axis.
template <Section S>
struct RecordOf;
#define PTOWSP_SECTION(name, kind, record, cls, doc) \
  template <>                                        \
  struct RecordOf<Section::name> {                   \
    using type = record;                             \
  };
#include "ptowsp/records.def"
#undef PTOWSP_SECTION

inline constexpr bool reads(u32 mode) { return (mode & 1u) != 0; }
inline constexpr bool writes(u32 mode) { return (mode & 2u) != 0; }

// Bytes of one element.
inline constexpr u32 dtype_size(DType t) {
  switch (t) {
    case DType::F64:
    case DType::I64:
    case DType::U64:
      return 8;
    case DType::F32:
    case DType::I32:
    case DType::U32:
      return 4;
    case DType::F16:
    case DType::BF16:
    case DType::I16:
    case DType::U16:
      return 2;
    case DType::I8:
    case DType::U8:
    case DType::BOOL:
      return 1;
  }
  return 0;
}

// Calls fn(0) .. fn(levels - 1). Nests are shallow, and a loop that the compiler prepares for many
// rounds costs more than the rounds.
template <class Fn>
inline void each_level(u32 levels, Fn fn) {
  if (levels > 0) fn(0u);
  if (levels > 1) fn(1u);
  if (levels > 2) fn(2u);
  for (u32 l = 3; l < levels; ++l) fn(l);
}

}  // namespace ptowsp
