// What went wrong, as plain data. The core returns errors; it throws nothing of its own.
#pragma once

#include <string>

#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

namespace ptowsp {

struct Error {
  Status status = Status::OK;
  std::string message;
  u32 site = kNone;
  u32 symbol = kNone;
  u32 section = kNone;  // of the record to blame
  u32 record = kNone;
  u64 task_id = 0;
  u64 offset = 0;
  u32 num_indices = 0;
  i64 indices[kMaxLoops] = {};

  bool ok() const { return status == Status::OK; }

  static Error make(Status status, std::string message) {
    Error e;
    e.status = status;
    e.message = std::move(message);
    return e;
  }

  // Names the task to blame.
  Error& at_task(u32 at_site, u64 id, const i64* loops, u32 levels) {
    site = at_site;
    task_id = id;
    num_indices = levels;
    for (u32 i = 0; i < levels; ++i) indices[i] = loops[i];
    return *this;
  }

  // Names the loop, condition or assignment to blame.
  Error& at_record(Section at_section, u32 at, const i64* loops, u32 levels) {
    section = static_cast<u32>(at_section);
    record = at;
    num_indices = levels;
    for (u32 i = 0; i < levels; ++i) indices[i] = loops[i];
    return *this;
  }

  // Copies into the C interface's form; too long a message is cut.
  void copy_to(ptowsp_error* out) const {
    if (out == nullptr) return;
    out->status = static_cast<int32_t>(status);
    out->site = site;
    out->symbol = symbol;
    out->section = section;
    out->record = record;
    out->num_indices = num_indices;
    out->task_id = task_id;
    out->offset = offset;
    for (u32 i = 0; i < kMaxLoops; ++i) out->indices[i] = indices[i];
    const std::size_t room = sizeof(out->message) - 1;
    const std::size_t n = message.size() < room ? message.size() : room;
    message.copy(out->message, n);
    out->message[n] = '\0';
  }
};

}  // namespace ptowsp
