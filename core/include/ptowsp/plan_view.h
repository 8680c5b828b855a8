// Reads a plan's bytes in place. PlanView is only made by validate() (validate.h), so every index,
// span, string and program counter it hands out has been checked: readers check nothing again.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ptowsp/plan.h"

namespace ptowsp {

class PlanView {
 public:
  // Where the records of a section lie. Sections that the file does not hold are empty.
  struct Table {
    const u8* data = nullptr;
    u32 count = 0;
    u32 stride = 0;
  };

  const Header& header() const { return header_; }
  const Table& table(Section s) const { return tables_[static_cast<std::size_t>(s)]; }
  u32 count(Section s) const { return table(s).count; }
  bool has(Feature f) const { return ((header_.features >> static_cast<u32>(f)) & 1u) != 0; }

  // Record i of section S, copied out (records need not be aligned in memory).
  template <Section S>
  typename RecordOf<S>::type get(u32 i) const {
    typename RecordOf<S>::type out;
    const Table& t = table(S);
    std::memcpy(&out, t.data + static_cast<std::size_t>(i) * t.stride, sizeof(out));
    return out;
  }

  Instr code(u32 pc) const { return get<Section::CODE>(pc); }
  Expr expr(u32 i) const { return get<Section::EXPR>(i); }

  // A {u16 length, bytes} entry of a string section.
  std::string_view string(u32 offset, Section s = Section::STRING) const {
    if (offset == kNone) return {};
    const u8* p = table(s).data + offset;
    u16 n = 0;
    std::memcpy(&n, p, sizeof(n));
    return {reinterpret_cast<const char*>(p + 2), n};
  }

 private:
  friend struct PlanLoader;  // validate.cpp
  static constexpr std::size_t kTables = 130;
  Header header_{};
  Table tables_[kTables]{};
};

// " (file:line)" of the user's line that a record comes from, or nothing. Of several the first is
// the user's own, the others lie inside of what it called.
inline std::string line_of(const PlanView& plan, Section section, u32 record) {
  for (u32 i = 0; i < plan.count(Section::DEBUG_LINE); ++i) {
    const DebugLine at = plan.get<Section::DEBUG_LINE>(i);
    if (at.section != static_cast<u16>(section) || at.index != record) continue;
    return " (" + std::string(plan.string(at.file, Section::DEBUG_STRING)) + ":" +
           std::to_string(at.line) + ")";
  }
  return "";
}

// The value of a CONST.
inline i64 constant_of(const Expr& e) {
  return static_cast<i64>(static_cast<u64>(e.a) | static_cast<u64>(e.b) << 32);
}

// The nodes that an expression refers to; kNone where there is none.
inline std::array<u32, 3> operands_of(const Expr& e) {
  const auto op = static_cast<ExprOp>(e.op);
  if (op == ExprOp::LOAD) return {kNone, e.b, e.c};
  if (op < ExprOp::ADD) return {kNone, kNone, kNone};
  return {e.a, e.b, e.c};
}

}  // namespace ptowsp
