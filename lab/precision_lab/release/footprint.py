"""What operator and exporter take while they profile a fleet: `python -m precision_lab.release.footprint --nodes 200`.

The chart's resource requests come from here. Memory is the process's own peak (VmHWM), processor time what it had used
when the profile was done; a scrape of all endpoints comes each second meanwhile. Modules are compiled beforehand, as
they are in the image: a first, small fleet does that.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from precision_api.products import ProductClass
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import KubectlError, Lab, LabSettings, start_lab
from precision_lab.release.install import Installation, Program, install

PRODUCTS: tuple[ProductClass, ...] = ("GB200", "GB300", "H100")
PROFILE = {
    "apiVersion": "precisionprofiler.io/v1alpha1",
    "kind": "PrecisionProfile",
    "metadata": {"name": "footprint"},
    "spec": {"workload": {"preset": "llama3-8b"}, "rollout": {"maxConcurrent": 20}},
}
SCRAPE_SECONDS = 1.0
MOST_WAITS = 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of one program: its peak memory and the processor time it used."""

    name: str
    peak_mib: float
    cpu_seconds: float
    wall_seconds: float


def measure(nodes: int, shards: int) -> list[Footprint]:
    """Profiles a fleet of so many nodes, and says what the programs took. Raises KubectlError when it does not end."""
    specs = [NodeSpec(product, count=-(-nodes // len(PRODUCTS))) for product in PRODUCTS]
    with start_lab(specs, LabSettings(agent_seconds=0.1)) as lab:
        installed = install(lab, values=[f"exporter.shards={shards}", "operator.replicas=1"])
        began = time.monotonic()
        with scraped(installed.programs["exporter"], shards):
            lab.apply({**PROFILE, "metadata": {"name": "footprint", "namespace": installed.namespace}})
            finish(lab, installed)
        wall = time.monotonic() - began
        return [of(lab, program, wall) for program in installed.programs.values()]


def finish(lab: Lab, installed: Installation) -> None:
    """Waits for the end of the profile. Raises KubectlError when it has not come after MOST_WAITS waits."""
    for left in reversed(range(MOST_WAITS)):
        try:
            lab.kubectl("wait", "--for=condition=Complete", "pp/footprint", "-n", installed.namespace, "--timeout=60s")
            return
        except KubectlError:
            if not left:
                raise


@contextmanager
def scraped(exporter: Program, shards: int) -> Iterator[None]:
    """The exporter is read as Prometheus does, for the length of the block."""
    ended = threading.Event()
    paths = ["/metrics", *(f"/metrics/shard/{shard}" for shard in range(shards))]

    def scrape() -> None:
        while not ended.wait(SCRAPE_SECONDS):
            for path in paths:
                request = urllib.request.Request(f"{exporter.url}{path}", headers={"Accept-Encoding": "gzip"})
                with urllib.request.urlopen(request, timeout=10) as answer:
                    answer.read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def of(lab: Lab, program: Program, wall: float) -> Footprint:
    """What a program has taken up to now, as /proc says."""
    folder = Path("/proc") / str(lab.processes.states()[program.name].pid)
    fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    used = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    ticks = os.sysconf("SC_CLK_TCK")
    return Footprint(program.name, int(fields["VmHWM"].split()[0]) / 1024, sum(map(int, used)) / ticks, wall)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser("python -m precision_lab.release.footprint", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--shards", type=int, default=1)
    told = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        measure(3, told.shards)
        rows = measure(told.nodes, told.shards)
    print(f"{told.nodes} nodes, {told.shards} shard(s), Python {sys.version.split()[0]}")
    print("| program | peak memory | processor time | processors |\n|---|---|---|---|")
    for row in rows:
        spent = f"{row.cpu_seconds:.1f} s in {row.wall_seconds:.0f} s"
        print(f"| {row.name} | {row.peak_mib:.0f} MiB | {spent} | {row.cpu_seconds / row.wall_seconds:.2f} |")


if __name__ == "__main__":
    main()
