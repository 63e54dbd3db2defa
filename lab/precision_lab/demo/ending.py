"""What the demo leaves behind, and its last lines on the screen: where to look, and what to try next."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_lab.lab import Lab
from precision_lab.processes.processes import ProcessError

PLUGIN = "kubectl-precision"
REPORT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Where metrics are looked at; an empty URL is a program that does not run, and then `missing` says why."""

    prometheus: str = ""
    dashboards: str = ""
    missing: str = ""


def write_report(lab: Lab, profile: str, namespace: str, folder: Path, name: str) -> Path:
    """The page that `kubectl precision report` writes to `folder`, as `NAME-report.html`.

    Raises ProcessError with the plugin's words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}-report.html"
    options = [f"--namespace={namespace}", f"--output={page}", f"--kubeconfig={lab.kubeconfig}"]
    done = subprocess.run(
        [str(plugin_folder() / PLUGIN), "report", profile, *options],
        env={**os.environ, "PATH": f"{lab.binaries['kubectl'].parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=REPORT_SECONDS,
    )
    if done.returncode != 0:
        raise ProcessError(f"{PLUGIN} report {profile} ended with {done.returncode}: {done.stderr.strip()}")
    return page


def plugin_folder() -> Path:
    """Where the console scripts of this Python lie, the plugin among them."""
    return Path(sys.executable).parent


def down_command(lab: str) -> str:
    return "make demo-down" if lab == "demo" else f".venv/bin/precision-lab down --name {lab}"


def next_commands(
    lab: str, profile: str, kubeconfig: Path, path: Sequence[Path], plan: str, slow_node: str
) -> list[str]:
    """What to paste to look around in the cluster, and how to stop it. The kubeconfig has the profile's namespace.

    `path`: folders of kubectl and its plugin. `plan`: the file of a CapacityPlan. `slow_node`: empty without one.
    """
    why = ["How slow is this node, and why?", f"  kubectl precision why {slow_node}"]
    nodes = ["What are the figures of every node?", "  kubectl precision nodes"]
    return [
        "The cluster keeps running, with a SIMULATED fleet. Connect to it:",
        f"  export KUBECONFIG={kubeconfig}",
        f'  export PATH="$PATH:{":".join(str(folder) for folder in path)}"',
        "Which recipe is the fastest in each pool?",
        f"  kubectl precision status {profile}",
        *(why if slow_node else nodes),
        "How long do jobs take on this fleet?",
        f"  kubectl precision plan -f {plan}",
        f"To stop it: {down_command(lab)}",
    ]


def where_to_look(page: str, monitoring: Monitoring) -> list[str]:
    """The report's path, and the URLs of what runs. Each line says that its figures are simulated."""
    prometheus = f"Prometheus (SIMULATED figures; the chart's rules at short intervals): {monitoring.prometheus}"
    return [
        f"Report (SIMULATED figures): {page}",
        *([prometheus] if monitoring.prometheus else []),
        *([f"Dashboards (SIMULATED figures): {monitoring.dashboards}"] if monitoring.dashboards else []),
        *([monitoring.missing] if monitoring.missing else []),
    ]
