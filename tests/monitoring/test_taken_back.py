"""What the review of alerts found: each rule taken back to what it was (commit ea883fc) fails the world of its finding.

Each case is a substitution in one rule of today, by which it reads as it did then. A finding of a whole alert has that
alert taken away.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from precision_lab.builds.binaries import binaries
from precision_operator.monitoring import rule_file
from precision_operator.monitoring.rules import HARDWARE, INSTALLATION, NODE, PROFILE
from tests.dashboards.test_answers import FIRST, NODES, RESULTS, fleet
from tests.monitoring.cases import world
from tests.monitoring.replay import EVERYWHERE, alerting, check, input_series
from tests.monitoring.test_alerts import CASES

pytestmark = pytest.mark.cluster
AGAIN = r"last_over_time\((\w+(?:\{[^}]*\})?)\[12m\]\)"
"""What bridges a gap."""
WITHOUT_TARGETS = "max without(instance, pod, endpoint, container) ("
DOWN = (
    f"group by ({INSTALLATION}) ({{}}) unless on({INSTALLATION}) group by ({INSTALLATION}) ({{}})",
    "precision_exporter_build_info",
    "precision_operator_leader",
)
FAILED = f"max by ({NODE}, reason) (precision_node_failed)"
FAILING = r"or precision:profile_failed_nodes > 1 and last_over_time\(.*\)\)$"
HELD = f' unless on({PROFILE}) precision:profile_waiting_nodes{{reason=~"Suspended|WaitsInQueue"}}'

Edit = tuple[str, str]
GONE: Edit = (r"(?s)^.*$", "vector(0) > 1")
TAKEN_BACK: tuple[tuple[str, str, Edit, str], ...] = (
    ("1", "PrecisionWatchStuck", ("> 3600", "> 1800"), "the lists of a real watch"),
    ("2", "PrecisionProfileBlocked", GONE, "PrecisionProfileBlocked"),
    ("4", "PrecisionPoolThrottled", GONE, "PrecisionPoolThrottled"),
    ("5", "PrecisionExporterDown", (r"(?s)^.*$", DOWN[0].format(DOWN[2], DOWN[1])), "in a crash loop"),
    ("6", "precision:node_failed", (r"(?s)^.*$", FAILED), "a gap of ten minutes resolves no failed node"),
    ("6", "precision:node_there", (AGAIN, r"\1"), "a gap of ten minutes resolves no slow node"),
    (
        "7",
        "precision:node_finding",
        (r" unless on\([^()]*\) \(max .*?\[25m\]\)\)\)\) and on\([^()]*\) last_over_time\([^()]*\)", ")"),
        "a deleted profile that is made again",
    ),
    ("8", "precision:pool_nodes", (r"max by \([^()]*\) \(", WITHOUT_TARGETS), "a pool scraped by two jobs"),
    ("9", "PrecisionWatchStuck", (r"min by", "max by"), "two exporters, of which one is stuck"),
    ("10", "precision:node_failed", (r"(?s)^.*$", FAILED), "a node whose reasons alternate"),
    ("10", "precision:profile_failing_ratio", (FAILING, ")"), "a failing share around a tenth"),
    (
        "11",
        "PrecisionSilentFallback",
        (r"$", f" unless on({HARDWARE}) (max by ({HARDWARE}) (precision:pool_degradation_ratio < bool 0.97) == 1)"),
        "a wanted power cap hides no silent fallback",
    ),
    ("12", "PrecisionPowerLimitLow", GONE, "PrecisionPowerLimitLow"),
    (
        "13",
        "PrecisionOperatorDown",
        (r"(?s)^.*$", DOWN[0].format(*DOWN[1:])),
        "an operator in another shard of Prometheus",
    ),
    ("14", "PrecisionCampaignStuck", (r"$", HELD), "one node that is held excuses no other"),
    ("15", "PrecisionStopUnreadable", GONE, "PrecisionStopUnreadable"),
    ("15", "PrecisionLossDiverged", GONE, "PrecisionLossDiverged"),
    ("15", "PrecisionReconcileErrors", (r" or max by .*$", ""), "faults"),
)
FRESH_RESULTS = 'sum(precision:pool_nodes{phase="fresh"}) / sum(precision:pool_nodes)'
"""What the panel of finding 3 was."""
CHECKED = TAKEN_BACK if EVERYWHERE else TAKEN_BACK[::6]


def edited(rule: dict[str, Any], name: str, edit: Edit) -> bool:
    """Whether it is that rule and reads otherwise now."""
    before = rule["expr"]
    if name in (rule.get("record"), rule.get("alert")):
        rule["expr"] = re.sub(*edit, before, count=0 if edit[0] == AGAIN else 1)
    return bool(before != rule["expr"])


@pytest.mark.parametrize(("finding", "name", "edit", "of"), CHECKED, ids=[f"{row[0]}-{row[1]}" for row in CHECKED])
def test_a_rule_taken_back_fails_the_world_of_its_finding(
    finding: str, name: str, edit: Edit, of: str, tmp_path: Path
) -> None:
    (case,) = (case for case in CASES if case.cluster == of)
    document = json.loads(alerting())
    assert any(edited(rule, name, edit) for group in document["groups"] for rule in group["rules"]), "no such rule"
    test, every = [world([case])], f"{case.step}m"
    codes = [
        check(binaries(["promtool"])["promtool"], tmp_path, test, every, rules)
        for rules in (alerting(), json.dumps(document))
    ]
    assert codes[0][0] == 0, codes[0][1]
    assert codes[1][0] == 1, f"{finding}: nobody sees it"
    assert "FAILED" in codes[1][1], codes[1][1]


def test_every_finding_of_a_rule_is_among_them() -> None:
    assert {int(row[0]) for row in TAKEN_BACK} | {3} == {*range(1, 16)}


def test_the_panel_of_fresh_results_showed_all_where_half_was_measured(tmp_path: Path) -> None:
    text = alerting() + FIRST[RESULTS] + FRESH_RESULTS
    half = fleet(NODES[:12], "Running", MaxConcurrentReached=12)
    answers = [(FRESH_RESULTS, 1.0), (FIRST[RESULTS], 0.5)]
    looks = [
        {"expr": expr, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]} for expr, value in answers
    ]
    test = {"interval": "1m", "input_series": input_series([half], 20, rule_text=text), "promql_expr_test": looks}
    code, said = check(binaries(["promtool"])["promtool"], tmp_path, [test], rule_text=rule_file.text())
    assert code == 0, said
