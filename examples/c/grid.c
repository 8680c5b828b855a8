/* Runs a plan without Python: counts the paths through a grid that go right and down.
 *
 *   python examples/c/grid.py      writes grid.plan
 *   grid [grid.plan]               loads it, attaches the kernel below, runs it on two workers
 *
 * Each cell is a task that needs the cells above it and to its left; nobody writes down which task
 * waits for which. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptowsp/ptowsp.h"

#ifndef GRID_PLAN
#define GRID_PLAN "grid.plan"
#endif

enum { ROWS = 30, COLS = 30, WORKERS = 2 };

/* out = above + left; the views come in the order of the kernel's parameters. */
static int32_t cell(const ptowsp_call* call, void* user) {
  const int64_t above = *(const int64_t*)call->views[0].data;
  const int64_t left = *(const int64_t*)call->views[1].data;
  int64_t* out = (int64_t*)call->views[2].data;
  (void)user;
  *out = above + left;
  return PTOWSP_KERNEL_OK;
}

static int fail(const char* what, const ptowsp_error* error) {
  fprintf(stderr, "%s: %s\n", what, error->message);
  return EXIT_FAILURE;
}

static ptowsp_plan* load(const char* path, ptowsp_error* error) {
  static char bytes[1 << 16];
  FILE* file = fopen(path, "rb");
  size_t size = 0;
  if (file == NULL) {
    perror(path);
    exit(EXIT_FAILURE);
  }
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  return ptowsp_plan_load(bytes, size, error);
}

int main(int argc, char** argv) {
  static int64_t x[ROWS + 1][COLS + 1];
  static ptowsp_error error;
  const ptowsp_options options = {WORKERS, 0, 0, 0};
  ptowsp_binding bindings[3] = {{0}};
  uint64_t per_worker[WORKERS];
  ptowsp_stats stats;

  ptowsp_plan* plan = load(argc > 1 ? argv[1] : GRID_PLAN, &error);
  if (plan == NULL) return fail("plan", &error);
  ptowsp_program* program = ptowsp_program_new(plan, &options, &error);
  if (program == NULL) return fail("program", &error);
  ptowsp_program_set_kernel(program, ptowsp_plan_kernel(plan, "cell"), cell, NULL);

  /* One path begins left of the first cell; everything else outside the grid is 0. */
  x[1][0] = 1;
  bindings[0].symbol = ptowsp_plan_symbol(plan, "rows");
  bindings[0].value = ROWS;
  bindings[1].symbol = ptowsp_plan_symbol(plan, "cols");
  bindings[1].value = COLS;
  bindings[2].symbol = ptowsp_plan_symbol(plan, "x");
  bindings[2].dtype = PTOWSP_DType_I64;
  bindings[2].rank = 2;
  bindings[2].data = x;
  bindings[2].shape[0] = ROWS + 1;
  bindings[2].shape[1] = COLS + 1;
  bindings[2].stride[0] = COLS + 1;
  bindings[2].stride[1] = 1;

  ptowsp_run* run = ptowsp_run_start(program, bindings, 3, 0, NULL, NULL, &error);
  if (run == NULL) return fail("bindings", &error);
  if (ptowsp_run_wait(run, -1, &error) != PTOWSP_Status_OK) return fail("run", &error);
  ptowsp_run_stats(run, &stats);
  ptowsp_run_worker_tasks(run, per_worker, sizeof(per_worker) / sizeof(per_worker[0]));
  printf("%" PRIu64 " tasks, %" PRIu64 " on the first worker; %" PRId64 " paths\n", stats.tasks,
         per_worker[0], x[ROWS][COLS]);

  ptowsp_run_free(run);
  ptowsp_program_free(program);
  ptowsp_plan_free(plan);
  /* 58 steps, of which 29 go down: 58! / (29! 29!) */
  return x[ROWS][COLS] == INT64_C(30067266499541040) ? EXIT_SUCCESS : EXIT_FAILURE;
}
