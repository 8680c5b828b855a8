"""Names that the user's source gives to loop variables and tensors."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any, cast

from pto_wsp import srcloc

_STORES = frozenset(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"))
# Pairs of instructions that newer Pythons fuse; only the first half of the second is a store here.
_FUSED_STORES = {"STORE_FAST_STORE_FAST": 2, "STORE_FAST_LOAD_FAST": 1}

# How far attributes are followed: self.cache.keys is three names, hence two steps.
_ATTRIBUTE_STEPS = 3


def loop_targets(frame: FrameType | None, count: int) -> list[str] | None:
    """The names to which the `for` statement at which a frame stands assigns its items, where
    there are `count` plain ones."""
    if frame is None:
        return None
    code = dis.get_instructions(frame.f_code)
    at_loop = next((i for i in code if i.offset == frame.f_lasti), None)
    if at_loop is None or at_loop.opname != "FOR_ITER":
        return None
    if count > 1:
        unpack = next(code, None)
        if unpack is None or unpack.opname != "UNPACK_SEQUENCE" or unpack.arg != count:
            return None
    names: list[str] = []
    for instruction in code:
        stored = _stored_names(instruction)
        if not stored:
            return None
        names += stored
        if len(names) >= count:
            return names[:count]
    return None


def indexes_something(frame: FrameType | None) -> bool:
    """Whether a frame stands at `something[index]`."""
    if frame is None:
        return False
    code = dis.get_instructions(frame.f_code)
    return any(i.offset == frame.f_lasti and is_subscript(i) for i in code)


def is_subscript(instruction: dis.Instruction) -> bool:
    """Whether an instruction is `something[index]`."""
    if instruction.opname == "BINARY_OP":  # newer Pythons
        return instruction.argrepr == "[]"
    return instruction.opname.endswith(("_SUBSCR", "_SLICE"))


def _stored_names(instruction: dis.Instruction) -> list[str]:
    if instruction.opname in _STORES:
        return [instruction.argval]
    fused = _FUSED_STORES.get(instruction.opname, 0)
    return list(instruction.argval[:fused]) if fused else []


def variable_of(value: object, outermost: CodeType) -> str | None:
    """The free variable, global or attribute that refers to `value` in the functions being run,
    from the innermost of the user's frames out to the traced function. None while it does not run:
    how its caller calls things is no name in it."""
    frames: list[FrameType] = []
    frame = srcloc.user_frame()
    while frame is not None:
        frames.append(frame)
        if frame.f_code is outermost:
            named = (_variable_in_frame(value, each) for each in frames)
            return next((name for name in named if name is not None), None)
        frame = frame.f_back
    return None


def _variable_in_frame(value: object, frame: FrameType) -> str | None:
    code = frame.f_code
    free = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
    used = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals}
    for name, candidate in (*free.items(), *used.items()):
        if candidate is value:
            return name
    roots = (*frame.f_locals.values(), *used.values())
    return _attribute(value, roots, code.co_names)


def _attribute(value: object, roots: tuple[Any, ...], names: tuple[str, ...]) -> str | None:
    """The attribute, among those that the code uses, that holds `value`."""
    seen: set[int] = set()
    level = list(roots)
    for _ in range(_ATTRIBUTE_STEPS):
        below: list[Any] = []
        for owner in level:
            for name, candidate in stored_attributes(owner, names):
                if candidate is value:
                    return name
                if id(candidate) not in seen:
                    seen.add(id(candidate))
                    below.append(candidate)
        level = below
    return None


def stored_attributes(owner: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Attributes that can be read without running the user's code."""
    fields: Mapping[str, Any] = getattr(owner, "__dict__", {})
    for name in names:
        if name in fields:
            yield name, fields[name]
        elif isinstance(getattr(cast("type[Any]", type(owner)), name, None), MemberDescriptorType):
            try:
                yield name, object.__getattribute__(owner, name)
            except AttributeError:  # a slot without a value
                continue
