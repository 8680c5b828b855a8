"""What a kernel's body is, and what kernels can do beside being called in workloads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import kernel_source
from pto_wsp.frontend.annotations import Param, ScalarParam, TensorParam

if TYPE_CHECKING:
    from pto_wsp.frontend.alone import Arguments, Compiled
    from pto_wsp.frontend.tile_body import TileBody
    from pto_wsp.kernels.tile_ir import TileKernel


def body_form(
    function: FunctionType, params: tuple[Param, ...], body: object, cpp_src: str | None
) -> ir.BodyForm:
    """What the body is; a kernel of tiles holds tile code unless it says otherwise."""
    loc = kernel_source.definition(function)
    what = f"kernel {function.__name__} with body={body!r}"
    names = {form.value: form for form in ir.BodyForm}
    if body is None and cpp_src is not None:
        return ir.BodyForm.CPP
    if body is None:
        tiles = any(isinstance(param, TensorParam) and param.tile for param in params)
        return ir.BodyForm.TILE_IR if tiles else ir.BodyForm.PYTHON
    if body not in names:
        fix = f"use one of {', '.join(map(repr, names))}"
        raise CompileError(Code.KERNEL_BODY, what, loc=loc, why="there is no such body", fix=fix)
    form = names[str(body)]
    if (form is ir.BodyForm.CPP) is (cpp_src is None):
        why = "cpp_src is missing" if cpp_src is None else "cpp_src is a C++ body"
        fix = "pass cpp_src" if cpp_src is None else "remove cpp_src, or body"
        raise CompileError(Code.KERNEL_BODY, what, loc=loc, why=why, fix=fix)
    return form


def tile_body(name: str, function: FunctionType) -> TileBody:
    # Programs without tile code need not load the tile language.
    from pto_wsp.frontend.tile_body import TileBody

    return TileBody(name, function)


class BodyMethods(ABC):
    """What `k.run(...)`, `k.reference(...)`, `k.ir`, `k.trace(...)` and `k.source(...)` are."""

    name: str
    fn: Callable[..., None]
    params: tuple[Param, ...]
    form: ir.BodyForm
    _tile: TileBody | None
    _compiled: Compiled | None = None

    @abstractmethod
    def decl(self, params: tuple[ir.AnyParam, ...]) -> ir.KernelDecl:
        """The declaration of this kernel specialised to dtypes, ranks and constants."""

    @abstractmethod
    def _scalar(self, param: ScalarParam, value: object) -> ir.Expr:
        """The value of a scalar parameter; TypeCheckError if it is none."""

    @abstractmethod
    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """One value per parameter, in their order."""

    @property
    def ir(self) -> TileKernel:
        """The tile operations, of a kernel whose parameters say all that tracing needs."""
        return self.trace()

    def trace(self, **given: Any) -> TileKernel:
        """The tile operations. Tensor parameters are given as arrays or as (dtype, rank), constants
        as numbers."""
        body = self._tile_body("trace")
        self._known(given)
        return body.traced(self.params, given)

    def source(self, target: str, **given: Any) -> str:
        """The code that a target compiles, "cpu"; what is given is as for `trace`."""
        if target not in ("cpu", "cpu_sim"):
            raise CompileError(
                Code.TARGET_LIMIT,
                f"{self.name}.source({target!r})",
                loc=srcloc.here(),
                why="no code is written for that target",
                fix='write source("cpu")',
            )
        from pto_wsp.kernels.emit_tile import emit_tile

        return emit_tile(self.trace(**given)).text

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Runs the kernel alone, once, on arrays and numbers: the compiled code that tasks run, or
        the Python body. Arrays are written in place."""
        given = self._given(args, kwargs)
        if self.form is ir.BodyForm.PYTHON:
            from pto_wsp.frontend.alone import run_python

            run_python(given, self.fn)
            return
        compiled = self._compiled
        if compiled is None:
            from pto_wsp.frontend.alone import Compiled

            compiled = self._compiled = Compiled(self.decl, is_tile=self._tile is not None)
        compiled.run(given)

    def reference(self, *args: Any, **kwargs: Any) -> None:
        """Evaluates tile code with NumPy, alone, once, on arrays and numbers: what the kernel
        means, and what compiled code is compared with. Needs no compiler."""
        self._tile_body("reference").evaluate(self._given(args, kwargs))

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        from pto_wsp.frontend.alone import checked

        return checked(self.name, self.params, self._bind(args, kwargs), self._scalar)

    def _tile_body(self, what: str) -> TileBody:
        if self._tile is not None:
            return self._tile
        raise CompileError(
            Code.KERNEL_BODY,
            f"{self.name}.{what} of a kernel with a {self.form.value} body",
            loc=srcloc.here(),
            why="only tile code is traced",
            fix='write the body with pto functions and say @kernel(body="tile")',
        )

    def _known(self, given: Mapping[str, object]) -> None:
        names = [param.name for param in self.params]
        for name in given:
            if name not in names:
                raise CompileError(
                    Code.KERNEL_CALL,
                    f"kernel {self.name} is traced with an unknown argument {name}",
                    loc=srcloc.here(),
                    why="no parameter has that name",
                    fix=f"the parameters are ({', '.join(names)})",
                )
