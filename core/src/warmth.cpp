#include "ptowsp/warmth.h"

#if defined(__linux__)
#include <link.h>
#endif

#include <array>
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

// Read without a lock, which nobody would open in the child of a fork.
struct Libraries {
  static constexpr std::size_t kMost = 4;
  // Of more, nobody knows which part a start needs.
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;
  std::array<Code, kMost> code;
  std::array<std::atomic<bool>, kMost> is_known{};
  std::atomic<std::size_t> taken = 0;

  Libraries() { add(reinterpret_cast<std::uintptr_t>(&read_start_code)); }
  void add(std::uintptr_t address) {
    const Code found = code_at(address);
    if (found.empty() || found.size() > kMostBytes || has(found)) return;
    const std::size_t i = taken.fetch_add(1);
    if (i >= kMost) return;
    code[i] = found;
    is_known[i].store(true, std::memory_order_release);
  }
  bool has(Code found) const {
    for (std::size_t i = 0; i < kMost; ++i) {
      if (is_known[i].load(std::memory_order_acquire) && code[i].data() == found.data()) {
        return true;
      }
    }
    return false;
  }
};
Libraries libraries;

}  // namespace

void starts_through(const void* address) {
  libraries.add(reinterpret_cast<std::uintptr_t>(address));
}

// Constants may lie beside code, with what AddressSanitizer puts around them.
[[gnu::no_sanitize_address]]
std::size_t read_start_code(const std::function<bool()>& is_over) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kPage = 4096;
  const Libraries& all = libraries;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < Libraries::kMost; ++i) {
    if (!all.is_known[i].load(std::memory_order_acquire)) continue;
    for (std::size_t at = 0; at < all.code[i].size(); at += kLine) {
      if (at % kPage == 0 && is_over()) return bytes;
      static_cast<void>(*static_cast<const volatile std::byte*>(all.code[i].data() + at));
      bytes += kLine;
    }
  }
  return bytes;
}

}  // namespace ptowsp
