"""The demo: a mixed fleet, the operator and the exporter as the chart installs them, the examples, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from precision_lab.fleet import demo_fleet
from precision_lab.install import NAMESPACE, REPOSITORY, Installation, install
from precision_lab.lab import Lab, LabSettings, start_lab

EXAMPLES = REPOSITORY / "examples"
FINISH_SECONDS = 600.0
LOOK_SECONDS = 0.5
Object = dict[str, Any]
NOTICE = (
    "SIMULATED FLEET. No GPU was measured on this machine: the nodes are fake, and each agent replays published figures "
    "with seeded noise and named assumptions. The control plane, the operator, the exporter and the agent are real."
)


class DemoFailed(Exception):
    """The profiles did not complete in time."""


def run_demo(name: str, agent_seconds: float, keep: bool) -> None:
    """Brings the lab up, profiles the fleet, prints the results; leaves the cluster running if `keep`."""
    console = Console()
    console.print(Panel(NOTICE, title="Precision Profiler", border_style="yellow"))
    _end_earlier(name, console)
    with start_lab(demo_fleet(), LabSettings(agent_seconds=agent_seconds, name=name)) as lab:
        console.print("A control plane with 24 simulated nodes is up.")
        installed = install(lab)
        console.print(f"The chart is applied in {NAMESPACE}; operator and exporter run under its service accounts.")
        console.print(f"$ kubectl apply -n {NAMESPACE} -f examples/")
        console.print(lab.kubectl("apply", "-n", NAMESPACE, "-f", str(EXAMPLES)).rstrip())
        watch(lab, console)
        show(lab, installed, console, name, keep)
        if keep:
            lab.detach()
            lab.processes.disown()
            raise SystemExit(0)
