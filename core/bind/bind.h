// The parts of the extension module pto_wsp._core; each is written in bind_<part>.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace ptowsp {

void bind_plan(nanobind::module_& m);
void bind_program(nanobind::module_& m);

}  // namespace ptowsp
