// A test harness in one header.
//
//   #include "harness.h"
//
//   TEST(ring_keeps_order) {
//     CHECK(ring.empty());
//     CHECK_EQ(ring.pop(), 7);
//     CHECK_THROWS(ring.pop(), std::out_of_range);
//   }
//
//   PTOWSP_TEST_MAIN
//
// A failed check is printed and the test goes on, so one run shows every failure; an exception
// that escapes ends its test only. Checks may be made from any thread. The program runs all tests,
// or those whose name contains its first argument, and exits with 1 if one failed or none ran.
#pragma once

#include <atomic>
#include <concepts>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ptowsp::test {

struct Test {
  const char* name;
  void (*body)();
  const char* file;
  int line;
};

inline std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}

// Constructed before main by each TEST.
struct Register {
  explicit Register(const Test& test) { all_tests().push_back(test); }
};

// Failed checks of the running test.
inline std::atomic<int> failures{0};

inline void fail(const char* file, int line, const std::string& message) {
  static std::mutex output;
  const std::lock_guard lock(output);
  ++failures;
  std::cout << file << ':' << line << ": " << message << '\n';
}

// The value as text; enums as their number, types without operator<< as "?".
template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  out << std::boolalpha;
  if constexpr (sizeof(T) == 1 && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    out << static_cast<int>(value);
  } else if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
    out << static_cast<const void*>(value);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    out << '"' << std::string_view(value) << '"';
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << '?';
  }
  return out.str();
}

// The integers that std::cmp_equal takes.
template <class T>
concept Number = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                 !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

// CHECK_EQ(v.size(), 3) compares unsigned with signed: by value, and without a warning.
template <class A, class B>
bool equal(const A& a, const B& b) {
  if constexpr (Number<A> && Number<B>) {
    return std::cmp_equal(a, b);
  } else {
    return a == b;
  }
}

template <class A, class B>
void check_eq(const A& a, const B& b, const char* text, const char* file, int line) {
  if (equal(a, b)) return;
  fail(file, line, std::string(text) + "\n    left:  " + show(a) + "\n    right: " + show(b));
}

// What the exception being handled says. Call from a catch block only.
inline std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "not a std::exception";
  }
}

template <class Expected, class Body>
void check_throws(Body body, const char* text, const char* file, int line) {
  try {
    body();
  } catch (const Expected&) {
    return;
  } catch (...) {
    return fail(file, line, std::string(text) + "\n    threw: " + current_exception_text());
  }
  fail(file, line, std::string(text) + "\n    threw nothing");
}

// Runs one test; true when it passed.
inline bool run(const Test& test) {
  failures = 0;
  try {
    test.body();
  } catch (...) {
    fail(test.file, test.line, "escaped exception: " + current_exception_text());
  }
  if (failures == 0) return true;
  std::cout << "FAILED " << test.name << '\n';
  return false;
}

inline int run_all(std::string_view filter) {
  int passed = 0;
  int failed = 0;
  for (const Test& test : all_tests()) {
    if (std::string_view(test.name).find(filter) == std::string_view::npos) continue;
    ++(run(test) ? passed : failed);
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace ptowsp::test

#define TEST(name)                                                                                 \
  static void test_##name();                                                                       \
  static const ::ptowsp::test::Register register_##name({#name, test_##name, __FILE__, __LINE__}); \
  static void test_##name()

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) ::ptowsp::test::fail(__FILE__, __LINE__, "CHECK(" #condition ")"); \
  } while (false)

#define CHECK_EQ(a, b) \
  ::ptowsp::test::check_eq((a), (b), "CHECK_EQ(" #a ", " #b ")", __FILE__, __LINE__)

#define CHECK_THROWS(expression, Type)                                                     \
  ::ptowsp::test::check_throws<Type>([&] { static_cast<void>(expression); },               \
                                     "CHECK_THROWS(" #expression ", " #Type ")", __FILE__, \
                                     __LINE__)

#define PTOWSP_TEST_MAIN \
  int main(int argc, char** argv) { return ::ptowsp::test::run_all(argc > 1 ? argv[1] : ""); }
