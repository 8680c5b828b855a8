// Arrays that share no cache line with anything else, for what one worker writes all the time.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace ptowsp {

inline constexpr std::size_t kCacheLine = 64;

template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(std::size_t n) {
    const std::size_t bytes = (n * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    return static_cast<T*>(::operator new(bytes, std::align_val_t{kCacheLine}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t{kCacheLine}); }

  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

// Room for entries that are written before they are read: nobody clears it.
template <class T>
struct RawAllocator : LineAllocator<T> {
  template <class U>
  struct rebind {
    using other = RawAllocator<U>;
  };
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

template <class T>
using RawVector = std::vector<T, RawAllocator<T>>;

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace ptowsp
