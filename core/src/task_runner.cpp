#include "ptowsp/task_runner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ptowsp {

TaskRunner::TaskRunner(const BoundPlan& plan, const std::vector<KernelSlot>& kernels, u32 worker)
    : plan_(plan), worker_(worker), sites_(plan.sites().size()), message_(4096) {
  make(kernels);
}

void TaskRunner::make(const std::vector<KernelSlot>& kernels) {
  message_[0] = '\0';  // a kernel may have written it and then not failed
  for (u32 s = 0; s < sites_.size(); ++s) {
    const BoundSite& site = plan_.sites()[s];
    if (site.kind != TaskKind::LOAD) make_site(s, kernels[site.kernel]);
  }
  make_scratch(kernels);
}

void TaskRunner::make_site(u32 s, const KernelSlot& kernel) {
  const BoundSite& site = plan_.sites()[s];
  SiteCall& out = sites_[s];
  out.kernel = kernel;
  out.views.resize(site.num_accesses);
  out.simple = site.simple;
  out.forms.clear();
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 access = plan_.site_access(site, p);
    out.views[p] = plan_.view(access);
    if (!site.simple) continue;
    const Affine& offset = plan_.offset(access);
    out.forms.push_back(0);  // see point_forms()
    out.forms.insert(out.forms.end(), offset.coef, offset.coef + site.level);
    for (u32 r = 0; r < site.num_registers; ++r) {
      out.forms.push_back(offset.coef_of(site.registers[r]));
    }
  }
  out.call.views = out.views.data();
  out.call.num_views = site.num_accesses;
  find_paged(site, &out);
  out.call.pages = out.pages.empty() ? nullptr : out.pages.data();
  out.num_vars = site.level + site.num_registers;
  point_forms(s);
  out.scalars.resize(site.num_scalars);
  out.call.scalars = out.scalars.data();
  out.call.num_scalars = site.num_scalars;
  out.call.num_indices = site.level;
  out.call.site = s;
  out.call.worker = worker_;
  out.call.error = message_.data();
  out.call.error_size = static_cast<u32>(message_.size());
}

// One for all kernels: a worker runs one task at a time. Each finds what the one before has left.
// It begins in the middle of a page: large arrays begin near the start of one, and a load waits for
// an earlier store whose address has the same last twelve bits.
void TaskRunner::make_scratch(const std::vector<KernelSlot>& kernels) {
  constexpr u64 kPage = 4096;
  for (const KernelSlot& kernel : kernels)
    scratch_bytes_ = std::max(scratch_bytes_, kernel.scratch);
  if (scratch_bytes_ != 0 && scratch_bytes_ + kPage > scratch_.size()) {
    scratch_.resize(scratch_bytes_ + kPage);
  }
  const u64 begin = reinterpret_cast<std::uintptr_t>(scratch_.data());
  const u64 skipped = (kPage + kPage / 2 - begin % kPage) % kPage;
  for (SiteCall& site : sites_) {
    site.call.scratch = scratch_.empty() ? nullptr : scratch_.data() + skipped;
    site.call.scratch_bytes = scratch_bytes_;
  }
}

// Which arguments the kernel takes page by page.
void TaskRunner::find_paged(const BoundSite& site, SiteCall* out) const {
  const PlanView& plan = plan_.plan();
  const Kernel kernel = plan.get<Section::KERNEL>(site.kernel);
  out->is_paged.clear();
  for (u32 i = kernel.params; i < kernel.params + kernel.num_params; ++i) {
    const auto kind = static_cast<ParamKind>(plan.get<Section::PARAM>(i).kind);
    if (kind == ParamKind::SCALAR || kind == ParamKind::CONSTEXPR) continue;
    out->is_paged.push_back(kind == ParamKind::PAGED);
  }
  const bool any =
      std::find(out->is_paged.begin(), out->is_paged.end(), true) != out->is_paged.end();
  if (any) out->pages.resize(site.num_accesses);
}

void TaskRunner::restart(const std::vector<KernelSlot>& kernels) {
  message_[0] = '\0';  // a kernel may have written it and then not failed
  for (u32 s = 0; s < sites_.size(); ++s) {
    const BoundSite& site = plan_.sites()[s];
    if (site.kind == TaskKind::LOAD) continue;
    sites_[s].kernel = kernels[site.kernel];
    point_forms(s);
  }
  make_scratch(kernels);
}

// Where the views of a simple site point when all variables are 0.
void TaskRunner::point_forms(u32 s) {
  SiteCall& out = sites_[s];
  if (!out.simple) return;
  const BoundSite& site = plan_.sites()[s];
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 access = plan_.site_access(site, p);
    const char* data = plan_.tensors()[plan_.access(access).tensor].data;
    const u64 first = reinterpret_cast<u64>(data) + static_cast<u64>(plan_.offset(access).base);
    out.forms[p * (1 + out.num_vars)] = static_cast<i64>(first);
  }
}

bool TaskRunner::run_leaf(u32 site, i64* loops, u64 first_task, i64 count, u64* done,
                          Error* error) {
  if (recorder_ != nullptr) return run_each(site, loops, first_task, count, done, error);
  SiteCall& s = sites_[site];
  const BoundSite& bound = plan_.sites()[site];
  point_views(&s, loops);
  i64 step[kMaxTensorArgs];
  for (u32 p = 0; p < bound.num_accesses; ++p) {
    step[p] = s.forms[p * (1 + s.num_vars) + bound.level];
  }
  s.call.indices = loops;
  i64& index = loops[bound.level - 1];
  for (i64 k = 0; k < count; ++k) {
    if (k > 0) {
      index += 1;
      for (u32 p = 0; p < bound.num_accesses; ++p) {
        s.views[p].data = static_cast<char*>(s.views[p].data) + step[p];
      }
    }
    if (prefetcher_ != nullptr) prefetcher_->ahead(site, loops, prefetched_);
    s.call.task_id = first_task + static_cast<u64>(k);
    if (bound.num_scalars > 0 && !fill_scalars(site, loops, s.call.task_id, error)) {
      *done += static_cast<u64>(k);
      return false;
    }
    const i32 result = s.kernel.fn(&s.call, s.kernel.user);
    if (result == 0) continue;
    *done += static_cast<u64>(k);
    failed(site, loops, s.call.task_id, result, error);
    return false;
  }
  *done += static_cast<u64>(count);
  return true;
}

bool TaskRunner::run_each(u32 site, i64* loops, u64 first_task, i64 count, u64* done,
                          Error* error) {
  const u32 level = plan_.sites()[site].level;
  for (i64 k = 0; k < count; ++k) {
    if (k > 0) loops[level - 1] += 1;
    if (!run(site, loops, first_task + static_cast<u64>(k), error)) return false;
    *done += 1;
  }
  return true;
}

bool TaskRunner::fill_scalars(u32 site, const i64* loops, u64 task_id, Error* error) {
  const BoundSite& bound = plan_.sites()[site];
  i64 vars[kMaxVars];
  BoundPlan::unpack(bound, loops, vars);
  for (u32 k = 0; k < bound.num_scalars; ++k) {
    if (plan_.scalar_bits(bound.scalars + k, vars, &sites_[site].scalars[k], error)) continue;
    error->at_task(site, task_id, loops, bound.level);
    return false;
  }
  return true;
}

bool TaskRunner::fill_views(u32 site, const i64* loops, u64 task_id, Error* error) {
  SiteCall& s = sites_[site];
  const BoundSite& bound = plan_.sites()[site];
  Region region;
  i64 vars[kMaxVars];
  BoundPlan::unpack(bound, loops, vars);
  for (u32 p = 0; p < bound.num_accesses; ++p) {
    const u32 i = plan_.site_access(bound, p);
    const BoundAccess& access = plan_.access(i);
    if (!plan_.region(i, vars, &region, error)) {
      error->at_task(site, task_id, loops, bound.level);
      return false;
    }
    const BoundTensor& t = plan_.tensors()[access.tensor];
    ptowsp_view& view = s.views[p];
    view.rank = access.seen_rank;
    view.dtype = static_cast<u32>(t.dtype);
    i64 offset = 0;
    for (u32 d = 0, seen = 0; d < access.rank; ++d) {
      // Where a token lies is found out below.
      if (t.pool == kNone || d > 1) offset += region.start[d] * t.stride[d];
      if (plan_.dim(access.dims + d).dropped) continue;
      view.shape[seen] = region.extent[d];
      view.stride[seen] = region.step[d] * t.stride[d];
      seen += 1;
    }
    // An empty region may start anywhere; its pointer must not leave the tensor.
    view.data = region.empty ? t.data : t.data + offset * static_cast<i64>(t.item);
    if (t.pool == kNone) continue;
    const bool whole = !s.is_paged[p];
    ptowsp_pages* const pages = whole ? nullptr : &s.pages[p];
    if (!whole) *pages = {nullptr, 0, t.page, 0, 0, 0};
    if (region.empty || plan_.find_pages(region, whole, &view, pages, error)) continue;
    error->at_task(site, task_id, loops, bound.level);
    return false;
  }
  return true;
}

void TaskRunner::failed(u32 site, const i64* loops, u64 task_id, i32 result, Error* error) const {
  const bool interrupted = result == PTOWSP_KERNEL_INTERRUPTED;
  *error = Error::make(interrupted ? Status::INTERRUPTED : Status::KERNEL_ERROR, message_.data());
  error->at_task(site, task_id, loops, plan_.sites()[site].level);
}

}  // namespace ptowsp
