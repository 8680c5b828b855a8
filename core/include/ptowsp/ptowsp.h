/* The C interface of the native core: the only door to it. The Python bindings use nothing else.
 *
 * A plan is loaded from bytes, a program is made from a plan, kernels are attached, runs are
 * started with bindings and waited for. Every call that can fail takes a ptowsp_error and returns a
 * status (numbers: enum Status in enums.def, 0 is success). No call throws or exits. Calls on
 * different programs may come from different threads; calls on one program may too, and its runs
 * queue in call order. */
#ifndef PTOWSP_H
#define PTOWSP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PTOWSP_MAX_RANK 8
#define PTOWSP_MAX_LOOPS 16
#define PTOWSP_NONE 0xFFFFFFFFu

/* The numbers of enums.def: PTOWSP_DType_F32, PTOWSP_Status_TIMEOUT and so on. */
enum {
#define PTOWSP_ENUM_BEGIN(name, doc)
#define PTOWSP_VALUE(enumeration, name, number, doc) PTOWSP_##enumeration##_##name = number,
#define PTOWSP_ENUM_END(name)
#include "ptowsp/enums.def"
#undef PTOWSP_ENUM_BEGIN
#undef PTOWSP_VALUE
#undef PTOWSP_ENUM_END
};

typedef struct ptowsp_plan ptowsp_plan;
typedef struct ptowsp_program ptowsp_program;
typedef struct ptowsp_run ptowsp_run;

/* What went wrong. `message` is UTF-8 and always terminated. */
typedef struct {
  int32_t status;
  uint32_t site;    /* PTOWSP_NONE if no task is to blame */
  uint32_t symbol;  /* PTOWSP_NONE if no binding is to blame */
  uint32_t section; /* PTOWSP_NONE, or the section of the record to blame: a loop, a condition */
  uint32_t record;  /* its number there */
  uint32_t num_indices; /* loop indices of the task, or around that record */
  int64_t indices[PTOWSP_MAX_LOOPS];
  uint64_t task_id;
  uint64_t offset; /* PLAN_ERROR: byte of the file */
  char message[8192];
} ptowsp_error;

/* A region as a kernel sees it. Strides count elements. */
typedef struct {
  void* data;
  int64_t shape[PTOWSP_MAX_RANK];
  int64_t stride[PTOWSP_MAX_RANK];
  uint32_t rank;
  uint32_t dtype; /* enum DType */
} ptowsp_view;

/* How the tokens of a paged view lie in memory. Token i of the view (its first dimension) is token
 * (first + i) % page of page table[(first + i) / page * table_stride]; a page begins page_stride
 * elements behind the one before, the tokens of a page lie stride[0] elements apart. */
typedef struct {
  const void* table; /* page numbers: int64_t if `wide`, else int32_t */
  int64_t table_stride;
  int64_t page; /* tokens a page; 0: the view is not paged */
  int64_t first;
  int64_t page_stride;
  uint64_t wide;
} ptowsp_pages;

/* One task, as handed to a kernel. */
typedef struct {
  const ptowsp_view* views;  /* tensor arguments in parameter order */
  const ptowsp_pages* pages; /* as many; NULL if the kernel has no paged parameter */
  const uint64_t* scalars;   /* scalar arguments in parameter order, as bits of their dtype */
  const int64_t* indices;    /* loop indices, outermost first */
  uint32_t num_views;
  uint32_t num_scalars;
  uint32_t num_indices;
  uint32_t site;
  uint32_t worker;
  uint32_t error_size;
  uint64_t task_id;
  char* error;   /* a failing kernel writes its message here */
  void* scratch; /* memory of the worker, aligned to 64 bytes; what a task leaves there is lost */
  uint64_t scratch_bytes; /* at least what was asked for, see ptowsp_program_set_scratch() */
} ptowsp_call;

/* What a kernel returns. Anything else counts as failed. */
enum {
  PTOWSP_KERNEL_OK = 0,
  PTOWSP_KERNEL_FAILED = 1,
  PTOWSP_KERNEL_INTERRUPTED = 2, /* ends the run as interrupted rather than failed */
};

/* Must not throw. */
typedef int32_t (*ptowsp_kernel_fn)(const ptowsp_call* call, void* user);

/* What a symbol is bound to for one run. Arrays and tensors are used in place and must stay alive
 * and unchanged in shape until the run has ended. */
typedef struct {
  uint32_t symbol;
  uint32_t dtype; /* enum DType, arrays and tensors */
  uint32_t rank;
  uint32_t read_only; /* tensors: writing it is refused */
  int64_t value;      /* extents, facts, integer scalars; bits of an f64 scalar */
  void* data;
  int64_t shape[PTOWSP_MAX_RANK];
  int64_t stride[PTOWSP_MAX_RANK]; /* elements */
} ptowsp_binding;

/* Called now and then by the thread that runs ptowsp_execute; non-zero ends the run. */
typedef int32_t (*ptowsp_interrupt_fn)(void* user);

typedef struct {
  uint32_t num_workers; /* at least 1 */
  uint32_t reserved;
  uint64_t seed;            /* of the victims that thieves choose */
  uint64_t workspace_limit; /* most bytes for temporaries; 0: no limit */
} ptowsp_options;

/* Counters of a run; stats.def says what each one means. */
typedef struct {
#define PTOWSP_STAT(name, doc) uint64_t name;
#include "ptowsp/stats.def"
#undef PTOWSP_STAT
} ptowsp_stats;

/* One trace event; `indices` holds num_loops values. Times are nanoseconds since the run began. */
typedef struct {
  uint64_t task_id;
  uint64_t seq;
  uint64_t take; /* position in the order in which workers took tasks */
  uint64_t ready_ns;
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t site;
  uint32_t worker;
  uint32_t stream;
  uint32_t pool;
  uint32_t stolen;
  uint32_t num_loops;
  int64_t indices[PTOWSP_MAX_LOOPS];
} ptowsp_event;

/* A task as it is recorded: times are ticks, see ptowsp_trace_info. Its loop indices lie behind it,
 * as many int64_t as the deepest call has loops. */
typedef struct {
  uint64_t task_id;
  uint64_t seq;
  uint64_t ready;
  uint64_t start;
  uint64_t end;
  uint64_t take; /* 0 where info.ordered is 0: the order is that of `start` */
  uint32_t site;
  uint32_t stream;
  uint32_t worker;
  uint16_t pool;
  uint8_t stolen;
  uint8_t num_loops;
} ptowsp_traced;

/* Task `to` waited for `from`: their seq. A number with the highest bit set names a join, which is
 * no task: it ends with the last task that has an edge to it. */
typedef struct {
  uint64_t from;
  uint64_t to;
} ptowsp_edge;

#define PTOWSP_JOIN (1ull << 63)

/* The value of a counter (enum TraceCounter) from that tick on. */
typedef struct {
  uint64_t ticks;
  uint32_t counter;
  uint32_t value;
} ptowsp_sample;

enum {
  PTOWSP_BLOCK_TASKS = 0,   /* ptowsp_traced with indices */
  PTOWSP_BLOCK_EDGES = 1,   /* ptowsp_edge */
  PTOWSP_BLOCK_SAMPLES = 2, /* ptowsp_sample */
};

/* In a trace file, in front of each block. */
typedef struct {
  uint32_t kind;
  uint32_t reserved;
  uint64_t bytes;
} ptowsp_block;

/* How a trace is read. A time in nanoseconds is (ticks - first_tick) * ns_per_tick. */
typedef struct {
  uint64_t first_tick;
  double ns_per_tick;
  uint32_t levels;  /* loop indices behind each ptowsp_traced */
  uint32_t ordered; /* `take` is recorded */
} ptowsp_trace_info;

/* Loads and validates a plan; the bytes are copied. NULL on failure. */
ptowsp_plan* ptowsp_plan_load(const void* bytes, size_t size, ptowsp_error* error);
void ptowsp_plan_free(ptowsp_plan* plan);
/* The number of the symbol (for bindings) or kernel of that name; PTOWSP_NONE if there is none. */
uint32_t ptowsp_plan_symbol(const ptowsp_plan* plan, const char* name);
uint32_t ptowsp_plan_kernel(const ptowsp_plan* plan, const char* name);

/* A program keeps its plan alive. Refuses features and directives that this target lacks. */
ptowsp_program* ptowsp_program_new(ptowsp_plan* plan, const ptowsp_options* options,
                                   ptowsp_error* error);
/* Ends runs in flight and joins every thread; a later run makes new ones. */
void ptowsp_program_close(ptowsp_program* program);
/* The same, then frees everything. The program's runs must have been freed before. */
void ptowsp_program_free(ptowsp_program* program);
int32_t ptowsp_program_set_kernel(ptowsp_program* program, uint32_t kernel, ptowsp_kernel_fn fn,
                                  void* user);
/* How much scratch memory a kernel needs; runs that are started later have it. */
int32_t ptowsp_program_set_scratch(ptowsp_program* program, uint32_t kernel, uint64_t bytes);
/* Which views of a kernel may share memory with each other where it writes one of them: bit i
 * stands for view i, those from 64 on may. All may if this is not called; a run with other bindings
 * fails to start with SHARED_MEMORY. No run may be in flight. */
int32_t ptowsp_program_set_sharing(ptowsp_program* program, uint32_t kernel, uint64_t views);
/* Runs that are started later write their traces to this file, each from its beginning; NULL keeps
 * them in memory. A file that cannot be written fails the run. */
void ptowsp_program_set_trace_file(ptowsp_program* program, const char* path);
/* After fork() in the child: forgets threads that do not exist there. */
void ptowsp_program_after_fork(ptowsp_program* program);

/* How a run is made. */
enum {
  PTOWSP_RUN_ASYNC = 1,  /* a thread of the program is worker 0, and the call returns at once */
  PTOWSP_RUN_HASH = 2,   /* adds up the task hash; see ptowsp_run_hash */
  PTOWSP_RUN_RECORD = 4, /* keeps its decisions; see ptowsp_run_recording */
  PTOWSP_RUN_SEED = 8,   /* draws the interleaving from ptowsp_control.seed */
};

/* What decides in place of the workers: a recording, whose order and placement are repeated, or a
 * seed. Workers take turns, so such a run is slow; its decisions are kept. */
typedef struct {
  const void* recording; /* or NULL */
  size_t recording_size;
  uint64_t seed; /* with PTOWSP_RUN_SEED */
} ptowsp_control;

/* Starts a run. Unless `flags` has PTOWSP_RUN_ASYNC, the calling thread is worker 0 and the run has
 * ended on return. NULL only when the run could not be made (bad bindings): `error` says why. */
ptowsp_run* ptowsp_run_start(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                             int32_t flags, ptowsp_interrupt_fn interrupt, void* user,
                             ptowsp_error* error);
/* The same, decided by `control`, which may be NULL. A recording that is damaged or of another run
 * is refused (status RECORDING_MISFIT); one of a plan whose tasks depend on data may turn out not
 * to fit while it runs. */
ptowsp_run* ptowsp_run_start_controlled(ptowsp_program* program, const ptowsp_binding* bindings,
                                        size_t count, int32_t flags, const ptowsp_control* control,
                                        ptowsp_interrupt_fn interrupt, void* user,
                                        ptowsp_error* error);
/* Waits for the end of a run: its status, or TIMEOUT. timeout_ns < 0 waits for ever. */
int32_t ptowsp_run_wait(ptowsp_run* run, int64_t timeout_ns, ptowsp_error* error);
/* Asks a run to end early; it then has the status INTERRUPTED. */
void ptowsp_run_cancel(ptowsp_run* run);
void ptowsp_run_stats(const ptowsp_run* run, ptowsp_stats* stats);
/* Tasks executed by each worker, of up to `capacity` workers; returns how many the run has: those
 * of the program or, where processes have a virtual clock, one for each of them. */
size_t ptowsp_run_worker_tasks(const ptowsp_run* run, uint64_t* counts, size_t capacity);
/* The task hash of a run that was started with PTOWSP_RUN_HASH and has ended. */
void ptowsp_run_hash(const ptowsp_run* run, uint64_t hash[2]);
/* Copies up to `capacity` events, in the order in which tasks started; returns how many there are.
 * None where the trace goes to a file. */
size_t ptowsp_run_trace(const ptowsp_run* run, ptowsp_event* events, size_t capacity);
/* The trace as it was recorded: copies the entries of a kind of block and returns their bytes. */
size_t ptowsp_run_trace_block(const ptowsp_run* run, uint32_t kind, void* out, size_t bytes);
void ptowsp_run_trace_info(const ptowsp_run* run, ptowsp_trace_info* info);
/* The decisions of a run that was recorded or controlled and has ended, also of one that failed: up
 * to `size` bytes of the recording; returns how many there are, 0 if nothing was kept. */
size_t ptowsp_run_recording(const ptowsp_run* run, void* bytes, size_t size);
/* Must not be called before the run has ended. */
void ptowsp_run_free(ptowsp_run* run);

/* Walks the plan without running anything: number of tasks and the two lanes of the task hash. */
int32_t ptowsp_generate(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                        ptowsp_interrupt_fn interrupt, void* user, uint64_t* tasks,
                        uint64_t hash[2], ptowsp_error* error);

/* What stands in one column of the descriptors of a site's tasks. */
enum {
  PTOWSP_CELL_CONSTANT = 0,       /* arg itself; UINT32_MAX: they have no such number */
  PTOWSP_CELL_LOOP = 1,           /* index of the loop at level arg */
  PTOWSP_CELL_FIELD = 2,          /* record arg of DESCRIPTOR */
  PTOWSP_CELL_WORKSPACE_LOW = 3,  /* where the first of its temporaries lies: the low 32 bits */
  PTOWSP_CELL_WORKSPACE_HIGH = 4, /* and the others; all ones if it has none */
};
typedef struct ptowsp_descriptor_cell {
  uint32_t from;
  uint32_t arg;
} ptowsp_descriptor_cell;

/* Walks the plan without running anything and writes a row of `columns` words, at most 64, for each
 * of the first `capacity` tasks, as `cells` says: `columns` entries for each of the `sites` of the
 * plan. `tasks` is how many there are in all. */
int32_t ptowsp_descriptors(ptowsp_program* program, const ptowsp_binding* bindings, size_t count,
                           const ptowsp_descriptor_cell* cells, uint32_t sites, uint32_t columns,
                           uint32_t* out, uint64_t capacity, ptowsp_interrupt_fn interrupt,
                           void* user, uint64_t* tasks, ptowsp_error* error);

#ifdef __cplusplus
}
#endif
#endif
