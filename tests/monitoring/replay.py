"""Exporter output as input of promtool's unit tests: series by their text, values by the time at which they held."""

import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from precision_operator.monitoring import alerts, rule_file, rules
from precision_operator.monitoring.alerts import Alert

PROMTOOLS = ("promtool", "promtool-2.42")
"""Of the Prometheus that the lab runs, and of the oldest one that the rules are promised to."""
EVERYWHERE = "EVERY_PROMTOOL" in os.environ
"""Whether all runs, and on each promtool (`make test-alerts`); else the long tests run on the newest one alone."""
TARGET = {
    "job": "precision-profiler-exporter",
    "namespace": "precision-system",
    "endpoint": "metrics",
    "instance": "10.0.0.7:9464",
    "pod": "exporter-0",
    "node": "system-1",
}
"""What discovery and the relabelings of some clusters put on every series."""
OPERATOR = {**TARGET, "job": "precision-profiler-operator", "pod": "operator-0"}
UNSEEN = "?"
"""No sample, and no stale marker: nobody scraped."""
LAST_LIST = "precision_exporter_last_list_timestamp_seconds"
"""What grows with time in an exporter that is well."""
OF_MACHINE = {LAST_LIST, "precision_exporter_memory_ratio", "precision_operator_memory_ratio"}
"""What goes by time or by this machine's memory, and not by what a test made."""
STEP = "30m"
"""Distance of the samples of long tests."""
NAMED = "alertname, cluster, node, pool, nvlink_domain, driver, profile, nodes_of, path, reason, kind, program"
"""Labels that tell one alert from another."""


@cache
def read_by(rule_text: str) -> frozenset[str]:
    """The raw series names that the rules and alerts of a rule file read."""
    return frozenset(re.findall(r"\bprecision_\w+", rule_text))


def samples(body: bytes) -> dict[str, str]:
    """Series text to value, of a body in the text format."""
    lines = (line for line in body.decode().splitlines() if line and not line.startswith("#"))
    return {series: value for series, _, value in (line.rpartition(" ") for line in lines)}


def input_series(
    bodies: Sequence[bytes | None],
    steps: int | Sequence[int],
    targets: Sequence[Mapping[str, str]] = (TARGET,),
    rule_text: str | None = None,
) -> list[dict[str, str]]:
    """promtool's input: each body's samples for `steps` steps, one body after the other, once for each target.

    `steps` is one number for all bodies, or one for each; None is a body that nobody asked for.
    Only what the rules read is there.
    """
    wanted = read_by(rule_text or rule_file.text())
    lasts = [steps] * len(bodies) if isinstance(steps, int) else list(steps)
    history: dict[str, list[str]] = defaultdict(lambda: ["_" if body is not None else UNSEEN for body in bodies])
    for number, body in enumerate(bodies):
        for series, value in samples(body or b"").items():
            if series.partition("{")[0] in wanted - OF_MACHINE:
                history[series][number] = value
    return [
        {"series": with_labels(series, target), "values": notation(values, lasts)}
        for series, values in history.items()
        for target in targets
    ]


def notation(values: Iterable[str], steps: Iterable[int]) -> str:
    """Each value for its number of steps, in promtool's words: `1x3` is a value and three more like it.

    A series that is missing where it was a step before ends with a stale marker, as Prometheus writes it.
    """
    parts, seen = [], False
    for value, run in groupby(zip(values, steps, strict=True), key=itemgetter(0)):
        count = sum(lasts for _, lasts in run)
        if seen and count and value == "_":
            parts, count = [*parts, "stale"], count - 1
        seen = seen and not count if value in ("_", UNSEEN) else seen or bool(count)
        if count:
            parts.append(f"_x{count}" if value in ("_", UNSEEN) else f"{value}x{count - 1}" if count > 1 else value)
    return " ".join(parts)


def with_stale_markers(values: str) -> str:
    """Values written by hand in promtool's words, with a marker where a gap begins."""
    return re.sub(r"(?<=[\dx]) _(?:x(\d+))?", lambda gap: f" stale _x{int(gap[1] or 1) - 1}", values).replace(
        " _x0", ""
    )


def with_labels(series: str, labels: Mapping[str, str]) -> str:
    """The series with the labels of its target, as a scrape gives them: a label that the series has itself stands."""
    name, _, rest = series.rstrip("}").partition("{")
    own_labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest))
    return name + label_text({label: value for label, value in (dict(labels) | own_labels).items() if value})


PARTS: Mapping[str, Callable[[Alert], bool]] = {
    "nodes and pools": lambda alert: "precision:pool_" in alert.expr,
    "profiles and programs": lambda alert: "precision:pool_" not in alert.expr,
}
"""The alerts in two parts that read little in common: each is evaluated by a promtool of its own, side by side."""


@cache
def alerting(part: str = "") -> str:
    """A rule file with all alerts (of one part), and the recording rules that they need: long tests are shorter."""
    chosen = tuple(alert for alert in alerts.ALERTS if not part or PARTS[part](alert))
    needed, exprs = set[str](), [alert.expr for alert in chosen]
    made = [rule for group in rules.GROUPS for rule in group.rules]
    while exprs:
        new = set(re.findall(r"precision:[\w:]+", exprs.pop())) - needed
        needed |= new
        exprs += [rule.expr for rule in made if rule.record in new]
    recorded = [replace(group, rules=[rule for rule in group.rules if rule.record in needed]) for group in rules.GROUPS]
    groups = [rules.group_document(group) for group in recorded if group.rules]
    return json.dumps({"groups": [*groups, alerts.group_document(chosen)]})


def check(
    promtool: Path, folder: Path, tests: Sequence[dict[str, Any]], every: str = "1m", rule_text: str | None = None
) -> tuple[int, str]:
    """That promtool's exit code and words for the rule file and these tests; rules are evaluated `every` so long.

    That must be the samples' distance where it is 5m or more: between two samples there would be none to read.
    """
    (folder / "rules.yaml").write_text(rule_text or rule_file.text())
    order = [*(group.name for group in rules.GROUPS), alerts.GROUP]
    document = {"rule_files": ["rules.yaml"], "group_eval_order": order, "tests": list(tests)}
    (folder / "test.yaml").write_text(json.dumps(document | {"evaluation_interval": every}))
    command = [str(promtool), "test", "rules", str(folder / "test.yaml")]
    # Long tests spend a fifth less when garbage is collected more seldom; without a limit they then take 10 GiB.
    calm = {"GOGC": "400", "GOMEMLIMIT": "3GiB"} | os.environ
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=calm)
    return done.returncode, done.stdout + done.stderr


def firing(at: str, *expected: Mapping[str, str], cluster: str = "") -> dict[str, Any]:
    """A promtool test that exactly these alerts fire, each once, given by its labels; of one cluster where named."""
    firing_samples = [{"labels": label_text(labels), "value": 1} for labels in expected]
    chosen = f', cluster="{cluster}"' if cluster else ""
    expr = f'count by ({NAMED}) (ALERTS{{alertstate="firing"{chosen}}})'
    return {"expr": expr, "eval_time": at, "exp_samples": firing_samples}


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as promtool reads them."""
    return "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
