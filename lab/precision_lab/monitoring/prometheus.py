"""The lab's Prometheus: a real one, built from its Go module, that scrapes and evaluates what it is told to."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precision_lab.builds.binaries import binaries
from precision_lab.processes.ports import free_ports
from precision_lab.processes.processes import ProcessError, Processes, ticks

NAME = "prometheus"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """What is scraped: one endpoint for each path, as the chart's ServiceMonitor makes them.

    Each path is an endpoint of its own with a target label `shard`, which samples don't keep: `up` stays unique.
    """

    job: str
    address: str
    """`127.0.0.1:PORT`."""
    paths: tuple[str, ...] = ("/metrics",)
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How it runs. Figures are of a lab in a hurry; `lookback` must be longer than the time between samples."""

    targets: tuple[Target, ...] = ()
    rules: tuple[Path, ...] = ()
    scrape_seconds: float = 2.0
    evaluation_seconds: float = 2.0
    """For groups that name no interval of their own."""
    lookback: str = "5m"
    data: Path | None = None
    """A folder with blocks that are there already; by default an empty one in the run folder."""
    port: int = 0
    """0: any free one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant query's answer."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    processes: Processes
    url: str
    data: Path
    settings: PrometheusSettings = field(repr=False)

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of the API. Raises ValueError with Prometheus' own words for a bad query."""
        body = urllib.parse.urlencode(parameters).encode()
        url = f"{self.url}/api/v1/{path}"
        request = urllib.request.Request(url, body) if parameters else urllib.request.Request(url)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as problem:
            answer_text = problem.read().decode(errors="replace")
            raise ValueError(f"asking Prometheus for {parameters or path}: {answer_text}") from problem

    def query(self, expr: str) -> list[Sample]:
        """What an instant query gives now; a scalar is one sample without labels."""
        answer = self.ask("query", query=expr)
        if answer["resultType"] == "scalar":
            return [Sample({}, float(answer["result"][1]))]
        return [Sample(row["metric"], float(row["value"][1])) for row in answer["result"]]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Any]:
        """Series with `metric` and `values`, as the API gives them."""
        answer = self.ask("query_range", query=expr, start=str(start), end=str(end), step=str(step))
        series: list[Any] = answer["result"]
        return series

    def wait_for(self, expr: str, seconds: float = 60.0) -> list[Sample]:
        """The first answer that is not empty. Raises ProcessError when the time is over."""
        for _ in ticks(seconds, 0.1):
            if samples := self.query(expr):
                return samples
        raise ProcessError(f"Prometheus has no answer to {expr} after {seconds:.0f} s: {self.targets()}")

    def targets(self) -> list[str]:
        """Each target's health and last error, for a message."""
        active = self.ask("targets")["activeTargets"]
        return [f"{target['scrapeUrl']} {target['health']} {target['lastError']}".strip() for target in active]

    def stop(self) -> None:
        """Ends it; its data stays."""
        self.processes.stop(NAME)


def start_prometheus(processes: Processes, settings: PrometheusSettings = PrometheusSettings()) -> Prometheus:
    """Starts it as one of the lab's processes; returns when it answers. Builds the program where it is missing.

    Raises ProcessError with the end of its log (a rule that it refuses, say), BuildFailed, NoToolchain.
    """
    program = binaries([NAME])[NAME]
    folder = processes.run_dir / NAME
    folder.mkdir(exist_ok=True)
    data = settings.data or folder / "data"
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(configuration(settings)))
    port = settings.port or free_ports(1)[0]
    flags = {
        "config.file": config,
        "storage.tsdb.path": data,
        "storage.tsdb.retention.time": "10y",
        "web.listen-address": f"127.0.0.1:{port}",
        "query.lookback-delta": settings.lookback,
        "log.level": "warn",
    }
    processes.start(NAME, [program, *(f"--{name}={value}" for name, value in flags.items())], grace_seconds=10.0)
    url = f"http://127.0.0.1:{port}"
    wait_until_answered(processes, NAME, f"{url}/-/ready")
    return Prometheus(processes, url, data, settings)


def configuration(settings: PrometheusSettings) -> dict[str, Any]:
    """prometheus.yml as data (JSON is YAML)."""
    jobs = [_job(target, shard) for target in settings.targets for shard in range(len(target.paths))]
    return {
        "global": {
            "scrape_interval": _milliseconds(settings.scrape_seconds),
            "scrape_timeout": _milliseconds(settings.scrape_seconds),
            "evaluation_interval": _milliseconds(settings.evaluation_seconds),
        },
        "rule_files": [str(path) for path in settings.rules],
        "scrape_configs": jobs,
    }


def _job(target: Target, shard: int) -> dict[str, Any]:
    labels = dict(target.labels) | {"job": target.job, "shard": str(shard)}
    return {
        "job_name": f"{target.job} {target.address} {shard}",
        "metrics_path": target.paths[shard],
        "honor_labels": True,
        "static_configs": [{"targets": [target.address], "labels": labels}],
        "metric_relabel_configs": [{"action": "labeldrop", "regex": "shard"}],
    }


def wait_until_answered(processes: Processes, name: str, url: str) -> None:
    """Returns when a GET of `url` succeeds. Raises ProcessError when the process ends before, or time is over."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            processes.check(name)
            if time.monotonic() > deadline:
                raise ProcessError(f"{name} does not answer at {url} after {START_SECONDS:.0f} s: {error}") from error
            time.sleep(0.05)


def targets_of(url: str, job: str, paths: Sequence[str]) -> Target:
    """A target from a server's URL."""
    return Target(job, urllib.parse.urlsplit(url).netloc, tuple(paths))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
