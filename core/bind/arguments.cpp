#include "arguments.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ptowsp/plan.h"

namespace nb = nanobind;

namespace ptowsp {

namespace {

// What the attribute __array_struct__ of an array holds: NumPy's array interface protocol, which
// unlike the buffer protocol knows arrays of every dtype.
struct ArrayInterface {
  int two;  // tells the struct from others
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;  // bytes
  void* data;
  PyObject* descr;
};
// The same fields as NumPy's arrays begin with. Extension modules have them compiled in, so they
// stay where they are; still, they are looked at only after layout_is_known().
struct ArrayFields {
  PyObject head;
  void* data;
  int nd;
  Py_intptr_t* shape;
  Py_intptr_t* strides;  // bytes
  PyObject* base;
  PyObject* descr;
  int flags;
};
constexpr int kAligned = 0x100;
constexpr int kWriteable = 0x400;

bool is_float(uint32_t dtype) { return dtype <= static_cast<uint32_t>(DType::BF16); }

nb::object interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

// No error of Python's is left behind: whoever gets false asks again in Python.
template <class T>
T* or_clear(T* found) {
  if (found == nullptr) PyErr_Clear();
  return found;
}

bool find_number(PyObject* value, bool as_float, int64_t* out) {
  if (as_float) {
    if (!PyFloat_CheckExact(value)) return false;
    *out = std::bit_cast<int64_t>(PyFloat_AsDouble(value));
    return true;
  }
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

// False: a stride is no multiple of the item.
bool set_geometry(int nd, const Py_intptr_t* shape, const Py_intptr_t* strides,
                  ptowsp_binding* out) {
  const auto item = static_cast<Py_intptr_t>(dtype_size(static_cast<DType>(out->dtype)));
  out->rank = static_cast<uint32_t>(nd);
  for (uint32_t d = 0; d < out->rank; ++d) {
    out->shape[d] = shape[d];
    // Dividing takes longer than all the rest; items are powers of two.
    if ((strides[d] & (item - 1)) != 0) return false;
    out->stride[d] = strides[d] >> std::countr_zero(static_cast<uint64_t>(item));
  }
  return true;
}

void set_item(const nb::object& tuple, Py_ssize_t at, PyObject* value) {
  Py_INCREF(value);
  PyTuple_SetItem(tuple.ptr(), at, value);
}

}  // namespace

void Arguments::expect(const nb::list& symbols) {
  symbols_.clear();
  unbound_.clear();
  index_ = nb::dict();
  ndarray_ = nb::module_::import_("numpy").attr("ndarray");
  dtype_name_ = interned("dtype");
  struct_name_ = interned("__array_struct__");
  for (const nb::handle symbol : symbols) {
    const nb::tuple fields = nb::cast<nb::tuple>(symbol);
    const auto dtype = nb::cast<uint32_t>(fields[1]);
    nb::object array = fields[2].is_none() ? nb::object() : nb::borrow(fields[2]);
    index_[fields[0]] = symbols_.size();
    ptowsp_binding& binding = unbound_.emplace_back();
    binding.symbol = static_cast<uint32_t>(symbols_.size());
    binding.dtype = dtype;
    symbols_.push_back({nb::cast<uint32_t>(fields[3]), nb::cast<int64_t>(fields[4]),
                        nb::cast<int64_t>(fields[5]), is_float(dtype), std::move(array)});
  }
  static const bool known = layout_is_known();
  reads_layout_ = known;
}

// Looks at an array in both ways.
bool Arguments::layout_is_known() const {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object whole = numpy.attr("zeros")(nb::make_tuple(3, 5, 7), numpy.attr("float32"));
  const nb::object array = numpy.attr("swapaxes")(whole, 0, 2);
  array.attr("setflags")(nb::arg("write") = false);
  ptowsp_binding asked{};
  ptowsp_binding seen{};
  asked.dtype = seen.dtype = static_cast<uint32_t>(DType::F32);
  const auto* fields = reinterpret_cast<const ArrayFields*>(array.ptr());
  return find_array(array.ptr(), &asked) && fields->nd == 3 &&
         fields->descr == array.attr("dtype").ptr() && find_plain_array(array.ptr(), &seen) &&
         asked.data == seen.data && asked.read_only == 1 && seen.read_only == 1 &&
         std::equal(asked.shape, asked.shape + 3, seen.shape) &&
         std::equal(asked.stride, asked.stride + 3, seen.stride);
}

nb::object Arguments::merge(const nb::tuple& current, const nb::dict& changed,
                            std::vector<ptowsp_binding>* out) const {
  const auto count = static_cast<Py_ssize_t>(symbols_.size());
  if (PyTuple_Size(current.ptr()) != count) return {};
  nb::object values = nb::steal(or_clear(PyTuple_New(count)));
  if (!values.is_valid()) return {};
  for (Py_ssize_t s = 0; s < count; ++s) set_item(values, s, PyTuple_GetItem(current.ptr(), s));
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(changed.ptr(), &at, &name, &value) != 0;) {
    PyObject* symbol = PyDict_GetItemWithError(index_.ptr(), name);
    if (or_clear(symbol) == nullptr) return {};
    set_item(values, PyLong_AsSsize_t(symbol), value);
  }
  return find_all(values.ptr(), true, out) ? values : nb::object();
}

void Arguments::take(const nb::tuple& values, std::vector<ptowsp_binding>* out) const {
  if (values.size() == symbols_.size() && find_all(values.ptr(), false, out)) return;
  throw nb::value_error("values that do not fit the symbols of the plan");
}

bool Arguments::find_all(PyObject* values, bool plain, std::vector<ptowsp_binding>* out) const {
  *out = unbound_;
  for (size_t s = 0; s < symbols_.size(); ++s) {
    PyObject* value = PyTuple_GetItem(values, static_cast<Py_ssize_t>(s));
    if (!find(symbols_[s], value, plain, &(*out)[s])) return false;
  }
  return true;
}

// `plain`: whoever gets false has another way.
bool Arguments::find(const Symbol& symbol, PyObject* value, bool plain, ptowsp_binding* out) const {
  if (!symbol.array.is_valid()) {
    if (!find_number(value, symbol.is_float, &out->value)) return false;
    return !plain || symbol.is_float || (symbol.least <= out->value && out->value <= symbol.most);
  }
  if (plain) {
    // Subclasses, such as masked arrays, may mean more than their memory.
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != ndarray_.ptr()) return false;
    if (reads_layout_) {
      return reinterpret_cast<const ArrayFields*>(value)->descr == symbol.array.ptr() &&
             find_plain_array(value, out) && out->rank == symbol.rank;
    }
    const nb::object dtype = nb::steal(or_clear(PyObject_GetAttr(value, dtype_name_.ptr())));
    if (!dtype.is(symbol.array)) return false;
  }
  return find_array(value, out) && out->rank == symbol.rank;
}

// The caller keeps the array alive while the run lasts, as it has to for its own sake.
bool Arguments::find_array(PyObject* value, ptowsp_binding* out) const {
  const nb::object capsule = nb::steal(or_clear(PyObject_GetAttr(value, struct_name_.ptr())));
  if (!capsule.is_valid()) return false;
  const auto* array =
      static_cast<const ArrayInterface*>(or_clear(PyCapsule_GetPointer(capsule.ptr(), nullptr)));
  if (array == nullptr || array->two != 2 || array->nd > PTOWSP_MAX_RANK) return false;
  const auto item = static_cast<Py_intptr_t>(dtype_size(static_cast<DType>(out->dtype)));
  if (array->itemsize != item || (array->flags & kAligned) == 0) return false;
  out->data = array->data;
  out->read_only = (array->flags & kWriteable) == 0 ? 1 : 0;
  return set_geometry(array->nd, array->shape, array->strides, out);
}

// The same for an array that is NumPy's own and has the dtype of the binding.
bool Arguments::find_plain_array(PyObject* value, ptowsp_binding* out) {
  const auto* array = reinterpret_cast<const ArrayFields*>(value);
  if (array->nd > PTOWSP_MAX_RANK || (array->flags & kAligned) == 0) return false;
  out->data = array->data;
  out->read_only = (array->flags & kWriteable) == 0 ? 1 : 0;
  return set_geometry(array->nd, array->shape, array->strides, out);
}

}  // namespace ptowsp
