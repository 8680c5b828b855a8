"""The native CPU target."""

from pto_wsp.backends.cpu.backend import CpuBackend as CpuBackend
