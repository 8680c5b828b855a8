// The layout of every record, frozen: that this file compiles is the test.
//
// A change here is a new format version, or a new field at the end of a record.
#include <cstddef>
#include <type_traits>

#include "ptowsp/plan.h"

namespace ptowsp {

#define LAYOUT(record, bytes)                          \
  static_assert(sizeof(record) == (bytes));            \
  static_assert(std::is_trivially_copyable_v<record>); \
  static_assert(std::is_standard_layout_v<record>)
#define AT(record, field, byte) static_assert(offsetof(record, field) == (byte))

LAYOUT(Header, 80);
AT(Header, magic, 0);
AT(Header, version, 4);
AT(Header, num_instructions, 8);
AT(Header, num_axes, 12);
AT(Header, num_kernels, 16);
AT(Header, num_tensors, 20);
AT(Header, num_sections, 24);
AT(Header, header_crc, 28);
AT(Header, features, 32);
AT(Header, plan_id_lo, 40);
AT(Header, plan_id_hi, 48);
AT(Header, schedule_id_lo, 56);
AT(Header, schedule_id_hi, 64);
AT(Header, file_bytes, 72);

LAYOUT(SectionEntry, 32);
AT(SectionEntry, kind, 0);
AT(SectionEntry, version, 2);
AT(SectionEntry, flags, 4);
AT(SectionEntry, record_size, 8);
AT(SectionEntry, crc32, 12);
AT(SectionEntry, offset, 16);
AT(SectionEntry, length, 24);

LAYOUT(Byte, 1);
AT(Byte, value, 0);

LAYOUT(Instr, 8);
AT(Instr, opcode, 0);
AT(Instr, flags, 1);
AT(Instr, operand1, 2);
AT(Instr, operand2, 4);

LAYOUT(Entry, 8);
AT(Entry, pc, 0);
AT(Entry, process, 4);

LAYOUT(Const, 8);
AT(Const, bits, 0);

LAYOUT(Expr, 16);
AT(Expr, op, 0);
AT(Expr, type, 1);
AT(Expr, arg, 2);
AT(Expr, a, 4);
AT(Expr, b, 8);
AT(Expr, c, 12);

LAYOUT(ExprRef, 4);
AT(ExprRef, expr, 0);

LAYOUT(Symbol, 32);
AT(Symbol, name, 0);
AT(Symbol, kind, 4);
AT(Symbol, dtype, 5);
AT(Symbol, rank, 6);
AT(Symbol, flags, 7);
AT(Symbol, default_value, 8);
AT(Symbol, reserved, 12);
AT(Symbol, min_value, 16);
AT(Symbol, max_value, 24);

LAYOUT(Axis, 48);
AT(Axis, name, 0);
AT(Axis, kind, 4);
AT(Axis, level, 5);
AT(Axis, flags, 6);
AT(Axis, start, 8);
AT(Axis, extent, 12);
AT(Axis, tile, 16);
AT(Axis, value, 20);
AT(Axis, body_tasks, 24);
AT(Axis, parent, 28);
AT(Axis, lengths, 32);
AT(Axis, indices, 36);
AT(Axis, outer, 40);
AT(Axis, reserved, 44);

LAYOUT(Storage, 8);
AT(Storage, storage_class, 0);
AT(Storage, location, 1);
AT(Storage, reserved, 2);
AT(Storage, alloc, 4);

LAYOUT(Tensor, 40);
AT(Tensor, name, 0);
AT(Tensor, symbol, 4);
AT(Tensor, storage, 8);
AT(Tensor, dtype, 12);
AT(Tensor, location, 13);
AT(Tensor, reserved, 14);
AT(Tensor, dims, 16);
AT(Tensor, rank, 20);
AT(Tensor, layout, 24);
AT(Tensor, pool, 28);
AT(Tensor, table, 32);
AT(Tensor, page, 36);

LAYOUT(Dim, 8);
AT(Dim, shape, 0);
AT(Dim, stride, 4);

LAYOUT(Access, 16);
AT(Access, tensor, 0);
AT(Access, mode, 4);
AT(Access, flags, 5);
AT(Access, reserved, 6);
AT(Access, dims, 8);
AT(Access, rank, 12);

LAYOUT(AccessDim, 16);
AT(AccessDim, start, 0);
AT(AccessDim, extent, 4);
AT(AccessDim, step, 8);
AT(AccessDim, flags, 12);

LAYOUT(Kernel, 48);
AT(Kernel, name, 0);
AT(Kernel, exec_unit, 4);
AT(Kernel, domain, 5);
AT(Kernel, flags, 6);
AT(Kernel, params, 8);
AT(Kernel, num_params, 12);
AT(Kernel, block_dim, 16);
AT(Kernel, scratch, 20);
AT(Kernel, cost, 24);
AT(Kernel, reserved, 28);
AT(Kernel, name_hash, 32);
AT(Kernel, abi_hash, 40);

LAYOUT(Param, 24);
AT(Param, name, 0);
AT(Param, kind, 4);
AT(Param, dtype, 5);
AT(Param, mode, 6);
AT(Param, rank, 7);
AT(Param, shape, 8);
AT(Param, shape_rank, 12);
AT(Param, value, 16);

LAYOUT(Site, 32);
AT(Site, kernel, 0);
AT(Site, tiers, 4);
AT(Site, pc, 8);
AT(Site, kind, 12);
AT(Site, level, 13);
AT(Site, tags, 14);
AT(Site, stage, 16);
AT(Site, axis, 20);
AT(Site, path_hash, 24);

LAYOUT(After, 16);
AT(After, site, 0);
AT(After, kind, 4);
AT(After, shared_levels, 5);
AT(After, reserved, 6);
AT(After, indices, 8);
AT(After, num_indices, 12);

LAYOUT(TierSet, 16);
AT(TierSet, name, 0);
AT(TierSet, tiers, 4);
AT(TierSet, num_tiers, 8);
AT(TierSet, reserved, 12);

LAYOUT(Tier, 16);
AT(Tier, predicate, 0);
AT(Tier, kernel, 4);
AT(Tier, workspace, 8);
AT(Tier, reserved, 12);

LAYOUT(Slot, 8);
AT(Slot, name, 0);
AT(Slot, type, 4);
AT(Slot, level, 5);
AT(Slot, reserved, 6);

LAYOUT(Alloc, 16);
AT(Alloc, size, 0);
AT(Alloc, align, 4);
AT(Alloc, location, 8);
AT(Alloc, level, 9);
AT(Alloc, copies, 10);
AT(Alloc, cap, 12);

LAYOUT(Descriptor, 16);
AT(Descriptor, name, 0);
AT(Descriptor, site, 4);
AT(Descriptor, expr, 8);
AT(Descriptor, dtype, 12);
AT(Descriptor, reserved8, 13);
AT(Descriptor, reserved, 14);

LAYOUT(Channel, 32);
AT(Channel, name, 0);
AT(Channel, element, 4);
AT(Channel, depth, 8);
AT(Channel, initial, 12);
AT(Channel, rate_in, 16);
AT(Channel, rate_out, 20);
AT(Channel, latency, 24);
AT(Channel, reserved, 28);

LAYOUT(Process, 32);
AT(Process, name, 0);
AT(Process, entry, 4);
AT(Process, replicas, 8);
AT(Process, consumes, 12);
AT(Process, num_consumes, 16);
AT(Process, produces, 20);
AT(Process, num_produces, 24);
AT(Process, reserved, 28);

LAYOUT(ChannelRef, 4);
AT(ChannelRef, channel, 0);

LAYOUT(Stage, 8);
AT(Stage, name, 0);
AT(Stage, graph, 4);

LAYOUT(Mesh, 16);
AT(Mesh, name, 0);
AT(Mesh, shape, 4);
AT(Mesh, rank, 8);
AT(Mesh, reserved, 12);

LAYOUT(Layout, 16);
AT(Layout, mesh, 0);
AT(Layout, dims, 4);
AT(Layout, rank, 8);
AT(Layout, reserved, 12);

LAYOUT(LayoutDim, 4);
AT(LayoutDim, kind, 0);
AT(LayoutDim, mesh_axis, 1);
AT(LayoutDim, reserved, 2);

LAYOUT(Place, 16);
AT(Place, site, 0);
AT(Place, mesh, 4);
AT(Place, dim, 8);
AT(Place, coordinate, 12);

LAYOUT(Deps, 24);
AT(Deps, source, 0);
AT(Deps, sink, 4);
AT(Deps, proof, 8);
AT(Deps, hazard, 9);
AT(Deps, reserved, 10);
AT(Deps, distance, 12);
AT(Deps, num_distance, 16);
AT(Deps, reason, 20);

LAYOUT(DepsDistance, 16);
AT(DepsDistance, value, 0);
AT(DepsDistance, expr, 8);
AT(DepsDistance, open, 12);

LAYOUT(ScheduleEntry, 16);
AT(ScheduleEntry, id, 0);
AT(ScheduleEntry, version, 2);
AT(ScheduleEntry, args, 4);
AT(ScheduleEntry, num_args, 8);
AT(ScheduleEntry, reserved, 12);

LAYOUT(ScheduleArg, 16);
AT(ScheduleArg, tag, 0);
AT(ScheduleArg, reserved, 4);
AT(ScheduleArg, bits, 8);

LAYOUT(KernelBody, 32);
AT(KernelBody, kernel, 0);
AT(KernelBody, form, 4);
AT(KernelBody, reserved8, 5);
AT(KernelBody, reserved, 6);
AT(KernelBody, bytes, 8);
AT(KernelBody, num_bytes, 12);
AT(KernelBody, hash_lo, 16);
AT(KernelBody, hash_hi, 24);

LAYOUT(DebugLine, 24);
AT(DebugLine, section, 0);
AT(DebugLine, column, 2);
AT(DebugLine, index, 4);
AT(DebugLine, file, 8);
AT(DebugLine, line, 12);
AT(DebugLine, end_column, 16);
AT(DebugLine, reserved, 20);

LAYOUT(CursorFrame, 24);
AT(CursorFrame, pc, 0);
AT(CursorFrame, child, 4);
AT(CursorFrame, index, 8);
AT(CursorFrame, end, 16);

LAYOUT(CursorState, 48);
AT(CursorState, pc, 0);
AT(CursorState, depth, 4);
AT(CursorState, level, 8);
AT(CursorState, site, 12);
AT(CursorState, announced, 16);
AT(CursorState, num_lets, 20);
AT(CursorState, num_slots, 24);
AT(CursorState, reserved, 28);
AT(CursorState, next_task, 32);
AT(CursorState, task_id, 40);

// Records have no padding: their fields fill them.
#define PTOWSP_RECORD_BEGIN(record, doc) static_assert(sizeof(record) == 0
#define PTOWSP_FIELD(record, ctype, name, meaning, target, doc) +sizeof(ctype)
#define PTOWSP_RECORD_END(record) );
#include "ptowsp/records.def"
#undef PTOWSP_RECORD_BEGIN
#undef PTOWSP_FIELD
#undef PTOWSP_RECORD_END

static_assert(kMagic == 0x574F5450 && kVersion == 1 && kNone == 0xFFFFFFFFu);

}  // namespace ptowsp

int main() { return 0; }
