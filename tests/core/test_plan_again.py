"""A plan takes over what has not changed since the one before; it must be the plan that is made of the world anew."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from precision_operator.core.observed import Observed, ProfileView
from precision_operator.core.observed_once import Once
from precision_operator.core.plan import plan
from precision_operator.core.rollup import profile_status
from tests.support.node_objects import node_object
from tests.support.world import MINUTE, NOW, job, measured, observed, pod, profile, report, tried

NAMES = ("n1", "n2", "n3", "n4")
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"schedule": {"cron": "0 * * * *"}},
    {"schedule": {"maxAge": "2h"}},
    {"rollout": {"maxConcurrent": 2, "rampSeconds": 600, "retry": {"limit": 2, "backoffSeconds": 300}}},
    {"agent": {"queueName": "low"}},
    {"target": {"nodeNames": ["n1", "n2"]}},
)
PHASES = {"starting": "Pending", "running": "Running", "finished": "Succeeded"}
KINDS = ("nothing", "measured", "failed", "disrupted", "quarantined", *PHASES, "cordoned", "gone")

changes = st.one_of(
    st.tuples(st.just("spec"), st.sampled_from(SPECS)),
    st.tuples(st.just("rerun"), st.sampled_from(("", "again", "once more"))),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(KINDS)),
    st.tuples(st.just("now"), st.integers(-90, 240).map(lambda count: count * MINUTE)),
)
first = st.fixed_dictionaries(
    {"spec": st.sampled_from(SPECS), "rerun": st.just(""), "now": st.just(0 * MINUTE)}
    | {name: st.sampled_from(KINDS) for name in NAMES}
)


def world(told: Mapping[str, Any], before: Observed | None) -> Observed:
    """Nodes of these kinds; nodes, reports, Jobs and pods that are as they were `before` are the same objects."""
    own = profile(rerun=told["rerun"], **told["spec"])
    found: dict[str, list[Any]] = {"nodes": [], "reports": [], "jobs": [], "pods": []}
    for name, kind in ((name, told[name]) for name in NAMES):
        found["nodes"] += [] if kind == "gone" else [node_object(name=name, unschedulable=kind == "cordoned")]
        if kind in PHASES:
            of = job(name, finished="Complete" if kind == "finished" else None, created=NOW - MINUTE)
            found["jobs"].append(of)
            found["pods"].append(pod(of, PHASES[kind]))
        status = {
            "measured": measured(ago=30 * MINUTE),
            "failed": tried("failed", failures=1, reason="AgentCrashed"),
            "disrupted": tried("disrupted"),
            "quarantined": tried("failed", failures=3, reason="AgentCrashed"),
        }.get(kind)
        found["reports"] += [report(name, status=status)] if status is not None or kind == "gone" else []
    if before is not None:
        known = {
            "nodes": list(before.nodes.values()),
            "reports": list(before.reports),
            "jobs": list(before.jobs),
            "pods": list(before.pods),
        }
        found = {part: [_known(item, known[part]) for item in items] for part, items in found.items()}
    return replace(
        observed([own], {node["metadata"]["uid"]: node for node in found.pop("nodes")}),
        now=NOW + told["now"],
        **{part: tuple(items) for part, items in found.items()},
    )


def _known(item: Any, known: list[Any]) -> Any:
    return next((old for old in known if old == item), item)


def anew(seen: Observed) -> Observed:
    """The same world of other objects."""
    parts = {part: copy.deepcopy(getattr(seen, part)) for part in ("nodes", "reports", "jobs", "pods", "profiles")}
    return replace(seen, **parts)


@settings(max_examples=60)
@given(first, st.lists(changes, max_size=8))
def test_a_plan_after_others_is_the_one_that_is_made_anew(told: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    before: Observed | None = None
    for part, value in [("rerun", ""), *steps]:
        told = told | {part: value}
        before = world(told, before)
        made, fresh = plan(before), plan(anew(before))
        plan(before)  # so that what is kept is of these objects, not of the copies
        assert made == fresh
        assert [profile_status(item, before.now, 4) for item in made.profiles] == [
            profile_status(item, before.now, 4) for item in fresh.profiles
        ]


def test_the_stand_of_a_node_is_the_same_object_while_nothing_changes() -> None:
    seen = observed([profile()], reports=(report(status=measured()),))
    later = replace(seen, now=NOW + MINUTE, profiles=(copy.deepcopy(seen.profiles[0]),))
    assert plan(seen).profiles[0].stands[0] is plan(later).profiles[0].stands[0]


def test_a_result_grows_too_old_although_nothing_but_time_has_changed() -> None:
    seen = observed([profile(schedule={"maxAge": "2h"})], reports=(report(status=measured()),))
    reasons = [_reason(replace(seen, now=NOW + hours * 60 * MINUTE)) for hours in (0, 1, 3, 1)]
    assert reasons == ["Measured", "Measured", "AgentStarting", "Measured"]


def test_a_pod_that_has_begun_to_run_changes_where_its_node_stands() -> None:
    of = job()
    seen = observed([profile()], jobs=(of,), pods=(pod(of, "Pending"),))
    assert [_reason(seen), _reason(replace(seen, pods=(pod(of),)))] == ["AgentStarting", "AgentRunning"]


def test_a_tick_begins_a_run_although_nothing_but_time_has_changed() -> None:
    weekly: ProfileView = profile(schedule={"cron": "0 12 * * *"}, created=NOW - 60 * MINUTE)
    seen = observed([weekly], reports=(report(status=measured()),))
    assert [_reason(replace(seen, now=NOW + h * 60 * MINUTE)) for h in (0, 1, 4)] == [
        *("Measured", "Measured", "AgentStarting"),
    ]


def test_values_are_kept_for_the_same_objects_only() -> None:
    once: Once[int] = Once()
    one, other, numbers = [1], [1], iter(range(9))
    made = [once.of("key", (found,), lambda: next(numbers)) for found in (one, one, other)]
    assert made == [0, 0, 1]


def test_no_more_values_are_kept_than_agreed() -> None:
    once: Once[object] = Once(most=2)
    held = [[number] for number in range(3)]
    first = [once.of(number, (held[number],), object) for number in range(3)]
    assert once.of(2, (held[2],), object) is first[2]
    assert once.of(0, (held[0],), object) is not first[0]


def _reason(seen: Observed) -> str:
    return plan(seen).profiles[0].stands[0].reason
