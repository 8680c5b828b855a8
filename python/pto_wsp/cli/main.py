"""The `pto-wsp` command and its subcommands."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import click

from pto_wsp.backends import registry
from pto_wsp.cli.bench_kernel import bench_kernel
from pto_wsp.config import VARIABLES
from pto_wsp.driver import stage_text
from pto_wsp.errors import PtoError
from pto_wsp.frontend import Workload
from pto_wsp.passes.pipeline import PASSES
from pto_wsp.plan import Plan


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Look at plans and at how this installation is set up."""


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def disasm(file: Path) -> None:
    """Print a saved plan as readable text."""
    click.echo(Plan.load(file).disassemble())


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def validate(file: Path) -> None:
    """Check a saved plan; fails with the byte at which it is damaged."""
    plan = Plan.load(file)
    click.echo(f"{file}: valid, plan {plan.plan_id}, schedule {plan.schedule_id}")


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--after",
    "stage",
    type=click.Choice(["trace", *(step.name for step in PASSES), "lower"]),
    default="trace",
    show_default=True,
    help="The stage whose result is printed.",
)
@click.option("--name", help="Print only the workload that the file keeps in this variable.")
@click.option("--locs", is_flag=True, help="With source positions.")
def dump(file: Path, stage: str, name: str | None, locs: bool) -> None:
    """Run a Python file and print the workloads that it makes, after a stage of the compiler.

    Workloads are those that are left in variables of the file, such as `work = wave(rows, cols)`.
    """
    kept = runpy.run_path(str(file))
    found = {n: w for n, w in kept.items() if isinstance(w, Workload) and name in (None, n)}
    if not found:
        wanted = "no workload" if name is None else f"no workload {name!r}"
        raise click.ClickException(f"{file} keeps {wanted} in its variables")
    for variable, work in found.items():
        click.echo(f"# {variable}\n{stage_text(work, stage, locs=locs)}")


@cli.command("show-config")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def show_config(as_json: bool) -> None:
    """Print targets, environment variables and their values."""
    values = {v.name: str(v.get()) for v in VARIABLES}
    if as_json:
        click.echo(json.dumps({"targets": registry.names(), "variables": values}, indent=2))
        return
    click.echo(f"targets: {', '.join(registry.names())}")
    for variable in VARIABLES:
        source = "set" if os.environ.get(variable.name) else "default"
        click.echo(f"{variable.name} = {values[variable.name]}  ({source})\n    {variable.doc}")


cli.add_command(bench_kernel)


def main() -> None:
    """Entry point: errors of the package are printed without a traceback."""
    try:
        cli.main(prog_name="pto-wsp")
    except PtoError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
