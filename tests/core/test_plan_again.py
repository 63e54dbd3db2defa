"""A plan takes over what has not changed since the one before; it must be the plan that is made of the world anew."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from precision_operator.core.observe.book import EMPTY, Book
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import Observed, Reports, ReportView
from precision_operator.core.plan import plan
from precision_operator.core.reasons import sentence
from tests.support.from_scratch import unlike
from tests.support.node_objects import node_object, resource_slice
from tests.support.world import MINUTE, NOW, gone, job, measured, nodes, observed, pod, profile, report, tried

NEW = observed([profile()])
DONE = observed([profile()], reports=(report(status=measured()),))
ITS_JOB = job()
BEGUN = observed([profile()], jobs=(ITS_JOB,), pods=(pod(ITS_JOB, "Pending"),))
RETRYING = observed(
    [profile(rollout={"retry": {"limit": 2, "backoffSeconds": 300}})],
    reports=(report(status=tried("failed", failures=1, reason="AgentCrashed")),),
)
HOUR = 60 * MINUTE
AGING = observed([profile(schedule={"maxAge": "2h"})], reports=(report(status=measured()),))
JUST_NOW = format_time(NOW - MINUTE / 2)

CHANGED: dict[str, tuple[Observed, str, dict[str, Any], str]] = {
    "the profile's target": (NEW, "AgentStarting", {"profiles": (profile(target={"nodeNames": ["n2"]}),)}, ""),
    "the profile's rerun": (DONE, "Measured", {"profiles": (profile(rerun="again"),)}, "AgentStarting"),
    "the node": (NEW, "AgentStarting", {"nodes": nodes("n1", unschedulable=True)}, "Cordoned"),
    "the node's slices": (
        observed([profile()], {"uid-n1": node_object(gpus=None, name="n1")}, slices=()),
        "GPUsNotReady",
        {"slices": (resource_slice("NVIDIA H100 80GB HBM3", count=8),)},
        "AgentStarting",
    ),
    "a report": (
        DONE,
        "Measured",
        {"reports": (report(status=tried("failed", failures=9, reason="AgentCrashed")),)},
        "AgentCrashed",
    ),
    "no report any more": (DONE, "Measured", {"reports": ()}, "AgentStarting"),
    "the node's rerun": (DONE, "Measured", {"reports": (report(status=measured(), rerun="again"),)}, "AgentStarting"),
    "the node's Job": (NEW, "AgentStarting", {"jobs": (job(finished="Complete"),)}, "Collecting"),
    "the Job's pod": (BEGUN, "AgentStarting", {"pods": (pod(ITS_JOB),)}, "AgentRunning"),
    "the time since the failure": (RETRYING, "Retrying", {"now": NOW + 5 * MINUTE}, "AgentStarting"),
    "the age of its result": (AGING, "Measured", {"now": NOW + 3 * HOUR}, "AgentStarting"),
}
"""A world, where n1 stands in it, what changes, and where n1 stands then; empty where it is not matched."""


@pytest.mark.parametrize(("seen", "before", "change", "after"), CHANGED.values(), ids=CHANGED)
def test_no_stand_outlives_a_change_of(seen: Observed, before: str, change: dict[str, Any], after: str) -> None:
    book, changed = EMPTY, replace(seen, **change)
    for world, reason in ((seen, before), (changed, after), (seen, before), (changed, after)):
        made = plan(world, book=book)
        assert made == plan(world)
        assert next((node_state.reason for node_state in made.profiles[0].node_states), "") == reason
        book = made.book


def test_an_old_result_is_marked_as_stale_and_as_fresh_again_as_its_report_says() -> None:
    fresh = report(status=measured())
    stale = replace(fresh, status=measured().model_copy(update={"conditions": gone(MINUTE).conditions}))

    def told(of: ReportView, **changes: Any) -> list[str]:
        return [type(action).__name__ for action in plan(observed([profile(**changes)], reports=(of,))).actions]

    assert [told(of) for of in (fresh, stale, fresh)] == [[], ["MarkFresh"], []]
    assert [told(of, rerun="again") for of in (fresh, stale)] == [["MarkStale", "Start"], ["Start"]]


def test_what_was_read_of_a_report_or_a_world_is_not_taken_over_by_another() -> None:
    one, other = measured(limit_watts=4000, startedAt=format_time(NOW)), tried("failed")
    of = report(status=one)
    seen = observed([profile()], reports=(of,))
    assert (of.started, of.reported_limit) == (NOW, (format_time(NOW - MINUTE), 4000))
    assert (replace(of, status=other).started, replace(of, status=other).reported_limit) == (None, None)
    assert seen.reports_of == {"uid-nightly": {"uid-n1": of}}
    assert replace(seen, reports=()).reports_of == {"uid-nightly": {}}
    pooled = replace(seen, nodes=nodes("n1", labels={"a": "in a", "b": "in b"}))
    labels = [(seen, "a"), (pooled, "a"), (pooled, "b"), (replace(pooled, nodes={}), "b")]
    pools = [[facts.pool for facts in world.facts_of(label).values()] for world, label in labels]
    assert pools == [["NVIDIA-H100-80GB-HBM3"], ["in a"], ["in b"], []]


def test_a_sentence_follows_its_code_and_the_text_of_each_fact() -> None:
    ways = [{"failed": 1, "canary": 2}, {"failed": True, "canary": 2}, {"failed": 1, "canary": 3}]
    told = [sentence("CanaryFailed", **facts).split(":")[0] for facts in ways]
    assert [words.partition(" nodes")[0] for words in told] == [
        "1 of the first 2",
        "True of the first 2",
        "1 of the first 3",
    ]
    assert told[0] != told[2]
    growing = ["one"]
    before = sentence("NotMatched", why=growing)
    growing.append("two")
    assert sentence("NotMatched", why=growing) != before
    assert sentence("UnknownProduct", why="w") != sentence("NotMatched", why="w")


def test_values_and_stands_are_the_same_objects_while_nothing_changes() -> None:
    seen = observed([profile()], reports=(report(status=measured()),))
    later = replace(seen, now=NOW + MINUTE, profiles=(copy.deepcopy(seen.profiles[0]),))
    first = plan(seen)
    assert plan(later, book=first.book).profiles[0].node_states is first.profiles[0].node_states
    once = Book()
    one, other, numbers = [1], [1], iter(range(9))
    assert [once.of("key", (found,), lambda: next(numbers)) for found in (one, one, other)] == [0, 0, 1]


def test_reports_that_change_are_filed_as_all_are_and_owners_without_a_change_keep_theirs() -> None:
    one, other = report(status=measured(startedAt=JUST_NOW)), report(owner="other", status=measured())
    newer, second = replace(one, status=tried("failed")), report("n2", status=measured(startedAt=JUST_NOW))
    steps = [
        [(None, one), (None, other)],
        [(one, newer), (None, second)],
        [(newer, one)],
        [(one, None)],
        [(second, None)],
    ]
    seen, there = Reports(), dict[str, ReportView]()
    for step in steps:
        before, seen = seen, seen.changed(step)
        there |= {now.uid: now for _, now in step if now is not None}
        there = {uid: of for uid, of in there.items() if (of, None) not in step}
        assert seen.filed == (anew := Reports(there.values()).filed)
        assert all(of.starts == anew[owner].starts for owner, of in seen.filed.items())
        assert before.filed.get(other.owner) in (None, seen.filed[other.owner])
    assert [*seen] == [other]
    assert seen.changed([]) is seen
    assert [*seen.served({"ml"}, {})] == [*seen.served((), {other.profile_uid: "elsewhere"})] == []
    assert seen.served((), {}) is seen


def test_what_a_round_did_not_ask_for_is_forgotten_and_everything_else_is_kept_however_much_it_is() -> None:
    held, kept = [[number] for number in range(1000)], EMPTY

    def asked(numbers: range) -> list[object]:
        nonlocal kept
        book = Book(kept)
        values = [book.of(number, (held[number],), object) for number in numbers]
        kept = book.kept
        return values

    first = asked(range(1000))
    assert asked(range(1000)) == first
    asked(range(500))
    again = asked(range(1000))
    assert again[:500] == first[:500]
    assert not set(map(id, again[500:])) & set(map(id, first))


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 6, 7, 10, 15, 22, 24, 25, 27, 37, 57, 73])
def test_random_worlds_are_planned_for_as_from_scratch(number: int) -> None:
    """World 2 has 200 nodes in 80 pools; each other one sees invalidations that are taken out, 24 in all."""
    assert not [*unlike(number, passes=14)]
