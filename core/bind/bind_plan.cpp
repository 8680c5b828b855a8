// Plans for Python: the validator, and the format's tables as plain dicts and lists.
#include <nanobind/nanobind.h>

#include <cstddef>

#include "bind.h"
#include "ptowsp/plan.h"
#include "ptowsp/validate.h"

namespace nb = nanobind;

namespace ptowsp {
namespace {

nb::object plan_validate(const nb::bytes& plan) {
  PlanView view;
  PlanFault fault;
  if (validate(plan.data(), plan.size(), &view, &fault)) return nb::none();
  return nb::make_tuple(fault.offset, fault.message.c_str());
}

nb::list reflect_opcodes() {
  nb::list out;
  const auto add = [&](const char* name, u32 number, const char* place, const char* operand1,
                       const char* operand2, const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["number"] = number;
    d["place"] = place;
    d["operand1"] = operand1;
    d["operand2"] = operand2;
    d["doc"] = doc;
    out.append(d);
  };
#define PTOWSP_OP(name, number, place, operand1, operand2, doc) \
  add(#name, number, #place, #operand1, #operand2, doc);
#include "ptowsp/opcodes.def"
#undef PTOWSP_OP
  return out;
}

nb::list reflect_enums() {
  nb::list out;
  nb::list values;
  const auto begin = [&](const char* name, const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["doc"] = doc;
    values = nb::list();
    d["values"] = values;
    out.append(d);
  };
  const auto add = [&](const char* name, u32 number, const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["number"] = number;
    d["doc"] = doc;
    values.append(d);
  };
#define PTOWSP_ENUM_BEGIN(name, doc) begin(#name, doc);
#define PTOWSP_VALUE(enumeration, name, number, doc) add(#name, number, doc);
#define PTOWSP_ENUM_END(name)
#include "ptowsp/enums.def"
#undef PTOWSP_ENUM_BEGIN
#undef PTOWSP_VALUE
#undef PTOWSP_ENUM_END
  return out;
}

nb::list reflect_sections() {
  nb::list out;
  const auto add = [&](const char* name, u32 kind, const char* record, const char* cls,
                       const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["kind"] = kind;
    d["record"] = record;
    d["class"] = cls;
    d["doc"] = doc;
    out.append(d);
  };
#define PTOWSP_SECTION(name, kind, record, cls, doc) add(#name, kind, #record, #cls, doc);
#include "ptowsp/records.def"
#undef PTOWSP_SECTION
  return out;
}

nb::list reflect_records() {
  nb::list out;
  nb::list fields;
  const auto begin = [&](const char* name, std::size_t size, const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["size"] = size;
    d["doc"] = doc;
    fields = nb::list();
    d["fields"] = fields;
    out.append(d);
  };
  const auto add = [&](const char* name, const char* type, std::size_t offset, const char* meaning,
                       const char* target, const char* doc) {
    nb::dict d;
    d["name"] = name;
    d["type"] = type;
    d["offset"] = offset;
    d["meaning"] = meaning;
    d["target"] = target;
    d["doc"] = doc;
    fields.append(d);
  };
#define PTOWSP_RECORD_BEGIN(record, doc) begin(#record, sizeof(record), doc);
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc) \
  add(#name, #ctype, offsetof(record, name), #meaning, #target, doc);
#define PTOWSP_RECORD_END(record)
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END
  return out;
}

nb::list reflect_directives() {
  nb::list out;
  const auto add = [&](const char* name, const char* form, const char* meaning, bool acts) {
    nb::dict d;
    d["name"] = name;
    d["form"] = form;
    d["meaning"] = meaning;
    d["acts"] = acts;
    out.append(d);
  };
#define PTOWSP_DIRECTIVE(name, form, meaning, ...) \
  add(#name, form, meaning, sizeof(#__VA_ARGS__) > 1);
#include "ptowsp/directives.def"
#undef PTOWSP_DIRECTIVE
  return out;
}

nb::dict reflect() {
  nb::dict out;
  out["directives"] = reflect_directives();
  out["opcodes"] = reflect_opcodes();
  out["enums"] = reflect_enums();
  out["sections"] = reflect_sections();
  out["records"] = reflect_records();
  return out;
}

nb::dict plan_limits() {
  nb::dict out;
  out["version"] = kVersion;
  out["max_loops"] = kMaxLoops;
  out["max_blocks"] = kMaxBlocks;
  out["max_rank"] = kMaxRank;
  out["max_expr_depth"] = kMaxExprDepth;
  out["max_expr_tree"] = kMaxExprTree;
  out["max_bound_vars"] = kMaxBoundVars;
  out["max_tensor_args"] = kMaxTensorArgs;
  out["max_scalar_args"] = kMaxScalarArgs;
  out["max_arg_words"] = kMaxArgWords;
  out["max_lets"] = kMaxLets;
  out["max_slots"] = kMaxSlots;
  out["max_name"] = kMaxName;
  out["max_records"] = kMaxRecords;
  return out;
}

}  // namespace

void bind_plan(nb::module_& m) {
  m.def("plan_validate", &plan_validate, nb::arg("plan"),
        nb::sig("def plan_validate(plan: bytes) -> tuple[int, str] | None"),
        "None for a valid plan, else the byte at which the first fault lies and what it is.");
  m.def("reflect", &reflect, nb::sig("def reflect() -> dict[str, list[dict[str, object]]]"),
        "The format's tables: opcodes, enums, sections and records, with their documentation; and "
        "the directives of schedules.");
  m.def("plan_limits", &plan_limits, nb::sig("def plan_limits() -> dict[str, int]"),
        "The limits of plan.h by name.");
}

}  // namespace ptowsp
