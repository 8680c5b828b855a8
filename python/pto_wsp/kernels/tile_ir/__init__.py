"""Tile kernels as data."""

from pto_wsp.kernels.tile_ir.check import check as check
from pto_wsp.kernels.tile_ir.infer import infer as infer
from pto_wsp.kernels.tile_ir.infer import join as join
from pto_wsp.kernels.tile_ir.nodes import Attribute as Attribute
from pto_wsp.kernels.tile_ir.nodes import Block as Block
from pto_wsp.kernels.tile_ir.nodes import RefType as RefType
from pto_wsp.kernels.tile_ir.nodes import ScalarType as ScalarType
from pto_wsp.kernels.tile_ir.nodes import Statement as Statement
from pto_wsp.kernels.tile_ir.nodes import TileKernel as TileKernel
from pto_wsp.kernels.tile_ir.nodes import TileType as TileType
from pto_wsp.kernels.tile_ir.nodes import Type as Type
from pto_wsp.kernels.tile_ir.nodes import Value as Value
from pto_wsp.kernels.tile_ir.operands import type_text as type_text
from pto_wsp.kernels.tile_ir.ops import ATTRIBUTES as ATTRIBUTES
from pto_wsp.kernels.tile_ir.ops import OPS as OPS
from pto_wsp.kernels.tile_ir.ops import Group as Group
from pto_wsp.kernels.tile_ir.ops import Op as Op
from pto_wsp.kernels.tile_ir.ops import OpInfo as OpInfo
from pto_wsp.kernels.tile_ir.ops import Types as Types
from pto_wsp.kernels.tile_ir.parse import from_text as from_text
from pto_wsp.kernels.tile_ir.simplify import simplify as simplify
from pto_wsp.kernels.tile_ir.text import to_text as to_text
