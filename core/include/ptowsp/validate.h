// Decides whether bytes are a plan that may be run without further safety checks.
//
// After validate() succeeds: every reference, span, string and enumeration value is in range;
// blocks nest and end; program counters stay inside their entry; every expression refers only to
// earlier nodes, to loop variables that are in scope wherever it is used, and is no deeper than
// kMaxExprDepth; argument words match the kernel's parameters; the header's counts and feature bits
// are those of the contents; checksums hold.
#pragma once

#include <cstddef>
#include <string>

#include "ptowsp/plan_view.h"

namespace ptowsp {

struct PlanFault {
  u64 offset = 0;       // byte of the file where the trouble was found
  std::string message;  // what is wrong there
};

// Reads `size` bytes at `data`, which must outlive the view. Returns true and fills `view`, or
// returns false and fills `fault`. Never throws on bad input and never reads outside the bytes.
bool validate(const void* data, std::size_t size, PlanView* view, PlanFault* fault);

// crc32 as zlib computes it.
u32 crc32(const void* data, std::size_t size, u32 crc = 0);

}  // namespace ptowsp
