// validate(): the file's frame (header, section table, checksums) and the order of all checks.
#include "ptowsp/validate.h"

#include <array>
#include <cstring>
#include <new>

#include "validate_context.h"

namespace ptowsp {
namespace {

constexpr u16 kRecordVersion = 1;

constexpr std::array<u32, 256> make_crc_table() {
  std::array<u32, 256> table{};
  for (u32 i = 0; i < 256; ++i) {
    u32 value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0xEDB88320u : 0u);
    table[i] = value;
  }
  return table;
}

constexpr std::array<u32, 256> kCrcTable = make_crc_table();

}  // namespace

u32 crc32(const void* data, std::size_t size, u32 crc) {
  const u8* p = static_cast<const u8*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < size; ++i) crc = kCrcTable[(crc ^ p[i]) & 0xFFu] ^ (crc >> 8);
  return ~crc;
}

namespace check {
namespace {

enum class SectionClass { Task, Schedule, Body, Derived, Debug };

struct KnownSection {
  const char* name = nullptr;
  u32 record_size = 0;
  u32 flags = 0;
};

constexpr u32 flags_of(SectionClass c) {
  if (c == SectionClass::Body || c == SectionClass::Derived) return 0;
  return c == SectionClass::Debug ? kSectionDebug : kSectionRequired;
}

const KnownSection* find_section(u32 kind) {
  switch (kind) {
#define PTOWSP_SECTION(name, number, record, cls, doc)                                       \
  case number: {                                                                             \
    static constexpr KnownSection known{#name, sizeof(record), flags_of(SectionClass::cls)}; \
    return &known;                                                                           \
  }
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
    default:
      return nullptr;
  }
}

void load_header(Context& c) {
  Header& h = PlanLoader::header(c.view);
  if (c.size < sizeof(h)) Context::fail(c.size, "the file ends inside the header");
  std::memcpy(&h, c.bytes, sizeof(h));
  if (h.magic != kMagic)
    Context::fail(offsetof(Header, magic), "this is not a plan: it does not begin with PTOW");
  if (h.version != kVersion) {
    Context::fail(offsetof(Header, version), "format version " + std::to_string(h.version) +
                                                 "; this reader knows version " +
                                                 std::to_string(kVersion));
  }
  if (h.file_bytes != c.size) {
    Context::fail(offsetof(Header, file_bytes), "the header says " + std::to_string(h.file_bytes) +
                                                    " bytes, the file has " +
                                                    std::to_string(c.size));
  }
  const u64 room = (c.size - sizeof(h)) / sizeof(SectionEntry);
  if (h.num_sections > room) {
    Context::fail(offsetof(Header, num_sections), "the section table does not fit into the file");
  }
  Header blank = h;
  blank.header_crc = 0;
  const u32 crc = crc32(c.bytes + sizeof(h), h.num_sections * sizeof(SectionEntry),
                        crc32(&blank, sizeof(blank)));
  if (crc != h.header_crc) {
    Context::fail(offsetof(Header, header_crc), "checksum of header and section table is wrong");
  }
}

void check_zero(const Context& c, u64 begin, u64 end) {
  for (u64 i = begin; i < end; ++i) {
    if (c.bytes[i] != 0) Context::fail(i, "bytes between sections must be 0");
  }
}

// The rules that hold for every section, known or not.
void check_frame(const Context& c, const SectionEntry& e, u64 at, u64 free_from) {
  if (e.offset % 8 != 0) {
    Context::fail(at + offsetof(SectionEntry, offset),
                  "the section's offset is not a multiple of 8");
  }
  if (e.offset > c.size || e.length > c.size - e.offset) {
    Context::fail(at + offsetof(SectionEntry, offset), "the section lies outside the file");
  }
  if (e.offset < free_from) {
    Context::fail(at + offsetof(SectionEntry, offset),
                  "the section overlaps the one before it, or the section table");
  }
  if (e.record_size == 0 || e.length % e.record_size != 0) {
    Context::fail(at + offsetof(SectionEntry, length),
                  "the section's length is not a multiple of its record size");
  }
  if ((e.flags & ~(kSectionRequired | kSectionDebug)) != 0) {
    Context::fail(at + offsetof(SectionEntry, flags), "unknown section flags");
  }
  if (crc32(c.bytes + e.offset, e.length) != e.crc32) {
    Context::fail(e.offset, "checksum of section " + std::to_string(e.kind) + " is wrong");
  }
}

void load_section(Context& c, const SectionEntry& e, u64 at) {
  const bool required = (e.flags & kSectionRequired) != 0;
  const KnownSection* known = find_section(e.kind);
  if (known == nullptr) {
    if (required) {
      Context::fail(
          at, "section " + std::to_string(e.kind) + " is required and unknown to this reader");
    }
    return;
  }
  const std::string name = known->name;
  if (e.flags != known->flags) {
    Context::fail(at + offsetof(SectionEntry, flags), name + " has the wrong section flags");
  }
  if (e.version != kRecordVersion) {
    if (!required) return;
    Context::fail(at + offsetof(SectionEntry, version),
                  name + " has record version " + std::to_string(e.version) +
                      "; this reader knows version " + std::to_string(kRecordVersion));
  }
  const bool is_blob = known->record_size == sizeof(Byte);
  if (e.record_size < known->record_size || (is_blob && e.record_size != sizeof(Byte))) {
    Context::fail(at + offsetof(SectionEntry, record_size),
                  name + " has records of " + std::to_string(e.record_size) + " bytes, not " +
                      std::to_string(known->record_size));
  }
  if (e.length / e.record_size > kMaxRecords) {
    Context::fail(at + offsetof(SectionEntry, length), name + " has too many records");
  }
  PlanView::Table& t = PlanLoader::table(c.view, static_cast<Section>(e.kind));
  t = {c.bytes + e.offset, static_cast<u32>(e.length / e.record_size), e.record_size};
}

void check_count(const Context& c, Section s, u32 expected, std::size_t field, const char* name) {
  if (c.count(s) == expected) return;
  Context::fail(field, std::string("the header counts ") + std::to_string(expected) +
                           " records in " + name + ", the section has " +
                           std::to_string(c.count(s)));
}

}  // namespace

void load_file(Context& c) {
  load_header(c);
  const Header& h = c.view.header();
  u64 free_from = sizeof(Header) + h.num_sections * sizeof(SectionEntry);
  u32 last_kind = 0;
  for (u32 i = 0; i < h.num_sections; ++i) {
    const u64 at = sizeof(Header) + i * sizeof(SectionEntry);
    SectionEntry e;
    std::memcpy(&e, c.bytes + at, sizeof(e));
    if (e.kind <= last_kind) {
      Context::fail(at, "sections must be listed once each, in ascending order of their numbers");
    }
    last_kind = e.kind;
    check_frame(c, e, at, free_from);
    check_zero(c, free_from, e.offset);
    load_section(c, e, at);
    free_from = e.offset + e.length;
  }
  check_zero(c, free_from, c.size);
  check_count(c, Section::CODE, h.num_instructions, offsetof(Header, num_instructions), "CODE");
  check_count(c, Section::AXIS, h.num_axes, offsetof(Header, num_axes), "AXIS");
  check_count(c, Section::KERNEL, h.num_kernels, offsetof(Header, num_kernels), "KERNEL");
  check_count(c, Section::TENSOR, h.num_tensors, offsetof(Header, num_tensors), "TENSOR");
}

ScalarType scalar_type(u32 dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return ScalarType::F64;
    case DType::BOOL:
      return ScalarType::BOOL;
    default:
      return ScalarType::I64;
  }
}

bool is_integer(u32 dtype) { return scalar_type(dtype) == ScalarType::I64; }

}  // namespace check

bool validate(const void* data, std::size_t size, PlanView* view, PlanFault* fault) {
  check::Context c;
  c.bytes = static_cast<const u8*>(data);
  c.size = size;
  try {
    check::load_file(c);
    check::check_records(c);
    check::check_exprs(c);
    check::check_data(c);
    check::check_kernels(c);
    check::check_network(c);
    check::check_code(c);
    check::check_sites(c);
    check::check_schedule(c);
    check::check_features(c);
  } catch (PlanFault& found) {
    *fault = std::move(found);
    return false;
  } catch (const std::bad_alloc&) {
    *fault = {0, "not enough memory to check the plan"};
    return false;
  }
  *view = c.view;
  return true;
}

}  // namespace ptowsp
