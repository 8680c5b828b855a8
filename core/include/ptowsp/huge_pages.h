// Large tables in large pages, where the system has them: a table of many megabytes that is read in
// order pays a walk of the page table for every 4 KB otherwise, and a fault when it is new.
//
// Only a hint. Besides placement.h the only place of the core that speaks to one operating system.
#pragma once

#include <cstddef>

namespace ptowsp {

void prefer_huge_pages(void* data, std::size_t bytes);

}  // namespace ptowsp
