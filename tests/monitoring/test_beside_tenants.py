"""Tenants that export the worst, the mildest and the end of every node change nothing that is recorded of others."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from precision_operator.exporter.families.table import FAMILIES
from tests.monitoring.cases import Case
from tests.monitoring.clearing import FIRES_AND_CLEARS
from tests.monitoring.replay import alerting, check, label_text, read_by
from tests.monitoring.test_alerts import AS_THE_REVIEW_FOUND_THEM

TENANTS = {
    "aaa": ("0.96", (), "throttled|accepted|verification|failed|quarantined|outdated"),
    "bbb": ("0.01", (), "throttled|accepted|verification|failed|quarantined|outdated"),
    "mallory": ("0.1", ("Throttled", "AgentHung", "hardware_thermal"), "outdated"),
    "zzz": ("0.5", ("NodeGone", "Quarantined", "GPUError"), "$."),
}
"""By namespace: the figure of all its ratios, rates and limits, its reasons, and families that it lacks."""
SAID = {
    "verdict": ("Fail", "fallback", "diverged"),
    "phase": ("failed", "running", "waiting", "Pending"),
    "against": ("others", "median"),
    "data": ("measured",),
    "recipe": ("mxfp8",),
}
CHOSEN = (
    "a throttled node beside the hot pool of another profile",
    "a node whose reasons alternate",
    "a gap of ten minutes resolves no slow node",
    "five slow nodes of 24, of which another profile measures 12",
)
CASES = [
    case
    for case in (*FIRES_AND_CLEARS, *AS_THE_REVIEW_FOUND_THEM)
    if case.step == 1 and ("nodes_of" in case.labels if case.name in ("", case.alertname) else case.name in CHOSEN)
]


def hostile(case: Case) -> Iterator[tuple[str, str]]:
    """Every family that a rule reads, for the case's pools and nodes and for pools of the tenants' own."""
    read = read_by(alerting())
    of = {it: sorted({*re.findall(f'{it}="([^"]+)"', " ".join(case.series))})[:2] for it in ("pool", "node")}
    of["pool"].append("aaa")
    for (namespace, (figure, reasons, lacks)), family in product(TENANTS.items(), FAMILIES):
        if family.name not in read or "profile_namespace" not in family.labels or re.search(lacks, family.name):
            continue
        names = {"profile_namespace": [namespace], "nodes_of": [f"{namespace}/nightly"], "profile": ["nightly"]}
        choices: Mapping[str, tuple[str, ...] | list[str]] = {**SAID, **of, **names, "reason": reasons}
        value = figure if re.search("ratio|tokens|watts", family.name) else "0" if "time" in family.name else "1"
        for labels in product(*(choices.get(label, (namespace,)) for label in family.labels)):
            yield family.name + label_text(dict(zip(family.labels, labels, strict=True))), f"{value}x400"


def recorded(cluster: str) -> str:
    """All that rules record and alert there of other namespaces, with its own name as a label."""
    others = f'cluster="{cluster}", profile_namespace!~"{"|".join(TENANTS)}"'
    return f'label_replace({{__name__=~"precision:.+|ALERTS", {others}}}, "record", "$1", "__name__", "(.+)")'


@pytest.mark.cluster
def test_nothing_recorded_of_a_namespace_and_no_alert_of_it_changes_beside_hostile_tenants(
    tmp_path: Path, promtool_of_long_tests: Path
) -> None:
    tests = []
    for case in CASES:
        beside = replace(case, name=f"{case.cluster}, beside", series=dict(hostile(case)) | {**case.series})
        a, b = recorded(case.cluster), recorded(beside.cluster)
        apart = " or ".join(
            f"({x} {sign} ignoring(cluster) {y})" for x, sign, y in ((a, "!=", b), (a, "unless", b), (b, "unless", a))
        )
        looks = [(minute, apart, []) for minute in sorted({*case.fires, *case.quiet})]
        filled = [(case.fires[-1], f"count({b} >= 0) > bool 1", [{"labels": "{}", "value": 1}])] if case.fires else []
        tests.append(
            {
                "interval": "1m",
                "input_series": [*case.input_series(), *beside.input_series()],
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{at}m", "exp_samples": samples}
                    for at, expr, samples in looks + filled
                ],
            }
        )
    code, said = check(promtool_of_long_tests, tmp_path, tests, "3m", alerting())
    assert code == 0, said
