// Builds for tests only: a directive that is decoded and then not enforced, to see who notices.
#pragma once

#include <string>
#include <vector>

#include "ptowsp/schedule.h"

namespace ptowsp {

// From now on this directive (directives.def) is not enforced; empty: all are. False: there is none
// of that name.
bool disable_directive(const std::string& name);
void undo_disabled(ScheduleConfig* out);

}  // namespace ptowsp
