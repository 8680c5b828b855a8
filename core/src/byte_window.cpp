#include "ptowsp/byte_window.h"

namespace ptowsp {

namespace {

// A token has no bytes. More than 64 bits count are more than any window.
u64 times(u64 bytes, i64 extent) {
  u64 product = 0;
  if (extent <= 0) return 0;
  return __builtin_mul_overflow(bytes, static_cast<u64>(extent), &product) ? UINT64_MAX : product;
}
u64 plus(u64 a, u64 b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

u64 item_of(const BoundTensor& t) { return t.storage_class == StorageClass::TOKEN ? 0 : t.item; }

}  // namespace

ByteWindow::ByteWindow(const BoundPlan& plan, u64 limit, u32 slots)
    : plan_(plan), limit_(limit), taken_(slots, 0) {
  for (const BoundSite& site : plan.sites()) {
    u64 total = 0;
    bool varies = false;
    for (u32 p = 0; p < site.num_accesses; ++p) {
      const BoundAccess& a = plan.access(plan.site_access(site, p));
      if (!writes(a.mode)) continue;
      u64 bytes = item_of(plan.tensors()[a.tensor]);
      for (u32 d = 0; d < a.rank; ++d) {
        const BoundExpr& extent = plan.dim(a.dims + d).extent;
        varies = varies || !extent.constant();
        bytes = times(bytes, extent.constant() ? extent.form->base : 1);
      }
      total = plus(total, bytes);
    }
    fixed_.push_back(total);
    varies_.push_back(varies ? 1 : 0);
  }
}

u64 ByteWindow::written(u32 site, const Region* regions) const {
  u64 total = 0;
  for (u32 p = 0; p < plan_.sites()[site].num_accesses; ++p) {
    const Region& r = regions[p];
    if (!writes(r.mode) || r.empty) continue;
    u64 bytes = item_of(plan_.tensors()[r.tensor]);
    for (u32 d = 0; d < r.rank; ++d) bytes = times(bytes, r.extent[d]);
    total = plus(total, bytes);
  }
  return total;
}

}  // namespace ptowsp
