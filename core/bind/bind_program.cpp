// Python's view of programs and runs: a thin layer over the C interface. Errors come back as data;
// pto_wsp.backends.cpu turns them into exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "bind.h"
#include "ptowsp/plan.h"
#include "ptowsp/ptowsp.h"

namespace nb = nanobind;

namespace {

using ptowsp::Arguments;
using ptowsp::DType;
using Words = nb::ndarray<uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// What the fields of a ptowsp_error look like in Python; None for success.
nb::object error_tuple(const ptowsp_error& e) {
  if (e.status == 0) return nb::none();
  nb::list indices;
  for (uint32_t i = 0; i < e.num_indices; ++i) indices.append(e.indices[i]);
  return nb::make_tuple(e.status, std::string(e.message), e.site, e.symbol, e.section, e.record,
                        nb::tuple(indices), e.task_id, e.offset);
}

nb::dlpack::dtype dlpack_type(DType t) {
  const auto bits = static_cast<uint8_t>(ptowsp::dtype_size(t) * 8);
  switch (t) {
    case DType::F64:
    case DType::F32:
    case DType::F16:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), bits, 1};
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Int), bits, 1};
    case DType::BOOL:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Bool), bits, 1};
    default:  // NumPy has no bfloat16 of its own: the caller gets the bits
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::UInt), bits, 1};
  }
}

nb::object as_array(const ptowsp_view& v) {
  bool empty = false;
  for (uint32_t d = 0; d < v.rank; ++d) empty = empty || v.shape[d] == 0;
  if (v.data == nullptr && !empty) return nb::none();  // a token
  size_t shape[PTOWSP_MAX_RANK];
  for (uint32_t d = 0; d < v.rank; ++d) shape[d] = static_cast<size_t>(v.shape[d]);
  nb::ndarray<nb::numpy> array(v.data, v.rank, shape, nb::none(), v.stride,
                               dlpack_type(static_cast<DType>(v.dtype)));
  return nb::cast(array, nb::rv_policy::reference);
}

// The tokens of a paged view, as one array per page; an empty one if there are none.
nb::object as_pages(const ptowsp_view& v, const ptowsp_pages& pages) {
  nb::list out;
  const int64_t item = ptowsp::dtype_size(static_cast<DType>(v.dtype));
  for (int64_t token = 0; token < v.shape[0];) {
    const int64_t at = pages.first + token;
    const int64_t entry = at / pages.page * pages.table_stride;
    const int64_t number = pages.wide != 0 ? static_cast<const int64_t*>(pages.table)[entry]
                                           : static_cast<const int32_t*>(pages.table)[entry];
    ptowsp_view part = v;
    part.shape[0] = std::min(v.shape[0] - token, pages.page - at % pages.page);
    part.data = static_cast<char*>(v.data) +
                (number * pages.page_stride + at % pages.page * v.stride[0]) * item;
    out.append(as_array(part));
    token += part.shape[0];
  }
  if (v.shape[0] == 0) out.append(as_array(v));
  return out;
}

// Exceptions of Python kernels on their way to whoever waits for the run. Used under the GIL.
class Exceptions {
 public:
  // Stores an exception; returns the message by which take() finds it. No kernel in C++ would begin
  // a message of its own with that character.
  std::string keep(nb::object error) {
    const uint64_t number = ++next_;
    kept_.emplace_back(number, std::move(error));
    nb::object oldest;  // destroyed last: that may run Python code, which may come back here
    if (kept_.size() > kMost) {
      oldest = std::move(kept_.front().second);
      kept_.pop_front();
    }
    return kMark + std::to_string(number);
  }

  nb::object take(std::string_view message) {
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (message != kMark + std::to_string(it->first)) continue;
      nb::object error = std::move(it->second);
      kept_.erase(it);
      return error;
    }
    return nb::none();
  }

  int traverse(visitproc visit, void* arg) const {
    for (const auto& [number, error] : kept_) Py_VISIT(error.ptr());
    return 0;
  }
  void clear() { std::exchange(kept_, {}).clear(); }

 private:
  // Several workers may fail at once; only the first failure of a run is asked for.
  static constexpr size_t kMost = 64;
  static constexpr char kMark = '\x1f';
  uint64_t next_ = 0;
  std::deque<std::pair<uint64_t, nb::object>> kept_;
};

struct PythonKernel {
  uint32_t kernel;
  nb::callable dispatch;
  Exceptions* exceptions;
};

// Calls a Python kernel. Whatever it raises is caught here and not in Python, where a signal may
// strike between any two lines.
int32_t call_python(const ptowsp_call* call, void* user) {
  nb::gil_scoped_acquire gil;
  const auto* python = static_cast<const PythonKernel*>(user);
  try {
    nb::list views;
    for (uint32_t i = 0; i < call->num_views; ++i) {
      const ptowsp_view& view = call->views[i];
      const bool paged = call->pages != nullptr && call->pages[i].page > 0;
      views.append(paged ? as_pages(view, call->pages[i]) : as_array(view));
    }
    nb::list scalars;
    for (uint32_t i = 0; i < call->num_scalars; ++i) scalars.append(call->scalars[i]);
    python->dispatch(views, scalars);
    return PTOWSP_KERNEL_OK;
  } catch (const nb::python_error& e) {
    const std::string message = python->exceptions->keep(nb::borrow(e.value()));
    std::snprintf(call->error, call->error_size, "%s", message.c_str());
    return e.matches(PyExc_Exception) ? PTOWSP_KERNEL_FAILED : PTOWSP_KERNEL_INTERRUPTED;
  } catch (const std::exception& e) {
    std::snprintf(call->error, call->error_size, "%s", e.what());
    return PTOWSP_KERNEL_FAILED;
  }
}

// Lets Ctrl-C reach a run: remembers the exception that a signal handler raised.
struct Signals {
  std::optional<nb::python_error> raised;

  static int32_t poll(void* self) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return 0;
    static_cast<Signals*>(self)->raised.emplace();
    return 1;
  }
  void rethrow() {
    if (raised) throw nb::python_error(*raised);
  }
};

class NativeRun {
 public:
  NativeRun(ptowsp_run* run, Exceptions* exceptions, nb::object program, nb::object values)
      : run_(run),
        exceptions_(exceptions),
        program_(std::move(program)),
        values_(std::move(values)) {}
  NativeRun(const NativeRun&) = delete;
  NativeRun& operator=(const NativeRun&) = delete;
  ~NativeRun() {
    // A run still in flight reads and writes the bound arrays.
    if (ptowsp_run_wait(run_, 0, nullptr) == static_cast<int32_t>(ptowsp::Status::TIMEOUT)) {
      nb::gil_scoped_release nogil;
      ptowsp_run_cancel(run_);
      ptowsp_run_wait(run_, -1, nullptr);
    }
    ptowsp_run_free(run_);
  }

  // Whether it has ended without an error. Short, and waits for nothing: keeps the GIL.
  bool succeeded() const { return ptowsp_run_wait(run_, 0, nullptr) == 0; }

  // (ended, error or None); waits at most timeout_ns.
  nb::tuple wait(int64_t timeout_ns) {
    ptowsp_error error{};
    int32_t status = 0;
    {
      nb::gil_scoped_release nogil;
      status = ptowsp_run_wait(run_, timeout_ns, &error);
    }
    const bool ended = status != static_cast<int32_t>(ptowsp::Status::TIMEOUT);
    return nb::make_tuple(ended, ended ? error_tuple(error) : nb::none());
  }

  void cancel() { ptowsp_run_cancel(run_); }

  nb::object take_exception(const std::string& message) { return exceptions_->take(message); }

  nb::dict stats() const {
    ptowsp_stats s{};
    ptowsp_run_stats(run_, &s);
    nb::dict out;
#define PTOWSP_STAT(name, doc) out[#name] = s.name;
#include "ptowsp/stats.def"
#undef PTOWSP_STAT
    return out;
  }

  std::vector<uint64_t> worker_tasks() const {
    std::vector<uint64_t> counts(ptowsp_run_worker_tasks(run_, nullptr, 0));
    ptowsp_run_worker_tasks(run_, counts.data(), counts.size());
    return counts;
  }

  std::tuple<uint64_t, uint64_t> hash() const {
    uint64_t lanes[2];
    ptowsp_run_hash(run_, lanes);
    return {lanes[0], lanes[1]};
  }

  // The entries of a kind of block as bytes.
  nb::bytes trace_block(uint32_t kind) const {
    std::string bytes(ptowsp_run_trace_block(run_, kind, nullptr, 0), '\0');
    ptowsp_run_trace_block(run_, kind, bytes.data(), bytes.size());
    return nb::bytes(bytes.data(), bytes.size());
  }
  // first_tick, ns_per_tick, levels, ordered
  std::tuple<uint64_t, double, uint32_t, bool> trace_info() const {
    ptowsp_trace_info info{};
    ptowsp_run_trace_info(run_, &info);
    return {info.first_tick, info.ns_per_tick, info.levels, info.ordered != 0};
  }
  // The decisions of the run; empty if they were not kept.
  nb::bytes recording() const {
    std::string bytes(ptowsp_run_recording(run_, nullptr, 0), '\0');
    ptowsp_run_recording(run_, bytes.data(), bytes.size());
    return nb::bytes(bytes.data(), bytes.size());
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    Py_VISIT(nb::inst_ptr<NativeRun>(self)->program_.ptr());
    Py_VISIT(nb::inst_ptr<NativeRun>(self)->values_.ptr());
    return 0;
  }

 private:
  ptowsp_run* run_;
  Exceptions* exceptions_;  // of the program
  nb::object program_;      // these outlive the run
  nb::object values_;
};

class NativeProgram {
 public:
  explicit NativeProgram(ptowsp_program* program) : program_(program) {}
  NativeProgram(const NativeProgram&) = delete;
  NativeProgram& operator=(const NativeProgram&) = delete;
  ~NativeProgram() {
    nb::gil_scoped_release nogil;
    ptowsp_program_free(program_);
  }

  // Ends runs in flight and joins all threads.
  void close() {
    nb::gil_scoped_release nogil;
    ptowsp_program_close(program_);
  }

  // (program, None) or (None, error)
  static nb::tuple load(const nb::bytes& bytes, uint32_t workers, uint64_t seed,
                        uint64_t workspace_limit) {
    ptowsp_error error{};
    ptowsp_plan* plan = ptowsp_plan_load(bytes.data(), bytes.size(), &error);
    if (plan == nullptr) return nb::make_tuple(nb::none(), error_tuple(error));
    const ptowsp_options options{workers, 0, seed, workspace_limit};
    ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
    ptowsp_plan_free(plan);
    if (program == nullptr) return nb::make_tuple(nb::none(), error_tuple(error));
    return nb::make_tuple(nb::cast(new NativeProgram(program), nb::rv_policy::take_ownership),
                          nb::none());
  }

  void set_native_kernel(uint32_t kernel, uintptr_t address, uint64_t scratch, uint64_t sharing) {
    ptowsp_program_set_kernel(program_, kernel, reinterpret_cast<ptowsp_kernel_fn>(address),
                              nullptr);
    ptowsp_program_set_scratch(program_, kernel, scratch);
    ptowsp_program_set_sharing(program_, kernel, sharing);
  }

  void set_python_kernel(uint32_t kernel, nb::callable dispatch) {
    const PythonKernel& python = kernels_.emplace_back(kernel, std::move(dispatch), &exceptions_);
    ptowsp_program_set_kernel(program_, kernel, call_python, const_cast<PythonKernel*>(&python));
  }

  void expect(const nb::list& symbols) { arguments_.expect(symbols); }

  // (run, None) or (None, error); raises what a signal handler raised while the run went on.
  static nb::tuple start(nb::object self, nb::tuple values, bool asynchronous, bool hashed) {
    std::vector<ptowsp_binding> bindings;
    nb::cast<NativeProgram&>(self).arguments_.take(values, &bindings);
    const int32_t flags = (asynchronous ? PTOWSP_RUN_ASYNC : 0) | (hashed ? PTOWSP_RUN_HASH : 0);
    ptowsp_error error;
    nb::object run =
        start_run(std::move(self), bindings, flags, nullptr, std::move(values), &error);
    if (!run.is_valid()) return nb::make_tuple(nb::none(), error_tuple(error));
    return nb::make_tuple(run, nb::none());
  }

  // The same, recorded, or decided by a recording or a seed.
  static nb::tuple start_controlled(nb::object self, nb::tuple values, bool asynchronous,
                                    bool hashed, bool record, std::optional<nb::bytes> replay,
                                    std::optional<uint64_t> seed) {
    std::vector<ptowsp_binding> bindings;
    nb::cast<NativeProgram&>(self).arguments_.take(values, &bindings);
    const int32_t flags = (asynchronous ? PTOWSP_RUN_ASYNC : 0) | (hashed ? PTOWSP_RUN_HASH : 0) |
                          (record ? PTOWSP_RUN_RECORD : 0) | (seed ? PTOWSP_RUN_SEED : 0);
    const ptowsp_control control{replay ? replay->data() : nullptr, replay ? replay->size() : 0,
                                 seed.value_or(0)};
    ptowsp_error error;
    nb::object run =
        start_run(std::move(self), bindings, flags, &control, std::move(values), &error);
    if (!run.is_valid()) return nb::make_tuple(nb::none(), error_tuple(error));
    return nb::make_tuple(run, nb::none());
  }

  // (run, its values) or None: then something does not plainly fit, and start() says what.
  static nb::object start_quick(nb::object self, const nb::tuple& current, const nb::dict& changed,
                                bool asynchronous) {
    std::vector<ptowsp_binding> bindings;
    nb::object values =
        nb::cast<NativeProgram&>(self).arguments_.merge(current, changed, &bindings);
    if (!values.is_valid()) return nb::none();
    ptowsp_error error;
    const int32_t flags = asynchronous ? PTOWSP_RUN_ASYNC : 0;
    nb::object run = start_run(std::move(self), bindings, flags, nullptr, values, &error);
    if (!run.is_valid()) return nb::none();
    return nb::make_tuple(run, values);
  }

  // (tasks, lane 0, lane 1, None) or (0, 0, 0, error)
  nb::tuple generate(const nb::tuple& values) {
    std::vector<ptowsp_binding> native;
    arguments_.take(values, &native);
    ptowsp_error error{};
    Signals signals;
    uint64_t tasks = 0;
    uint64_t hash[2] = {0, 0};
    {
      nb::gil_scoped_release nogil;
      ptowsp_generate(program_, native.data(), native.size(), Signals::poll, &signals, &tasks, hash,
                      &error);
    }
    signals.rethrow();
    return nb::make_tuple(tasks, hash[0], hash[1], error_tuple(error));
  }

  // (tasks, None) or (0, error): the rows of the first tasks are written to `out`.
  nb::tuple descriptors(const nb::tuple& values, const Words& cells, const Words& out) {
    std::vector<ptowsp_binding> native;
    arguments_.take(values, &native);
    ptowsp_error error{};
    Signals signals;
    uint64_t tasks = 0;
    const auto columns = static_cast<uint32_t>(out.shape(1));
    if (cells.shape(1) != 2 * columns) throw nb::value_error("cells and rows differ in columns");
    {
      nb::gil_scoped_release nogil;
      ptowsp_descriptors(program_, native.data(), native.size(),
                         reinterpret_cast<const ptowsp_descriptor_cell*>(cells.data()),
                         static_cast<uint32_t>(cells.shape(0)), columns, out.data(), out.shape(0),
                         Signals::poll, &signals, &tasks, &error);
    }
    signals.rethrow();
    return nb::make_tuple(tasks, error_tuple(error));
  }

  void after_fork() { ptowsp_program_after_fork(program_); }

  void set_trace_file(const std::string& path) {
    ptowsp_program_set_trace_file(program_, path.c_str());
  }

  // For the garbage collector: a kernel may know, through its globals, the program that runs it.
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    const NativeProgram* program = nb::inst_ptr<NativeProgram>(self);
    for (const PythonKernel& python : program->kernels_) Py_VISIT(python.dispatch.ptr());
    return program->exceptions_.traverse(visit, arg);
  }
  static int clear(PyObject* self) {
    NativeProgram* program = nb::inst_ptr<NativeProgram>(self);
    program->close();  // no thread is inside a kernel any more
    for (const PythonKernel& python : program->kernels_) {
      ptowsp_program_set_kernel(program->program_, python.kernel, nullptr, nullptr);
    }
    program->kernels_.clear();
    program->exceptions_.clear();
    return 0;
  }

 private:
  // A run that keeps its values alive; null: `error` says why there is none.
  static nb::object start_run(nb::object self, const std::vector<ptowsp_binding>& bindings,
                              int32_t flags, const ptowsp_control* control, nb::object values,
                              ptowsp_error* error) {
    NativeProgram& program = nb::cast<NativeProgram&>(self);
    Signals signals;
    ptowsp_run* run = nullptr;
    {
      nb::gil_scoped_release nogil;
      run = ptowsp_run_start_controlled(program.program_, bindings.data(), bindings.size(), flags,
                                        control, Signals::poll, &signals, error);
    }
    if (run == nullptr) return {};
    auto* native = new NativeRun(run, &program.exceptions_, std::move(self), std::move(values));
    nb::object out = nb::cast(native, nb::rv_policy::take_ownership);
    signals.rethrow();
    return out;
  }

  ptowsp_program* program_;
  Arguments arguments_;
  Exceptions exceptions_;
  std::deque<PythonKernel> kernels_;  // in a deque, since the core knows their addresses
};

PyType_Slot run_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(NativeRun::traverse)},
                           {0, nullptr}};
PyType_Slot program_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(NativeProgram::traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(NativeProgram::clear)},
                               {0, nullptr}};

nb::list stat_docs() {
  nb::list out;
#define PTOWSP_STAT(name, doc) out.append(nb::make_tuple(#name, doc));
#include "ptowsp/stats.def"
#undef PTOWSP_STAT
  return out;
}

}  // namespace

// Signatures are written out, since tuples and dictionaries say nothing of what they hold.
#define PTOWSP_ERROR "tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None"
#define PTOWSP_VALUES "tuple[object, ...]"

void ptowsp::bind_program(nb::module_& m) {
  nb::class_<NativeRun>(m, "NativeRun", "One run of a NativeProgram.", nb::type_slots(run_slots))
      .def("wait", &NativeRun::wait, nb::arg("timeout_ns"),
           nb::sig("def wait(self, timeout_ns: int) -> tuple[bool, " PTOWSP_ERROR "]"),
           "Whether the run has ended, and its error; waits at most that long.")
      .def("succeeded", &NativeRun::succeeded, "Whether the run has ended without an error.")
      .def("cancel", &NativeRun::cancel, "Asks the run to end early.")
      .def("take_exception", &NativeRun::take_exception, nb::arg("message"),
           nb::sig("def take_exception(self, message: str) -> BaseException | None"),
           "The exception of a Python kernel, by the message of the run's error.")
      .def("stats", &NativeRun::stats, nb::sig("def stats(self) -> dict[str, int]"),
           "The counters of stats.def by name.")
      .def("hash", &NativeRun::hash)
      .def("worker_tasks", &NativeRun::worker_tasks, nb::sig("def worker_tasks(self) -> list[int]"),
           "Tasks that each worker ran.")
      .def("recording", &NativeRun::recording,
           "The decisions of the run; empty if nobody kept them.")
      .def("trace_block", &NativeRun::trace_block, nb::arg("kind"),
           "What was recorded of a kind: 0 tasks, 1 edges, 2 samples; see ptowsp.h.")
      .def("trace_info", &NativeRun::trace_info,
           "first_tick, ns_per_tick, levels, ordered of struct ptowsp_trace_info.");
  nb::class_<NativeProgram>(m, "NativeProgram", "A loaded plan with its worker threads.",
                            nb::type_slots(program_slots))
      .def_static("load", &NativeProgram::load, nb::arg("plan"), nb::arg("workers"),
                  nb::arg("seed"), nb::arg("workspace_limit"),
                  nb::sig("def load(plan: bytes, workers: int, seed: int, workspace_limit: int) -> "
                          "tuple[NativeProgram | None, " PTOWSP_ERROR "]"),
                  "A program, or the reason why there is none.")
      .def("set_native_kernel", &NativeProgram::set_native_kernel, nb::arg("kernel"),
           nb::arg("address"), nb::arg("scratch"), nb::arg("sharing"),
           "Machine code of the signature ptowsp_kernel_fn, how many bytes of scratch memory it "
           "needs, and a bit for each view that may share memory with others.")
      .def("set_python_kernel", &NativeProgram::set_python_kernel, nb::arg("kernel"),
           nb::arg("dispatch"),
           nb::sig("def set_python_kernel(self, kernel: int, dispatch: "
                   "collections.abc.Callable[[list[numpy.ndarray], list[int]], None]) -> None"),
           "A function of the views and the loop indices of a task.")
      .def("expect", &NativeProgram::expect, nb::arg("symbols"),
           nb::sig("def expect(self, symbols: "
                   "list[tuple[str, int, numpy.dtype | None, int, int, int]]) -> None"),
           "What runs bind, by symbol: name, dtype, NumPy's dtype of an array, rank, range.")
      .def("start", &NativeProgram::start, nb::arg("values"), nb::arg("asynchronous"),
           nb::arg("hashed"),
           nb::sig("def start(self, values: " PTOWSP_VALUES
                   ", asynchronous: bool, hashed: bool) -> tuple[NativeRun | None, " PTOWSP_ERROR
                   "]"),
           "A run, or the reason why the values, one for each symbol, do not fit.")
      .def("start_controlled", &NativeProgram::start_controlled, nb::arg("values"),
           nb::arg("asynchronous"), nb::arg("hashed"), nb::arg("record"), nb::arg("replay").none(),
           nb::arg("seed").none(),
           nb::sig("def start_controlled(self, values: " PTOWSP_VALUES
                   ", asynchronous: bool, hashed: bool, record: bool, replay: bytes | None, seed: "
                   "int | None) -> "
                   "tuple[NativeRun | None, " PTOWSP_ERROR "]"),
           "A run that keeps its decisions, repeats those of another one, or draws them.")
      .def("start_quick", &NativeProgram::start_quick, nb::arg("current"), nb::arg("changed"),
           nb::arg("asynchronous"),
           nb::sig("def start_quick(self, current: tuple[object, ...], changed: dict[str, object], "
                   "asynchronous: bool) -> tuple[NativeRun, tuple[typing.Any, ...]] | None"),
           "A run with some names changed, and all of its values; None if that is not plain.")
      .def("generate", &NativeProgram::generate, nb::arg("values"),
           nb::sig("def generate(self, values: " PTOWSP_VALUES
                   ") -> tuple[int, int, int, " PTOWSP_ERROR "]"),
           "Number of tasks and the two lanes of their hash, or an error.")
      .def("descriptors", &NativeProgram::descriptors, nb::arg("values"), nb::arg("cells"),
           nb::arg("out"),
           nb::sig("def descriptors(self, values: " PTOWSP_VALUES
                   ", cells: numpy.typing.NDArray[numpy.uint32], out: "
                   "numpy.typing.NDArray[numpy.uint32]) -> tuple[int, " PTOWSP_ERROR "]"),
           "Writes a row for each of the first tasks, as the cells of their sites say; how many "
           "tasks there are, or an error.")
      .def("close", &NativeProgram::close, "Ends runs in flight and joins all threads.")
      .def("set_trace_file", &NativeProgram::set_trace_file, nb::arg("path"),
           "Later runs write their traces to this file; an empty path keeps them in memory.")
      .def("after_fork", &NativeProgram::after_fork, "Forgets threads that a fork left behind.");
  m.def("stat_docs", &stat_docs, nb::sig("def stat_docs() -> list[tuple[str, str]]"),
        "(name, meaning) of each counter of a run.");
  m.attr("TRACED_SIZE") = sizeof(ptowsp_traced);
}
