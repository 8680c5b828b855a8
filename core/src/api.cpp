// The C interface: thin, and the only place where C++ objects meet C handles.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "ptowsp/descriptors.h"
#include "ptowsp/generate.h"
#include "ptowsp/program.h"
#include "ptowsp/ptowsp.h"
#include "ptowsp/validate.h"

using ptowsp::Error;
using ptowsp::Status;

struct ptowsp_plan {
  std::shared_ptr<const ptowsp::LoadedPlan> loaded;
};

struct ptowsp_program {
  std::unique_ptr<ptowsp::Program> program;
};

struct ptowsp_run {
  std::unique_ptr<ptowsp::QueuedRun> queued;
};

namespace {

int32_t report(const Error& e, ptowsp_error* out) {
  e.copy_to(out);
  return static_cast<int32_t>(e.status);
}

// Runs fn and turns what the standard library throws (no memory, no thread) into an error.
template <class T, class Fn>
T guarded(T failed, ptowsp_error* error, Fn fn) {
  try {
    return fn();
  } catch (const std::exception& e) {
    report(Error::make(Status::EXECUTION_ERROR, e.what()), error);
    return failed;
  }
}

template <ptowsp::Section S>
uint32_t find_by_name(const ptowsp_plan* plan, const char* name) {
  const ptowsp::PlanView& view = plan->loaded->view;
  for (uint32_t i = 0; i < view.count(S); ++i) {
    if (view.string(view.get<S>(i).name) == name) return i;
  }
  return PTOWSP_NONE;
}

bool read_control(int32_t flags, const ptowsp_control* control, ptowsp::RunControl* out,
                  Error* error) {
  out->record = (flags & PTOWSP_RUN_RECORD) != 0;
  if (control == nullptr) return true;
  if ((flags & PTOWSP_RUN_SEED) != 0) out->seed = control->seed;
  if (control->recording == nullptr) return true;
  const auto* bytes = static_cast<const ptowsp::u8*>(control->recording);
  return ptowsp::Recording::from_bytes(bytes, control->recording_size, &out->replay.emplace(),
                                       error);
}

}  // namespace

extern "C" {

ptowsp_plan* ptowsp_plan_load(const void* bytes, size_t size, ptowsp_error* error) {
  return guarded<ptowsp_plan*>(nullptr, error, [&]() -> ptowsp_plan* {
    auto loaded = std::make_shared<ptowsp::LoadedPlan>();
    const auto* first = static_cast<const ptowsp::u8*>(bytes);
    loaded->bytes.assign(first, first + size);
    ptowsp::PlanFault fault;
    if (!ptowsp::validate(loaded->bytes.data(), size, &loaded->view, &fault)) {
      Error e = Error::make(Status::PLAN_ERROR, fault.message);
      e.offset = fault.offset;
      report(e, error);
      return nullptr;
    }
    return new ptowsp_plan{std::move(loaded)};
  });
}

void ptowsp_plan_free(ptowsp_plan* plan) { delete plan; }

uint32_t ptowsp_plan_symbol(const ptowsp_plan* plan, const char* name) {
  return find_by_name<ptowsp::Section::SYMBOL>(plan, name);
}

uint32_t ptowsp_plan_kernel(const ptowsp_plan* plan, const char* name) {
  return find_by_name<ptowsp::Section::KERNEL>(plan, name);
}

ptowsp_program* ptowsp_program_new(ptowsp_plan* plan, const ptowsp_options* options,
                                   ptowsp_error* error) {
  return guarded<ptowsp_program*>(nullptr, error, [&]() -> ptowsp_program* {
    Error e;
    auto program = ptowsp::Program::make(plan->loaded, *options, &e);
    if (program == nullptr) {
      report(e, error);
      return nullptr;
    }
    return new ptowsp_program{std::move(program)};
  });
}

void ptowsp_program_close(ptowsp_program* program) { program->program->close(); }

void ptowsp_program_free(ptowsp_program* program) { delete program; }

int32_t ptowsp_program_set_kernel(ptowsp_program* program, uint32_t kernel, ptowsp_kernel_fn fn,
                                  void* user) {
  const bool ok = program->program->set_kernel(kernel, {fn, user});
  return static_cast<int32_t>(ok ? Status::OK : Status::BIND_ERROR);
}

int32_t ptowsp_program_set_scratch(ptowsp_program* program, uint32_t kernel, uint64_t bytes) {
  const bool ok = program->program->set_scratch(kernel, bytes);
  return static_cast<int32_t>(ok ? Status::OK : Status::BIND_ERROR);
}

int32_t ptowsp_program_set_sharing(ptowsp_program* program, uint32_t kernel, uint64_t views) {
  const bool ok = program->program->set_sharing(kernel, views);
  return static_cast<int32_t>(ok ? Status::OK : Status::BIND_ERROR);
}

void ptowsp_program_set_trace_file(ptowsp_program* program, const char* path) {
  program->program->set_trace_file(path == nullptr ? "" : path);
}

void ptowsp_program_after_fork(ptowsp_program* program) { program->program->after_fork(); }

ptowsp_run* ptowsp_run_start(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                             int32_t flags, ptowsp_interrupt_fn interrupt, void* user,
                             ptowsp_error* error) {
  return ptowsp_run_start_controlled(program, bindings, count, flags, nullptr, interrupt, user,
                                     error);
}

ptowsp_run* ptowsp_run_start_controlled(ptowsp_program* program, const ptowsp_binding* bindings,
                                        size_t count, int32_t flags, const ptowsp_control* control,
                                        ptowsp_interrupt_fn interrupt, void* user,
                                        ptowsp_error* error) {
  return guarded<ptowsp_run*>(nullptr, error, [&]() -> ptowsp_run* {
    Error e;
    ptowsp::RunControl wanted;
    std::unique_ptr<ptowsp::QueuedRun> queued;
    if (read_control(flags, control, &wanted, &e)) {
      queued = program->program->prepare(bindings, count, (flags & PTOWSP_RUN_HASH) != 0,
                                         std::move(wanted), &e);
    }
    if (queued == nullptr) {
      report(e, error);
      return nullptr;
    }
    auto run = std::make_unique<ptowsp_run>();
    run->queued = std::move(queued);
    if ((flags & PTOWSP_RUN_ASYNC) != 0) {
      program->program->start(run->queued.get());
    } else {
      run->queued->run->set_interrupt(interrupt, user);
      program->program->run(run->queued.get());
    }
    return run.release();
  });
}

size_t ptowsp_run_recording(const ptowsp_run* run, void* bytes, size_t size) {
  if (run->queued->orphan || !run->queued->run->keeps_decisions()) return 0;
  return guarded<size_t>(0, nullptr, [&]() -> size_t {
    const std::vector<ptowsp::u8> found = run->queued->run->recording().to_bytes();
    if (bytes != nullptr) std::memcpy(bytes, found.data(), std::min(size, found.size()));
    return found.size();
  });
}

void ptowsp_run_hash(const ptowsp_run* run, uint64_t hash[2]) {
  const ptowsp::TaskHash found = run->queued->run->hash();
  hash[0] = found.lane[0];
  hash[1] = found.lane[1];
}

int32_t ptowsp_run_wait(ptowsp_run* run, int64_t timeout_ns, ptowsp_error* error) {
  if (!run->queued->program->wait(*run->queued, timeout_ns)) {
    return report(Error::make(Status::TIMEOUT, "the run has not ended yet"), error);
  }
  return report(run->queued->run->error(), error);
}

void ptowsp_run_cancel(ptowsp_run* run) {
  if (!run->queued->orphan) run->queued->run->cancel();
}

void ptowsp_run_stats(const ptowsp_run* run, ptowsp_stats* stats) {
  *stats = run->queued->orphan ? ptowsp_stats{} : run->queued->run->stats();
}

size_t ptowsp_run_worker_tasks(const ptowsp_run* run, uint64_t* counts, size_t capacity) {
  const uint32_t workers = run->queued->run->workers();
  for (uint32_t w = 0; w < workers && w < capacity; ++w) {
    counts[w] = run->queued->run->worker_tasks(w);
  }
  return workers;
}

size_t ptowsp_run_trace(const ptowsp_run* run, ptowsp_event* events, size_t capacity) {
  if (capacity > 0) {
    const std::vector<ptowsp_event> found = run->queued->run->events();
    std::copy_n(found.begin(), std::min(capacity, found.size()), events);
  }
  return run->queued->run->trace_size();
}

size_t ptowsp_run_trace_block(const ptowsp_run* run, uint32_t kind, void* out, size_t bytes) {
  return run->queued->run->trace_block(kind, out, bytes);
}

void ptowsp_run_trace_info(const ptowsp_run* run, ptowsp_trace_info* info) {
  *info = run->queued->run->trace_info();
}

void ptowsp_run_free(ptowsp_run* run) { delete run; }

int32_t ptowsp_generate(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                        ptowsp_interrupt_fn interrupt, void* user, uint64_t* tasks,
                        uint64_t hash[2], ptowsp_error* error) {
  return guarded<int32_t>(static_cast<int32_t>(Status::EXECUTION_ERROR), error, [&]() -> int32_t {
    Error e;
    const auto bound = ptowsp::BoundPlan::bind(program->program->plan(), bindings, count, &e);
    if (bound == nullptr) return report(e, error);
    ptowsp::Generator generator(*bound);
    if (!generator.run(interrupt, user, &e)) return report(e, error);
    *tasks = generator.tasks();
    hash[0] = generator.hash().lane[0];
    hash[1] = generator.hash().lane[1];
    return report(e, error);
  });
}

int32_t ptowsp_descriptors(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                           const ptowsp_descriptor_cell* cells, uint32_t sites, uint32_t columns,
                           uint32_t* out, uint64_t capacity, ptowsp_interrupt_fn interrupt,
                           void* user, uint64_t* tasks, ptowsp_error* error) {
  return guarded<int32_t>(static_cast<int32_t>(Status::EXECUTION_ERROR), error, [&]() -> int32_t {
    Error e;
    const auto known = program->program->plan().count(ptowsp::Section::SITE);
    if (columns > ptowsp::DescriptorWriter::kMostColumns || sites != known) {
      e = Error::make(Status::BIND_ERROR, "descriptors have at most 64 columns and cells for " +
                                              std::to_string(known) + " sites");
      return report(e, error);
    }
    const auto bound = program->program->bind_fields(bindings, count, &e);
    if (bound == nullptr) return report(e, error);
    ptowsp::DescriptorWriter writer(*bound, cells, columns);
    if (writer.check(&e) && writer.run(out, capacity, interrupt, user, &e)) {
      *tasks = writer.tasks();
    }
    return report(e, error);
  });
}

}  // extern "C"
