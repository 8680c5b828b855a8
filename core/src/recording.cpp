#include "ptowsp/recording.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace ptowsp {

namespace {

constexpr u8 kStart[4] = {'P', 'T', 'O', 'R'};
constexpr u8 kFormat = 1;
constexpr u8 kComplete = 1;
constexpr u8 kHashed = 2;
constexpr std::size_t kWord = sizeof(u64);

u64 checksum(const u8* bytes, std::size_t size) {
  return fmix(fnv1a({reinterpret_cast<const char*>(bytes), size}));
}

class Writer {
 public:
  void byte(u8 v) { bytes.push_back(v); }
  void word(u64 v) {
    for (u32 i = 0; i < kWord; ++i) byte(static_cast<u8>(v >> (8 * i)));
  }
  void varint(u64 v) {
    for (; v >= 0x80; v >>= 7) byte(static_cast<u8>(v | 0x80));
    byte(static_cast<u8>(v));
  }
  std::vector<u8> bytes;
};

class Reader {
 public:
  Reader(const u8* bytes, std::size_t size) : at_(bytes), end_(bytes + size) {}

  bool done() const { return at_ == end_; }
  bool failed() const { return failed_; }
  u8 byte() {
    if (at_ == end_) failed_ = true;
    return failed_ ? u8{0} : *at_++;
  }
  u64 word() {
    u64 v = 0;
    for (u32 i = 0; i < kWord; ++i) v |= u64{byte()} << (8 * i);
    return v;
  }
  u64 varint() {
    u64 v = 0;
    for (u32 shift = 0; shift < 64; shift += 7) {
      const u8 b = byte();
      v |= u64{b & 0x7Fu} << shift;
      if (b < 0x80) return v;
    }
    failed_ = true;
    return 0;
  }

 private:
  const u8* at_;
  const u8* end_;
  bool failed_ = false;
};

// Small numbers for small distances in both directions.
u64 fold(u64 distance) { return (distance << 1) ^ (static_cast<i64>(distance) < 0 ? ~u64{0} : 0); }
u64 unfold(u64 v) { return (v >> 1) ^ ((v & 1) != 0 ? ~u64{0} : 0); }

bool damaged(Error* error, const std::string& what) {
  *error = Error::make(Status::RECORDING_MISFIT, "the recording " + what);
  return false;
}

bool read_decisions(Reader* in, Recording* out) {
  std::vector<u64> last(out->workers, 0);
  std::vector<bool> busy(out->workers, false);
  while (!in->done()) {
    Decision d;
    const u64 worker = in->varint();
    if (in->failed() || worker >= out->workers) return false;
    d.worker = static_cast<u32>(worker);
    if (!busy[worker]) d.task = last[worker] += unfold(in->varint());
    if (in->failed() || (!busy[worker] && !d.starts())) return false;
    busy[worker] = !busy[worker];
    out->decisions.push_back(d);
  }
  return true;
}

}  // namespace

std::vector<Decision> Recorder::decisions() const {
  std::vector<Decision> out(next_.load(std::memory_order_acquire));
  for (u32 w = 0; w < lists_.size(); ++w) {
    for (const Entry& entry : lists_[w]->entries) out[entry.number] = {entry.task, w};
  }
  return out;
}

std::vector<u8> Recording::to_bytes() const {
  Writer out;
  for (const u8 c : kStart) out.byte(c);
  out.byte(kFormat);
  out.byte(static_cast<u8>((complete ? kComplete : 0) | (hashed ? kHashed : 0)));
  out.word(plan[0]);
  out.word(plan[1]);
  out.word(schedule);
  out.word(task_hash.lane[0]);
  out.word(task_hash.lane[1]);
  out.varint(tasks);
  out.varint(workers);
  std::vector<u64> last(workers, 0);
  for (const Decision& d : decisions) {
    out.varint(d.worker);
    if (!d.starts()) continue;
    out.varint(fold(d.task - last[d.worker]));
    last[d.worker] = d.task;
  }
  out.word(checksum(out.bytes.data(), out.bytes.size()));
  return std::move(out.bytes);
}

bool Recording::from_bytes(const u8* bytes, std::size_t size, Recording* out, Error* error) {
  constexpr u64 kMostWorkers = 1u << 16;
  if (size < sizeof(kStart) || !std::equal(kStart, kStart + sizeof(kStart), bytes)) {
    return damaged(error, "is none: it does not begin with PTOR");
  }
  Reader in(bytes, size < kWord ? 0 : size - kWord);
  for (u32 i = 0; i < sizeof(kStart); ++i) in.byte();
  const u8 version = in.byte();
  if (in.failed()) return damaged(error, "is cut off");
  if (version != kFormat) {
    return damaged(error, "has version " + std::to_string(version) + ", this is version " +
                              std::to_string(kFormat));
  }
  Reader tail(bytes + size - kWord, kWord);
  if (tail.word() != checksum(bytes, size - kWord)) {
    return damaged(error, "is damaged or cut off: its checksum is another one");
  }
  const u8 flags = in.byte();
  out->complete = (flags & kComplete) != 0;
  out->hashed = (flags & kHashed) != 0;
  out->plan[0] = in.word();
  out->plan[1] = in.word();
  out->schedule = in.word();
  out->task_hash.lane[0] = in.word();
  out->task_hash.lane[1] = in.word();
  out->tasks = in.varint();
  const u64 workers = in.varint();
  if (in.failed() || workers == 0 || workers > kMostWorkers) {
    return damaged(error, "has a header that cannot be");
  }
  out->workers = static_cast<u32>(workers);
  if (!read_decisions(&in, out)) return damaged(error, "has an event that cannot be");
  return true;
}

u64 schedule_identity(const PlanView& plan) {
  u64 hash = fnv1a("");
  const auto fold_in = [&hash](const auto& record) {
    hash = fnv1a({reinterpret_cast<const char*>(&record), sizeof(record)}, hash);
  };
  for (u32 i = 0; i < plan.count(Section::SCHEDULE); ++i) {
    const ScheduleEntry entry = plan.get<Section::SCHEDULE>(i);
    if (static_cast<Directive>(entry.id) == Directive::TRACE) continue;
    fold_in(entry.id);
    for (u32 k = 0; k < entry.num_args; ++k) {
      const ScheduleArg arg = plan.get<Section::SCHEDULE_ARG>(entry.args + k);
      fold_in(arg.tag);
      fold_in(arg.bits);
    }
  }
  for (u32 i = 0; i < plan.count(Section::SCHEDULE_EXPR); ++i) {
    fold_in(plan.get<Section::SCHEDULE_EXPR>(i));
  }
  return hash;
}

}  // namespace ptowsp
