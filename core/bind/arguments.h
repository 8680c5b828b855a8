// What users bind to the names of a program, read into the bindings of the C interface.
//
// Nearly all of it is plain: NumPy arrays of the right dtype and rank, integers in range. That is
// read straight from the keyword arguments, without Python code for each of them. Anything else is
// left to pto_wsp.runtime.bindings, which converts it or says what is wrong with it, and comes back
// as values that fit.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "ptowsp/ptowsp.h"

namespace ptowsp {

// Hidden, as the types of its fields are.
class [[gnu::visibility("hidden")]] Arguments {
 public:
  // By symbol: name, dtype, the NumPy dtype of an array or None for a number, rank, and the range
  // of an integer.
  void expect(const nanobind::list& symbols);

  // The values of a run that changes some names: a tuple by symbol. Null if there is anything that
  // does not plainly fit.
  nanobind::object merge(const nanobind::tuple& current, const nanobind::dict& changed,
                         std::vector<ptowsp_binding>* out) const;
  // The same for values that pto_wsp.runtime.bindings has accepted; throws if it should not have.
  void take(const nanobind::tuple& values, std::vector<ptowsp_binding>* out) const;

 private:
  struct Symbol {
    uint32_t rank;
    int64_t least;
    int64_t most;
    bool is_float;
    nanobind::object array;  // NumPy's dtype; null for a number
  };

  bool find(const Symbol& symbol, PyObject* value, bool plain, ptowsp_binding* out) const;
  bool find_array(PyObject* value, ptowsp_binding* out) const;
  static bool find_plain_array(PyObject* value, ptowsp_binding* out);
  bool layout_is_known() const;
  bool find_all(PyObject* values, bool plain, std::vector<ptowsp_binding>* out) const;

  std::vector<Symbol> symbols_;
  std::vector<ptowsp_binding> unbound_;  // bindings without values
  nanobind::dict index_;                 // by name
  nanobind::object ndarray_;
  bool reads_layout_ = false;  // arrays of NumPy lie in memory as this file says
  nanobind::object dtype_name_;
  nanobind::object struct_name_;
};

}  // namespace ptowsp
