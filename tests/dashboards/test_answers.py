"""What is wrong with a fleet stands in the first six panels of its page: their queries, run on the exporter's text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_lab.builds.binaries import binaries
from precision_operator.core.reasons import REASONS
from precision_operator.exporter.body import build
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.monitoring import rule_file
from precision_operator.monitoring.dashboards.fleet import DASHBOARD
from tests.dashboards.promql import chosen
from tests.monitoring.replay import check, input_series
from tests.monitoring.story import HOUR, Node
from tests.support.exposition import store_of
from tests.support.report_objects import profile_object

FIRST, OF_ONE = (
    {panel.title: chosen(panel.queries[0].expr, DASHBOARD, **choices) for panel in DASHBOARD.panels[:6]}
    for choices in ({}, {"namespace": "ml", "profile": "nightly", "pool": "NVIDIA-GB200"})
)
"""Their queries of all profiles, and of one of its pools."""
NODES = [Node(f"n{number}", rate=1 + number / 1000) for number in range(24)]
RESULTS, WAITING = "Nodes with a current result", "What the others wait for"
FINE = {RESULTS: 1.0, WAITING: None, "Degraded pools": 0.0, "Slow nodes": 0.0, "Silent fallbacks": 0.0}


def fleet(nodes: Sequence[Node], phase: str = "Complete", skipped: int = 0, **reasons: int) -> bytes:
    """What the exporter says of a profile that means 24 nodes, of which these have a result and so many are skipped."""
    rows = [{"reason": reason, "count": count, "example": "n23"} for reason, count in reasons.items()]
    can = 24 - skipped
    counts = {"matched": 24, "skipped": skipped, "eligible": can, "succeeded": len(nodes), "queued": can - len(nodes)}
    profile = profile_object(status={"phase": phase, "nodes": counts, "reasons": rows})
    reports = [node.report("nightly") for node in nodes]
    body, metrics = build(store_of(profile, *reports).view()), OwnMetrics(process=False)
    metrics.tell(body)
    return body.text + metrics.text()


WELL = fleet(NODES)
SLOWER = [replace(node, at=HOUR, rate=node.rate * 0.9) for node in NODES]
OF = 'profile_namespace="ml", profile="nightly"'
TWENTY = [code for code, row in REASONS.items() if row.kind == "waiting"][:20]
TAINT = f'{{{OF}, reason="UntoleratedTaint"}}'
STATES: Mapping[str, tuple[bytes, Mapping[str, Any]]] = {
    "nothing is wrong": (WELL, FINE),
    "half is measured": (
        fleet(NODES[:12], "Running", MaxConcurrentReached=12),
        FINE | {RESULTS: 0.5, WAITING: {f'{{{OF}, reason="MaxConcurrentReached"}}': 12}},
    ),
    "half is skipped": (fleet(NODES[:12], skipped=12, UntoleratedTaint=12), FINE | {WAITING: {TAINT: 12}}),
    "all are skipped": (
        fleet([], skipped=24, UntoleratedTaint=24),
        dict.fromkeys(FINE) | {RESULTS: 0.0, WAITING: {TAINT: 24}},
    ),
    "there is no profile": (b"", dict.fromkeys(FINE)),
    "no node matches": (fleet([], skipped=24), dict.fromkeys(FINE) | {RESULTS: 0.0}),
    "one pool is slow": (fleet(SLOWER), FINE | {"Degraded pools": 1.0}),
    "one node is slow": (fleet([*NODES[:23], replace(NODES[23], rate=0.8)]), FINE | {"Slow nodes": 1.0}),
    "nothing can start": (
        fleet([], "Pending", PermissionMissing=23, AgentCrashed=1),
        dict.fromkeys(FINE)
        | {
            RESULTS: 0.0,
            WAITING: {f'{{{OF}, reason="{r}"}}': n for r, n in (("PermissionMissing", 23), ("AgentCrashed", 1))},
        },
    ),
    "the spec can't be measured, beside twenty reasons": (
        fleet(NODES, "Invalid", **dict.fromkeys(TWENTY, 1)),
        FINE | {WAITING: {f'{{{OF}, reason="{r}"}}': int(r != "Invalid") for r in (*TWENTY, "Invalid")}},
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_a_planted_state_is_a_number_or_a_row_of_the_first_six_panels(state: str, tmp_path: Path) -> None:
    after, answers = STATES[state]
    text = rule_file.text() + "".join(FIRST.values())
    series = input_series([WELL if answers[RESULTS] else after, after], 20, rule_text=text)
    queries = [
        {"expr": expr[title], "eval_time": "38m", "exp_samples": [{"labels": of, "value": n} for of, n in rows(answer)]}
        for title, answer in answers.items()
        for expr in (FIRST, OF_ONE)
    ]
    assert len(FIRST) == 6
    texts = [panel.absent for panel in DASHBOARD.panels[:6] if panel.title in (RESULTS, WAITING)]
    assert texts == ["no data", "no node waits, has failed or is skipped"]
    code, words = check(
        binaries(["promtool"])["promtool"],
        tmp_path,
        [{"interval": "1m", "input_series": series, "promql_expr_test": queries}],
    )
    assert code == 0, words


def rows(answer: Any) -> list[tuple[str, float]]:
    """The samples of a panel: a number, rows by their labels, or none."""
    return list(answer.items()) if isinstance(answer, dict) else [] if answer is None else [("{}", answer)]
