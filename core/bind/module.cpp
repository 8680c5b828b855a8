#include "bind.h"
#include "ptowsp/warmth.h"

#ifdef PTOWSP_MUTANTS
#include <nanobind/stl/string.h>

#include "ptowsp/mutants.h"
#endif

NB_MODULE(_core, m) {
  // Programs that are alive when the interpreter ends are no fault of the user.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core of pto_wsp: reads plans and runs them.";
  ptowsp::starts_through(reinterpret_cast<const void*>(&PyObject_Call));
  ptowsp::bind_plan(m);
  ptowsp::bind_program(m);
#ifdef PTOWSP_MUTANTS
  m.def("disable_directive", &ptowsp::disable_directive, nanobind::arg("name"));
#endif
}
