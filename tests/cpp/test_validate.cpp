#include "ptowsp/validate.h"

#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "plan_maker.h"

namespace ptowsp::test {
namespace {

// Ragged rows of X, each element increased in place.
std::vector<u8> ragged_plan() {
  PlanMaker m;
  const u32 n = m.extent("n");
  const u32 lengths = m.array("lengths");
  const u32 x = m.tensor("X", 2);
  const u32 k = m.kernel("k", {AccessMode::INOUT});
  m.loop(Op::PARALLEL_FOR, "rows", m.value(n));
  const u32 i = m.var(0);
  m.loop(Op::FOR_EACH, "columns", m.load(lengths, i), lengths, m.last_axis());
  m.task(k, {m.element(x, AccessMode::INOUT, {i, m.var(1)})});
  m.end();
  m.end();
  m.directive(Directive::WINDOW, {64, 0, 0});
  return m.bytes();
}

bool is_valid(const std::vector<u8>& bytes) {
  PlanView view;
  PlanFault fault;
  return validate(bytes.data(), bytes.size(), &view, &fault);
}

PlanFault fault_of(const std::vector<u8>& bytes) {
  PlanView view;
  PlanFault fault;
  CHECK(!validate(bytes.data(), bytes.size(), &view, &fault));
  return fault;
}

// Where the entry of a section lies in the section table.
std::size_t entry_at(const std::vector<u8>& bytes, Section section) {
  Header h;
  std::memcpy(&h, bytes.data(), sizeof(h));
  for (u32 i = 0; i < h.num_sections; ++i) {
    const std::size_t at = sizeof(Header) + i * sizeof(SectionEntry);
    SectionEntry e;
    std::memcpy(&e, bytes.data() + at, sizeof(e));
    if (e.kind == static_cast<u16>(section)) return at;
  }
  return 0;
}

std::size_t section_at(const std::vector<u8>& bytes, Section section) {
  SectionEntry e;
  std::memcpy(&e, bytes.data() + entry_at(bytes, section), sizeof(e));
  return e.offset;
}

// Recomputes every checksum.
void seal(std::vector<u8>& bytes) {
  Header h;
  std::memcpy(&h, bytes.data(), sizeof(h));
  for (u32 i = 0; i < h.num_sections; ++i) {
    u8* at = bytes.data() + sizeof(Header) + i * sizeof(SectionEntry);
    SectionEntry e;
    std::memcpy(&e, at, sizeof(e));
    e.crc32 = crc32(bytes.data() + e.offset, e.length);
    std::memcpy(at, &e, sizeof(e));
  }
  h.header_crc = 0;
  std::memcpy(bytes.data(), &h, sizeof(h));
  h.header_crc = crc32(bytes.data(), sizeof(h) + h.num_sections * sizeof(SectionEntry));
  std::memcpy(bytes.data(), &h, sizeof(h));
}

}  // namespace

TEST(crc32_is_zlibs) {
  CHECK_EQ(crc32("123456789", 9), 0xCBF43926u);
  CHECK_EQ(crc32("", 0), 0u);
  CHECK_EQ(crc32("6789", 4, crc32("12345", 5)), crc32("123456789", 9));
}

TEST(a_valid_plan_can_be_read) {
  const std::vector<u8> bytes = ragged_plan();
  PlanView view;
  PlanFault fault;
  CHECK(validate(bytes.data(), bytes.size(), &view, &fault));
  CHECK_EQ(fault.message, std::string());
  CHECK_EQ(view.count(Section::AXIS), 2u);
  CHECK_EQ(view.count(Section::DEPS), 0u);
  CHECK_EQ(view.string(view.get<Section::KERNEL>(0).name), std::string_view("k"));
  CHECK_EQ(view.code(2).opcode, static_cast<u8>(Op::TASK));
  CHECK_EQ(view.get<Section::SITE>(0).axis, 1u);
  CHECK_EQ(view.get<Section::AXIS>(1).outer, 0u);
  CHECK_EQ(view.get<Section::AXIS>(0).outer, kNone);
  CHECK(view.has(Feature::RAGGED));
  CHECK(!view.has(Feature::SPARSE));
}

TEST(bytes_need_not_be_aligned) {
  const std::vector<u8> bytes = ragged_plan();
  for (std::size_t shift = 1; shift < 8; ++shift) {
    std::vector<u8> moved(bytes.size() + shift);
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    PlanView view;
    PlanFault fault;
    CHECK(validate(moved.data() + shift, bytes.size(), &view, &fault));
    CHECK_EQ(view.string(view.get<Section::SYMBOL>(1).name), std::string_view("lengths"));
  }
}

TEST(no_bytes_at_all) {
  PlanView view;
  PlanFault fault;
  CHECK(!validate(nullptr, 0, &view, &fault));
  CHECK_EQ(fault.message, std::string("the file ends inside the header"));
}

TEST(every_truncation_is_refused) {
  const std::vector<u8> bytes = ragged_plan();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    // A buffer of exactly n bytes, so that a sanitizer sees any read past it.
    const std::vector<u8> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK(!is_valid(cut));
  }
}

TEST(every_flipped_bit_is_refused) {
  std::vector<u8> bytes = ragged_plan();
  for (std::size_t i = 0; i < 8 * bytes.size(); ++i) {
    bytes[i / 8] = static_cast<u8>(bytes[i / 8] ^ (1u << i % 8));
    CHECK(!is_valid(bytes));
    bytes[i / 8] = static_cast<u8>(bytes[i / 8] ^ (1u << i % 8));
  }
  CHECK(is_valid(bytes));
}

TEST(faults_name_the_byte) {
  std::vector<u8> bytes = ragged_plan();
  const std::size_t level = section_at(bytes, Section::AXIS) + sizeof(Axis) + offsetof(Axis, level);
  bytes[level] = 7;
  seal(bytes);
  const PlanFault fault = fault_of(bytes);
  CHECK_EQ(fault.offset, u64{level});
  CHECK_EQ(fault.message, std::string("Axis.level is 7, but 1 loops enclose it"));
}

TEST(a_refused_plan_leaves_the_view_alone) {
  std::vector<u8> bytes = ragged_plan();
  PlanView view;
  PlanFault fault;
  CHECK(validate(bytes.data(), bytes.size(), &view, &fault));
  bytes[0] = 'X';
  CHECK(!validate(bytes.data(), bytes.size(), &view, &fault));
  CHECK_EQ(view.count(Section::AXIS), 2u);
}

TEST(unknown_optional_sections_are_skipped) {
  std::vector<u8> bytes = ragged_plan();
  // The highest number in the table becomes one that nobody knows.
  const std::size_t at = entry_at(bytes, Section::SCHEDULE_ARG);
  SectionEntry e;
  std::memcpy(&e, bytes.data() + at, sizeof(e));
  e.kind = 0x7000;
  std::memcpy(bytes.data() + at, &e, sizeof(e));
  seal(bytes);
  CHECK_EQ(fault_of(bytes).message,
           std::string("section 28672 is required and unknown to this reader"));
  e.flags = 0;
  std::memcpy(bytes.data() + at, &e, sizeof(e));
  seal(bytes);
  // Now only the directive misses its arguments.
  CHECK_EQ(fault_of(bytes).message,
           std::string("ScheduleEntry.num_args makes the run reach past the end of its section"));
}

TEST(deep_nesting_ends_in_a_fault) {
  PlanMaker m;
  for (u32 i = 0; i < 10000; ++i) m.open(Op::COMBINE);
  for (u32 i = 0; i < 10000; ++i) m.end();
  CHECK_EQ(fault_of(m.bytes()).message, std::string("more than 48 blocks are open"));
}

TEST(a_long_chain_of_nodes_ends_in_a_fault) {
  PlanMaker m;
  u32 node = m.number(1);
  for (u32 i = 0; i < 100000; ++i) node = m.node(ExprOp::ADD, 0, node, node);
  CHECK(fault_of(m.bytes()).message.find("stands for a tree of more than") != std::string::npos);
}

}  // namespace ptowsp::test

PTOWSP_TEST_MAIN
