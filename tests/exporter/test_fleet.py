"""Nodes with a result of the age that is asked for, of those that profiles can measure: each once, at every level."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest

from precision_operator.exporter.body import build
from precision_operator.exporter.families.family import LEVELS, Level
from precision_operator.exporter.self_metrics import OwnMetrics
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import fresh_no_more, profile_object, report_object, report_status

DAY = 86_400
NOW = 1_800_000_000
TEXT = "2027-01-15T08:00:00Z"
"""NOW, as a report has it."""
DAILY = {"schedule": {"cron": "0 2 * * *"}}
GB200, RACK = ({"target": {"nodeSelector": labels}} for labels in ({"gpu": "GB200"}, {"gpu": "GB200", "rack": "r1"}))
OTHER, ROW = ({"target": {"nodeSelector": labels}} for labels in ({"gpu": "GB300"}, {"row": "r1"}))
TAINTED, DRAINED = ({"key": key, "operator": "Exists"} for key in ("ml", "lab"))
NAMED: dict[str, Any] = {"target": {"nodeNames": ["n1", "n2"], "cordoned": "Include"}}


def asking(name: str, eligible: int, spec: Mapping[str, Any] = {}, **more: int) -> dict[str, Any]:
    made = profile_object(
        name, status={"phase": "Running", "nodes": {"matched": eligible, "eligible": eligible} | more}
    )
    made["spec"] |= spec
    return made


def tolerating(taint: Mapping[str, str]) -> dict[str, Any]:
    return {"agent": {"tolerations": [taint]}}


def measured(profile: str, *numbers: int, reason: str = "", failed: bool = False) -> list[dict[str, Any]]:
    status = report_status(finishedAt=TEXT) | ({"conditions": [fresh_no_more(reason)]} if reason else {})
    if failed:
        status["attempt"] |= {"outcome": "failed", "reason": "AgentCrashed", "run": "r2"}
    return [report_object(f"n{number}", profile, status=status) for number in numbers]


def states(*objects: Mapping[str, Any], days: float = 0.0, level: Level = "pool") -> dict[str, float]:
    """What a scrape so many days after NOW says."""
    own = OwnMetrics(process=False)
    own.tell(build(store_of(*objects, level=level).view()))
    with patch("time.time", lambda: NOW + days * DAY):
        return {s.labels["state"]: s.value for s in samples_in(own.text()) if s.name == "precision_fleet_nodes"}


TWO = [*measured("nightly", 1), *measured("b", 2)]
CASES: Mapping[str, tuple[list[Any], float, tuple[int, int, int]]] = {
    "half of them measured": ([asking("nightly", 4), *measured("nightly", 1, 2)], 900, (2, 0, 2)),
    "young enough, and a night late": ([asking("nightly", 2, DAILY), *measured("nightly", 1)], 1.9, (1, 0, 1)),
    "too old by a schedule": ([asking("nightly", 2, DAILY), *measured("nightly", 1)], 2.1, (0, 1, 1)),
    "too old by age": ([asking("nightly", 1, {"schedule": {"maxAge": "7d"}}), *measured("nightly", 1)], 8.1, (0, 1, 0)),
    "nobody asks any more": ([asking("nightly", 1, DAILY | {"suspend": True}), *measured("nightly", 1)], 90, (1, 0, 0)),
    "another driver since": ([asking("nightly", 1), *measured("nightly", 1, reason="DriverChange")], 0, (0, 1, 0)),
    "only a schedule's new run": ([asking("nightly", 1), *measured("nightly", 1, reason="Scheduled")], 0, (1, 0, 0)),
    "the newest attempt failed": ([asking("nightly", 1), *measured("nightly", 1, failed=True)], 0, (0, 1, 0)),
    "a node that is gone": ([asking("nightly", 1), *measured("nightly", 1, 2, reason="NodeGone")], 0, (0, 0, 1)),
    "a target that shrank": ([asking("nightly", 1), *measured("nightly", 1, 2, 3)], 0, (1, 0, 0)),
    "one target twice": ([asking("nightly", 9, GB200), asking("b", 9, GB200), *TWO], 0, (2, 0, 7)),
    "a node twice": ([asking("nightly", 9), asking("b", 9), *measured("nightly", 1), *measured("b", 1)], 0, (1, 0, 8)),
    "the result whose age is asked for": (
        [asking("nightly", 9, DAILY), asking("b", 9), *measured("nightly", 1), *measured("b", 1)],
        5,
        (0, 1, 8),
    ),
    "by two labels": ([asking("b", 9, GB200), asking("nightly", 9, ROW, distinct=2), *TWO], 0, (2, 0, 9)),
    "a rack of the pool": ([asking("nightly", 9, GB200), asking("b", 3, RACK), *TWO], 0, (2, 0, 7)),
    "two pools": ([asking("nightly", 9, GB200), asking("b", 3, OTHER), *TWO], 0, (2, 0, 10)),
    "tainted pools, and all that has no taint": (
        [
            asking("nightly", 10, GB200 | tolerating(TAINTED)),
            asking("b", 8, OTHER | tolerating(DRAINED)),
            asking("c", 9),
        ],
        0,
        (0, 0, 27),
    ),
    "a pool, and a profile of every taint and node": (
        [asking("nightly", 9, GB200 | tolerating(TAINTED)), asking("b", 12, tolerating({"operator": "Exists"})), *TWO],
        0,
        (2, 0, 10),
    ),
    "two pools, and one that can measure none of all": (
        [asking("nightly", 9, GB200), asking("b", 3, OTHER), asking("c", 0), *TWO],
        0,
        (2, 0, 10),
    ),
    "all of them, and two by name": ([asking("nightly", 9), asking("b", 2, NAMED), *TWO], 0, (2, 0, 7)),
    "two by name, of a pool": (
        [asking("nightly", 9, GB200), asking("b", 2, NAMED), *measured("nightly", 1, 2), *measured("b", 1, 2)],
        0,
        (2, 0, 7),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_node_is_counted_once_by_whether_it_has_the_result_that_is_asked_for(name: str) -> None:
    objects, days, counts = CASES[name]
    assert states(*objects, days=days) == dict(zip(("current", "old", "missing"), counts, strict=True))


@pytest.mark.parametrize("level", LEVELS)
def test_no_metrics_level_leaves_it_out_and_without_a_profile_there_is_none(level: Level) -> None:
    assert states(asking("nightly", 2), *measured("nightly", 1), level=level)["missing"] == 1
    assert states(asking("nightly", 0, skipped=2), level=level) == dict.fromkeys(("current", "old", "missing"), 0)
    assert states(level=level) == {}
