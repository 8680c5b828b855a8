"""The language that users write: traced once into the IR, never run per task."""

from pto_wsp.frontend.axes import Dense as Dense
from pto_wsp.frontend.axes import DenseDyn as DenseDyn
from pto_wsp.frontend.axes import Ragged as Ragged
from pto_wsp.frontend.compose import Traced as Traced
from pto_wsp.frontend.kernels import In as In
from pto_wsp.frontend.kernels import InOut as InOut
from pto_wsp.frontend.kernels import Kernel as Kernel
from pto_wsp.frontend.kernels import Out as Out
from pto_wsp.frontend.kernels import kernel as kernel
from pto_wsp.frontend.loops import P as P
from pto_wsp.frontend.scalar_expr import maximum as maximum
from pto_wsp.frontend.scalar_expr import minimum as minimum
from pto_wsp.frontend.schedule import Deps as Deps
from pto_wsp.frontend.schedule import ReadyPolicy as ReadyPolicy
from pto_wsp.frontend.schedule import Schedule as Schedule
from pto_wsp.frontend.schedule import StartPolicy as StartPolicy
from pto_wsp.frontend.schedule import TaskWindow as TaskWindow
from pto_wsp.frontend.schedule import TracePolicy as TracePolicy
from pto_wsp.frontend.schedule import WindowMode as WindowMode
from pto_wsp.frontend.tensor import Tensor as Tensor
from pto_wsp.frontend.workloads import Workload as Workload
from pto_wsp.frontend.workloads import combine as combine
from pto_wsp.frontend.workloads import install_compiler as install_compiler
from pto_wsp.frontend.workloads import sequential as sequential
from pto_wsp.frontend.workloads import workload as workload
