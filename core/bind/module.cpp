#include "bind.h"

NB_MODULE(_core, m) {
  m.doc() = "The native core of pto_wsp: reads plans and runs them.";
  ptowsp::bind_plan(m);
  ptowsp::bind_program(m);
}
