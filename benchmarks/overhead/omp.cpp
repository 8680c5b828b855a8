// gcc OpenMP: one thread creates the tasks in program order, `depend` clauses give the order.
#include <omp.h>

#include "graphs.h"

namespace {

using bench::Problem;

void independent(const Problem* p) {
  for (std::int64_t i = 0; i < p->n; ++i) {
    std::int32_t* x = p->x + i;
#pragma omp task depend(inout : *x) firstprivate(p, x)
    bench::step(*p, x);
  }
}

void chain(const Problem* p) {
  std::int32_t* x = p->x;
  for (std::int64_t i = 0; i < p->n; ++i) {
#pragma omp task depend(inout : *x) firstprivate(p, x)
    bench::step(*p, x);
  }
}

void attention(const Problem* p) {
  for (std::int64_t c = 0; c < p->n; ++c) {
    std::int32_t* acc = p->x + c;
    std::int32_t* out = p->out + c;
    for (std::int64_t t = 0; t < p->m; ++t) {
#pragma omp task depend(inout : *acc) firstprivate(p, acc)
      bench::step(*p, acc);
    }
#pragma omp task depend(in : *acc) depend(out : *out) firstprivate(p, acc, out)
    bench::after_one(*p, acc, out);
  }
}

void wavefront(const Problem* p) {
  for (std::int64_t i = 0; i < p->n; ++i) {
    for (std::int64_t j = 0; j < p->m; ++j) {
      std::int32_t* up = p->x + p->cell(i, j + 1);
      std::int32_t* left = p->x + p->cell(i + 1, j);
      std::int32_t* out = left + 1;
#pragma omp task depend(in : *up, *left) depend(out : *out) firstprivate(p, up, left, out)
      bench::after_two(*p, up, left, out);
    }
  }
}

void stencil(const Problem* p) {
  for (std::int64_t t = 0; t < p->n; ++t) {
    for (std::int64_t i = 0; i < p->m; ++i) {
      std::int32_t* a = p->x + p->point(t, i);
      std::int32_t* out = p->x + p->point(t + 1, i + 1);
#pragma omp task depend(in : a[0], a[1], a[2]) depend(out : *out) firstprivate(p, a, out)
      bench::after_three(*p, a, out);
    }
  }
}

void tree(const Problem* p) {
  independent(p);
  for (std::int64_t k = 0; k < p->n - 1; ++k) {
    std::int32_t* a = p->x + 2 * k;
    std::int32_t* out = p->x + p->n + k;
#pragma omp task depend(in : a[0], a[1]) depend(out : *out) firstprivate(p, a, out)
    bench::after_two(*p, a, a + 1, out);
  }
}

using Generate = void (*)(const Problem*);

Generate find(std::string_view graph) {
  if (graph == "independent") return independent;
  if (graph == "chain") return chain;
  if (graph == "attention") return attention;
  if (graph == "wavefront") return wavefront;
  if (graph == "stencil") return stencil;
  return graph == "tree" ? tree : nullptr;
}

}  // namespace

const char* bench_version() { return "gcc " __VERSION__; }

std::int64_t bench_run(const char* graph, std::int64_t n, std::int64_t m, std::int32_t* x,
                       std::int32_t* out, int workers, std::int64_t iterations,
                       std::int64_t* teardown_ns) {
  const Problem problem{graph, n, m, x, out, workers, iterations};
  const Problem* p = &problem;
  const Generate generate = find(problem.graph);
  if (generate == nullptr) return -1;
  const std::int64_t begin = bench::now_ns();
#pragma omp parallel num_threads(workers) firstprivate(p)
#pragma omp single
  generate(p);
  const std::int64_t took = bench::now_ns() - begin;
  *teardown_ns = 0;
  return took;
}
