"""A profile's status from where its nodes stand: counts, reasons, pools, conditions, kubectl's columns."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.kinds.profile import NodeCounts, ProfileStatus
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.node_state import AcceptedPlan, NodeState, ProfilePlan
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.eligibility.triggers import CurrentRun
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.reasons import REASONS, Said, said
from precision_operator.core.results.ingest import status_json
from precision_operator.core.status.profile_status import POOLS_SHOWN, REASONS_SHOWN, profile_status
from tests.support.golden import beside
from tests.support.report_objects import recipe_row, report_status
from tests.support.world import MINUTE, NOW, observed, profile, report

TABLES = beside(__file__)
STATES = TABLES["states"]
MEASURED = Said("Measured", words="")

RUNS = TABLES["runs"]
"""What a run's figures are, as its report says it."""


def measured(node: str, *rows: dict[str, Any], pool: str = "GB200", data: str = "measured") -> NodeState:
    status = report_status(rows or None, **RUNS[data])
    return NodeState(facts(node, pool), MEASURED, report(node, status=ReportStatus.model_validate(status)))


def facts(node: str, pool: str = "GB200") -> NodeFacts:
    return NodeFacts(name=node, uid=f"uid-{node}", product="GB200", gpus=4, pool=pool)


def node_states(*reasons: str) -> list[NodeState]:
    """Nodes n0, n1 ... that stand for these reasons."""
    return [
        measured(f"n{i}") if reason == "Measured" else NodeState(facts(f"n{i}"), Said(reason, words=f"because {i}"))
        for i, reason in enumerate(reasons)
    ]


def planned(found: list[NodeState], of: ProfileView | None = None, refusal: Said | None = None) -> ProfilePlan:
    owner = of or profile()
    asked = refusal or resolve_profile(owner, observed())
    if isinstance(asked, Said):
        return ProfilePlan(owner, asked, tuple(found))
    return AcceptedPlan(asked.profile, asked, tuple(found))


def rolled(*reasons: str, of: ProfileView | None = None, nodes: int = 9) -> ProfileStatus:
    return profile_status(planned(node_states(*reasons), of), NOW, nodes)


def conditions(status: ProfileStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def test_every_node_is_counted_once_and_an_unreadable_status_written_anew() -> None:
    status = rolled(*STATES)
    assert status.nodes == NodeCounts(
        matched=8, eligible=7, skipped=1, waiting=2, queued=1, running=1, succeeded=1, failed=2
    )
    assert status.progress == "3/7"
    broken = profile(status={"phase": "Exotic", "conditions": "none"})
    assert profile_status(planned([], broken), NOW, 0).phase == "Complete"


@given(reasons=st.lists(st.sampled_from(sorted(STATES)), max_size=12))
def test_the_counts_add_up_whatever_the_nodes(reasons: list[str]) -> None:
    status = rolled(*reasons)
    assert status.nodes is not None
    n = status.nodes
    assert n.matched == len(reasons) == n.eligible + n.skipped
    assert n.eligible == n.waiting + n.queued + n.running + n.succeeded + n.failed
    assert ProfileStatus.model_validate(status_json(status)) == status
    by_type = conditions(status)
    assert (by_type["Complete"][0] == "True") == (n.queued + n.running == 0)
    assert (by_type["Degraded"][0] == "True") == (n.failed > 0)
    assert ("Succeeded" in by_type) == (0 < n.eligible == n.succeeded)
    assert ("Failed" in by_type) == (n.eligible == n.succeeded + n.failed and not (0 < n.eligible == n.succeeded))


@pytest.mark.parametrize(("reasons", "complete", "phase"), TABLES["complete"].values(), ids=TABLES["complete"])
def test_a_profile_completes_if_none_runs_or_queues(reasons: list[str], complete: list[str], phase: str) -> None:
    status = rolled(*reasons)
    assert (*conditions(status)["Complete"], status.phase) == (*complete, phase)


@pytest.mark.parametrize(("reasons", "end"), TABLES["ended"].values(), ids=TABLES["ended"])
def test_a_profile_ends_once_no_node_waits_with_all_measured_or_with_why_not(
    reasons: list[str], end: list[str] | None
) -> None:
    assert ended_as(rolled(*reasons)) == end


def ended_as(status: ProfileStatus) -> list[str] | None:
    """The condition that ends a profile, with its reason; None while it goes on."""
    ends = [[c.type, c.reason] for c in status.conditions if c.type in ("Succeeded", "Failed")]
    assert len(ends) < 2
    assert all(c.status == "True" for c in status.conditions if [c.type, c.reason] in ends)
    return ends[0] if ends else None


def test_no_usable_recipe_is_no_success_and_a_new_run_has_its_own_end() -> None:
    states = [measured("n0"), measured("n1", recipe_row("mxfp8", verdict="fallback"))]
    assert ended_as(profile_status(planned(states), NOW, 9)) == ["Failed", "NoUsableResult"]
    first = rolled("Measured")
    again = after(first, "MaxConcurrentReached")
    assert ended_as(again) is None
    last = after(again, "Measured", minutes=2)
    times = [c.last_transition_time for s in (first, last) for c in s.conditions if c.type == "Succeeded"]
    assert times == [format_time(NOW), format_time(NOW + 2 * MINUTE)]


@pytest.mark.parametrize(("reason", "end"), [("InvalidSpec", ["Failed", "InvalidSpec"]), ("ConfigMapMissing", None)])
def test_a_profile_that_only_another_spec_helps_has_failed_and_one_that_waits_for_an_object_goes_on(
    reason: str, end: list[str] | None
) -> None:
    assert ended_as(profile_status(planned([], refusal=Said(reason, words="no")), NOW, 9)) == end


def test_complete_names_the_most_frequent_reason_and_how_many_nodes_match_not() -> None:
    complete = next(c for c in rolled("Measured", "Cordoned", "Busy", "Busy").conditions if c.type == "Complete")
    assert complete.message.startswith("1 of 4 eligible nodes are measured, 3 wait; most often: Busy (2, e.g. n2).")
    complete = next(c for c in rolled(nodes=24).conditions if c.type == "Complete")
    assert complete.message.startswith("None of the cluster's 24 nodes matches spec.target.")


def after(before: ProfileStatus, *reasons: str, minutes: int = 1, **changes: Any) -> ProfileStatus:
    of = profile(status=status_json(before), **changes)
    return profile_status(planned(node_states(*reasons), of), NOW + minutes * MINUTE, 9)


def test_a_new_run_is_not_complete_and_a_waiting_node_that_frees_up_leaves_complete_true() -> None:
    running = after(rolled("Measured", "Busy"), "Measured", "AgentRunning")
    by_type = conditions(running)
    assert by_type["Complete"] == ("True", "SomeWaiting")
    assert (by_type["Progressing"], running.phase) == (("True", "Measuring"), "Running")
    assert conditions(after(running, "Measured", "Measured"))["Complete"] == ("True", "AllMeasured")
    again = after(rolled("Measured", "Measured"), "AgentRunning", "MaxConcurrentReached", recipes=["mxfp8"])
    assert conditions(again)["Complete"] == ("False", "Measuring")
    assert conditions(after(rolled(), "AgentRunning"))["Complete"] == ("False", "Measuring")


def test_the_same_again_is_the_same_status_and_a_condition_keeps_its_time_and_generation() -> None:
    first = rolled(*STATES)
    later = after(first, *STATES, minutes=90)
    assert later.model_copy(update={"eta": first.eta, "eta_time": first.eta_time}) == first
    first = rolled("AgentRunning")
    times = {c.type: c.last_transition_time for c in after(first, "Measured").conditions}
    assert times["Accepted"] == "2026-11-21T09:00:00Z"
    assert times["Complete"] == times["Progressing"] == "2026-11-21T09:01:00Z"
    status = rolled("Measured", of=profile(generation=7))
    assert status.observed_generation == 7
    assert {c.observed_generation for c in status.conditions} == {7}


def test_a_refused_profile_says_why_and_is_never_complete() -> None:
    refusal = Said("ConfigMapMissing", words="ConfigMap x does not exist. Create it.")
    status = profile_status(
        planned([NodeState(facts("n1"), Said("ProfileNotAccepted", words=""))], refusal=refusal), NOW, 1
    )
    by_type = conditions(status)
    assert by_type["Accepted"] == ("False", "ConfigMapMissing")
    assert by_type["Complete"] == by_type["Progressing"] == ("False", "NotAccepted")
    assert (status.phase, status.run) == ("Invalid", None)


def test_reasons_are_counted_most_frequent_first_with_an_example_each() -> None:
    status = rolled("Busy", "MIGEnabled", "Busy", "Measured", "AgentRunning", "AgentCrashed")
    *reasons, alone = ((row.reason, row.count, row.example, row.message) for row in status.reasons)
    assert reasons == [
        ("Busy", 2, "n0", "because 0"),
        ("AgentCrashed", 1, "n5", "because 5"),
        ("MIGEnabled", 1, "n1", "because 1"),
    ]
    assert alone[:3] == ("NoPeers", 1, "n3")


def test_reasons_and_pools_are_bounded_whatever_the_fleet() -> None:
    told = [r for r, row in REASONS.items() if row.kind in ("skipped", "waiting", "queued", "failed")]
    assert len(told) > REASONS_SHOWN
    many = node_states(*told) + [measured(f"m{i}", pool=f"pool-{i}") for i in range(100)]
    many += [measured("twice", pool="pool-99")]
    status = profile_status(planned(many), NOW, 200)
    assert (len(status.reasons), len(status.pools)) == (REASONS_SHOWN, POOLS_SHOWN)
    assert [pool.nodes for pool in status.pools if pool.name == "pool-99"] == [2], "the largest pools are shown"


def test_a_pool_has_the_medians_of_its_best_recipe_and_columns_show_the_largest() -> None:
    fast, slow = recipe_row("mxfp8", 1.4), recipe_row("nvfp4", 1.2)
    found = [
        measured("a", recipe_row("bf16"), fast, slow),
        measured("b", recipe_row("bf16"), recipe_row("mxfp8", 1.5), slow),
        measured("c", recipe_row("bf16"), recipe_row("mxfp8", 1.1), slow),
    ]
    status = profile_status(planned(found), NOW, 3)
    (pool,) = status.pools
    assert (pool.name, pool.nodes, pool.best_recipe, pool.speedup) == ("GB200", 3, "mxfp8", "1.4")
    assert pool.tokens_per_second == "133000"
    assert pool.tokens_per_joule is not None
    assert pool.tokens_per_joule_p10 is not None
    assert pool.tokens_per_joule_p90 is not None
    assert float(pool.tokens_per_joule_p10) < float(pool.tokens_per_joule) < float(pool.tokens_per_joule_p90)
    assert (status.best, status.tokens_per_joule) == ("mxfp8 1.40x", f"{float(pool.tokens_per_joule):.3g}")
    assert status.teraflops_per_gpu == f"{float(pool.teraflops_per_gpu):.0f}"
    found = [measured(f"b{i}", recipe_row("bf16"), recipe_row("nvfp4", 1.9), pool="b") for i in range(3)]
    found += [measured("a0", recipe_row("bf16"), recipe_row("mxfp8", 1.3), pool="a")]
    assert profile_status(planned(found), NOW, 4).best == "nvfp4 1.90x"


def again(node_state: NodeState, cause: str) -> NodeState:
    queued = Said("MaxConcurrentReached", words=node_state.message)
    return replace(node_state, said=queued, current=CurrentRun("r2", {}, None, Said(cause)))


@pytest.mark.parametrize(("cause", "nodes"), [("Scheduled", 5), ("TooOld", 5), ("DriverChange", 3), ("SpecChange", 3)])
def test_figures_stay_in_the_status_until_new_ones_come_unless_something_has_changed(cause: str, nodes: int) -> None:
    first, second, *others = fleet(900, 1000, 1001, 999, 1000)
    status = profile_status(planned([again(first, cause), again(second, cause), *others]), NOW, 5)
    (pool,) = status.pools
    assert (pool.nodes, status.data) == (nodes, "measured")
    assert (list(pool.slow_nodes), status.nodes.slow) == ((["n0"], 1) if nodes == 5 else ([], 0))


def test_a_pool_without_any_figure_is_shown_without_and_without_results_no_data() -> None:
    unsupported = {"recipe": "bf16", "availability": "probe_failed", "verdict": "unknown", "failure": "probe_failed"}
    status = profile_status(planned([measured("a", unsupported)]), NOW, 1)
    (pool,) = status.pools
    assert (pool.nodes, pool.best_recipe, pool.tokens_per_second, pool.watts) == (1, None, None, None)
    assert status.best is None
    assert rolled("Busy").data is None


@pytest.mark.parametrize(("data", "told", "flag"), TABLES["data"], ids=["measured", "mixed", "simulated", "a CPU"])
def test_what_nobody_measured_is_called_simulated_wherever_it_is_shown(data: list[str], told: str, flag: bool) -> None:
    status = profile_status(planned([measured(f"n{i}", data=word) for i, word in enumerate(data)]), NOW, 2)
    assert (status.data, status.pools[0].simulated) == (told, flag)


def fleet(*rates: float) -> list[NodeState]:
    return [measured(f"n{i}", recipe_row("bf16", tokensPerSecond=f"{rate:.0f}")) for i, rate in enumerate(rates)]


@pytest.mark.parametrize(("rates", "thresholds", "slow"), TABLES["slow"].values(), ids=TABLES["slow"])
def test_a_node_is_slow_by_per_cent_and_by_deviations_both(
    rates: list[float], thresholds: dict[str, Any], slow: list[str]
) -> None:
    status = profile_status(planned(fleet(*rates), profile(thresholds=thresholds)), NOW, 9)
    assert list(status.pools[0].slow_nodes) == slow
    assert status.nodes.slow == len(slow)


def test_pools_are_compared_with_themselves_and_large_fleets_stay_small() -> None:
    found = [replace(node_state, facts=replace(node_state.facts, pool="old")) for node_state in fleet(500, 501, 499)]
    named = [
        replace(node_state, facts=replace(node_state.facts, name=f"o{i}", uid=f"o{i}"))
        for i, node_state in enumerate(found)
    ]
    status = profile_status(planned(fleet(1000, 1001, 999) + named), NOW, 6)
    assert [pool.slow_nodes for pool in status.pools] == [(), ()]
    found = [measured(f"node-{i}", pool=f"pool-{i % 70}") for i in range(700)]
    found += [NodeState(facts(f"bad-{i}"), Said("AgentCrashed", words="x" * 2000)) for i in range(300)]
    asked = profile(rollout={"maxConcurrent": "10%"})
    assert isinstance(resolve_profile(asked, observed()), ResolvedProfile)
    told = str(status_json(profile_status(planned(found, asked), NOW + timedelta(hours=1), 1000)))
    assert len(told) < 64 * 1024


# How far it is, what it waits for, and when it will end.


def running(since_minutes: float, name: str = "r0") -> NodeState:
    return replace(node_states("AgentRunning")[0], facts=facts(name), since=NOW - since_minutes * MINUTE)


def ended(name: str, minutes: float) -> NodeState:
    """A node whose measurement took so long."""
    start, end = (format_time(NOW - timedelta(hours=1) + m * MINUTE) for m in (0, minutes))
    attempt = {"run": "r1", "number": 1, "outcome": "succeeded", "startedAt": start, "finishedAt": end}
    status = ReportStatus.model_validate(report_status() | {"attempt": attempt})
    return NodeState(facts(name), MEASURED, report(name, status=status))


def queue(count: int) -> list[NodeState]:
    return [
        replace(node_state, facts=facts(f"q{i}"))
        for i, node_state in enumerate(node_states(*["MaxConcurrentReached"] * count))
    ]


def retried() -> NodeState:
    """A node that may begin twenty minutes from now."""
    (queued,) = node_states("Retrying")
    until = format_time(NOW + timedelta(minutes=20))
    return replace(queued, said=said("Retrying", attempt=1, why="x", retry=1, limit=2, until=until))


def eta(found: list[NodeState], seconds: int = 0, of: ProfileView | None = None) -> str | None:
    return profile_status(planned(found, of), NOW + timedelta(seconds=seconds), 9).eta


ETA: dict[str, tuple[list[NodeState], str | None]] = {
    "nothing runs": ([ended("a", 10)], None),
    "one runs, as long as others have taken": ([ended("a", 10), ended("b", 12), ended("c", 90), running(2)], "09:11Z"),
    "one runs and three wait for its place": ([ended("a", 10), running(2), *queue(3)], "09:39Z"),
    "two run and three wait for their places": ([ended("a", 10), running(2), running(4, "r1"), *queue(3)], "09:27Z"),
    "one is late by a little": ([ended("a", 10), running(11)], "09:05Z"),
    "one is tried again in a while": ([ended("a", 10), retried()], "09:31Z"),
    "none has ended yet": ([running(5)], "09:11Z"),
    "days away": ([ended("a", 55), running(0), *queue(60)], "2026-11-23 16:56Z"),
}


@pytest.mark.parametrize(("found", "told"), ETA.values(), ids=ETA)
def test_the_end_is_told_from_measured_durations_and_places(found: list[NodeState], told: str | None) -> None:
    assert eta(found) == told


def test_the_end_holds_still_while_agents_run_and_a_suspended_profile_tells_none() -> None:
    found = [ended("a", 10), running(2), *queue(3)]
    assert {eta(found, seconds) for seconds in range(0, 480, 7)} == {"09:39Z"}
    assert eta([running(2)], of=profile(suspend=True)) is None


def test_what_most_nodes_wait_for_is_told_and_what_cannot_be_scheduled_first() -> None:
    assert rolled("Busy", "MaxConcurrentReached", "MaxConcurrentReached", "Measured").waits_for == (
        "MaxConcurrentReached (2)"
    )
    assert rolled("Measured", "AgentRunning", "MIGEnabled", "AgentCrashed").waits_for is None
    one = rolled("AgentUnschedulable", "MaxConcurrentReached", "MaxConcurrentReached")
    assert one.waits_for == "AgentUnschedulable (1)", "the others wait for its place"
    assert {row.reason: row.count for row in one.reasons} == {"AgentUnschedulable": 1, "MaxConcurrentReached": 2}
    among = rolled("AgentUnschedulable", "AgentRunning", "MaxConcurrentReached", "MaxConcurrentReached")
    assert among.waits_for == "MaxConcurrentReached (2)"
    assert rolled("AgentUnschedulable", "AgentRunning", "Measured").waits_for == "AgentUnschedulable (1)"


def due(node_state: NodeState, cause: str = "DriverChange") -> NodeState:
    return replace(node_state, current=CurrentRun("r2", {}, None, Said(cause, words="because")))


def test_stale_nodes_those_that_fell_back_and_quarantined_ones_are_counted() -> None:
    found = [due(node_state) for node_state in node_states("AgentRunning", "Busy")] + [
        due(node_states("Cordoned")[0], "FirstRun")
    ]
    status = profile_status(planned(found), NOW, 3)
    assert status.nodes.stale == 2
    fallback = measured("f", recipe_row("bf16"), recipe_row("mxfp8", verdict="fallback"))
    status = profile_status(planned([fallback, measured("g"), *node_states("Quarantined")]), NOW, 3)
    assert (status.nodes.fallback, status.nodes.quarantined) == (1, 1)


@pytest.mark.parametrize("reason", ["Quarantined", "NotDueYet", "PowerBudgetTooSmall", "TopologyKeyMissing"])
def test_a_profile_that_goes_no_further_by_itself_is_complete_and_says_what_it_waits_for(reason: str) -> None:
    status = rolled("Measured", reason)
    complete = next(c for c in status.conditions if c.type == "Complete")
    assert (complete.status, complete.reason, status.waits_for) == ("True", "SomeWaiting", f"{reason} (1)")
    assert reason in complete.message


@pytest.mark.parametrize("reason", ["TooManyFailures", "CanaryFailed"])
def test_a_rollout_that_has_stopped_is_not_complete(reason: str) -> None:
    status = rolled("Measured", "AgentCrashed", reason)
    by_type = conditions(status)
    assert (by_type["Complete"], by_type["Degraded"]) == (("False", reason), ("True", "NodesFailed"))
    assert status.phase == "Degraded"


def test_a_schedule_that_has_not_begun_is_pending_and_its_runs_are_told() -> None:
    before, after = rolled("NotDueYet"), rolled("Measured", "NotDueYet")
    assert [conditions(x)["Complete"] for x in (before, after)] == [("False", "NotDueYet"), ("True", "SomeWaiting")]
    assert (before.phase, after.phase) == ("Pending", "Complete")
    status = profile_status(planned([measured("a")], profile(schedule={"cron": "0 2 * * *"})), NOW, 1)
    assert (status.last_run, status.next_run) == ("2026-11-20T06:30:00Z", "2026-11-22T02:00:00Z")
    aged = profile_status(planned([measured("a")], profile(schedule={"maxAge": "3d"})), NOW, 1)
    assert aged.next_run == "2026-11-23T06:30:01Z"


def test_a_quarantined_node_degrades_its_profile_and_how_to_release_it_is_said() -> None:
    status = rolled("Measured", "Quarantined")
    degraded = next(c for c in status.conditions if c.type == "Degraded")
    assert (degraded.status, degraded.reason, status.phase) == ("True", "NodesQuarantined", "Degraded")
    assert "kubectl precision rerun NODE" in degraded.message


def test_a_suspended_profile_says_so_and_is_suspended_once_its_agents_are_done() -> None:
    running = rolled("AgentRunning", "Suspended", of=profile(suspend=True))
    assert (conditions(running)["Progressing"], running.phase) == (("False", "Suspended"), "Running")
    assert rolled("Measured", "Suspended", of=profile(suspend=True)).phase == "Suspended"
    status = rolled("Suspended", of=profile(suspend=True))
    told = {c.type: (c.status, c.reason, c.message) for c in status.conditions}
    words = "No new ones start; nodes that wait: 1. Set spec.suspend to false to continue."
    assert told["Complete"] == told["Progressing"] == ("False", "Suspended", words)


@pytest.mark.parametrize(
    ("cause", "complete"),
    [("FirstRun", "True"), ("Scheduled", "False"), ("Rerun", "False"), ("DriverChange", "False"), ("TooOld", "False")],
)
def test_a_node_that_is_measured_again_ends_complete_and_a_late_one_does_not(cause: str, complete: str) -> None:
    of = profile(status=status_json(rolled("Measured", "Busy")))
    found = [measured("n0"), due(node_states("AgentRunning")[0], cause)]
    assert conditions(profile_status(planned(found, of), NOW, 9))["Complete"][0] == complete
