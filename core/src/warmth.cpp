#include "ptowsp/warmth.h"

#if defined(__linux__)
#include <link.h>
#endif

#include <atomic>
#include <cstdint>
#include <span>

namespace ptowsp {

namespace {

using Code = std::span<const std::byte>;

struct Looked {
  std::uintptr_t address;
  Code code;
};

#if defined(__linux__)
int look(dl_phdr_info* info, std::size_t, void* out) {
  Looked& looked = *static_cast<Looked*>(out);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    const bool is_readable = part.p_type == PT_LOAD && (part.p_flags & PF_R) != 0;
    if (!is_readable || looked.address - begin >= part.p_filesz) continue;
    looked.code = {reinterpret_cast<const std::byte*>(begin), part.p_filesz};
    return 1;
  }
  return 0;
}
#endif

// The code around an address; nothing where nobody knows.
Code code_at(std::uintptr_t address) {
  Looked looked{address, {}};
#if defined(__linux__)
  dl_iterate_phdr(look, &looked);
#endif
  return looked.code;
}

// Of more, nobody knows which part a start needs.
constexpr std::size_t kMostBytes = std::size_t{8} << 20;

Code small_code_at(std::uintptr_t address) {
  const Code found = code_at(address);
  return found.size() > kMostBytes ? Code() : found;
}

const Code own = small_code_at(reinterpret_cast<std::uintptr_t>(&read_start_code));
// Written once, and then read without a lock, which nobody would open in the child of a fork.
Code callers;
std::atomic<bool> is_callers_known = false;

}  // namespace

void starts_through(const void* address) {
  static std::atomic<bool> is_told = false;
  if (is_told.exchange(true)) return;
  const Code found = small_code_at(reinterpret_cast<std::uintptr_t>(address));
  if (found.empty() || found.data() == own.data()) return;
  callers = found;
  is_callers_known.store(true, std::memory_order_release);
}

// Constants may lie beside code, with what AddressSanitizer puts around them.
[[gnu::no_sanitize_address]]
std::size_t read_start_code(const std::function<bool()>& is_over) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kPage = 4096;
  std::size_t bytes = 0;
  const Code known[] = {own, is_callers_known.load(std::memory_order_acquire) ? callers : Code()};
  for (const Code& code : known) {
    for (std::size_t at = 0; at < code.size(); at += kLine) {
      if (at % kPage == 0 && is_over()) return bytes;
      static_cast<void>(*static_cast<const volatile std::byte*>(code.data() + at));
      bytes += kLine;
    }
  }
  return bytes;
}

}  // namespace ptowsp
