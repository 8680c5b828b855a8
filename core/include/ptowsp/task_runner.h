// Calls kernels for one worker.
//
// Everything about a call that does not change from task to task is filled in once per run and
// worker, so a task of a simple site costs one affine sum per view and the call itself; the tasks
// of a leaf loop cost one addition per view.
//
// Thread roles: belongs to one worker; shares nothing that is written.
#pragma once

#include <vector>

#include "ptowsp/bind.h"
#include "ptowsp/lines.h"
#include "ptowsp/prefetch.h"
#include "ptowsp/recording.h"

namespace ptowsp {

struct KernelSlot {
  ptowsp_kernel_fn fn = nullptr;
  void* user = nullptr;
  u64 scratch = 0;        // bytes that it needs
  u64 sharing = ~u64{0};  // bit i: view i may share memory with the others that have a bit
};

class TaskRunner {
 public:
  TaskRunner(const BoundPlan& plan, const std::vector<KernelSlot>& kernels, u32 worker);
  TaskRunner(TaskRunner&&) = default;
  TaskRunner& operator=(TaskRunner&&) = delete;

  // Before another run, for which the plan was bound again: tensors may have moved.
  void restart(const std::vector<KernelSlot>& kernels);
  // The same where the plan was bound anew: everything about it may have changed.
  void make(const std::vector<KernelSlot>& kernels);
  // What to prefetch before each task of a run; null: nothing.
  void set_prefetcher(const Prefetcher* prefetcher, Prefetched* prefetched) {
    prefetcher_ = prefetcher;
    prefetched_ = prefetched;
  }

  // Takes down when tasks begin and end; null: nobody does.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }

  // Runs one task; `loops` are its loop indices and registers, as BoundPlan::pack() puts them.
  // False: it failed or could not be evaluated, see `error`.
  bool run(u32 site, const i64* loops, u64 task_id, Error* error) {
    SiteCall& s = sites_[site];
    if (prefetcher_ != nullptr) prefetcher_->ahead(site, loops, prefetched_);
    if (s.simple) {
      point_views(&s, loops);
    } else if (!fill_views(site, loops, task_id, error)) {
      return false;
    }
    if (s.call.num_scalars > 0 && !fill_scalars(site, loops, task_id, error)) return false;
    s.call.indices = loops;
    s.call.task_id = task_id;
    if (recorder_ != nullptr) recorder_->starts(s.call.worker, task_id);
    const i32 result = s.kernel.fn(&s.call, s.kernel.user);
    if (result != 0) {
      failed(site, loops, task_id, result, error);
    } else if (recorder_ != nullptr) {
      recorder_->ends(s.call.worker);
    }
    return result == 0;
  }

  // Runs `count` tasks of a simple leaf site: the loop variable of the innermost level counts up
  // from its value in `loops`, which is left at the last one. Adds the number of tasks that ended
  // to `done`.
  bool run_leaf(u32 site, i64* loops, u64 first_task, i64 count, u64* done, Error* error);

 private:
  struct SiteCall {
    ptowsp_call call{};
    KernelSlot kernel;
    LineVector<ptowsp_view> views;
    // Of a simple site, for each view: its pointer when all variables are 0, then how far one step
    // of each loop and register moves it.
    std::vector<i64> forms;
    std::vector<u64> scalars;
    std::vector<bool> is_paged;       // by view: the kernel takes it page by page
    std::vector<ptowsp_pages> pages;  // by view, if any of them is
    u32 num_vars = 0;
    bool simple = false;
  };

  void make_site(u32 site, const KernelSlot& kernel);
  void make_scratch(const std::vector<KernelSlot>& kernels);
  void find_paged(const BoundSite& site, SiteCall* out) const;
  void point_forms(u32 site);
  bool fill_scalars(u32 site, const i64* loops, u64 task_id, Error* error);
  bool fill_views(u32 site, const i64* loops, u64 task_id, Error* error);
  static void point_views(SiteCall* s, const i64* loops) {
    const u32 vars = s->num_vars;
    const i64* form = s->forms.data();
    ptowsp_view* const end = s->views.data() + s->call.num_views;
    for (ptowsp_view* view = s->views.data(); view != end; ++view, form += 1 + vars) {
      u64 at = static_cast<u64>(form[0]);
      each_level(vars, [&](u32 l) { at += static_cast<u64>(form[1 + l] * loops[l]); });
      view->data = reinterpret_cast<void*>(at);
    }
  }
  void failed(u32 site, const i64* loops, u64 task_id, i32 result, Error* error) const;

  bool run_each(u32 site, i64* loops, u64 first_task, i64 count, u64* done, Error* error);

  const BoundPlan& plan_;
  const u32 worker_;
  Recorder* recorder_ = nullptr;
  LineVector<SiteCall> sites_;
  std::vector<char> message_;
  RawVector<std::byte> scratch_;
  u64 scratch_bytes_ = 0;  // of them, for kernels
  const Prefetcher* prefetcher_ = nullptr;
  Prefetched* prefetched_ = nullptr;
};

}  // namespace ptowsp
