"""Kernel bodies: C++ is compiled and loaded, Python functions are taken from the caller."""

from pto_wsp.kernels import pto as pto
from pto_wsp.kernels.abi import NativeCall as NativeCall
from pto_wsp.kernels.abi import NativeFunction as NativeFunction
from pto_wsp.kernels.abi import NativePages as NativePages
from pto_wsp.kernels.abi import NativeView as NativeView
from pto_wsp.kernels.abi import scalar_value as scalar_value
from pto_wsp.kernels.compiler import Build as Build
from pto_wsp.kernels.emit_cpp import CppUnit as CppUnit
from pto_wsp.kernels.emit_cpp import emit_cpp as emit_cpp
from pto_wsp.kernels.load import LoadedKernel as LoadedKernel
from pto_wsp.kernels.load import NativeKernel as NativeKernel
from pto_wsp.kernels.load import PythonKernel as PythonKernel
from pto_wsp.kernels.load import load_kernels as load_kernels
from pto_wsp.kernels.pages import gathered as gathered
from pto_wsp.kernels.pages import scattered as scattered
