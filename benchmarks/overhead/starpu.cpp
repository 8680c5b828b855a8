// StarPU: one data handle per element, order inferred from the access modes.
//
// In its favour: starting the runtime and registering the handles are not part of the time.
#include <starpu.h>

#include <string>
#include <vector>

#include "graphs.h"

namespace {

using bench::Problem;

std::int32_t* variable(void* buffer) {
  return reinterpret_cast<std::int32_t*>(STARPU_VARIABLE_GET_PTR(buffer));
}

void run_step(void* buffers[], void* problem) {
  bench::step(*static_cast<const Problem*>(problem), variable(buffers[0]));
}
void run_after_one(void* buffers[], void* problem) {
  bench::after_one(*static_cast<const Problem*>(problem), variable(buffers[0]),
                   variable(buffers[1]));
}
void run_after_two(void* buffers[], void* problem) {
  bench::after_two(*static_cast<const Problem*>(problem), variable(buffers[0]),
                   variable(buffers[1]), variable(buffers[2]));
}
// The three elements lie side by side, so the first says where the others are.
void run_after_three(void* buffers[], void* problem) {
  bench::after_three(*static_cast<const Problem*>(problem), variable(buffers[0]),
                     variable(buffers[3]));
}

starpu_codelet make_codelet(void (*body)(void**, void*),
                            std::initializer_list<starpu_data_access_mode> modes) {
  starpu_codelet codelet;
  starpu_codelet_init(&codelet);
  codelet.cpu_funcs[0] = body;
  codelet.nbuffers = static_cast<int>(modes.size());
  int k = 0;
  for (const starpu_data_access_mode mode : modes) codelet.modes[k++] = mode;
  return codelet;
}

// Submits tasks; handles are those of x, then those of out.
class Submitter {
 public:
  Submitter(const Problem& problem, std::vector<starpu_data_handle_t> handles)
      : problem_(problem), handles_(std::move(handles)) {}

  void step(std::int64_t x) { submit(&step_, {x}); }
  void after_one(std::int64_t a, std::int64_t out) { submit(&after_one_, {a, out}); }
  void after_two(std::int64_t a, std::int64_t b, std::int64_t out) {
    submit(&after_two_, {a, b, out});
  }
  void after_three(std::int64_t a, std::int64_t out) {
    submit(&after_three_, {a, a + 1, a + 2, out});
  }
  std::vector<starpu_data_handle_t>& handles() { return handles_; }

 private:
  void submit(starpu_codelet* codelet, std::initializer_list<std::int64_t> at) {
    starpu_task* task = starpu_task_create();
    task->cl = codelet;
    task->cl_arg = const_cast<Problem*>(&problem_);
    int k = 0;
    for (const std::int64_t each : at)
      task->handles[k++] = handles_[static_cast<std::size_t>(each)];
    STARPU_CHECK_RETURN_VALUE(starpu_task_submit(task), "starpu_task_submit");
  }

  const Problem& problem_;
  std::vector<starpu_data_handle_t> handles_;
  starpu_codelet step_ = make_codelet(run_step, {STARPU_RW});
  starpu_codelet after_one_ = make_codelet(run_after_one, {STARPU_R, STARPU_W});
  starpu_codelet after_two_ = make_codelet(run_after_two, {STARPU_R, STARPU_R, STARPU_W});
  starpu_codelet after_three_ =
      make_codelet(run_after_three, {STARPU_R, STARPU_R, STARPU_R, STARPU_W});
};

void generate(const Problem& p, Submitter& s) {
  if (p.graph == "independent" || p.graph == "tree") {
    for (std::int64_t i = 0; i < p.n; ++i) s.step(i);
  }
  if (p.graph == "tree") {
    for (std::int64_t k = 0; k < p.n - 1; ++k) s.after_two(2 * k, 2 * k + 1, p.n + k);
  }
  if (p.graph == "chain") {
    for (std::int64_t i = 0; i < p.n; ++i) s.step(0);
  }
  if (p.graph == "attention") {
    for (std::int64_t c = 0; c < p.n; ++c) {
      for (std::int64_t t = 0; t < p.m; ++t) s.step(c);
      s.after_one(c, p.n + c);
    }
  }
  if (p.graph == "wavefront") {
    for (std::int64_t i = 0; i < p.n; ++i) {
      for (std::int64_t j = 0; j < p.m; ++j) {
        s.after_two(p.cell(i, j + 1), p.cell(i + 1, j), p.cell(i + 1, j + 1));
      }
    }
  }
  if (p.graph == "stencil") {
    for (std::int64_t t = 0; t < p.n; ++t) {
      for (std::int64_t i = 0; i < p.m; ++i) s.after_three(p.point(t, i), p.point(t + 1, i + 1));
    }
  }
}

std::int64_t elements(const Problem& p) {
  if (p.graph == "chain") return 1;
  if (p.graph == "tree") return 2 * p.n - 1;
  if (p.graph == "wavefront") return (p.n + 1) * (p.m + 1);
  if (p.graph == "stencil") return (p.n + 1) * (p.m + 2);
  return p.graph == "independent" || p.graph == "attention" ? p.n : -1;
}

std::vector<starpu_data_handle_t> register_elements(const Problem& p, std::int64_t count) {
  const std::int64_t more = p.graph == "attention" ? p.n : 0;
  std::vector<starpu_data_handle_t> handles(static_cast<std::size_t>(count + more));
  for (std::int64_t k = 0; k < count + more; ++k) {
    std::int32_t* at = k < count ? p.x + k : p.out + (k - count);
    starpu_variable_data_register(&handles[static_cast<std::size_t>(k)], STARPU_MAIN_RAM,
                                  reinterpret_cast<uintptr_t>(at), sizeof *at);
  }
  return handles;
}

}  // namespace

const char* bench_version() {
  static const std::string text =
      "StarPU " + std::to_string(STARPU_MAJOR_VERSION) + "." + std::to_string(STARPU_MINOR_VERSION);
  return text.c_str();
}

std::int64_t bench_run(const char* graph, std::int64_t n, std::int64_t m, std::int32_t* x,
                       std::int32_t* out, int workers, std::int64_t iterations,
                       std::int64_t* teardown_ns) {
  const Problem p{graph, n, m, x, out, workers, iterations};
  const std::int64_t count = elements(p);
  if (count < 0) return -1;
  starpu_conf conf;
  starpu_conf_init(&conf);
  conf.ncpus = workers;
  conf.ncuda = 0;
  conf.nopencl = 0;
  if (starpu_init(&conf) != 0) return -1;
  Submitter submitter(p, register_elements(p, count));
  const std::int64_t begin = bench::now_ns();
  generate(p, submitter);
  starpu_task_wait_for_all();
  const std::int64_t end = bench::now_ns();
  for (const starpu_data_handle_t handle : submitter.handles()) starpu_data_unregister(handle);
  starpu_shutdown();
  *teardown_ns = bench::now_ns() - end;
  return end - begin;
}
