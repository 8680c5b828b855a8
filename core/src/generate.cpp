#include "ptowsp/generate.h"

#include <algorithm>

namespace ptowsp {

Generator::Generator(const BoundPlan& plan)
    : plan_(plan), cursor_(Cursor::at_entry(plan, 0)), regions_(kMaxTensorArgs) {
  for (const BoundSite& site : plan.sites()) {
    forms_.push_back(has_form(site) ? make_form(site) : HashForm{});
    line_words_ = std::max<std::size_t>(line_words_, 1 + site.level + site.num_accesses);
  }
  ring_.resize(kLines * line_words_);
}

void Generator::add_word(HashForm* form, u32 position, const BoundExpr& e) const {
  const HashKeys& keys = HashKeys::get();
  for (u32 lane = 0; lane < 2; ++lane) {
    const u64 key = keys.key[position][lane];
    form->base[lane] += static_cast<u64>(e.form.base) * key;
    for (u32 l = 0; l < e.form.top; ++l) {
      form->coef[lane][l] += static_cast<u64>(e.form.coef[l]) * key;
    }
  }
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
    for (u32 d = 0; d < a.rank; ++d, at += 3) {
      const BoundDim& dim = plan_.dim(a.dims + d);
      add_word(&form, at, dim.start);
      add_word(&form, at + 1, dim.extent);
      add_word(&form, at + 2, dim.step);
    }
  }
  return form;
}

bool Generator::run(ptowsp_interrupt_fn interrupt, void* user, Error* error) {
  constexpr i64 kMostAtOnce = 1 << 16;
  u64 next_poll = kMostAtOnce;
  while (true) {
    const Event event = cursor_.advance(plan_, error);
    if (event == Event::Done) return true;
    if (event == Event::Error) return false;
    if (event == Event::Load) {
      *error = Error::make(Status::UNSUPPORTED,
                           "which tasks there are depends on data that tasks compute: they are "
                           "known only while the program runs; use execute(hash=True)");
      return false;
    }
    if (event != Event::Task) continue;
    const BoundSite& site = plan_.sites()[cursor_.site];
    const u32 opener = cursor_.depth > 0 ? cursor_.frames[cursor_.depth - 1].pc : 0;
    if (has_form(site) && cursor_.depth > 0 && plan_.is_leaf(opener, cursor_.site)) {
      leaf_tasks(std::min(cursor_.leaf_left(), kMostAtOnce));
    } else if (!one_task(error)) {
      error->at_task(cursor_.site, cursor_.task_id, cursor_.vars, site.level);
      return false;
    }
    if (cursor_.next_task < next_poll || interrupt == nullptr) continue;
    next_poll = cursor_.next_task + kMostAtOnce;
    if (interrupt(user) == 0) continue;
    *error = Error::make(Status::INTERRUPTED, "interrupted");
    return false;
  }
}

bool Generator::one_task(Error* error) {
  const BoundSite& site = plan_.sites()[cursor_.site];
  u64* out = line(cursor_.task_id);
  *out++ = cursor_.site;
  for (u32 l = 0; l < site.level; ++l) *out++ = static_cast<u64>(cursor_.vars[l]);
  for (u32 p = 0; p < site.num_accesses; ++p) {
    if (!plan_.region(plan_.site_access(site, p), cursor_.vars, &regions_[p], error)) return false;
    *out++ = regions_[p].byte_lo;
  }
  return plan_.hash_task(cursor_.site, cursor_.vars, regions_.data(), &hash_, error);
}

// `count` tasks of the leaf loop in which the cursor stands.
void Generator::leaf_tasks(i64 count) {
  const BoundSite& site = plan_.sites()[cursor_.site];
  const HashForm& form = forms_[cursor_.site];
  const u32 inner = site.level - 1;
  HashSum sum;
  for (u32 lane = 0; lane < 2; ++lane) {
    sum.lane[lane] = form.base[lane];
    for (u32 l = 0; l < site.level; ++l) {
      sum.lane[lane] += form.coef[lane][l] * static_cast<u64>(cursor_.vars[l]);
    }
  }
  u64 first[kMaxTensorArgs];
  u64 step[kMaxTensorArgs];
  for (u32 p = 0; p < site.num_accesses; ++p) {
    const u32 i = plan_.site_access(site, p);
    const Affine& offset = plan_.offset(i);
    first[p] = reinterpret_cast<u64>(plan_.tensors()[plan_.access(i).tensor].data) +
               static_cast<u64>(offset.at(cursor_.vars));
    step[p] = static_cast<u64>(offset.coef[inner]);
  }
  i64& index = cursor_.vars[inner];
  for (i64 k = 0; k < count; ++k) {
    if (k > 0) {
      index += 1;
      sum.lane[0] += form.coef[0][inner];
      sum.lane[1] += form.coef[1][inner];
      for (u32 p = 0; p < site.num_accesses; ++p) first[p] += step[p];
    }
    u64* out = line(cursor_.task_id + static_cast<u64>(k));
    *out++ = cursor_.site;
    for (u32 l = 0; l < site.level; ++l) *out++ = static_cast<u64>(cursor_.vars[l]);
    for (u32 p = 0; p < site.num_accesses; ++p) *out++ = first[p];
    hash_.add(sum);
  }
  cursor_.leaf_skip(count);
}

}  // namespace ptowsp
