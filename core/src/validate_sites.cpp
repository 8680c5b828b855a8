// Records that speak about sites; the schedule; debug lines; feature bits.
#include <algorithm>
#include <string>
#include <utility>

#include "validate_context.h"

namespace ptowsp::check {
namespace {

u32 level_of(const Context& c, u32 site) { return c.get<Section::SITE>(site).level; }

// --- explicit and proved dependences ---

// How many loops enclose both sites.
u32 shared_loops(const Context& c, u32 a, u32 b) {
  const auto depth = [&](u32 loop) { return loop == kNone ? 0u : c.loops[loop].level + 1u; };
  u32 x = c.loop_of_site[a];
  u32 y = c.loop_of_site[b];
  while (x != y) {
    u32& deeper = depth(x) >= depth(y) ? x : y;
    deeper = c.loops[deeper].outer;
  }
  return depth(x);
}

void check_after(const Context& c, const AfterUse& use) {
  const After after = c.get<Section::AFTER>(use.after);
  const auto fail = [&](std::size_t field, const char* what) {
    Context::fail(c.at(Section::AFTER, use.after, field), what);
  };
  if (c.entry_of_site[after.site] != c.entry_of_site[use.site]) {
    fail(offsetof(After, site), "After.site lies in another entry");
  }
  if (after.shared_levels > shared_loops(c, after.site, use.site)) {
    fail(offsetof(After, shared_levels),
         "After.shared_levels counts loops that the sites do not share");
  }
  const u32 rest = level_of(c, after.site) - after.shared_levels;
  if (after.num_indices != 0 && after.num_indices != rest) {
    fail(offsetof(After, num_indices),
         "After needs one index for each loop that is not shared, or none");
  }
  const u32 source = c.get<Section::SITE>(after.site).pc;
  if (after.num_indices == 0 && source >= c.get<Section::SITE>(use.site).pc) {
    fail(offsetof(After, site), "After without indices must name an earlier site");
  }
}

// What the components of a distance are: expressions, or open.
struct DistanceParts {
  bool symbolic = false;
  bool open = false;
};

DistanceParts check_distance(const Context& c, const Deps& d) {
  const Scope scope{.loops = level_of(c, d.source)};
  DistanceParts parts;
  for (u32 i = d.distance; i < d.distance + d.num_distance; ++i) {
    const DepsDistance part = c.get<Section::DEPS_DISTANCE>(i);
    const u64 at = c.at(Section::DEPS_DISTANCE, i, offsetof(DepsDistance, value));
    if (part.open > 1 || (part.open == 1 && (part.expr != kNone || part.value != 0))) {
      Context::fail(at, "an open DepsDistance has neither value nor expression");
    }
    parts.open = parts.open || part.open == 1;
    if (part.expr == kNone) continue;
    parts.symbolic = true;
    c.use(part.expr, ScalarType::I64, scope,
          c.at(Section::DEPS_DISTANCE, i, offsetof(DepsDistance, expr)), "DepsDistance.expr");
    if (part.value != 0) {
      Context::fail(at, "DepsDistance.value must be 0 beside an expression");
    }
  }
  return parts;
}

void check_deps(const Context& c) {
  for (u32 i = 0; i < c.count(Section::DEPS); ++i) {
    const Deps d = c.get<Section::DEPS>(i);
    const bool exact = is(d.proof, ProofKind::DISTANCE) || is(d.proof, ProofKind::SYMBOLIC);
    const bool none = is(d.proof, ProofKind::INDEPENDENT);
    const bool every = is(d.proof, ProofKind::EVERY);
    if (((exact || every) && d.num_distance == 0) || (none && d.num_distance != 0) ||
        d.num_distance > kMaxLoops) {
      Context::fail(c.at(Section::DEPS, i, offsetof(Deps, num_distance)),
                    "DISTANCE, SYMBOLIC and EVERY proofs have a distance, INDEPENDENT ones none");
    }
    const DistanceParts parts = check_distance(c, d);
    if (parts.symbolic != is(d.proof, ProofKind::SYMBOLIC) || (parts.open && exact) ||
        (every && !parts.open)) {
      Context::fail(c.at(Section::DEPS, i, offsetof(Deps, proof)),
                    "a DISTANCE proof has constants only, a SYMBOLIC one some expression; "
                    "open components are UNKNOWN or EVERY, and EVERY has some");
    }
  }
}

// --- placement and descriptors ---

void check_coordinate(const Context& c, u32 i) {
  const u32 expr = c.get<Section::PLACE>(i).coordinate;
  const u64 at = c.at(Section::PLACE, i, offsetof(Place, coordinate));
  if (!is(c.get<Section::SCHEDULE_EXPR>(expr).type, ScalarType::I64)) {
    Context::fail(at, "Place.coordinate must be of type I64");
  }
  require(c.schedule_exprs[expr], Scope{}, at, "Place.coordinate");
}

// The records of a site on a mesh stand together, one per dimension, and in order of the sites: a
// reader finds them in one run, and no task has two places on one mesh.
void check_places(const Context& c) {
  const u32 n = c.count(Section::PLACE);
  Place before{};
  for (u32 i = 0; i < n;) {
    const Place first = c.get<Section::PLACE>(i);
    if (i != 0 && std::pair(before.site, before.mesh) >= std::pair(first.site, first.mesh)) {
      Context::fail(c.at(Section::PLACE, i), "places must be sorted by site and mesh, each once");
    }
    before = first;
    for (u32 dim = 0; dim < c.get<Section::MESH>(first.mesh).rank; ++dim, ++i) {
      const Place p = i < n ? c.get<Section::PLACE>(i) : Place{};
      if (i == n || p.site != first.site || p.mesh != first.mesh || p.dim != dim) {
        Context::fail(c.at(Section::PLACE, i, i < n ? offsetof(Place, dim) : 0),
                      "a place needs one record per dimension of its mesh, in order");
      }
      check_coordinate(c, i);
    }
  }
}

void check_descriptors(const Context& c) {
  for (u32 i = 0; i < c.count(Section::DESCRIPTOR); ++i) {
    const Descriptor d = c.get<Section::DESCRIPTOR>(i);
    c.use(d.expr, scalar_type(d.dtype),
          Scope{.loops = level_of(c, d.site), .lets = ~u64{0}, .slots = true},
          c.at(Section::DESCRIPTOR, i, offsetof(Descriptor, expr)), "Descriptor.expr");
  }
}

// --- schedule and debug ---

void check_arg(const Context& c, u32 i) {
  const ScheduleArg a = c.get<Section::SCHEDULE_ARG>(i);
  const u64 at = c.at(Section::SCHEDULE_ARG, i, offsetof(ScheduleArg, bits));
  switch (static_cast<ArgTag>(a.tag)) {
    case ArgTag::STRING:
      if (a.bits < c.schedule_strings.size() && c.schedule_strings[a.bits]) return;
      Context::fail(at, "the directive's argument is not the offset of a string");
    case ArgTag::EXPR:
      if (a.bits >= c.schedule_exprs.size()) {
        Context::fail(at, "the directive's argument is an expression that does not exist");
      }
      return require(c.schedule_exprs[a.bits], Scope{}, at, "the directive's argument");
    case ArgTag::NONE:
      if (a.bits != 0) Context::fail(at, "an absent argument must be 0");
      return;
    case ArgTag::INT:
    case ArgTag::FLOAT:
      return;
  }
}

// Records of a section, by a number that may not be one.
u64 records_in(const Context& c, u32 section) {
  switch (section) {
#define PTOWSP_SECTION(name, kind, record, cls, doc) \
  case kind:                                         \
    return c.count(Section::name);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
    default:
      return u64{1} << 32;  // a section of a later version: nothing is known of it
  }
}

void check_debug_lines(const Context& c) {
  for (u32 i = 0; i < c.count(Section::DEBUG_LINE); ++i) {
    const DebugLine d = c.get<Section::DEBUG_LINE>(i);
    if (d.index >= records_in(c, d.section)) {
      Context::fail(c.at(Section::DEBUG_LINE, i, offsetof(DebugLine, index)),
                    "DebugLine speaks of a record that does not exist");
    }
    if (d.line == 0) {
      Context::fail(c.at(Section::DEBUG_LINE, i, offsetof(DebugLine, line)), "lines count from 1");
    }
  }
}

// --- features ---

class Features {
 public:
  explicit Features(const Context& c) : c_(c) {}

  u64 collect() {
    add_code();
    add_axes();
    set(Feature::CHANNEL, c_.count(Section::CHANNEL) != 0 || c_.count(Section::PROCESS) != 0);
    set(Feature::ALLOC, c_.count(Section::ALLOC) != 0);
    set(Feature::SLOT, c_.count(Section::SLOT) != 0);
    set(Feature::TIER, c_.count(Section::TIER_SET) != 0);
    set(Feature::AFTER, c_.count(Section::AFTER) != 0);
    for (const ExprInfo& info : c_.exprs) set(Feature::DATA_DEPENDENT, info.reads_written);
    for (u32 i = 0; i < c_.count(Section::STORAGE); ++i) {
      set(Feature::PAGED, is(c_.get<Section::STORAGE>(i).storage_class, StorageClass::PAGED));
    }
    for (u32 i = 0; i < c_.count(Section::ACCESS); ++i) {
      set(Feature::ACCUM, is(c_.get<Section::ACCESS>(i).mode, AccessMode::ACCUM));
    }
    bool on_host = false;
    bool on_accelerator = false;
    for (u32 i = 0; i < c_.count(Section::KERNEL); ++i) {
      on_host |= is(c_.get<Section::KERNEL>(i).domain, Domain::HOST);
      on_accelerator |= is(c_.get<Section::KERNEL>(i).domain, Domain::ACCELERATOR);
    }
    set(Feature::MULTI_DOMAIN, on_host && on_accelerator);
    return bits_;
  }

 private:
  void set(Feature f, bool present) {
    if (present) bits_ |= u64{1} << static_cast<u32>(f);
  }

  void add_code() {
    for (u32 pc = 0; pc < c_.count(Section::CODE); ++pc) {
      const u32 op = c_.view.code(pc).opcode;
      set(Feature::SPARSE, is(op, Op::SELECT));
      set(Feature::COND, is(op, Op::COND) || is(op, Op::LOOP_WHILE));
      set(Feature::DATA_DEPENDENT, is(op, Op::SLOT_LOAD));
      set(Feature::COLLECTIVE, is(op, Op::COLLECTIVE));
      set(Feature::SLOT, is(op, Op::LET));
    }
  }

  void add_axes() {
    u64 varying = 0;
    for (u32 i = 0; i < kMaxLets; ++i) varying |= c_.let_needs_loops[i] ? u64{1} << i : 0;
    for (u32 i = 0; i < c_.count(Section::AXIS); ++i) {
      const ExprInfo& extent = c_.exprs[c_.get<Section::AXIS>(i).extent];
      set(Feature::RAGGED, extent.loops != 0 || (extent.lets & varying) != 0);
    }
  }

  const Context& c_;
  u64 bits_ = 0;
};

}  // namespace

void check_sites(Context& c) {
  for (const AfterUse& use : c.afters) check_after(c, use);
  check_deps(c);
  check_places(c);
  check_descriptors(c);
}

void check_schedule(Context& c) {
  for (u32 i = 0; i < c.count(Section::SCHEDULE_ARG); ++i) check_arg(c, i);
  check_debug_lines(c);
}

void check_features(Context& c) {
  const u64 said = c.view.header().features;
  const u64 found = Features(c).collect();
  if (said == found) return;
  u32 bit = 0;
  while (((said ^ found) >> bit & 1u) == 0) ++bit;
  Context::fail(offsetof(Header, features),
                "feature bit " + std::to_string(bit) +
                    ((found >> bit & 1u) != 0 ? " is missing" : " is set without cause"));
}

}  // namespace ptowsp::check
