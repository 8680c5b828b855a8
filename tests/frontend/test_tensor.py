"""Tensors look at memory, have names, and are indexed symbolically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Tensor,
    TypeCheckError,
    Workload,
    ir,
    kernel,
    workload,
)

X = Tensor(data=np.zeros((8, 6, 4), np.float32))


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


@kernel
def copy(x: In[Tensor], y: Out[Tensor]):
    y[...] = x


def only_call(value: Workload) -> ir.Call:
    module = value.traced().module
    ir.verify(module)
    stmt = module.body[0]
    while isinstance(stmt, ir.Loop):
        stmt = stmt.body[0]
    assert isinstance(stmt, ir.Call)
    return stmt


def region_text(index: Callable[[Any], Any]) -> str:
    """The region of X that an index function of a loop variable gives."""

    @workload
    def one(rows: Any):
        for i in P(rows):
            touch[i](index(i))

    module = one(DenseDyn(4)).traced().module
    ir.verify(module)
    line = next(ln for ln in ir.to_text(module, locs=False).splitlines() if "touch[i]" in ln)
    return line.split("x = ")[1].removesuffix(")")


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (lambda i: X[i, 2, 3], "X[i, 2, 3]"),
        (lambda i: X[i], "X[i, 0:+X.shape[1], 0:+X.shape[2]]"),
        (lambda i: X[...], "X[0:+X.shape[0], 0:+X.shape[1], 0:+X.shape[2]]"),
        (lambda i: X[..., i], "X[0:+X.shape[0], 0:+X.shape[1], i]"),
        (lambda i: X[i, ..., 0], "X[i, 0:+X.shape[1], 0]"),
        (lambda i: X[i, :, 0], "X[i, 0:+X.shape[1], 0]"),
        (lambda i: X[i, 1, 2, ...], "X[i, 1, 2]"),
        (lambda i: X[-1, 0, 0], "X[X.shape[0] - 1, 0, 0]"),
        (lambda i: X[i - 1, 0, 0], "X[i - 1, 0, 0]"),
        (lambda i: X[i : i + 2, 0, 0], "X[i:+2, 0, 0]"),
        (lambda i: X[i * 2 : (i + 1) * 2, 0, 0], "X[i * 2:+2, 0, 0]"),
        (lambda i: X[2:, 0, 0], "X[2:+X.shape[0] - 2, 0, 0]"),
        (lambda i: X[:-1, 0, 0], "X[0:+X.shape[0] - 1, 0, 0]"),
        (lambda i: X[-3:-1, 0, 0], "X[X.shape[0] - 3:+2, 0, 0]"),
        (lambda i: X[:i, 0, 0], "X[0:+i, 0, 0]"),
        (lambda i: X[5:3, 0, 0], "X[5:+0, 0, 0]"),
        (lambda i: X[0:7:2, 0, 0], "X[0:+4:2, 0, 0]"),
        (lambda i: X[i : i + 8 : 3, 0, 0], "X[i:+3:3, 0, 0]"),
        (lambda i: X[::2, 0, 0], "X[0:+(X.shape[0] + 1) // 2:2, 0, 0]"),
        (lambda i: X[100, 0, 0], "X[100, 0, 0]"),
        (lambda i: X[np.int32(1), 0, 0], "X[1, 0, 0]"),
    ],
)
def test_regions(index: Callable[[Any], Any], expected: str) -> None:
    assert region_text(index) == expected


def test_a_tensor_without_an_index_is_all_of_it() -> None:
    @workload
    def whole():
        copy(X, X[...])

    call = only_call(whole())
    assert call.args[0] == call.args[1]


def test_kernels_see_the_dimensions_that_are_kept() -> None:
    @workload
    def one():
        copy(X[0, 1:3, 2:4], X[1])

    params = one().traced().module.kernels[0].params
    assert [getattr(param, "rank", None) for param in params] == [2, 2]


def test_shape_is_symbolic_only_inside_a_workload() -> None:
    seen: list[Any] = []

    @workload
    def shapes():
        seen.append(X.shape[1])
        for i in P(X.shape[0]):
            touch[i](X[i])

    shapes().traced()
    assert repr(seen[0]) == "<symbolic X.shape[1]>"
    assert X.shape == (8, 6, 4)
    assert (X.rank, X.dtype) == (3, DType.F32)


# --- memory -----------------------------------------------------------------------------------


def test_data_is_shared() -> None:
    array = np.zeros((4, 4), np.int16)[::2]
    tensor = Tensor(data=array)
    assert tensor.data is array
    assert (tensor.shape, tensor.dtype) == ((2, 4), DType.I16)


class Interface:
    """An object that offers NumPy's array interface and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any], **changes: Any) -> None:
        self.keep = array
        self.__array_interface__ = {**array.__array_interface__, **changes}


class Capsule:
    """An object that offers DLPack and nothing else, as torch tensors do."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnAnotherDevice:
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the data is not in host memory")

    def __dlpack_device__(self) -> Any:
        return (2, 0)


@pytest.mark.parametrize("wrap", [Interface, Capsule])
def test_other_libraries_share_their_memory(wrap: Callable[[Any], Any]) -> None:
    array = np.arange(6, dtype=np.float64)
    data = Tensor(data=wrap(array)).data
    assert data is not None
    array[3] = 99
    assert data[3] == 99


def test_torch_tensors_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    source = torch.zeros(4)
    data = Tensor(data=source).data
    assert data is not None
    source[2] = 7
    assert data[2] == 7


Refused = Callable[..., Any]
SHARE = "Tensor(data=...) cannot share the memory of "


def test_refuses_data_it_would_have_to_copy(refused: Refused) -> None:
    def a_list() -> None:
        Tensor(data=[1.0, 2.0])  #!

    error = refused(a_list, SHARE + "list", TypeCheckError)
    assert error.fix == "pass np.array([...])"

    def a_number() -> None:
        Tensor(data=np.float32(1))  #!

    refused(a_number, SHARE + "numpy.float32", TypeCheckError)

    def a_copy() -> None:
        Tensor(data=Interface(np.zeros(2), data=b"0" * 16))  #!

    refused(a_copy, SHARE + f"{__name__}.Interface", TypeCheckError)

    def a_device() -> None:
        Tensor(data=OnAnotherDevice())  #!

    refused(a_device, SHARE + f"{__name__}.OnAnotherDevice", TypeCheckError)

    def a_string() -> None:
        Tensor(data="data")  #!

    refused(a_string, SHARE + "str", TypeCheckError)


def test_refuses_tensors_that_contradict_themselves(refused: Refused) -> None:
    def objects() -> None:
        Tensor(data=np.array([None]))  #!

    refused(objects, "Tensor(...) with dtype object", TypeCheckError)

    def both() -> None:
        Tensor(data=np.zeros(2), dtype=DType.F32)  #!

    refused(both, "Tensor(...) with both data and shape or dtype", TypeCheckError)

    def neither() -> None:
        Tensor(shape=(2,))  #!

    refused(neither, "Tensor(...) with no data", TypeCheckError)

    def negative() -> None:
        Tensor(shape=(2, -1), dtype=DType.F32)  #!

    refused(negative, "Tensor(...) with shape=(2, -1)", TypeCheckError)

    def spaces() -> None:
        Tensor(data=np.zeros(2), name="my tensor")  #!

    refused(spaces, "Tensor(...) with name='my tensor'", TypeCheckError)


# --- names ------------------------------------------------------------------------------------


def declared(value: Workload) -> list[str]:
    return [tensor.name for tensor in value.traced().module.tensors]


def test_names_of_globals_and_free_variables() -> None:
    Y = Tensor(data=np.zeros(3))

    @workload
    def both():
        copy(X, Y)

    traced = both().traced()
    assert declared(both()) == ["X", "Y"]
    assert traced.defaults == {"X": X, "Y": Y}


def test_an_explicit_name_wins() -> None:
    Y = Tensor(data=np.zeros(3), name="weights")

    @workload
    def both(z: Any):
        copy(Y, z)

    assert declared(both(Tensor(data=np.zeros(3), name="out"))) == ["out", "weights"]


def test_parameters_name_tensors() -> None:
    data = np.zeros(3)

    @workload
    def step(src: Any, dst: Any):
        copy(src, dst)

    both = Tensor(data=data)
    traced = step(both, both).traced()
    assert [tensor.name for tensor in traced.module.tensors] == ["src", "dst"]
    for name in ("src", "dst"):
        default = traced.defaults[name]
        assert isinstance(default, Tensor)
        assert default.data is data


def test_attributes_name_tensors() -> None:
    @dataclass(slots=True)
    class Cache:
        keys: Tensor

    class Model:
        def __init__(self) -> None:
            self.weights = Tensor(data=np.zeros(3))
            self.cache = Cache(Tensor(data=np.zeros(3)))

        def layer(self) -> Workload:
            @workload
            def run():
                copy(self.weights, self.cache.keys)

            return run()

        def step(self) -> None:
            touch(self.weights)

    model = Model()
    assert declared(model.layer()) == ["weights", "keys"]

    @workload
    def through_a_method():
        model.step()

    assert declared(through_a_method()) == ["weights"]


def test_one_memory_under_one_name_is_one_tensor() -> None:
    data = np.zeros(3)
    one, two = Tensor(data=data, name="Z"), Tensor(data=data, name="Z")

    @workload
    def both():
        copy(one, two)

    assert declared(both()) == ["Z"]


def test_tensors_without_data_have_no_default() -> None:
    Y = Tensor(shape=(4, 4), dtype=DType.BF16, name="Y")

    @workload
    def one():
        touch(Y)

    traced = one().traced()
    assert traced.module.tensors == (ir.TensorDecl("Y", DType.BF16, 2),)
    assert traced.defaults == {}


def test_refuses_tensors_without_a_name(refused: Refused) -> None:
    def case() -> None:
        several = [Tensor(data=np.zeros(3))]

        @workload
        def one():
            touch(several[0])  #!

        one().traced()

    error = refused(case, "a tensor without a name")
    assert error.fix == 'give it one: Tensor(data=array, name="X")'

    def named_by_the_caller() -> None:
        several = [X]

        @workload
        def one():
            touch(several[0])  #!

        assert X.rank == 3  # the caller knows the tensor as X; the workload does not
        one().traced()

    refused(named_by_the_caller, "a tensor without a name")


def test_refuses_paged_tensors_without_a_name(refused: Refused) -> None:
    def case() -> None:
        @workload
        def one(pool: Any, table: Any):
            touch(PagedTensor(pool, table)[0, 0:2])  #!

        pool, table = np.zeros((2, 4, 3)), np.zeros((1, 2), np.int32)
        one(Tensor(data=pool), Tensor(data=table)).traced()

    error = refused(case, "a PagedTensor without a name")
    assert "launch(..., k=PagedTensor(pool, table))" in (error.fix or "")


def test_parts_of_arguments_are_not_named_by_the_caller() -> None:
    @workload
    def one(k: Any, v: Any):
        touch(k[0, 0])
        touch(v[0, 0])

    table = Tensor(data=np.zeros((1, 2), np.int32), name="pages")
    keys, values = (PagedTensor(np.zeros((2, 4, 3)), table) for _ in range(2))
    assert keys.pool is not values.pool  # here they have that name
    assert declared(one(keys, values)) == ["k_pool", "pages", "k", "v_pool", "v"]


def test_refuses_two_tensors_of_one_name(refused: Refused) -> None:
    def case() -> None:
        one, two = (Tensor(data=np.zeros(3), name="Z") for _ in range(2))

        @workload
        def both():
            copy(one, two)  #!

        both().traced()

    refused(case, "two different defaults for Z")

    def other_type() -> None:
        one = Tensor(data=np.zeros(3), name="Z")
        two = Tensor(shape=(3, 3), dtype=DType.F64, name="Z")

        @workload
        def both():
            copy(one, two)  #!

        both().traced()

    refused(other_type, "Z is two things: tensor of f64, rank 1 and tensor of f64, rank 2")

    def axis() -> None:
        rows = Tensor(data=np.zeros(3), name="rows")

        @workload
        def both(rows_: Any, rows: Any):
            for i in P(rows):
                touch[i](rows_)

        both(rows, DenseDyn(3)).traced()  #!

    refused(axis, "rows is two things: tensor and extent")


# --- indices that are refused -------------------------------------------------------------------


def test_refuses_too_many_indices(refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            touch(X[0, 1, 2, 3])  #!

        one().traced()

    refused(case, "tensor X is indexed with 4 indices", TypeCheckError)

    def dots() -> None:
        @workload
        def one():
            touch(X[..., 0, ...])  #!

        one().traced()

    refused(dots, "tensor X is indexed with more than one ellipsis", TypeCheckError)


@pytest.mark.parametrize(
    ("index", "kind"),
    [(None, "None"), (1.5, "float"), (True, "bool"), ([0, 1], "list"), (np.arange(2), "ndarray")],
)
def test_refuses_other_indices(index: Any, kind: str, refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            touch(X[index])  #!

        one().traced()

    refused(case, f"a tensor is indexed with {kind}", TypeCheckError)


@pytest.mark.parametrize("step", [0, -1, 1.5, True])
def test_refuses_other_steps(step: Any, refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            touch(X[::step])  #!

        one().traced()

    message = "a slice of a tensor has a step that is not a positive constant"
    refused(case, message, TypeCheckError)


def test_refuses_to_compute_with_tensors(refused: Refused) -> None:
    def outside() -> None:
        X[0]  #!

    refused(outside, "a Tensor is indexed outside a workload")

    def assigned() -> None:
        @workload
        def one():
            X[0] = 1  #!  # pyright: ignore[reportIndexIssue]

        one().traced()

    refused(assigned, "a Tensor does not compute (assignment)", TypeCheckError)

    def added() -> None:
        @workload
        def one():
            touch(X[0] + 1)  #!  # pyright: ignore[reportOperatorIssue]

        one().traced()

    refused(added, "a region of a tensor has no value in a workload (+)", TypeCheckError)

    def twice() -> None:
        @workload
        def one():
            touch(X[0][1])  #!  # pyright: ignore[reportIndexIssue]

        one().traced()

    message = "a region of a tensor has no value in a workload (a second index)"
    refused(twice, message, TypeCheckError)

    def iterated() -> None:
        for _ in X:  #!  # pyright: ignore[reportGeneralTypeIssues]
            pass

    refused(iterated, "a Tensor does not compute (iteration)", TypeCheckError)
