"""Names of stages: which of them are one binding, and what `execute` calls it.

What a dependence joins is one binding, under the name that the earliest stage gives it. Equal names
of other stages are one binding as well if they are of one type and were given the same value. If
not, each is bound as "stage.name".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.compose import Traced
from pto_wsp.frontend.declarations import Default, same_default, type_text
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.srcloc import SrcLoc

Key: TypeAlias = tuple[str, str]  # a stage and one of its names
Decl: TypeAlias = ir.SymbolDecl | ir.TensorDecl


@dataclass(frozen=True, slots=True)
class Dependence:
    """Name `reader` of a stage is name `writer` of an earlier one."""

    reader: Key
    writer: Key
    loc: SrcLoc | None

    def __str__(self) -> str:
        return f"{text(self.reader)} depends on {text(self.writer)}"


@dataclass(frozen=True, slots=True)
class Names:
    """`of` says what each name becomes, `bound` what each binding is in the stages. First values
    are those of the names in `given`."""

    of: Mapping[Key, str]
    bound: Mapping[str, tuple[str, ...]]
    given: frozenset[Key]


def name_stages(
    stages: Mapping[str, Traced], dependences: Sequence[Dependence], apart: frozenset[str]
) -> Names:
    """The names of all stages, in their order. Of stages in `apart`, names are never one with equal
    ones of others."""
    groups = _Groups(
        {
            (stage, each.name): _Thing(each, traced.defaults.get(each.name))
            for stage, traced in stages.items()
            for each in (*traced.module.symbols, *traced.module.tensors)
            if not isinstance(each, ir.TensorDecl) or each.kind is not ir.TensorKind.TEMP
        }
    )
    # Shapes of tokens are made of symbols, and paged tensors of tensors: each comes behind those.
    for is_next in (_is_symbol, _is_plain, _is_paged):
        for each in dependences:
            if is_next(groups.decl(each.reader)):
                groups.join(each)
        groups.join_equal(is_next, apart)
    for each in dependences:
        groups.check_values(each)
    return groups.names(apart)


def graph_error(what: str, why: str, fix: str, loc: SrcLoc | None = None) -> CompileError:
    return CompileError(Code.GRAPH, what, loc=loc or srcloc.here(), why=why, fix=fix)


def text(key: Key) -> str:
    return ".".join(key)


@dataclass(frozen=True, slots=True)
class _Thing:
    decl: Decl
    default: Default | None

    @property
    def size(self) -> int | float | tuple[int, ...] | None:
        """What a default says that another value of the same binding says as well."""
        if isinstance(self.default, int | float):
            return self.default
        data = self.default.data if isinstance(self.default, Tensor) else self.default
        return None if data is None else np.shape(data)


def _is_symbol(decl: Decl) -> bool:
    return isinstance(decl, ir.SymbolDecl)


def _is_plain(decl: Decl) -> bool:
    return isinstance(decl, ir.TensorDecl) and decl.kind is not ir.TensorKind.PAGED


def _is_paged(decl: Decl) -> bool:
    return isinstance(decl, ir.TensorDecl) and decl.kind is ir.TensorKind.PAGED


class _Groups:
    """Sets of names that are one binding, each known by its earliest name. No dependence reads
    that: what it reads is written in an earlier stage."""

    def __init__(self, things: dict[Key, _Thing]) -> None:
        self._things = things
        self._order = {key: number for number, key in enumerate(things)}
        self._parent = {key: key for key in things}
        self._read: set[Key] = set()  # what dependences read: first values come from writers

    def decl(self, key: Key) -> Decl:
        return self._things[key].decl

    def first(self, key: Key) -> Key:
        while self._parent[key] != key:
            key = self._parent[key]
        return key

    def unite(self, a: Key, b: Key) -> None:
        early, late = sorted((self.first(a), self.first(b)), key=self._order.__getitem__)
        self._parent[late] = early

    def join(self, each: Dependence) -> None:
        """The two names of a dependence; of paged tensors their pools and tables as well."""
        reads, writes = self._parts(each.reader), self._parts(each.writer)
        pairs = list(zip(reads, writes, strict=False))
        for reader, writer in reversed(pairs):
            self._check_types(each, reader, writer)
            self.unite(reader, writer)
            self._read.add(reader)

    def join_equal(self, is_next: Callable[[Decl], bool], apart: frozenset[str]) -> None:
        """Equal names of stages that agree. One without a value goes with the others of its type if
        those agree."""
        found: dict[str, list[Key]] = {}
        for key in self._firsts():
            if key[0] not in apart and is_next(self.decl(key)):
                found.setdefault(key[1], []).append(key)
        for same in found.values():
            valued = [key for key in same if self._things[key].default is not None]
            for key in valued:
                self._unite_first(key, [k for k in valued if self._agree(k, key)])
            for key in same:
                if key not in valued:
                    alike = [k for k in same if k != key and self._type(k) == self._type(key)]
                    one = len({self.first(k) for k in alike if k in valued}) == 1
                    self._unite_first(key, alike if one else [k for k in alike if k not in valued])

    def _unite_first(self, key: Key, others: list[Key]) -> None:
        if others:
            self.unite(key, others[0])

    def check_values(self, each: Dependence) -> None:
        """Several writers of one tensor are given the same memory, or only one is given any."""
        for writer in self._parts(each.writer):
            mine = [k for k in self._things if self.first(k) == self.first(writer)]
            given = [k for k in mine if k not in self._read and self._things[k].default is not None]
            if writer in given and not self._agree(writer, given[0]):
                raise graph_error(
                    str(each),
                    f"{text(given[0])} and {text(writer)} are one tensor by that, and stages "
                    f"{given[0][0]} and {writer[0]} were given different memory for it",
                    "give both the same array, or one of them a Tensor(shape=..., dtype=...) "
                    "without data",
                    each.loc,
                )

    def names(self, apart: frozenset[str]) -> Names:
        names = [name for stage, name in self._firsts() if stage not in apart]
        called = {
            key: text(key) if key[0] in apart or names.count(key[1]) > 1 else key[1]
            for key in self._firsts()
        }
        of = {key: called[self.first(key)] for key in self._things}
        bound: dict[str, tuple[str, ...]] = {}
        for key, name in of.items():
            if self._is_bound(key):
                bound[name] = (*bound.get(name, ()), text(key))
        return Names(of, bound, frozenset(self._things.keys() - self._read))

    def _is_bound(self, key: Key) -> bool:
        decl = self.decl(key)
        return isinstance(decl, ir.SymbolDecl) or decl.kind is ir.TensorKind.BOUND

    def _firsts(self) -> list[Key]:
        return [key for key in self._things if self.first(key) == key]

    def _parts(self, key: Key) -> list[Key]:
        """A name, and those of its pool and its table if it is paged."""
        decl = self.decl(key)
        pages = decl.pages if isinstance(decl, ir.TensorDecl) else None
        return [key, *([] if pages is None else [(key[0], pages.pool), (key[0], pages.table)])]

    def _agree(self, a: Key, b: Key) -> bool:
        one, other = self._things[a].default, self._things[b].default
        assert one is not None
        assert other is not None
        return self._type(a) == self._type(b) and same_default(one, other)

    def _type(self, key: Key) -> tuple[object, ...]:
        """What declarations of one binding have in common."""
        decl = self.decl(key)
        if isinstance(decl, ir.SymbolDecl):
            return decl.kind, decl.dtype, decl.rank

        def named(expr: ir.Expr) -> ir.Expr:
            is_symbol = isinstance(expr, ir.SymbolRef)
            return ir.SymbolRef(text(self.first((key[0], expr.name)))) if is_symbol else expr

        shape = tuple(ir.map_expr(size, named) for size in decl.shape)
        parts = [self.first(part) for part in self._parts(key)[1:]]
        page = None if decl.pages is None else decl.pages.page
        return decl.kind, decl.dtype, decl.rank, decl.location, decl.layout, shape, page, *parts

    def _check_types(self, each: Dependence, reader: Key, writer: Key) -> None:
        read, written = self._things[reader], self._things[writer]
        if self._type(reader) != self._type(writer):
            ours, theirs = type_text(read.decl), type_text(written.decl)
        elif None not in (read.size, written.size) and read.size != written.size:
            ours, theirs = (
                f"{each.size}" if isinstance(each.size, int | float) else f"of shape {each.size}"
                for each in (read, written)
            )
        else:
            return
        fix = f"give stages {reader[0]} and {writer[0]} the same kind of thing"
        if _is_symbol(read.decl) and not _is_symbol(written.decl):
            fix = f"pass it to stage {reader[0]} as a Tensor, for which control waits"
        raise graph_error(
            str(each),
            f"both are one thing by that, and {text(reader)} is {ours}, {text(writer)} {theirs}",
            fix,
            each.loc,
        )
