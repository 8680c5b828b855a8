// Channels and processes. Comes before CODE, which names them.
#include <vector>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

void check_channels(const Context& c) {
  std::vector<bool> taken(c.count(Section::ALLOC), false);
  check_unique<Section::CHANNEL>(c, "channels");
  for (u32 i = 0; i < c.count(Section::CHANNEL); ++i) {
    const Channel ch = c.get<Section::CHANNEL>(i);
    const auto at = [&](std::size_t field) { return c.at(Section::CHANNEL, i, field); };
    const Tensor t = c.get<Section::TENSOR>(ch.element);
    if (!is(c.get<Section::STORAGE>(t.storage).storage_class, StorageClass::CHANNEL)) {
      Context::fail(at(offsetof(Channel, element)),
                    "Channel.element is not a tensor of class CHANNEL");
    }
    const u32 alloc = c.get<Section::STORAGE>(t.storage).alloc;
    if (taken[alloc]) {
      Context::fail(at(offsetof(Channel, element)), "another channel has the same buffers");
    }
    taken[alloc] = true;
    if (c.get<Section::ALLOC>(alloc).level != 0) {
      Context::fail(at(offsetof(Channel, element)), "the buffers of a channel belong to a loop");
    }
    c.use(ch.depth, ScalarType::I64, Scope{}, at(offsetof(Channel, depth)), "Channel.depth");
    if (ch.rate_in != kNone) {
      c.use(ch.rate_in, ScalarType::I64, Scope{}, at(offsetof(Channel, rate_in)),
            "Channel.rate_in");
    }
    if (ch.rate_out != kNone) {
      c.use(ch.rate_out, ScalarType::I64, Scope{}, at(offsetof(Channel, rate_out)),
            "Channel.rate_out");
    }
  }
}

void check_processes(const Context& c) {
  check_unique<Section::PROCESS>(c, "processes");
  for (u32 i = 0; i < c.count(Section::PROCESS); ++i) {
    const Process p = c.get<Section::PROCESS>(i);
    if (c.get<Section::ENTRY>(p.entry).process != i) {
      Context::fail(c.at(Section::PROCESS, i, offsetof(Process, entry)),
                    "the process's entry belongs to another process, or to none");
    }
    c.use(p.replicas, ScalarType::I64, Scope{},
          c.at(Section::PROCESS, i, offsetof(Process, replicas)), "Process.replicas");
  }
  for (u32 i = 0; i < c.count(Section::ENTRY); ++i) {
    const u32 process = c.get<Section::ENTRY>(i).process;
    if (process == kNone || c.get<Section::PROCESS>(process).entry == i) continue;
    Context::fail(c.at(Section::ENTRY, i, offsetof(Entry, process)),
                  "the entry's process begins at another entry");
  }
}

}  // namespace

void check_network(Context& c) {
  check_channels(c);
  check_processes(c);
}

}  // namespace ptowsp::check
