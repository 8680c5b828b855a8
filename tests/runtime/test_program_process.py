"""Programs and the process they live in: Ctrl-C, fork, the end of the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.scripts import run_script

INTERRUPT = """
    # A process that was started in the background may have it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program = make({work}, n={n}, num_threads={threads})
    checked(program)

    def press():
        while not reached():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    y = np.ones(64, np.uint64)
    reached = lambda: y[1] != 1  # the second task has ended
    thread = threading.Thread(target=press)
    try:
        thread.start()
        {run}
        print("ran to the end")
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
    {after}
    checked(program)
    print(program.is_complete())
"""
FOREVER = 10**12
EXECUTE = f"program.execute(n={FOREVER}, Y=y)"
SYNCHRONIZE = f"program.execute_async(n={FOREVER}, Y=y); program.synchronize()"
# Ctrl-C ends the waiting; the run goes on until the program is closed.
CLOSE = "assert not program.is_complete(); program.close(); program = make({work}, n=1)"


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("work", ["wide", "slow"])
def test_ctrl_c_during_execute(tmp_path: Path, work: str, threads: int) -> None:
    script = INTERRUPT.format(work=work, n=1, threads=threads, run=EXECUTE, after="pass")
    assert run_script(script, tmp_path) == "interrupted\nTrue\n"


@pytest.mark.parametrize("work", ["wide", "slow"])
def test_ctrl_c_during_synchronize(tmp_path: Path, work: str) -> None:
    after = CLOSE.format(work=work)
    script = INTERRUPT.format(work=work, n=1, threads=2, run=SYNCHRONIZE, after=after)
    assert run_script(script, tmp_path) == "interrupted\nTrue\n"


def test_ctrl_c_during_num_tasks(tmp_path: Path) -> None:
    run = f"y[1] = 2; program.num_tasks(n={FOREVER})"
    script = INTERRUPT.format(work="wide", n=1, threads=1, run=run, after="pass")
    assert run_script(script, tmp_path) == "interrupted\nTrue\n"


def test_ctrl_c_while_waiting_for_a_run_before(tmp_path: Path) -> None:
    run = f"program.execute_async(n={FOREVER}, Y=y); program.execute(n=1)"
    script = INTERRUPT.format(work="wide", n=1, threads=2, run=run, after=CLOSE.format(work="wide"))
    assert run_script(script, tmp_path) == "interrupted\nTrue\n"


def test_other_signal_handlers_run_and_the_program_goes_on(tmp_path: Path) -> None:
    script = """
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        y = np.ones(64, np.uint64)

        def press():
            while y[1] == 1:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)

        program = make(slow, n=100, num_threads=2)
        thread = threading.Thread(target=press)
        thread.start()
        program.execute(Y=y)
        thread.join()
        print(program.stats.tasks, seen)
    """
    assert run_script(script, tmp_path) == "100 [1]\n"


# --- fork ----------------------------------------------------------------------------------------

FORK = """
    program = make(num_threads=3)
    python = make(slow, n=3, num_threads=2)
    checked(program)
    checked(python)
    {before}
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is killed
        {in_child}
        checked(program)
        checked(python)
        checked(make(num_threads=2))
        program.execute_async(n=1000).synchronize()
        program.close()
        gc.collect()
        {leave}
    assert os.waitpid(child, 0)[1] == 0
    {after}
    checked(program)
    checked(python)
    print("parent")
"""


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_fork_after_use(tmp_path: Path, leave: str) -> None:
    script = FORK.format(before="", in_child="", after="", leave=leave)
    assert run_script(script, tmp_path) == "parent\n"


IN_FLIGHT = "y = np.ones(64, np.uint64); program.execute_async(n=10**12, Y=y)\n"
WAIT = "    while y[1] == 1: time.sleep(0.001)"
LOST = """
        try:
            program.synchronize()
        except ExecutionError as error:
            assert "forked while this run was in flight" in str(error)
        else:
            sys.exit("the run was not lost")
"""


def test_fork_with_a_run_in_flight(tmp_path: Path) -> None:
    """The run belongs to the parent; the child says so and can run."""
    after = "assert not program.is_complete(); program.close(); program = make()"
    script = FORK.format(
        before=IN_FLIGHT + WAIT, in_child=LOST.strip(), after=after, leave="sys.exit(0)"
    )
    assert run_script(script, tmp_path) == "parent\n"


# --- the end of the interpreter ------------------------------------------------------------------


@pytest.mark.parametrize("work", ["wide", "slow"])
def test_the_interpreter_ends_with_a_run_in_flight(tmp_path: Path, work: str) -> None:
    script = f"""
        program = make({work}, num_threads=3)
        y = np.ones(64, np.uint64)
        program.execute_async(n=10**12, Y=y)
        while y[1] == 1:
            time.sleep(0.001)
        print("last line")
    """
    assert run_script(script, tmp_path) == "last line\n"


def test_the_interpreter_ends_by_an_error_with_a_run_in_flight(tmp_path: Path) -> None:
    script = """
        program = make(slow, num_threads=3)
        program.execute_async(n=10**12)
        sys.exit(0)
    """
    assert run_script(script, tmp_path) == ""


def test_programs_that_are_still_there_at_the_end_leave_nothing_behind(tmp_path: Path) -> None:
    """Globals, values inside of other values, failed runs: no complaint of the bindings."""
    script = """
        program = make(num_threads=2)
        checked(program)
        kept = {"list": [make(slow, n=2).execute(), make()]}

        @kernel
        def fails(y: InOut[Tensor]):
            raise ValueError("no")

        @workload
        def failing(n, Y):
            for i in P(n):
                fails[i](y=Y[i])

        bad = failing(DenseDyn(2), Tensor(data=np.ones(2))).compile(num_threads=1)
        try:
            bad.execute()
        except KernelError as caught:
            error = caught
        print(error.kernel)
    """
    assert run_script(script, tmp_path) == "fails\n"


def test_a_program_in_a_cycle_is_collected(tmp_path: Path) -> None:
    script = """
        def use():
            cell = []

            @kernel
            def knows_its_program(y: InOut[Tensor]):
                assert cell

            @workload
            def work(n, Y):
                for i in P(n):
                    knows_its_program[i](y=Y[i])

            program = work(DenseDyn(2), Tensor(data=np.ones(2))).compile(num_threads=4)
            cell.append(program)
            program.execute()

        before = len(os.listdir("/proc/self/task"))
        use()
        gc.collect()
        time.sleep(0.1)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    assert run_script(script, tmp_path) == "0\n"
