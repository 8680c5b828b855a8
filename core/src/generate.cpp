#include "ptowsp/generate.h"

#include <algorithm>

namespace ptowsp {

Generator::Generator(const BoundPlan& plan)
    : plan_(plan), walk_(plan, false), regions_(kMaxTensorArgs) {
  for (const BoundSite& site : plan.sites()) {
    formed_.push_back(has_form(site) ? 1 : 0);
    forms_.push_back(formed_.back() != 0 ? make_form(site) : HashForm{});
    line_words_ = std::max<std::size_t>(line_words_, 1 + site.level + site.num_accesses);
  }
  ring_.resize(kLines * line_words_);
}

void Generator::add_word(HashForm* form, u32 position, const BoundSite& site,
                         const BoundExpr& e) const {
  const HashKeys& keys = HashKeys::get();
  for (u32 lane = 0; lane < 2; ++lane) {
    const u64 key = keys.key[position][lane];
    form->base[lane] += static_cast<u64>(e.form->base) * key;
    for (u32 l = 0; l < e.form->top; ++l) {
      form->coef[lane][l] += static_cast<u64>(e.form->coef[l]) * key;
    }
    for (u32 r = 0; r < site.num_registers; ++r) {
      form->reg_coef[lane][r] += static_cast<u64>(e.form->coef_of(site.registers[r])) * key;
    }
  }
}

// Whether all words of a site's tasks are affine. Scalars of fewer than 64 bits are masked, so they
// are only if they never change.
bool Generator::has_form(const BoundSite& s) const {
  if (!s.simple) return false;
  for (u32 k = 0; k < s.num_scalars; ++k) {
    const BoundScalar& scalar = plan_.scalar(s.scalars + k);
    const bool whole = scalar.dtype == DType::I64;
    if (!scalar.value.affine || !(whole || scalar.value.constant())) return false;
    const i64 no_vars[kMaxVars] = {};
    u64 bits = 0;
    Error ignored;  // what does not fit its type is an error of each task
    if (!whole && !plan_.scalar_bits(s.scalars + k, no_vars, &bits, &ignored)) return false;
  }
  return true;
}

Generator::HashForm Generator::make_form(const BoundSite& site) const {
  const HashKeys& keys = HashKeys::get();
  HashForm form;
  for (u32 lane = 0; lane < 2; ++lane) {
    form.base[lane] = site.hash.lane[lane];
    for (u32 l = 0; l < site.level; ++l) form.coef[lane][l] = keys.key[kHashIndex + l][lane];
  }
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const BoundAccess& a = plan_.access(plan_.site_access(site, p));
    u32 at = kHashTensor + 32 * p + 4;
    for (u32 d = 0; d < a.plan_rank; ++d, at += 3) {
      const BoundDim& dim = plan_.dim(a.dims + d);
      add_word(&form, at, site, dim.start);
      add_word(&form, at + 1, site, dim.extent);
      add_word(&form, at + 2, site, dim.step);
    }
  }
  for (u32 k = 0; k < site.num_scalars; ++k) add_scalar(&form, site, k);
  return form;
}

void Generator::add_scalar(HashForm* form, const BoundSite& site, u32 k) const {
  const BoundScalar& scalar = plan_.scalar(site.scalars + k);
  if (!scalar.value.constant()) {
    add_word(form, kHashScalar + k, site, scalar.value);
    return;
  }
  const i64 no_vars[kMaxVars] = {};
  u64 bits = 0;
  Error ignored;  // it has a form, so it has a value
  plan_.scalar_bits(site.scalars + k, no_vars, &bits, &ignored);
  HashSum sum;
  sum.add(HashKeys::get(), kHashScalar + k, bits);
  for (u32 lane = 0; lane < 2; ++lane) form->base[lane] += sum.lane[lane];
}

HashSum Generator::sum_at(const BoundSite& site, const HashForm& form) const {
  HashSum sum;
  for (u32 lane = 0; lane < 2; ++lane) {
    u64 total = form.base[lane];
    for (u32 l = 0; l < site.level; ++l) {
      total += form.coef[lane][l] * static_cast<u64>(walk_.cursor().vars[l]);
    }
    for (u32 r = 0; r < site.num_registers; ++r) {
      total += form.reg_coef[lane][r] * static_cast<u64>(walk_.cursor().vars[site.registers[r]]);
    }
    sum.lane[lane] = total;
  }
  return sum;
}

// One task whose words are affine.
void Generator::formed_task(const BoundSite& site) {
  u64* out = line(walk_.cursor().task_id);
  *out++ = walk_.cursor().site;
  for (u32 l = 0; l < site.level; ++l) *out++ = static_cast<u64>(walk_.cursor().vars[l]);
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 i = plan_.site_access(site, p);
    *out++ = reinterpret_cast<u64>(plan_.tensors()[plan_.access(i).tensor].data) +
             static_cast<u64>(plan_.offset(i).at(walk_.cursor().vars));
  }
  hash_.add(sum_at(site, forms_[walk_.cursor().site]));
}

bool Generator::run(ptowsp_interrupt_fn interrupt, void* user, Error* error) {
  constexpr i64 kMostAtOnce = 1 << 16;
  u64 next_poll = kMostAtOnce;
  while (true) {
    const Event event = walk_.advance(error);
    if (event == Event::Done) return true;
    if (event == Event::Error) return false;
    if (event == Event::Load) {
      *error = Error::make(Status::DATA_DEPENDENT,
                           "which tasks there are depends on data that tasks compute: they are "
                           "known only while the program runs; use execute(hash=True)");
      return false;
    }
    if (event != Event::Task) continue;
    const BoundSite& site = plan_.sites()[walk_.cursor().site];
    const bool formed = formed_[walk_.cursor().site] != 0;
    const u32 frame = formed ? walk_.cursor().alike_frame(plan_) : kNone;
    if (frame != kNone) {
      tasks_alike(frame, walk_.most(std::min(walk_.cursor().alike_left(frame), kMostAtOnce)));
    } else if (formed) {
      formed_task(site);
      walk_.made(1);
    } else if (!one_task(error)) {
      error->at_task(walk_.cursor().site, walk_.cursor().task_id, walk_.cursor().vars, site.level);
      return false;
    } else {
      walk_.made(1);
    }
    if (walk_.cursor().next_task < next_poll || interrupt == nullptr) continue;
    next_poll = walk_.cursor().next_task + kMostAtOnce;
    if (interrupt(user) == 0) continue;
    *error = Error::make(Status::INTERRUPTED, "interrupted");
    return false;
  }
}

bool Generator::one_task(Error* error) {
  const BoundSite& site = plan_.sites()[walk_.cursor().site];
  u64* out = line(walk_.cursor().task_id);
  *out++ = walk_.cursor().site;
  for (u32 l = 0; l < site.level; ++l) *out++ = static_cast<u64>(walk_.cursor().vars[l]);
  if (!plan_.regions(walk_.cursor().site, walk_.cursor().task_id, walk_.cursor().vars,
                     regions_.data(), error)) {
    return false;
  }
  for (u32 p = 0; p < site.num_accesses; ++p) *out++ = regions_[p].byte_lo;
  return plan_.hash_task(walk_.cursor().site, walk_.cursor().vars, regions_.data(), &hash_, error);
}

// The task at which the cursor stands and those behind it, which go as it does.
void Generator::tasks_alike(u32 frame, i64 count) {
  const BoundSite& site = plan_.sites()[walk_.cursor().site];
  const HashForm& form = forms_[walk_.cursor().site];
  const u32 inner = site.level - 1;
  HashSum sum = sum_at(site, form);
  u64 first[kMaxTensorArgs];
  u64 step[kMaxTensorArgs];
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 i = plan_.site_access(site, p);
    const Affine& offset = plan_.offset(i);
    first[p] = reinterpret_cast<u64>(plan_.tensors()[plan_.access(i).tensor].data) +
               static_cast<u64>(offset.at(walk_.cursor().vars));
    step[p] = static_cast<u64>(offset.coef[inner]);
  }
  i64& index = walk_.cursor().vars[inner];
  for (i64 k = 0; k < count; ++k) {
    if (k > 0) {
      index += 1;
      sum.lane[0] += form.coef[0][inner];
      sum.lane[1] += form.coef[1][inner];
      for (u32 p = 0; p < site.num_accesses; ++p) first[p] += step[p];
    }
    u64* out = line(walk_.cursor().task_id + static_cast<u64>(k));
    *out++ = walk_.cursor().site;
    for (u32 l = 0; l < site.level; ++l) *out++ = static_cast<u64>(walk_.cursor().vars[l]);
    for (u32 p = 0; p < site.num_accesses; ++p) *out++ = first[p];
    hash_.add(sum);
  }
  walk_.cursor().alike_skip(plan_, frame, count);
  walk_.made(count);
}

}  // namespace ptowsp
