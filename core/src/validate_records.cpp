// Checks every field of every record by the meaning that records.def gives it. Most of this file is
// expanded from that list, so a new record is checked as soon as it is written there.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

// The field under the check: what messages call it and where it lies in the file.
struct Field {
  const char* record;
  const char* name;
  u64 offset;

  [[noreturn]] void fail(const std::string& what) const {
    Context::fail(offset, std::string(record) + "." + name + " " + what);
  }
};

// Marks the bytes of a string section at which an entry begins.
std::vector<bool> find_strings(const Context& c, Section s) {
  const PlanView::Table& t = c.view.table(s);
  std::vector<bool> starts(t.count, false);
  u32 i = 0;
  while (i < t.count) {
    if (t.count - i < 2) Context::fail(c.at(s, i), "a string's length is cut off");
    const u32 n = static_cast<u32>(t.data[i]) | static_cast<u32>(t.data[i + 1]) << 8;
    if (n > t.count - i - 2) Context::fail(c.at(s, i), "a string reaches past its section");
    if (!is_utf8({reinterpret_cast<const char*>(t.data + i + 2), n})) {
      Context::fail(c.at(s, i + 2), "a string is not valid UTF-8");
    }
    starts[i] = true;
    i += 2 + n;
  }
  return starts;
}

class FieldChecker {
 public:
  explicit FieldChecker(Context& context)
      : c_(context),
        strings_(find_strings(c_, Section::STRING)),
        debug_strings_(find_strings(c_, Section::DEBUG_STRING)),
        deps_strings_(find_strings(c_, Section::DEPS_STRING)) {
    c_.schedule_strings = find_strings(c_, Section::SCHEDULE_STRING);
  }

  void zero(u64 value, const Field& f) const {
    if (value != 0) f.fail("is reserved and must be 0");
  }

  void bits(u64 value, u64 mask, const Field& f) const {
    if ((value & ~mask) != 0) f.fail("has unknown bits set");
  }

  void ref(u64 value, Section target, const char* table, const Field& f) const {
    if (value < c_.count(target)) return;
    f.fail("is " + std::to_string(value) + "; " + table + " has " +
           std::to_string(c_.count(target)) + " records");
  }

  void name(u64 value, const Field& f) const {
    string(value, strings_, f);
    const std::size_t n = c_.view.string(static_cast<u32>(value)).size();
    if (n == 0) f.fail("is empty");
    if (n > kMaxName) f.fail("is longer than " + std::to_string(kMaxName) + " bytes");
  }

  void text(u64 value, const Field& f) const {
    if (value != kNone) string(value, strings_, f);
  }

  void debug_text(u64 value, const Field& f) const { string(value, debug_strings_, f); }

  void deps_text(u64 value, const Field& f) const {
    if (value != kNone) string(value, deps_strings_, f);
  }

  void span(u64 first, Section target) {
    span_first_ = static_cast<u32>(first);
    span_target_ = target;
  }

  // Runs may not share records, so walking every run costs no more than the file is long. Kernel
  // bytes are exempt here: equal bodies may share theirs (check_kernels).
  void count(u64 value, const Field& f) {
    const u32 n = static_cast<u32>(value);
    const u32 limit = c_.count(span_target_);
    if (span_first_ > limit || n > limit - span_first_) {
      f.fail("makes the run reach past the end of its section");
    }
    if (span_target_ == Section::KERNEL_BYTES) return;
    std::vector<bool>& taken = taken_[static_cast<std::size_t>(span_target_)];
    if (taken.empty()) taken.resize(limit, false);
    for (u32 i = span_first_; i < span_first_ + n; ++i) {
      if (taken[i]) f.fail("makes the run overlap the run of another record");
      taken[i] = true;
    }
  }

 private:
  static void string(u64 value, const std::vector<bool>& starts, const Field& f) {
    if (value < starts.size() && starts[static_cast<std::size_t>(value)]) return;
    f.fail("is not the offset of a string");
  }

  Context& c_;
  std::vector<bool> strings_;
  std::vector<bool> debug_strings_;
  std::vector<bool> deps_strings_;
  std::vector<bool> taken_[256];
  u32 span_first_ = 0;
  Section span_target_ = Section::STRING;
};

// is_<Enum>(number): whether the number is a value of the enumeration.
// clang-format off
#define PTOWSP_ENUM_BEGIN(name, doc) [[maybe_unused]] bool is_##name(u64 value) { switch (value) {
#define PTOWSP_VALUE(enumeration, name, number, doc) case number:
#define PTOWSP_ENUM_END(name) return true; default: return false; } }
#include "ptowsp/enums.def"
#undef PTOWSP_ENUM_BEGIN
#undef PTOWSP_VALUE
#undef PTOWSP_ENUM_END
// clang-format on

// One check per meaning of a field; `value` and `f` are the field's.
#define PTOWSP_CHECK_Plain(target)
#define PTOWSP_CHECK_Zero(target) k.zero(value, f);
#define PTOWSP_CHECK_Bits(target) k.bits(value, target, f);
#define PTOWSP_CHECK_Ref(target) k.ref(value, Section::target, #target, f);
#define PTOWSP_CHECK_Opt(target) \
  if (value != kNone) k.ref(value, Section::target, #target, f);
#define PTOWSP_CHECK_Str(target) k.name(value, f);
#define PTOWSP_CHECK_OptStr(target) k.text(value, f);
#define PTOWSP_CHECK_DebugStr(target) k.debug_text(value, f);
#define PTOWSP_CHECK_DepsStr(target) k.deps_text(value, f);
#define PTOWSP_CHECK_Span(target) k.span(value, Section::target);
#define PTOWSP_CHECK_Count(target) k.count(value, f);
#define PTOWSP_CHECK_Enum(target) \
  if (!is_##target(value)) f.fail("is " + std::to_string(value) + ", not a value of " #target);

// check_record(checker, record, byte of the file): one function per record.
#define PTOWSP_RECORD_BEGIN(record, doc) \
  [[maybe_unused]] void check_record([[maybe_unused]] FieldChecker& k, const record& r, u64 at) {
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc)                  \
  {                                                                              \
    [[maybe_unused]] const Field f{#record, #name, at + offsetof(record, name)}; \
    [[maybe_unused]] const u64 value = static_cast<u64>(r.name);                 \
    PTOWSP_CHECK_##meaning(target)                                               \
  }
#define PTOWSP_RECORD_END(record) }
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END

template <Section S>
void check_section(FieldChecker& k, const Context& c) {
  if constexpr (!std::is_same_v<typename RecordOf<S>::type, Byte>) {
    for (u32 i = 0; i < c.count(S); ++i) check_record(k, c.get<S>(i), c.at(S, i));
  }
}

bool is_continuation(u8 byte) { return (byte & 0xC0u) == 0x80u; }

// Bytes of the UTF-8 sequence at the start of `p`, 0 if there is none. Overlong forms, surrogates
// and numbers past U+10FFFF are none.
std::size_t sequence(const u8* p, std::size_t n) {
  const u8 lead = p[0];
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (n < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(p[i])) return 0;
  }
  if (lead == 0xE0 && p[1] < 0xA0) return 0;
  if (lead == 0xED && p[1] > 0x9F) return 0;
  if (lead == 0xF0 && p[1] < 0x90) return 0;
  if (lead == 0xF4 && p[1] > 0x8F) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  const u8* p = reinterpret_cast<const u8*>(text.data());
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t length = sequence(p + i, text.size() - i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

void check_unique(const Context& c, Section section, const std::vector<u32>& names,
                  const char* what) {
  std::vector<u32> order(names.size());
  std::iota(order.begin(), order.end(), u32{0});
  const auto text = [&](u32 i) { return c.view.string(names[i]); };
  const auto refuse_equal_neighbours = [&](auto key) {
    std::sort(order.begin(), order.end(),
              [&](u32 a, u32 b) { return std::pair(key(a), a) < std::pair(key(b), b); });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (key(order[i - 1]) != key(order[i])) continue;
      Context::fail(c.at(section, order[i]), std::string("two ") + what + " have the name '" +
                                                 std::string(text(order[i])) + "'");
    }
  };
  // By offset first: equal offsets are equal names, and after that no string is compared with
  // itself, so sorting by text reads each byte of STRING a logarithmic number of times.
  refuse_equal_neighbours([&](u32 i) { return names[i]; });
  refuse_equal_neighbours(text);
}

void check_records(Context& c) {
  FieldChecker k(c);
#define PTOWSP_SECTION(name, kind, record, cls, doc) check_section<Section::name>(k, c);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
}

}  // namespace ptowsp::check
