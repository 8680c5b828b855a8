// Binder, fourth part: tensors that nobody binds. Temporaries get copies of a buffer, tokens get a
// shape and nothing else, paged tensors get the coordinates of their sequences.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "binder.h"
#include "ptowsp/huge_pages.h"

namespace ptowsp {

namespace {

constexpr u64 kAlign = 64;
constexpr u64 kMostBytes = u64{1} << 46;     // of one copy
constexpr u64 kCopiesBytes = u64{64} << 20;  // what copies may take beyond one per worker
constexpr i64 kCopiesPerWorker = 16;         // more than tasks of one iteration stay in flight

u64 round_up(u64 bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Workspace::Workspace(std::size_t bytes)
    : data_(static_cast<char*>(std::aligned_alloc(kAlign, round_up(std::max<u64>(bytes, 1))))),
      bytes_(bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
  prefer_huge_pages(data_, bytes_);
}

Workspace::~Workspace() { std::free(data_); }

bool Binder::fail_tensor(u32 tensor, Status status, std::string message) {
  error_ = Error::make(status, std::move(message));
  error_.section = static_cast<u32>(Section::TENSOR);
  error_.record = tensor;
  return false;
}

// Which variable of a cursor holds the copy that an iteration has of each buffer.
void Binder::number_copies() {
  out_.first_copy_ = kFirstSlot + plan_.count(Section::SLOT) + out_.facts_->lets;
  out_.allocs_.resize(plan_.count(Section::ALLOC));
  lets_.assign(out_.first_copy_ - kFirstSlot, Interval::unknown());
}

bool Binder::make_unbound() {
  const u32 tensors = static_cast<u32>(out_.tensors_.size());
  for (u32 i = 0; i < tensors; ++i) {
    const Tensor t = plan_.get<Section::TENSOR>(i);
    const Storage storage = plan_.get<Section::STORAGE>(t.storage);
    BoundTensor& out = out_.tensors_[i];
    out.storage_class = static_cast<StorageClass>(storage.storage_class);
    if (is_class(i, StorageClass::BOUND)) continue;
    out.dtype = static_cast<DType>(t.dtype);
    out.item = dtype_size(out.dtype);
    out.rank = t.rank;
    if (is_class(i, StorageClass::TEMP) || is_class(i, StorageClass::CHANNEL)) {
      out.alloc = storage.alloc;
      out_.allocs_[storage.alloc].tensors.push_back(i);
    }
    if (is_class(i, StorageClass::TOKEN) && !make_token(i)) return false;
  }
  for (u32 i = 0; i < tensors; ++i) {
    if (is_class(i, StorageClass::PAGED) && !make_paged(i)) return false;
  }
  return true;
}

// A token's elements take no bytes, but lie in a row like others, so that boxes can be compared.
bool Binder::make_token(u32 tensor) {
  const Tensor t = plan_.get<Section::TENSOR>(tensor);
  BoundTensor& out = out_.tensors_[tensor];
  const std::string name = "token '" + std::string(plan_.string(t.name)) + "'";
  const i64 no_vars[kMaxVars] = {};
  out.item = 0;
  i128 stride = 1;
  for (u32 d = t.rank; d-- > 0;) {
    const u32 node = plan_.get<Section::DIM>(t.dims + d).shape;
    Error why;
    if (!out_.value(node, no_vars, &out.shape[d], &why)) {
      return fail_tensor(tensor, static_cast<Status>(why.status),
                         "the shape of " + name + ": " + why.message);
    }
    if (out.shape[d] < 0) {
      return fail_tensor(tensor, Status::NEGATIVE_EXTENT,
                         name + " has the negative extent " + std::to_string(out.shape[d]));
    }
    out.stride[d] = static_cast<i64>(stride);
    stride *= std::max<i64>(out.shape[d], 1);
    if (stride > static_cast<i128>(kMostBytes))
      return fail_tensor(tensor, Status::NO_MEMORY, name + " is too large");
  }
  return true;
}

bool Binder::make_paged(u32 tensor) {
  const Tensor t = plan_.get<Section::TENSOR>(tensor);
  BoundTensor& out = out_.tensors_[tensor];
  const BoundTensor& pool = out_.tensors_[t.pool];
  const BoundTensor& table = out_.tensors_[t.table];
  const auto name = [&] { return "paged tensor '" + std::string(plan_.string(t.name)) + "'"; };
  const i64 no_vars[kMaxVars] = {};
  Error why;
  if (!out_.value(t.page, no_vars, &out.page, &why)) {
    return fail_tensor(tensor, static_cast<Status>(why.status),
                       "the page size of " + name() + ": " + why.message);
  }
  if (out.page != pool.shape[1] || out.page < 1) {
    return fail_tensor(tensor, Status::PAGE_SIZE,
                       name() + " has " + std::to_string(out.page) +
                           " tokens a page, its pool has " + std::to_string(pool.shape[1]));
  }
  out.pool = t.pool;
  out.table = t.table;
  out.data = pool.data;
  out.shape[0] = table.shape[0];
  if (__builtin_mul_overflow(table.shape[1], out.page, &out.shape[1])) {
    return fail_tensor(tensor, Status::NO_MEMORY, name() + " is too large");
  }
  for (u32 d = 1; d < t.rank; ++d) {
    out.stride[d] = pool.stride[d];
    if (d > 1) out.shape[d] = pool.shape[d];
  }
  return true;
}

// --- temporaries ---

// Called where the ALLOC stands, so that ranges_ are those of the loops around it.
bool Binder::bind_alloc(u32 alloc, bool alive) {
  BoundAlloc& out = out_.allocs_[alloc];
  for (const u32 tensor : out.tensors) {
    if (!shape_temp(tensor, alive)) return false;
  }
  out.bytes = buffer_bytes(out.bytes);
  const Alloc record = plan_.get<Section::ALLOC>(alloc);
  const i64 workers = static_cast<i64>(options_.workers);
  i64 least = std::max<i64>(workers, options_.lanes);
  for (const BoundProcess& p : out_.processes_) least = std::max<i64>(least, p.replicas);
  u64 room = kCopiesBytes;
  if (options_.workspace_limit != 0) {
    room = std::min(room, options_.workspace_limit / out_.allocs_.size());
  }
  out.copies = std::clamp(static_cast<i64>(room / out.bytes), least,
                          std::max(least, kCopiesPerWorker * workers));
  if (record.cap != kNone) {  // what the plan says counts, even where workers have to wait
    i64 cap = 0;
    const i64 no_vars[kMaxVars] = {};
    if (!out_.value(record.cap, no_vars, &cap, &error_)) return false;
    if (cap < static_cast<i64>(out.bytes)) {
      return fail_tensor(out.tensors.front(), Status::NO_MEMORY,
                         "one copy of the temporaries takes " + std::to_string(out.bytes) +
                             " bytes, and their workspace has " + std::to_string(cap));
    }
    out.copies = std::clamp<i64>(cap / static_cast<i64>(out.bytes), 1, out.copies);
  }
  if (record.copies > 0) out.copies = std::min<i64>(out.copies, record.copies);
  if (out_.processes_.empty()) {
    const i64 iterations = most_iterations(record.level);
    out.copies = std::min(out.copies, std::max<i64>(iterations, options_.lanes));
  }
  if (out.copies < static_cast<i64>(replicas_)) {  // they hold theirs while others go on
    return fail_tensor(out.tensors.front(), Status::NO_MEMORY,
                       "each of " + std::to_string(replicas_) +
                           " replicas needs a copy of its temporaries, and there are " +
                           std::to_string(out.copies));
  }
  number_buffers(alloc);
  return true;
}

// Of so many loops around what is bound, taken together; at least one.
i64 Binder::most_iterations(u32 loops) const {
  constexpr i128 kMany = i128{1} << 40;
  i128 count = 1;
  for (u32 l = 0; l < loops; ++l) {
    const i128 size = std::clamp<i128>(ranges_[l].hi - ranges_[l].lo + 1, 1, kMany);
    count = std::min(count * size, kMany);
  }
  return static_cast<i64>(count);
}

void Binder::number_buffers(u32 alloc) {
  const BoundAlloc& out = out_.allocs_[alloc];
  for (const u32 tensor : out.tensors) {
    BoundTensor& t = out_.tensors_[tensor];
    t.shape[t.rank] = out.copies;
    t.stride[t.rank] = static_cast<i64>(out.bytes / t.item);
    t.rank += 1;
  }
}

u64 Binder::buffer_bytes(u64 bytes) { return round_up(std::max<u64>(bytes, 1)); }

// The largest shape that the temporary may have.
bool Binder::shape_temp(u32 tensor, bool alive) {
  const Tensor t = plan_.get<Section::TENSOR>(tensor);
  BoundTensor& out = out_.tensors_[tensor];
  const auto name = [&] { return "temporary '" + std::string(plan_.string(t.name)) + "'"; };
  i128 elements = 1;
  for (u32 d = t.rank; d-- > 0;) {
    const u32 node = plan_.get<Section::DIM>(t.dims + d).shape;
    const Interval range = alive ? range_of(node) : Interval::point(0);
    const bool fixed = out_.exprs_[node].constant() && range.lo >= 0;
    out.shape_node[d] = fixed ? kNone : node;
    if (range.hi > static_cast<i128>(kMostBytes)) {
      return fail_tensor(tensor, Status::UNBOUNDED,
                         "nothing bounds the size of " + name() + " before the run");
    }
    out.shape[d] = static_cast<i64>(std::max<i128>(range.hi, 0));
    out.stride[d] = static_cast<i64>(elements);
    elements *= std::max<i64>(out.shape[d], 1);
    if (elements * out.item > static_cast<i128>(kMostBytes)) {
      return fail_tensor(tensor, Status::NO_MEMORY, name() + " is too large for memory");
    }
  }
  BoundAlloc& alloc = out_.allocs_[out.alloc];
  alloc.bytes = std::max(alloc.bytes, static_cast<u64>(elements) * out.item);
  return true;
}

// True if the region stays inside the temporary as it is in every iteration.
bool Binder::prove_temp(const BoundAccess& a, u32 dim) {
  const BoundTensor& t = out_.tensors_[a.tensor];
  if (t.alloc == kNone || t.shape_node[dim] == kNone) return true;
  const BoundDim& bound = out_.dims_[a.dims + dim];
  const bool whole = bound.start.constant() && bound.start.form->base == 0 &&
                     bound.step.constant() && bound.step.form->base == 1 &&
                     bound.extent.node == t.shape_node[dim];
  const Interval shape = range_of(t.shape_node[dim]);
  return whole || (shape.lo >= 0 && prove_dim(bound, static_cast<i64>(shape.lo)));
}

void Binder::make_copy_forms() {
  const std::size_t nodes = out_.exprs_.size();
  const u32 allocs = static_cast<u32>(out_.allocs_.size());
  out_.forms_.resize(nodes + allocs + 1);
  for (u32 a = 0; a < allocs; ++a) {
    out_.forms_[nodes + a] = Affine{};
    out_.forms_[nodes + a].add_register(out_.copy_variable(a), 1);
  }
  out_.forms_.back() = Affine{};
  out_.forms_.back().base = 1;
}

// Its dimensions move to where there is room for one more: the copy that the iteration has.
void Binder::add_copy_dim(u32 access) {
  BoundAccess& a = out_.accesses_[access];
  const u32 from = a.dims;
  a.dims = static_cast<u32>(out_.dims_.size());
  for (u32 d = 0; d < a.plan_rank; ++d) out_.dims_.push_back(BoundDim(out_.dims_[from + d]));
  BoundDim copy;
  copy.dropped = true;
  copy.start.affine = copy.extent.affine = copy.step.affine = true;
  copy.start.form = &out_.forms_[out_.exprs_.size() + out_.tensors_[a.tensor].alloc];
  copy.extent.form = copy.step.form = &out_.forms_.back();
  out_.dims_.push_back(copy);
  spans_.resize(out_.dims_.size());
  a.rank = a.plan_rank + 1;
}

bool Binder::make_workspace() {
  if (out_.allocs_.empty() || options_.workspace == nullptr) return true;
  u64 total = 0;
  for (const BoundAlloc& alloc : out_.allocs_) {
    total += alloc.bytes * static_cast<u64>(alloc.copies);
  }
  if (options_.workspace_limit != 0 && total > options_.workspace_limit) {
    const auto largest = std::max_element(
        out_.allocs_.begin(), out_.allocs_.end(), [](const BoundAlloc& a, const BoundAlloc& b) {
          return a.bytes * static_cast<u64>(a.copies) < b.bytes * static_cast<u64>(b.copies);
        });
    return fail_tensor(largest->tensors.front(), Status::NO_MEMORY,
                       "temporaries need " + std::to_string(total) + " bytes, of which these are " +
                           std::to_string(largest->copies) + " times " +
                           std::to_string(largest->bytes) + ", and workspace_limit is " +
                           std::to_string(options_.workspace_limit));
  }
  std::shared_ptr<Workspace>& known = *options_.workspace;
  if (known == nullptr || known->bytes() < total) {
    try {
      known = std::make_shared<Workspace>(total);
    } catch (const std::bad_alloc&) {
      error_ = Error::make(Status::NO_MEMORY, "no memory for temporaries of " +
                                                  std::to_string(total) + " bytes in all");
      return false;
    }
  }
  out_.workspace_ = known;
  char* at = known->data();
  for (const BoundAlloc& alloc : out_.allocs_) {
    for (const u32 tensor : alloc.tensors) out_.tensors_[tensor].data = at;
    at += alloc.bytes * static_cast<u64>(alloc.copies);
  }
  return true;
}

bool BoundPlan::check_shapes(u32 alloc, const i64* vars, Error* error) const {
  for (const u32 tensor : allocs_[alloc].tensors) {
    const BoundTensor& t = tensors_[tensor];
    for (u32 d = 0; d + 1 < t.rank; ++d) {
      i64 extent = 0;
      if (t.shape_node[d] == kNone) continue;
      if (!value(t.shape_node[d], vars, &extent, error)) return false;
      if (extent >= 0) continue;
      const Tensor record = plan_->get<Section::TENSOR>(tensor);
      *error = Error::make(Status::NEGATIVE_EXTENT,
                           "temporary '" + std::string(plan_->string(record.name)) +
                               "' has the negative extent " + std::to_string(extent));
      return false;
    }
  }
  return true;
}

// --- pages ---

bool BoundPlan::find_pages(const Region& region, bool whole, ptowsp_view* view, ptowsp_pages* out,
                           Error* error) const {
  const BoundTensor& t = tensors_[region.tensor];
  const BoundTensor& pool = tensors_[t.pool];
  const BoundTensor& table = tensors_[t.table];
  const auto fail = [&](const std::string& what) {
    const Tensor record = plan_->get<Section::TENSOR>(region.tensor);
    *error = Error::make(Status::PAGE_ERROR, what + " of paged tensor '" +
                                                 std::string(plan_->string(record.name)) + "'");
    return false;
  };
  const i64 sequence = region.start[0];
  const i64 begin = region.start[1];
  const i64 last = begin + (region.extent[1] - 1) * region.step[1];
  const i64 first_page = begin / t.page;
  const i64 last_page = last / t.page;
  const i64 item = dtype_size(table.dtype);
  const char* row = table.data + (sequence * table.stride[0] + first_page * table.stride[1]) * item;
  const auto number = [&](i64 k) {
    const char* at = row + k * table.stride[1] * item;
    return item == 8 ? *reinterpret_cast<const i64*>(at) : *reinterpret_cast<const i32*>(at);
  };
  if (whole && first_page != last_page) {
    return fail("tokens " + std::to_string(begin) + " to " + std::to_string(last) +
                ", which lie on several pages,");
  }
  for (i64 k = 0; k <= last_page - first_page; ++k) {
    if (number(k) >= 0 && number(k) < pool.shape[0]) continue;
    return fail("page " + std::to_string(number(k)) + " for token " +
                std::to_string(std::max(begin, (first_page + k) * t.page)) + " of sequence " +
                std::to_string(sequence) + " is outside the pool");
  }
  const i64 bytes = static_cast<i64>(t.item);
  if (whole) {
    view->data = static_cast<char*>(view->data) +
                 (number(0) * pool.stride[0] + begin % t.page * t.stride[1]) * bytes;
    return true;
  }
  *out = {row, table.stride[1], t.page, begin % t.page, pool.stride[0], item == 8 ? 1u : 0u};
  return true;
}

}  // namespace ptowsp
