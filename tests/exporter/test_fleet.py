"""Nodes with a result of the age that is asked for, of those that profiles can measure: each once, at every level."""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from precision_operator.exporter.body import build
from precision_operator.exporter.families.family import LEVELS, Level
from precision_operator.exporter.self_metrics import OwnMetrics
from tests.support.exposition import samples_in, store_of
from tests.support.golden import beside
from tests.support.report_objects import fresh_no_more, profile_object, report_object, report_status

TABLES = beside(__file__)

DAY = 86_400
NOW = 1_800_000_000
TEXT = "2027-01-15T08:00:00Z"
"""NOW, as a report has it."""


def asking(asking: str, eligible: int, spec: Mapping[str, Any] = {}, **more: int) -> dict[str, Any]:
    made = profile_object(
        asking, status={"phase": "Running", "nodes": {"matched": eligible, "eligible": eligible} | more}
    )
    made["spec"] |= spec
    return made


def measured(measured: str, nodes: Sequence[int], reason: str = "", failed: bool = False) -> list[dict[str, Any]]:
    status = report_status(finishedAt=TEXT) | ({"conditions": [fresh_no_more(reason)]} if reason else {})
    if failed:
        status["attempt"] |= {"outcome": "failed", "reason": "AgentCrashed", "run": "r2"}
    return [report_object(f"n{number}", measured, status=status) for number in nodes]


def states(*objects: Mapping[str, Any], days: float = 0.0, level: Level = "pool") -> dict[str, float]:
    """What a scrape so many days after NOW says."""
    own = OwnMetrics(process=False)
    own.tell(build(store_of(*objects, level=level).view()))
    with patch("time.time", lambda: NOW + days * DAY):
        return {s.labels["state"]: s.value for s in samples_in(own.text()) if s.name == "precision_fleet_nodes"}


CASES = TABLES["fleets"]


@pytest.mark.parametrize("name", CASES)
def test_each_node_is_counted_once_by_whether_it_has_the_result_that_is_asked_for(name: str) -> None:
    rows, days, counts = CASES[name]
    objects = [it for row in rows for it in (measured(**row) if "measured" in row else [asking(**row)])]
    assert states(*objects, days=days) == dict(zip(("current", "old", "missing"), counts, strict=True))


@pytest.mark.parametrize("level", LEVELS)
def test_no_metrics_level_leaves_it_out_and_without_a_profile_there_is_none(level: Level) -> None:
    assert states(asking("nightly", 2), *measured("nightly", [1]), level=level)["missing"] == 1
    assert states(asking("nightly", 0, skipped=2), level=level) == dict.fromkeys(("current", "old", "missing"), 0)
    assert states(level=level) == {}
