"""Kernel bodies: C++ is compiled and loaded, Python functions are taken from the caller, tile code
is traced (`pto`). The ready kernels of `library` are here by name: `kernels.softmax(8, 64)`."""

from importlib import import_module
from typing import Any

from pto_wsp.kernels import pto as pto
from pto_wsp.kernels.abi import NativeCall as NativeCall
from pto_wsp.kernels.abi import NativeFunction as NativeFunction
from pto_wsp.kernels.abi import NativePages as NativePages
from pto_wsp.kernels.abi import NativeView as NativeView
from pto_wsp.kernels.abi import scalar_value as scalar_value
from pto_wsp.kernels.call import NativeCaller as NativeCaller
from pto_wsp.kernels.call import NativeFailure as NativeFailure
from pto_wsp.kernels.call import native_view as native_view
from pto_wsp.kernels.call import one_page as one_page
from pto_wsp.kernels.compiler import Build as Build
from pto_wsp.kernels.emit_cpp import CppUnit as CppUnit
from pto_wsp.kernels.emit_cpp import emit_cpp as emit_cpp
from pto_wsp.kernels.load import LoadedKernel as LoadedKernel
from pto_wsp.kernels.load import NativeKernel as NativeKernel
from pto_wsp.kernels.load import PythonKernel as PythonKernel
from pto_wsp.kernels.load import load_kernels as load_kernels
from pto_wsp.kernels.pages import gathered as gathered
from pto_wsp.kernels.pages import scattered as scattered


def __getattr__(name: str) -> Any:
    # Not imported above: they are written in the language that this package is a part of.
    library = import_module("pto_wsp.kernels.library")
    if name in library.__all__:
        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
