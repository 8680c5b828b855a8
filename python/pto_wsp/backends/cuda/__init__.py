"""Target "cuda": one persistent kernel, generated from the plan."""

from pto_wsp.backends.cuda.backend import CudaBackend as CudaBackend
