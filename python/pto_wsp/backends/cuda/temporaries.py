"""Where temporaries lie: each iteration that makes one has its own part of the workspace."""

from __future__ import annotations

from pto_wsp.backends.cuda.code import Code, Scope
from pto_wsp.backends.cuda.counting import Counter, Found
from pto_wsp.backends.cuda.linear import factored
from pto_wsp.backends.cuda.nest import Block, Branch, Loop, Path, Phases, Temporary, loops_of
from pto_wsp.backends.cuda.regions import Regions
from pto_wsp.backends.cuda.waiting import Counters, inside
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.errors import CompileError
from pto_wsp.kernels.triton_code import TYPES
from pto_wsp.plan import Alloc, Plan, Section, Storage, Tensor

_ALIGNMENT = 256  # bytes; what a GPU's own allocator gives


class Temporaries:
    """`used` is how many bytes all of them take."""

    def __init__(
        self, plan: Plan, nest: Block, code: Code, counter: Counter, counters: Counters
    ) -> None:
        self._plan = plan
        self._code = code
        self._counter = counter
        self._counters = counters
        self._nest = nest
        self._allocs = plan.records(Alloc)
        self._made = {item.alloc: (item, path) for item, path in _temporaries(nest)}
        self._first: dict[int, str] = {}
        self._size: dict[int, str] = {}
        self.used = "0"

    def place(self) -> None:
        """Gives each temporary its part: as many of the largest as there are iterations."""
        code = self._code
        for alloc, (item, path) in self._made.items():
            loops = loops_of(path)
            size = self._largest(alloc, item, path, loops)
            with code.in_prelude():
                self._first[alloc] = self.used
                rounded = f"({size} + {_ALIGNMENT - 1}) // {_ALIGNMENT} * {_ALIGNMENT}"
                self._size[alloc] = code.named(rounded, "bytes")
                all_ = " * ".join([self._size[alloc], *map(self._counters.bound, loops)])
                self.used = code.named(f"{self.used} + {all_}", "space")

    def _largest(self, alloc: int, item: Temporary, path: Path, loops: tuple[Loop, ...]) -> str:
        code = self._code
        # Temporaries whose sizes differ by a factor ask for one largest value.
        factor, node = factored(self._plan, self._allocs[alloc].size)
        depends = self._counter.node_depends(node)
        if not depends:
            return code.value(self._allocs[alloc].size, code.closed)
        if len(depends) > 1:
            raise CompileError(
                ErrorCode.TARGET_LIMIT,
                "the cuda target cannot say how large a temporary becomes",
                loc=self._plan.loc(Section.ALLOC, alloc),
                why="its shape depends on more than one loop",
                fix="let its shape depend on one outer loop only, or run on target='cpu_sim'",
            )
        (level,) = depends

        def of(scope: Scope) -> str:
            block = self._nest
            for each, part in path:
                self._counters.lets(block, each, scope)
                block = inside(each, part)
            self._counters.lets(block, item, scope)
            return code.value(node, scope)

        most = self._counters.largest(next(x for x in loops if x.level == level), of)
        return f"{most} * {factor}"

    def use(self, tensor: int, found: Found, regions: Regions) -> None:
        """Makes the pointer to this iteration's own temporary known."""
        record = self._plan.records(Tensor)[tensor]
        alloc = self._plan.records(Storage)[record.storage].alloc
        if alloc not in self._made:
            return
        code = self._code
        _, path = self._made[alloc]
        at = ""
        for loop in loops_of(path):
            own = found.iterations[loop.level]
            at = f"({at}) * {self._counters.bound(loop)} + {own}" if at else own
        offset = self._first[alloc]
        if at:
            offset = f"{offset} + ({at}) * {self._size[alloc]}"
        pointer = f"(SPACE + ({offset})).to(tl.pointer_type({TYPES[DType(record.dtype)]}))"
        name = code.fresh("temp")
        code.line(f"{name} = tl.multiple_of({pointer}, 16)")
        regions.temporaries[tensor] = name


def _temporaries(block: Block, path: Path = ()) -> list[tuple[Temporary, Path]]:
    found: list[tuple[Temporary, Path]] = []
    for item in block:
        match item:
            case Temporary():
                found.append((item, path))
            case Loop():
                found += _temporaries(item.body, (*path, (item, 0)))
            case Branch():
                found += _temporaries(item.then, (*path, (item, 0)))
                found += _temporaries(item.other, (*path, (item, 1)))
            case Phases():
                for number, child in enumerate(item.children):
                    found += _temporaries(child, (*path, (item, number)))
            case _:
                pass
    return found
