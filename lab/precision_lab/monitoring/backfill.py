"""History for the lab's Prometheus: what the exporter gave after each sweep, written into blocks at the sweeps' times.

A dashboard over seven days needs seven days of samples. The bodies are the real exporter's; only their times are put
in, one sample an hour, and the rules are evaluated over them by the same Prometheus that then goes on scraping.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.binaries import binaries
from precision_lab.monitoring.prometheus import Prometheus
from precision_lab.processes.processes import ProcessError
from precision_operator.monitoring.rules import GROUPS, Recording

STEP_SECONDS = 3600.0
LOOKBACK = "3h"
"""How far Prometheus looks back for a sample of a series: longer than a step, so that hourly samples make a line."""
_NAME = re.compile(r"precision:[a-z0-9_:]+")


@dataclass(frozen=True)
class Scraped:
    """What a target gave, and from when on until the next one."""

    at: float
    text: bytes
    labels: Mapping[str, str]
    """What the scrape adds: job and instance."""


def recorded(prometheus: Prometheus, rules: Sequence[Recording], start: float, end: float) -> Iterator[str]:
    """Lines of OpenMetrics with what these rules give between the two times, hour by hour."""
    for rule in rules:
        for series in prometheus.query_range(rule.expr, start, end, STEP_SECONDS):
            labels = {name: value for name, value in series["metric"].items() if name != "__name__"} | {**rule.labels}
            yield from (sample(rule.record, labels, value, at) for at, value in series["values"])


def levels() -> list[list[Recording]]:
    """The recording rules in the order in which they need each other: a level reads only those before it."""
    waiting = [rule for group in GROUPS for rule in group.rules]
    made: list[list[Recording]] = []
    while waiting:
        open_names = {rule.record for rule in waiting}
        # A rule may read its own past, of which there is none at the beginning.
        level = [rule for rule in waiting if not open_names & {*_NAME.findall(rule.expr)} - {rule.record}]
        assert level, f"rules that need each other: {sorted(open_names)}"
        made.append(level)
        waiting = [rule for rule in waiting if rule not in level]
    return made


def sample(name: str, labels: Mapping[str, str], value: str, at: float) -> str:
    """One line."""
    return f"{name}{{{_pairs(labels)}}} {value} {at:.3f}\n"


def hourly(history: Sequence[Scraped], end: float) -> Iterator[str]:
    """Lines of OpenMetrics with a sample of every series each hour, from the first body's time until `end`."""
    for body, following in zip(history, (*(sweep.at for sweep in history[1:]), end), strict=True):
        samples = [_with_labels(line, body.labels) for line in body.text.decode().splitlines() if line[0] != "#"]
        at = body.at
        while at < following:
            yield from (f"{sample} {at:.3f}\n" for sample in samples)
            at += STEP_SECONDS


def import_samples(lines: Iterable[str], data: Path) -> None:
    """Blocks in `data` of these lines, each `series value seconds`. Raises ProcessError with promtool's words."""
    with tempfile.NamedTemporaryFile("w", suffix=".om") as file:
        file.writelines(lines)
        file.write("# EOF\n")
        file.flush()
        program = binaries(["promtool"])["promtool"]
        options = ["--quiet", "--max-block-duration=30d"]
        command = [str(program), "tsdb", "create-blocks-from", "openmetrics", *options, file.name, str(data)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessError(f"writing history: promtool ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def _with_labels(line: str, labels: Mapping[str, str]) -> str:
    """A sample with the scrape's labels before its own: `name{job="x",...} value`."""
    series, value = line.rsplit(" ", 1)
    name, brace, series_labels = series.partition("{")
    rest = f",{series_labels}" if brace else "}"
    return f"{name}{{{_pairs(labels)}{rest} {value}"


def _pairs(labels: Mapping[str, str]) -> str:
    safe = {name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()}
    return ",".join(f'{name}="{value}"' for name, value in safe.items())
