"""What an installation on real nodes takes: `python -m benchmarks.real_nodes` (root; see `make test-node`).

Real kubelets and containerd on this machine, the images just built, the chart by Helm. GPUs are replayed, so a run has
no measuring time: what is left is Kubernetes, the operator, and the start of the agent's program. Image sizes are those
on a stand-in base, without torch and CUDA. Each time is the median of several rounds, with the least and the most.
Sizes are in decimal megabytes. docs/install.md has the table.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from precision_lab.builds.image_archives import image_archives, size_of
from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, Installed, cluster, command_of, processes_of

IDLE_SECONDS = 30.0


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` took."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def install(installed: Installed) -> None:
    """Installs the chart; returns when both Deployments are available."""
    installed.release.put(**installed.values())
    installed.ready()


def uninstall(installed: Installed) -> None:
    """Takes the release away; returns when its pods are gone."""
    installed.release.uninstall()
    eventually(lambda: not installed.kubectl("get", "pods", "--output=name"))


def measure_gpu_node(installed: Installed, number: int) -> float:
    """Seconds from `kubectl apply` until the profile over the real GPU node is complete."""
    began = time.monotonic()
    profile = installed.apply(f"figures-{number}", target={"nodeNames": [GPU_NODE]})
    profile.completes()
    seconds = time.monotonic() - began
    profile.delete()
    return seconds


def change_leader(installed: Installed, kill: bool) -> float:
    """Seconds from the end of the leading operator until the other one leads."""
    former = installed.holder()
    (pod,) = [pod for pod in installed.pods("operator") if former.startswith(pod["metadata"]["name"])]
    began = time.monotonic()
    if kill:
        installed.kill_processes(pod)
    else:
        installed.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    installed.another_leads(former)
    seconds = time.monotonic() - began
    installed.ready()
    return seconds


def idle_memory(installed: Installed, component: str) -> float:
    """Resident MB of the largest process of a Deployment's program."""
    pids = [pid for pod in installed.pods(component) for pid in processes_of(pod["metadata"]["uid"])]
    return max(_resident(pid) for pid in pids if command_of(pid)[:1] == ["python"]) / 1e6


def _resident(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def row(what: str, seconds: Sequence[float]) -> str:
    """A row of the table."""
    return f"| {what} | {statistics.median(seconds):.1f} s | {min(seconds):.1f} to {max(seconds):.1f} s |"


def measured(rounds: range) -> list[str]:
    """The table's rows, in Markdown."""
    with cluster() as installed:
        installs = []
        for last in rounds:
            installs.append(timed(lambda: install(installed)))
            if last != rounds[-1]:
                uninstall(installed)
        runs = [measure_gpu_node(installed, number) for number in rounds]
        polite = [change_leader(installed, kill=False) for _ in rounds]
        killed = [change_leader(installed, kill=True) for _ in rounds]
        time.sleep(IDLE_SECONDS)
        memory = {part: idle_memory(installed, part) for part in ("operator", "exporter")}
    return [
        row("`helm install` until all pods are ready", installs),
        row("`kubectl apply` of a profile until Complete, one node", runs),
        row("another operator leads after the leader's pod was deleted", polite),
        row("another operator leads after the leader was killed", killed),
        *(f"| resident memory of an idle {part} | {megabytes:.0f} MB | |" for part, megabytes in memory.items()),
    ]


def image_rows() -> list[str]:
    """What each image adds to its base, in Markdown."""
    sizes = {target: size_of(archive).added / 1e6 for target, archive in image_archives().items()}
    return [f"| image of the {target}, added to its base | {size:.0f} MB | |" for target, size in sizes.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser("python -m benchmarks.real_nodes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    words = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {options.rounds} rounds:"
    rows = [*measured(range(options.rounds)), *image_rows()]
    print("\n".join([words, "", "| what | median | from, to |", "|---|---|---|", *rows]))


if __name__ == "__main__":
    main()
