"""The command line: `precision-lab build | up | status | down | demo`."""

import signal
import sys
from typing import Annotated

import typer

from precision_lab.builds import programs
from precision_lab.builds.binaries import binaries
from precision_lab.builds.go_build import BuildFailed
from precision_lab.builds.toolchain import NoToolchain
from precision_lab.fleet.fleet import NodeSpec, demo_fleet, fleet
from precision_lab.lab import KubectlError, Lab, LabSettings, start_lab
from precision_lab.processes.processes import ProcessError, end_named

DEFAULT_NAME = "demo"
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Name = Annotated[str, typer.Option(help="Which lab: more than one may run.")]


@app.callback()
def lab() -> None:
    """A whole Kubernetes cluster with a simulated GPU fleet on this machine: no root, no containers, loopback only."""


@app.command()
def build(
    only: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(programs.ALL)}. Default: all.")] = None,
) -> None:
    """Builds or finds the cluster's programs, and prints where they lie."""
    for name, path in binaries(only or programs.ALL).items():
        typer.echo(f"{name}\t{path}")


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="Ordinary nodes; 0: the demo's mixed fleet of 24.", min=0)] = 0,
    agent_seconds: Annotated[float, typer.Option(help="How long an agent takes.", min=0)] = 2.0,
    name: Name = DEFAULT_NAME,
) -> None:
    """Starts a cluster with a simulated fleet that stays until `down`; prints the path of its kubeconfig."""
    specs: list[NodeSpec] = fleet(nodes) if nodes else demo_fleet()
    started = start_lab(specs, LabSettings(agent_seconds=agent_seconds, name=name))
    started.detach()
    typer.echo(f"The fleet is simulated. End it by: precision-lab down --name {name}", err=True)
    typer.echo(started.kubeconfig)


@app.command()
def status(name: Name = DEFAULT_NAME) -> None:
    """Shows the lab's processes and where its kubeconfig is; ends with 1 when there is none."""
    running = Lab.named(name)
    if running is None:
        typer.echo(f"No lab named {name!r} runs. Start one by: precision-lab up --name {name}", err=True)
        raise typer.Exit(1)
    for process in running.processes.states().values():
        state = "running" if process.exit is None else f"ended with {process.exit}"
        typer.echo(f"{process.name:26} {process.pid:8} {state}")
    typer.echo(f"export KUBECONFIG={running.kubeconfig}")


@app.command()
def down(name: Name = DEFAULT_NAME) -> None:
    """Stops everything that the lab started, and nothing else; no lab is no error."""
    if not end_named(name):
        typer.echo(f"No lab named {name!r} runs.", err=True)
        return
    typer.echo(f"The lab named {name!r} is gone.", err=True)


@app.command()
def demo(
    agent_seconds: Annotated[float, typer.Option(help="How long an agent takes.", min=0)] = 1.0,
    name: Name = DEFAULT_NAME,
    keep: Annotated[bool, typer.Option(help="Leave the cluster running at the end.")] = True,
    dashboards: Annotated[
        bool | None,
        typer.Option(help="Build the page of dashboards (npm, a minute, once). Default: where Node.js 20 is there."),
    ] = None,
) -> None:
    """Profiles a simulated fleet of 24 nodes with the operator, and shows the results."""
    from precision_lab.demo.demo import run_demo  # rich is only needed here

    run_demo(name, agent_seconds, keep, dashboards)


def main() -> None:
    """Entry point of the console script: a foreseen failure is one line on stderr and exit code 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        app()
    except (BuildFailed, NoToolchain, ProcessError, KubectlError, ValueError) as problem:
        typer.echo(f"precision-lab: {problem}", err=True)
        sys.exit(1)
