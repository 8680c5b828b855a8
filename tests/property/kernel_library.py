"""The C++ kernels of the property tests. They are the same in every module, so they are compiled
once and never again.

Every kernel folds what it reads into a number, may wait for another task to come in, and then
updates what it writes by something like x = x * 3 + y: a lost or wrong order of two tasks shows in
the result.
"""

from __future__ import annotations

import functools

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.ir import Mode, ParamDecl
from pto_wsp.kernels import LoadedKernel, load_kernels
from pto_wsp.passes import lower

U64, F32 = DType.U64, DType.F32
_MODES = {"in": Mode.IN, "out": Mode.OUT, "inout": Mode.INOUT}

# Between reading and writing, some tasks wait until another task is inside a kernel, too: if there
# is a way for two tasks to run at the same time, they do.
_INCLUDES = ("#include <atomic>", "#include <thread>", "static std::atomic<int> inside{0};")
_MEET = """inside += 1;
    for (int k = 0; k < 50 && inside < 2; ++k) std::this_thread::yield();
    inside -= 1;
"""
_WAIT = f"if (s % 4 == 1) {{\n    {_MEET}}}\n"
_READ = {
    0: "s = s * 31 + {0}();\n",
    1: "for (int64_t i = 0; i < {0}.shape(0); ++i) s = s * 31 + {0}(i);\n",
    2: """for (int64_t i = 0; i < {0}.shape(0); ++i)
        for (int64_t j = 0; j < {0}.shape(1); ++j) s = s * 31 + {0}(i, j);\n""",
    3: """for (int64_t i = 0; i < {0}.shape(0); ++i)
        for (int64_t j = 0; j < {0}.shape(1); ++j)
            for (int64_t k = 0; k < {0}.shape(2); ++k) s = s * 31 + {0}(i, j, k);\n""",
}
_UPDATE = {
    0: "{0}() = {0}() * 3 + s;\n",
    1: "for (int64_t i = 0; i < {0}.shape(0); ++i) {0}(i) = {0}(i) * 3 + s++;\n",
    2: """for (int64_t i = 0; i < {0}.shape(0); ++i)
        for (int64_t j = 0; j < {0}.shape(1); ++j) {0}(i, j) = {0}(i, j) * 3 + s++;\n""",
}
_SET = {
    1: "for (int64_t i = 0; i < {0}.shape(0); ++i) {0}(i) = s++;\n",
    2: """for (int64_t i = 0; i < {0}.shape(0); ++i)
        for (int64_t j = 0; j < {0}.shape(1); ++j) {0}(i, j) = s++;\n""",
}
_FLOATS = f"""
    float f = 1.0f;
    for (int64_t i = 0; i < x.shape(0); ++i) f = f * 0.75f + x(i);
    {_MEET}
    for (int64_t i = 0; i < y.shape(0); ++i)
        for (int64_t j = 0; j < y.shape(1); ++j) y(i, j) = y(i, j) * 0.5f + f;
"""


def _integers(name: str, **params: tuple[str, int]) -> ir.KernelDecl:
    """A kernel over u64 parameters, each given as (mode, rank that the kernel sees). Those with
    matrices are for cube cores."""
    source = "[[maybe_unused]] uint64_t s = 1;\n"
    source += "".join(_READ[r].format(p) for p, (mode, r) in params.items() if mode == "in")
    source += _WAIT
    for param, (mode, rank) in params.items():
        source += {"in": {}, "out": _SET, "inout": _UPDATE}[mode].get(rank, "").format(param)
    decls = tuple(ParamDecl(p, _MODES[mode], U64, r) for p, (mode, r) in params.items())
    matrix = any(rank == 2 for _, rank in params.values())
    unit = ir.ExecUnit.CUBE if matrix else ir.ExecUnit.VECTOR
    return ir.KernelDecl(name, decls, ir.BodyForm.CPP, source, _INCLUDES, exec_unit=unit)


def _numbers() -> ir.KernelDecl:
    """A kernel with scalars and constants among its parameters."""
    params = (
        ir.ScalarDecl("k", DType.I32),
        ParamDecl("y", Mode.ACCUM, U64, 1),
        ir.ConstexprDecl("c", DType.I64, 5),
        ir.ScalarDecl("flag", DType.BOOL),
    )
    source = "uint64_t s = uint64_t(k) * c + (flag ? 1 : 0);\n" + _WAIT + _UPDATE[1].format("y")
    return ir.KernelDecl("numbers", params, ir.BodyForm.CPP, source, _INCLUDES)


_FLOAT_PARAMS = (ParamDecl("x", Mode.IN, F32, 1), ParamDecl("y", Mode.INOUT, F32, 2))

KERNELS: tuple[ir.KernelDecl, ...] = (
    _integers("update1", x=("in", 1), y=("inout", 1)),
    _integers("update2", x=("in", 2), y=("inout", 2)),
    _integers("both", x=("inout", 1), y=("inout", 1)),
    _integers("copy1", x=("in", 1), y=("out", 1)),
    _integers("copy2", x=("in", 1), y=("out", 2)),
    _integers("fill", y=("out", 1)),
    _integers("bump", y=("inout", 0)),
    _integers("fold", x=("in", 3), y=("inout", 1)),
    _integers("many", a=("in", 1), b=("in", 2), c=("out", 1), d=("inout", 2)),
    _integers("peek", x=("in", 2)),
    _integers("nothing"),
    _numbers(),
    ir.KernelDecl("floats", _FLOAT_PARAMS, ir.BodyForm.CPP, _FLOATS, _INCLUDES),
)


@functools.cache
def loaded() -> tuple[LoadedKernel, ...]:
    """The compiled kernels, in the order of KERNELS."""
    module = ir.Module("library", (), (), KERNELS, (ir.Call("nothing", (), ()),))
    return load_kernels(lower(module), {})
