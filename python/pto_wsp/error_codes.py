"""One code for each kind of mistake; `docs/errors.md` has a section for each.

A code is for what a user did and can change, not for the place that noticed it: tracing, compiling
and running may find the same mistake. The hundreds say where it usually is: 1 workloads and their
tracing, 2 kernels and tensors, 3 compiling and schedules, 4 values bound at execute, 5 running,
6 plan files, 9 settings and targets. A code keeps its number for ever.
"""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    """`Code.LOOP_VARIABLE_ESCAPED.value` is "PTO110", `.title` the heading of its section."""

    def __new__(cls, number: str, title: str) -> Code:
        code = object.__new__(cls)
        code._value_ = number
        code.title = title
        return code

    title: str

    WORKLOAD_FUNCTION = "PTO101", "a function that cannot be a workload"
    WORKLOAD_CALL = "PTO102", "a workload called with the wrong arguments"
    WORKLOAD_ARGUMENT = "PTO103", "an argument that no workload takes"
    AXIS_NOT_PASSED = "PTO104", "an axis that is not a parameter"
    OUTSIDE_WORKLOAD = "PTO105", "a kernel, a loop or a region outside a workload"
    INSIDE_WORKLOAD = "PTO106", "compiling inside a workload"
    COMPOSITION = "PTO107", "combine or sequential of the wrong things"
    NAME_CLASH = "PTO108", "one name for two things"
    LOOP_VARIABLE_ESCAPED = "PTO110", "a symbolic value outside its loop"
    SYMBOL_TESTED = "PTO111", "a Python `if` on a symbolic value"
    SYMBOL_AS_NUMBER = "PTO112", "a symbolic value where Python needs a number"
    SYMBOL_AS_INDEX = "PTO113", "a symbolic index of a Python object"
    SYMBOL_UNPACKED = "PTO114", "a loop variable that is unpacked or iterated over"
    PARAMETER_AS_VALUE = "PTO115", "an axis or array parameter used as a value"
    UNTRACEABLE = "PTO116", "an expression that cannot be traced"
    ARITHMETIC = "PTO117", "division by zero, or a number that does not fit"
    LOOP_LEFT_EARLY = "PTO120", "a loop or condition that is not left at its end"
    UNUSED = "PTO121", "a loop, a condition or a kernel that is not used"
    EXTENT = "PTO122", "something that is no extent"
    AXIS_KIND = "PTO123", "an axis used in the way of another kind"
    ROW_UNKNOWN = "PTO124", "a ragged or sparse axis outside the loop over its rows"
    ARRAY_INDEX = "PTO125", "an array parameter indexed in a way that control cannot"
    LOOP_WHILE = "PTO126", "a P.loop_while condition that cannot be asked again"
    OTHERWISE_ALONE = "PTO127", "P.otherwise without P.when"
    SLOT = "PTO128", "a slot that does not exist or has no value"
    AFTER = "PTO129", "after= that names no tasks"
    AXIS_PARTS = "PTO130", "an axis made of the wrong parts"
    AFTER_LATER = "PTO131", "after= that names a later task"
    SPACE = "PTO132", "a space, an axis or a generator that cannot be"
    TIERS = "PTO133", "tiers that are no chain of kernels"
    GRAPH = "PTO134", "a stage or a dependence that a graph does not have"
    CHANNEL = "PTO135", "a channel that is declared or used in a way that it has not"
    PROCESS = "PTO136", "a process or a network that cannot be"
    DESCRIPTOR = "PTO137", "a field that a descriptor cannot have"
    ARRAY_CHANGED = "PTO140", "an array that changed after its values were traced"

    KERNEL_FUNCTION = "PTO201", "a function that cannot be a kernel"
    KERNEL_PARAMETER = "PTO202", "a kernel parameter that says too little or too much"
    KERNEL_BODY = "PTO203", "a kernel body that cannot be"
    KERNEL_CALL = "PTO204", "a kernel called with the wrong arguments"
    KERNEL_ARGUMENT = "PTO205", "an argument that its parameter cannot take"
    TILE_MISFIT = "PTO206", "a region that does not fit its tile"
    TENSOR_DECLARATION = "PTO210", "a Tensor(...) that is not complete"
    TENSOR_UNNAMED = "PTO211", "a tensor without a name"
    TOO_MANY_INDICES = "PTO212", "more indices than dimensions"
    INDEX = "PTO213", "an index that names no region or task"
    TENSOR_AS_VALUE = "PTO214", "computing with a tensor in a workload"
    MEMORY_NOT_SHARED = "PTO215", "memory that cannot be shared"
    TEMPORARY_ESCAPED = "PTO216", "a temporary outside its scope"
    PAGED_PARTS = "PTO217", "a pool and a page table that do not fit"
    PAGE_TABLE_WRITTEN = "PTO218", "a page table that tasks write"
    LOCATION = "PTO219", "a tensor in a memory where it cannot be"
    LAYOUT = "PTO220", "a layout that cannot be"
    LAYOUTS_APART = "PTO221", "layouts that do not join"
    TILE_OUTSIDE = "PTO230", "pto functions outside a tile kernel"
    TILE_DTYPE = "PTO231", "dtypes that do not fit a tile operation"
    TILE_SHAPE = "PTO232", "shapes that do not fit a tile operation"
    TILE_ARGUMENT = "PTO233", "an argument that a pto function does not take"
    TILE_REFERENCE = "PTO234", "a load or store that its parameter does not allow"
    TILE_PARTIAL = "PTO235", "an operation that needs a whole tile"
    TILE_TESTED = "PTO236", "a traced value where Python needs a value"
    TILE_ESCAPED = "PTO237", "a traced value outside its loop or condition"
    TILE_CARRY = "PTO238", "carried values that are assigned or used wrongly"

    PLAN_LIMIT = "PTO301", "more than a plan can hold"
    IR_ILLEGAL = "PTO302", "IR that is not legal"
    CPP_COMPILER_MISSING = "PTO310", "no C++ compiler"
    CPP_ERROR = "PTO311", "a C++ body that does not compile"
    KERNEL_LIBRARY = "PTO312", "compiled kernels that cannot be stored or loaded"
    KERNEL_MISSING = "PTO313", "a plan without its Python kernels"
    KERNEL_NOT_COMPILED = "PTO314", "kernels that may not be compiled now"
    DIRECTIVE_VALUE = "PTO320", "a directive with a value it does not have"
    DIRECTIVE_NOT_ENFORCED = "PTO321", "a directive that the target cannot enforce"
    DIRECTIVES_CONTRADICT = "PTO322", "directives that contradict each other"
    ORDER_NOT_PROVED = "PTO323", "iterations that may not be generated in another order"
    NETWORK_STUCK = "PTO324", "a network that can never come to its end"
    TASKS_DEPEND_ON_DATA = "PTO330", "tasks that are known only while the program runs"

    UNKNOWN_NAME = "PTO401", "a name that the program does not bind"
    UNBOUND_NAME = "PTO402", "a name that nothing is bound to"
    BINDING_TYPE = "PTO403", "a value of another type than the one it replaces"
    BINDING_RANK = "PTO404", "an array of another rank than the one it replaces"
    BINDING_RANGE = "PTO405", "a bound number outside its legal range"
    LENGTHS = "PTO406", "lengths that do not match their axis"
    READ_ONLY = "PTO407", "a read-only array that tasks write"
    ARRAY_WRITTEN = "PTO408", "an array of control in memory that tasks write"
    TEMPORARY_SIZE = "PTO409", "a temporary whose size nothing bounds"
    BINDING_ORDER = "PTO410", "an array that does not lie as its layout says"
    BINDING_EXTENT = "PTO411", "an array of another extent than the workload is made for"

    KERNEL_FAILED = "PTO501", "a kernel that failed"
    OUT_OF_BOUNDS = "PTO502", "a region or an index outside its tensor or array"
    NEGATIVE_EXTENT = "PTO503", "a loop or a temporary of negative extent"
    LOOP_LIMIT = "PTO504", "P.loop_while beyond max_iterations"
    WINDOW_FULL = "PTO505", "a full task window whose mode is ABORT"
    RUN_NOT_ENDED = "PTO506", "a run that does not end"
    PROGRAM_STATE = "PTO507", "a program that was closed or has not run yet"
    MACHINE_RESOURCES = "PTO508", "too few threads or too little memory"
    PAGES = "PTO509", "tokens whose pages do not fit"
    RUN_TASK = "PTO510", "run_task of a task that is not there"
    TASK_TOO_LARGE = "PTO511", "a task that writes more than the task window holds"
    RECORDING = "PTO512", "a recording that is damaged or of another run"
    CHANNEL_CLOSED = "PTO513", "a message from a channel that is closed"
    CHANNEL_FULL = "PTO514", "a channel without room"
    CHANNEL_GAP = "PTO515", "replicas that do not send alike"
    RACE = "PTO520", "tasks that conflict and that nothing orders"
    DECLARATION = "PTO521", "a kernel that does more than its parameters say"
    VERIFY = "PTO522", "a run that cannot be verified"

    PLAN_DAMAGED = "PTO601", "a plan that is damaged or does not fit together"

    ENVIRONMENT = "PTO901", "an environment variable that makes no sense"
    TARGET_OPTION = "PTO902", "a target or an option that does not exist"
    TARGET_LIMIT = "PTO903", "a plan that the target does not run"
