// Binder, last part: channels get their buffers, processes the number of their replicas.
#include <string>

#include "binder.h"

namespace ptowsp {

namespace {

constexpr i64 kMostBuffers = 0xFFFF;
constexpr i64 kMostReplicas = 4096;
constexpr u64 kMostBytes = u64{1} << 46;  // of the buffers of one channel

}  // namespace

bool Binder::bind_network() {
  out_.channels_.clear();
  out_.processes_.clear();
  if (!plan_.has(Feature::CHANNEL)) return true;
  out_.channels_.resize(plan_.count(Section::CHANNEL));
  for (u32 c = 0; c < out_.channels_.size(); ++c) {
    if (!bind_channel(c)) return false;
  }
  // The statements outside of processes are one, if there are any.
  const u32 main = plan_.get<Section::ENTRY>(0).pc;
  if (static_cast<Op>(out_.code_[main].opcode) != Op::HALT) out_.processes_.push_back({});
  for (u32 p = 0; p < plan_.count(Section::PROCESS); ++p) {
    if (!bind_process(p)) return false;
  }
  if (out_.processes_.empty()) out_.processes_.push_back({});
  return find_ends();
}

bool Binder::bind_channel(u32 channel) {
  const Channel record = plan_.get<Section::CHANNEL>(channel);
  BoundChannel& out = out_.channels_[channel];
  i64 depth = 0;
  const i64 no_vars[kMaxVars] = {};
  if (!out_.value(record.depth, no_vars, &depth, &error_)) return false;
  if (depth < 0 || depth > kMostBuffers || record.initial > depth) {
    error_ = Error::make(Status::BIND_ERROR, "channel '" + std::string(plan_.string(record.name)) +
                                                 "' has depth " + std::to_string(depth) +
                                                 " and begins with " +
                                                 std::to_string(record.initial) + " messages");
    error_.at_record(Section::CHANNEL, channel, nullptr, 0);
    return false;
  }
  out.element = record.element;
  out.alloc = plan_.get<Section::STORAGE>(plan_.get<Section::TENSOR>(record.element).storage).alloc;
  out.depth = static_cast<u32>(depth);
  out.buffers = depth > 0 ? out.depth : 1;
  out.initial = record.initial;
  out.latency = record.latency;
  BoundAlloc& alloc = out_.allocs_[out.alloc];
  for (const u32 tensor : alloc.tensors) {
    if (!shape_temp(tensor, true)) return false;
  }
  alloc.bytes = buffer_bytes(alloc.bytes);
  alloc.copies = out.buffers;
  if (alloc.bytes > kMostBytes / out.buffers) {
    return fail_tensor(record.element, Status::NO_MEMORY,
                       "the buffers of channel '" + std::string(plan_.string(record.name)) +
                           "' are too large for memory");
  }
  number_buffers(out.alloc);
  return true;
}

bool Binder::bind_process(u32 process) {
  const Process record = plan_.get<Section::PROCESS>(process);
  const auto refuse = [&](const std::string& what) {
    error_ = Error::make(Status::BIND_ERROR,
                         "process '" + std::string(plan_.string(record.name)) + "' " + what);
    error_.at_record(Section::PROCESS, process, nullptr, 0);
    return false;
  };
  BoundProcess out;
  i64 replicas = 0;
  const i64 no_vars[kMaxVars] = {};
  if (!out_.value(record.replicas, no_vars, &replicas, &error_)) return false;
  if (replicas < 1 || replicas > kMostReplicas) {
    return refuse("has " + std::to_string(replicas) + " replicas");
  }
  out.entry = record.entry;
  out.record = process;
  out.replicas = static_cast<u32>(replicas);
  out.replicated = replicas > 1;
  if (out.replicated) {  // its code is a loop over them, and nothing else
    const Instr first = out_.code_[plan_.get<Section::ENTRY>(out.entry).pc];
    const bool loops = static_cast<Op>(first.opcode) == Op::PARALLEL_FOR &&
                       static_cast<Op>(out_.code_[first.operand2].opcode) == Op::HALT;
    i64 start = 0;
    i64 extent = 0;
    if (loops) {
      const Axis axis = plan_.get<Section::AXIS>(first.operand1);
      Error ignored;
      if (!out_.value(axis.start, no_vars, &start, &ignored) ||
          !out_.value(axis.extent, no_vars, &extent, &ignored)) {
        extent = 0;
      }
    }
    if (!loops || start != 0 || extent != replicas)
      return refuse("is not a loop over its replicas");
  }
  out_.processes_.push_back(out);
  return true;
}

u32 Binder::replicas_of(u32 entry) const {
  for (const BoundProcess& process : out_.processes_) {
    if (process.entry == entry) return process.replicas;
  }
  return 1;
}

// Which process has which end of each channel: one each, and not the same.
bool Binder::find_ends() {
  for (u32 p = 0; p < out_.processes_.size(); ++p) {
    u32 pc = plan_.get<Section::ENTRY>(out_.processes_[p].entry).pc;
    for (; static_cast<Op>(out_.code_[pc].opcode) != Op::HALT; ++pc) {
      const Instr instr = out_.code_[pc];
      const auto op = static_cast<Op>(instr.opcode);
      if (op == Op::TASK) pc += instr.operand1;
      const bool sends = op == Op::ROOM || op == Op::SEND || op == Op::CLOSE;
      const bool takes = op == Op::RECV || op == Op::TAKE || op == Op::DROP;
      if (!sends && !takes) continue;
      BoundChannel& channel = out_.channels_[instr.operand1];
      u32& end = sends ? channel.producer : channel.consumer;
      const u32 other = sends ? channel.consumer : channel.producer;
      if ((end == kNone || end == p) && other != p) {
        end = p;
        continue;
      }
      error_ = Error::make(Status::BIND_ERROR,
                           "a channel joins two processes: one sends, one other receives");
      error_.at_record(Section::CODE, pc, nullptr, 0);
      return false;
    }
  }
  return true;
}

}  // namespace ptowsp
