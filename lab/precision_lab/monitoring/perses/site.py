"""Starts the server that draws dashboards, as one of the lab's processes."""

import sys
from collections.abc import Sequence
from pathlib import Path

from precision_lab.monitoring.prometheus import wait_until_answered
from precision_lab.processes.ports import free_ports
from precision_lab.processes.processes import Processes

NAME = "perses"


def start_site(processes: Processes, page: Path, prometheus: str, pools: Sequence[str] = ()) -> str:
    """The server's URL, when it answers; a dashboard is at `URL/?dashboard=UID`. Raises ProcessError.

    Panels that are repeated by pool are drawn for each of `pools`: Perses 0.50 repeats none by itself.
    """
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "precision_lab.monitoring.perses", str(page), prometheus.rstrip("/"), str(port)]
    processes.start(NAME, [*command, *pools])
    url = f"http://127.0.0.1:{port}"
    wait_until_answered(processes, NAME, url)
    return url
