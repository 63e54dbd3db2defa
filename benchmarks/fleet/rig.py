"""The cluster of a run: control plane, nodes, chart, Prometheus, and what its processes take."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from benchmarks import large_fleet
from benchmarks.exporter_process import Process
from benchmarks.fleet.figures import Trail, flags
from precision_lab.cluster.control_plane import run_blocking
from precision_lab.fleet.nodes import create_nodes
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.names import BUSY_POD
from precision_lab.release.install import Program, install
from precision_operator.monitoring import rule_file
from tests.support.api_server import ApiServer

Json = dict[str, Any]
NAMESPACE, BARE = "fleet", "bare"
BUSY_EACH, MOST_PLACES, NODES_A_SHARD = 5, 200, 1_000
FEATURES = 1_000
"""Characters of an annotation: with them a node has 31 KiB once kwok and the API server have added theirs."""
SCRAPE_SECONDS, SAMPLE_SECONDS = 15.0, 0.5
TICKS = os.sysconf("SC_CLK_TCK")


def places_of(nodes: int) -> int:
    """Agents at once: a fifth of the nodes, at most 200."""
    return min(MOST_PLACES, max(1, nodes // 5))


def manifest(index: int) -> Json:
    """A node of 31 KiB as it is created: kwok says that it is Ready, the API server who wrote what."""
    node = large_fleet.node(index)
    meta, status = node["metadata"], node["status"]
    for key in ("uid", "resourceVersion", "managedFields"):
        del meta[key]
    for key in ("conditions", "addresses"):
        del status[key]
    for key, text in meta["annotations"].items():
        meta["annotations"][key] = text[:FEATURES]
    meta["annotations"]["kwok.x-k8s.io/node"] = "fake"
    if index % BUSY_EACH == BUSY_EACH - 1:
        meta["annotations"][BUSY_POD] = "true"
    return node


@dataclass
class Meter:
    """CPU of the cluster's processes since the last look, the peaks of the programs, and what others took."""

    lab: Lab
    peaks: dict[str, float] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)
    _machine: float = 0.0
    _own: float = 0.0
    _since: float = 0.0

    def look(self) -> Json:
        """Seconds of CPU by process, what others took and what all took (in cores), peaks in MiB."""
        spent: dict[str, float] = {}
        for name, state in self.lab.processes.states().items():
            with suppress(FileNotFoundError, StopIteration):
                process = Process(state.pid)
                now = process.cpu_seconds()
                spent[name] = now - self._before.get(state.pid, 0.0)
                self._before[state.pid] = now
        times = os.times()
        this_process, machine, now = sum(times[:4]), machine_seconds(), time.time()
        others = machine - self._machine - sum(spent.values()) - (this_process - self._own)
        row = {
            "seconds": now - self._since,
            "cpuSeconds": {name: round(seconds, 2) for name, seconds in spent.items()},
            "othersCores": round(others / max(now - self._since, 1e-3), 2),
            "busyCores": round((machine - self._machine) / max(now - self._since, 1e-3), 2),
            "load": os.getloadavg()[0],
            "peakMiB": {name: round(mib) for name, mib in self.peaks.items()},
        }
        self._machine, self._own, self._since = machine, this_process, now
        self.peaks.clear()
        return row

    def sample(self) -> None:
        """Take in what is resident now."""
        for name, state in self.lab.processes.states().items():
            with suppress(FileNotFoundError, StopIteration):
                self.peaks[name] = max(self.peaks.get(name, 0.0), Process(state.pid).resident_mib())


def machine_seconds() -> float:
    """CPU that all of the machine has spent, without what it waited."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


@dataclass
class Rig:
    """A running cluster with its fleet; the operator does not run yet."""

    lab: Lab
    api: ApiServer
    operator: Program
    exporter: Program
    prometheus: Prometheus
    trail: Trail
    meter: Meter
    nodes: list[Json]
    """As the API server has them, without what the kubelets add."""
    endpoints: tuple[str, ...]
    """Paths of the exporter."""
    beats: Path
    """How long the operator's event loop was held, as it writes each second."""

    @property
    def idle(self) -> list[Json]:
        return [node for node in self.nodes if BUSY_POD not in node["metadata"]["annotations"]]

    @property
    def places(self) -> int:
        return places_of(len(self.nodes))


@contextmanager
def rig(nodes: int, say: Any) -> Iterator[Rig]:
    """A cluster with so many nodes and the chart installed; all ends with the block."""
    shards = max(1, nodes // NODES_A_SHARD)
    with TemporaryDirectory() as folder:
        say("starting etcd, API server, controller manager, scheduler, kwok and what stands in for the agents")
        settings = LabSettings(apiserver_flags=flags(Path(folder)), kubelets="benchmarks.fleet.agents")
        with start_lab(settings=settings) as lab:
            say(f"creating {nodes} nodes of 31 KiB, each fifth with a pod on all of its GPUs")
            run_blocking(create_nodes(lab.kubeconfig, [manifest(index) for index in range(nodes)]))
            api = ApiServer(lab.kubeconfig)
            listed = _listed(api)
            say("installing the chart, starting the exporter and Prometheus with the shipped rules")
            values = (f"exporter.shards={shards}", f"fleetLimits.maxConcurrent={places_of(nodes)}")
            installed = install(lab, watch=(NAMESPACE,), values=values, start=False)
            operator, exporter = (installed.programs[name] for name in ("operator", "exporter"))
            beats = lab.run_dir / "beats"
            executable, *command = operator.argv
            options = command[command.index("precision_operator") + 1 :]
            argv = (executable, "-m", "benchmarks.fleet.beating_operator", str(beats), *options)
            operator = replace(operator, argv=argv)
            exporter.start()
            endpoints = ("/metrics", *(f"/metrics/shard/{number}" for number in range(shards)))
            rules = lab.run_dir / "rules.yaml"
            rules.write_text(rule_file.text())
            targets = (
                Target("precision-exporter", exporter.url.removeprefix("http://"), endpoints),
                Target("precision-operator", operator.url.removeprefix("http://")),
            )
            prometheus = start_prometheus(lab.processes, PrometheusSettings(targets, (rules,), SCRAPE_SECONDS, 30.0))
            trail = Trail(Path(folder) / "audit.log", operator_account(operator))
            meter = Meter(lab)
            with sampling(meter):
                yield Rig(lab, api, operator, exporter, prometheus, trail, meter, listed, endpoints, beats)


def operator_account(operator: Program) -> str:
    """The name of the service account that the operator runs as: its kubeconfig is named for it."""
    return operator.kubeconfig.stem.removeprefix("sa-precision-system-")


@contextmanager
def sampling(meter: Meter) -> Iterator[None]:
    """The programs' memory, twice a second."""
    ending = Event()

    def sample() -> None:
        while not ending.wait(SAMPLE_SECONDS):
            meter.sample()

    thread = Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _listed(api: ApiServer) -> list[Json]:
    """All nodes: name, UID, labels, annotations, what they can allocate."""
    nodes: list[Json] = []
    token = ""
    while True:
        page = api.ask("GET", "/api/v1/nodes", limit="200", **({"continue": token} if token else {}))
        for node in page["items"]:
            nodes.append(short(node))
        token = page["metadata"].get("continue", "")
        if not token:
            return sorted(nodes, key=lambda node: str(node["metadata"]["name"]))


def short(node: Mapping[str, Any]) -> Json:
    """Of a node what the reader needs."""
    meta: Mapping[str, Any] = node["metadata"]
    kept = {key: meta[key] for key in ("name", "uid", "labels")}
    kept["annotations"] = {key: text for key, text in meta["annotations"].items() if len(text) < 100}
    return {"metadata": kept, "status": {"allocatable": node["status"]["allocatable"]}}
