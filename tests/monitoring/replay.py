"""Exporter output as input of promtool's unit tests: series by their text, values by the time at which they held."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from precision_operator.monitoring import alerts, rules
from precision_operator.monitoring.rule_file import text as rule_text

PROMTOOLS = ("promtool", "promtool-2.42")
"""Of the Prometheus that the lab runs, and of the oldest one that the rules are promised to."""
TARGET = {"job": "precision-profiler-exporter", "namespace": "precision-system", "endpoint": "metrics"}
STEP = "30m"
"""Distance of the samples of long tests."""
FIRING = 'group by (alertname, node, pool, nvlink_domain, driver, profile, path) (ALERTS{alertstate="firing"})'


def read_by_rules() -> frozenset[str]:
    """The raw series names that a rule or alert reads."""
    exprs = [rule.expr for group in rules.GROUPS for rule in group.rules] + [alert.expr for alert in alerts.ALERTS]
    return frozenset(name for expr in exprs for name in re.findall(r"precision_\w+", expr))


def samples(body: bytes) -> dict[str, str]:
    """Series text to value, of a body in the text format."""
    lines = (line for line in body.decode().splitlines() if line and not line.startswith("#"))
    return {series: value for series, _, value in (line.rpartition(" ") for line in lines)}


def input_series(
    bodies: Sequence[bytes], steps: int, targets: Sequence[Mapping[str, str]] = (TARGET,)
) -> list[dict[str, str]]:
    """promtool's input: each body's samples for `steps` steps, one body after the other, once for each target."""
    wanted = read_by_rules()
    history: dict[str, list[str]] = defaultdict(lambda: ["_"] * len(bodies))
    for number, body in enumerate(bodies):
        for series, value in samples(body).items():
            if series.partition("{")[0] in wanted:
                history[series][number] = value
    return [
        {"series": with_labels(series, target), "values": notation(values, steps)}
        for series, values in history.items()
        for target in targets
    ]


def notation(values: Iterable[str], steps: int) -> str:
    """Each value for `steps` steps, in promtool's words: `1x3` is a value and three more like it."""
    parts = []
    for value, run in groupby(values):
        count = steps * len(list(run))
        parts.append(f"_x{count}" if value == "_" else f"{value}x{count - 1}" if count > 1 else value)
    return " ".join(parts)


def with_labels(series: str, labels: Mapping[str, str]) -> str:
    """The series with further labels, as a target gives them to all that it exposes."""
    name, brace, rest = series.partition("{")
    told = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{told}{',' + rest if brace else '}'}"


def check(promtool: Path, folder: Path, tests: Sequence[dict[str, Any]], every: str = "1m") -> tuple[int, str]:
    """That promtool's exit code and words for the rule file and these tests; rules are evaluated `every` so long.

    That must be the samples' distance where it is 5m or more: between two samples there would be none to read.
    """
    (folder / "rules.yaml").write_text(rule_text())
    order = [*(group.name for group in rules.GROUPS), alerts.GROUP]
    document = {"rule_files": ["rules.yaml"], "group_eval_order": order, "tests": list(tests)}
    (folder / "test.yaml").write_text(json.dumps(document | {"evaluation_interval": every}))
    command = [str(promtool), "test", "rules", str(folder / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def firing(at: str, *expected: Mapping[str, str]) -> dict[str, Any]:
    """A promtool test that exactly these alerts fire, each given by its labels."""
    found = [{"labels": label_text(labels), "value": 1} for labels in expected]
    return {"expr": FIRING, "eval_time": at, "exp_samples": found}


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as promtool reads them."""
    return "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
