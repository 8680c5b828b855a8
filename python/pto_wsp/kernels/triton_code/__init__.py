"""Tile kernels as Triton source. Nothing here imports Triton."""

from pto_wsp.kernels.triton_code.emit import emit_triton as emit_triton
from pto_wsp.kernels.triton_code.emit import unsupported_ops as unsupported_ops
from pto_wsp.kernels.triton_code.helpers import HEADER as HEADER
from pto_wsp.kernels.triton_code.helpers import HELPER_NAMES as HELPER_NAMES
from pto_wsp.kernels.triton_code.helpers import HELPERS as HELPERS
from pto_wsp.kernels.triton_code.helpers import helper_text as helper_text
from pto_wsp.kernels.triton_code.literals import TYPES as TYPES
from pto_wsp.kernels.triton_code.options import ParamFacts as ParamFacts
from pto_wsp.kernels.triton_code.options import Role as Role
from pto_wsp.kernels.triton_code.options import TritonArgument as TritonArgument
from pto_wsp.kernels.triton_code.options import TritonOptions as TritonOptions
from pto_wsp.kernels.triton_code.options import TritonSource as TritonSource
