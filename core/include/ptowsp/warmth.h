// The code that the next run starts with, kept in a cache.
//
// A run that reads gigabytes leaves nothing else in the caches. The next one fetches the code that
// starts it from memory, line by line, each when the one before it has been executed: that takes
// three times as long as the start itself. A worker that has nothing more to do reads it
// beforehand. What one processor has read, another gets from there, or from the cache they share.
#pragma once

#include <cstddef>
#include <functional>

namespace ptowsp {

// Runs start through the library that holds this address as well as through our own: that of an
// interpreter, say, which is never unloaded. The first one counts, unless it has more than a few
// megabytes.
void starts_through(const void* address);

// Reads the code of these libraries until `is_over`, which is asked once a page. Gives the bytes
// read.
std::size_t read_start_code(const std::function<bool()>& is_over);

}  // namespace ptowsp
