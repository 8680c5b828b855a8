// What a C++ kernel body is compiled against: views of regions, half-precision storage types,
// ptowsp_fail(), and the boundary that turns exceptions into error messages.
//
// A body sees each In parameter as View<const T, Rank>, each other tensor parameter as
// View<T, Rank>, a paged one as PagedView, and each scalar as a plain value. Needs the standard
// library and ptowsp.h only.
#pragma once

#include <ptowsp/ptowsp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ptowsp {

// ---- regions ----------------------------------------------------------------------------------

// Walks the elements of a rank-1 view, which need not be adjacent in memory.
template <class T>
class StridedIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = std::remove_const_t<T>;
  using difference_type = std::int64_t;
  using pointer = T*;
  using reference = T&;

  StridedIterator() = default;
  StridedIterator(T* data, std::int64_t stride, std::int64_t index)
      : data_(data), stride_(stride), index_(index) {}

  T& operator*() const { return data_[index_ * stride_]; }
  T* operator->() const { return data_ + index_ * stride_; }
  StridedIterator& operator++() {
    ++index_;
    return *this;
  }
  StridedIterator operator++(int) {
    StridedIterator before = *this;
    ++index_;
    return before;
  }
  // Compares positions, not addresses: a stride may be 0.
  bool operator==(const StridedIterator& other) const { return index_ == other.index_; }

 private:
  T* data_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t index_ = 0;
};

// A region of a tensor. Copying a view copies no elements; a const view still writes where T
// allows. Indices are not checked: the runtime has checked that the region lies inside its tensor.
//
//   x[i]        rank 0: i is 0, the only element; rank 1: element i; more: sub-view i, one rank
//   less x(i, j)     the element at those indices, one per dimension; x() for rank 0
template <class T, int Rank>
class View {
  static_assert(Rank >= 0 && Rank <= PTOWSP_MAX_RANK);

 public:
  using value_type = std::remove_const_t<T>;

  View(T* data, const std::int64_t* shape, const std::int64_t* stride) : data_(data) {
    for (int k = 0; k < Rank; ++k) {
      shape_[k] = shape[k];
      stride_[k] = stride[k];
    }
  }
  explicit View(const ptowsp_view& view)
      : View(static_cast<T*>(view.data), view.shape, view.stride) {}
  // A view that writes is also a view that reads.
  template <class U>
    requires std::same_as<const U, T> && (!std::is_const_v<U>)
  View(const View<U, Rank>& other) : View(other.data(), other.shape_, other.stride_) {}

  decltype(auto) operator[](std::int64_t i) const {
    if constexpr (Rank == 0) {
      return (data_[i]);
    } else if constexpr (Rank == 1) {
      return (data_[i * stride_[0]]);
    } else {
      return View<T, Rank - 1>(data_ + i * stride_[0], shape_ + 1, stride_ + 1);
    }
  }

  template <std::integral... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank, "one index per dimension");
    std::int64_t offset = 0;
    int k = 0;
    ((offset += static_cast<std::int64_t>(index) * stride_[k++]), ...);
    return data_[offset];
  }

  // The first element; the others lie stride(k) elements apart.
  T* data() const { return data_; }
  std::int64_t shape(int k) const { return shape_[k]; }
  std::int64_t stride(int k) const { return stride_[k]; }

  std::int64_t size() const {
    std::int64_t count = 1;
    for (int k = 0; k < Rank; ++k) count *= shape_[k];
    return count;
  }

  StridedIterator<T> begin() const
    requires(Rank == 1)
  {
    return {data_, stride_[0], 0};
  }
  StridedIterator<T> end() const
    requires(Rank == 1)
  {
    return {data_, stride_[0], shape_[0]};
  }

 private:
  template <class, int>
  friend class View;

  static constexpr std::size_t kDims = Rank > 0 ? std::size_t{Rank} : 1u;  // no empty arrays

  T* data_;
  std::int64_t shape_[kDims] = {};
  std::int64_t stride_[kDims] = {};
};

// Tokens of one sequence, on pages that may lie anywhere. x(i, j) and x[i] find the page of token
// i; whoever reads all of them goes page by page:
//
//   for (int64_t p = 0; p < k.pages(); ++p) {
//     auto part = k.page(p);  // a View of the tokens on that page: part.shape(0) of them
//   }
template <class T, int Rank>
class PagedView {
  static_assert(Rank >= 1 && Rank <= PTOWSP_MAX_RANK);

 public:
  using value_type = std::remove_const_t<T>;

  PagedView(const ptowsp_view& view, const ptowsp_pages& pages) : all_(view), pages_(pages) {}

  std::int64_t shape(int k) const { return all_.shape(k); }
  // Between elements of one token, and between tokens of one page.
  std::int64_t stride(int k) const { return all_.stride(k); }
  std::int64_t page_size() const { return pages_.page; }

  decltype(auto) operator[](std::int64_t token) const { return row(token)[0]; }

  template <std::integral... Index>
  T& operator()(std::int64_t token, Index... index) const {
    static_assert(sizeof...(Index) + 1 == Rank, "one index per dimension");
    return row(token)(0, index...);
  }

  // How many pages the tokens lie on, and those of one page.
  std::int64_t pages() const {
    return shape(0) == 0 ? 0 : (pages_.first + shape(0) - 1) / pages_.page + 1;
  }
  View<T, Rank> page(std::int64_t p) const {
    const std::int64_t begin = p == 0 ? 0 : p * pages_.page - pages_.first;
    const std::int64_t end = std::min(shape(0), (p + 1) * pages_.page - pages_.first);
    return tokens(begin, end - begin);
  }
  // The page of a token, counted from that of the first one, and which of its tokens it is. A view
  // may begin in the middle of a page.
  struct Place {
    std::int64_t page;
    std::int64_t token;
  };
  Place place(std::int64_t token) const {
    const std::int64_t at = pages_.first + token;
    return {at / pages_.page, at % pages_.page};
  }
  T* data(const Place& at) const {
    const std::int64_t entry = at.page * pages_.table_stride;
    const std::int64_t number = pages_.wide != 0
                                    ? static_cast<const std::int64_t*>(pages_.table)[entry]
                                    : static_cast<const std::int32_t*>(pages_.table)[entry];
    return all_.data() + number * pages_.page_stride + at.token * all_.stride(0);
  }

 private:
  View<T, Rank> row(std::int64_t token) const { return tokens(token, 1); }

  // Tokens of one page.
  View<T, Rank> tokens(std::int64_t begin, std::int64_t count) const {
    std::int64_t shape[std::size_t{Rank}];
    std::int64_t stride[std::size_t{Rank}];
    for (int k = 0; k < Rank; ++k) {
      shape[k] = k == 0 ? count : all_.shape(k);
      stride[k] = all_.stride(k);
    }
    return View<T, Rank>(data(place(begin)), shape, stride);
  }

  View<T, Rank> all_;
  ptowsp_pages pages_;
};

// ---- half-precision storage -------------------------------------------------------------------

namespace detail {

// A float whose rounding to a shorter format equals rounding `value` itself once: where the float
// is not exact, the neighbour with an odd last bit is taken, so no tie appears that was not there.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if ((bits & 1u) != 0) return nearest;
  const bool grow = std::fabs(value) > std::fabs(static_cast<double>(nearest));
  return std::bit_cast<float>(grow ? bits + 1u : bits - 1u);
}

// Rounds to nearest, ties to even. Infinities, NaNs (made quiet) and subnormals are kept.
inline std::uint16_t f16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {  // NaN: the top payload bits, quiet
    half = 0x7E00u | ((magnitude >> 13) & 0x03FFu);
  } else if (magnitude >= 0x477FF000u) {  // 65520 and more round to infinity
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal
    // Adding 0.5 aligns the last bit of the sum with the last bit of a subnormal half.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(sum) - 0x3F000000u;
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - 0x38000000u + 0x0FFFu + odd) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float f16_value(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x03FFu) << 13));
  }
  if (magnitude < 0x0400u) {  // subnormal: 2^-14 * (1 + m / 1024) - 2^-14, which is exact
    const float value = std::bit_cast<float>((magnitude << 13) + 0x38800000u) - 0x1p-14f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

inline std::uint16_t bf16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Two bytes that compute as float. Every number is rounded once, to nearest, ties to even.
template <std::uint16_t (*Encode)(float), float (*Decode)(std::uint16_t)>
struct Half {
  std::uint16_t bits;

  Half() = default;
  Half(float value) : bits(Encode(value)) {}
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Half(Number value) : bits(Encode(round_to_odd(static_cast<double>(value)))) {}

  operator float() const { return Decode(bits); }

  Half& operator+=(float value) { return *this = Half(*this + value); }
  Half& operator-=(float value) { return *this = Half(*this - value); }
  Half& operator*=(float value) { return *this = Half(*this * value); }
  Half& operator/=(float value) { return *this = Half(*this / value); }
};

}  // namespace detail

using f16 = detail::Half<detail::f16_bits, detail::f16_value>;
using bf16 = detail::Half<detail::bf16_bits, detail::bf16_value>;

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2 && std::is_trivially_copyable_v<f16>);
static_assert(sizeof(bool) == 1, "DType::BOOL is one byte");

// ---- the boundary -----------------------------------------------------------------------------

// Thrown by ptowsp_fail() and caught at the boundary.
struct KernelFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

// Fits the message into the caller's buffer; returns the kernel's failure status.
inline std::int32_t report(const ptowsp_call* call, const char* message) noexcept {
  if (call->error != nullptr && call->error_size > 0) {
    const std::size_t room = call->error_size - 1u;
    const std::size_t length = std::min(std::strlen(message), room);
    std::memcpy(call->error, message, length);
    call->error[length] = '\0';
  }
  return 1;
}

// Call from a catch block. Kept out of line, so that entry points stay small.
[[gnu::cold, gnu::noinline]] inline std::int32_t report_exception(
    const ptowsp_call* call) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    return report(call, error.what());
  } catch (...) {
    return report(call, "unknown C++ exception");
  }
}

}  // namespace detail

// Runs a body; an exception that leaves it becomes a message and a status.
template <class Body>
std::int32_t run_body(const ptowsp_call* call, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return detail::report_exception(call);
  }
}

// The tensor argument with that number, in parameter order.
template <class T, int Rank>
View<T, Rank> view_argument(const ptowsp_call* call, int number) {
  return View<T, Rank>(call->views[number]);
}

template <class T, int Rank>
PagedView<T, Rank> paged_argument(const ptowsp_call* call, int number) {
  return PagedView<T, Rank>(call->views[number], call->pages[number]);
}

// A value whose bits lie in the low bytes of 64 bits.
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, &bits, sizeof value);
  } else {
    std::memcpy(&value, reinterpret_cast<const char*>(&bits) + 8 - sizeof value, sizeof value);
  }
  return value;
}

// The scalar argument with that number, in parameter order.
template <class T>
T scalar_argument(const ptowsp_call* call, int number) {
  return from_bits<T>(call->scalars[number]);
}

}  // namespace ptowsp

// Ends the task, and with it the run, with this message.
[[noreturn]] inline void ptowsp_fail(const std::string& message) {
  throw ptowsp::KernelFailure(message);
}

#define PTOWSP_KERNEL extern "C" __attribute__((visibility("default"))) std::int32_t
