// Large tables in large pages, where the system has them: a table of many megabytes that is read in
// order pays a walk of the page table for every 4 KB otherwise, and a fault when it is new.
//
// Only a hint, and the only place of the core that speaks to one operating system.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ptowsp {

inline void prefer_huge_pages(void* data, std::size_t bytes) {
#if defined(__linux__)
  constexpr std::size_t kPage = std::size_t{2} << 20;
  if (bytes < 4 * kPage) return;
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  static_cast<void>(data);
  static_cast<void>(bytes);
#endif
}

}  // namespace ptowsp
