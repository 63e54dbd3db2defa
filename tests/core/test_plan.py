"""Where each node stands and what is done about it: one situation a test. Sequences are in the test of convergence."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from precision_api.facts.names import FRESH
from precision_operator.core.attempts.actions import Action, Collect, Drop, MarkStale, Start
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView
from precision_operator.core.plan import Plan, plan
from precision_operator.core.reasons import REASONS, Said
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.world import MINUTE, NOW, at_once, gone, job, measured, nodes, observed, pod, profile, report, tried

TABLES = beside(__file__)


def run_of(asking: ProfileView) -> str:
    """What `asking` measures, as it stands in the basis of its runs."""
    asked = resolve_profile(asking, observed())
    assert isinstance(asked, ResolvedProfile)
    return asked.run


NIGHTLY = profile()
RUN = run_of(NIGHTLY)


def reasons(decided: Plan, owner: str = "nightly") -> dict[str, str]:
    """The reason for where each node stands, by the node's name."""
    own = next(p for p in decided.profiles if p.profile.name == owner)
    return {node_state.facts.name: node_state.reason for node_state in own.node_states}


def told(decided: Plan) -> list[tuple[str, str]]:
    """Each action as its kind and its reason."""
    return [(type(action).__name__, action.reason) for action in decided.actions]


def only(seen: Observed) -> Action:
    actions = plan(seen).actions
    assert len(actions) == 1
    return actions[0]


def test_an_idle_node_starts_an_agent_with_its_report_and_the_next_number() -> None:
    action = only(observed([NIGHTLY]))
    assert isinstance(action, Start)
    assert action.job["metadata"]["labels"]["precisionprofiler.io/attempt"] == "1"
    assert action.job["metadata"]["ownerReferences"] == action.report["metadata"]["ownerReferences"]
    action = only(observed([NIGHTLY], reports=(report(),)))
    assert isinstance(action, Start)
    assert action.report is None
    action = only(observed([NIGHTLY], reports=(report(status=tried("disrupted", run=RUN, number=3)),)))
    assert isinstance(action, Start)
    assert action.job["metadata"]["labels"]["precisionprofiler.io/attempt"] == "4"


def test_only_nodes_that_could_start_are_looked_at_first_and_once() -> None:
    decided = plan(observed([NIGHTLY], occupancy={}))
    assert (decided.actions, decided.nodes_to_probe) == ((), ("n1",))
    assert reasons(decided) == {"n1": "CheckingIdle"}
    decided = plan(observed([profile(rollout=at_once(2))], nodes("n1", "n2", "n3"), occupancy={}))
    assert decided.nodes_to_probe == ("n1", "n2")
    both = [profile("a", target={"nodeNames": ["n1"]}), profile("b", target={"nodeNames": ["n1"]})]
    assert plan(observed(both, occupancy={})).nodes_to_probe == ("n1",)


def test_a_busy_or_returning_node_waits_and_stands_are_in_the_order_of_names() -> None:
    decided = plan(observed([NIGHTLY], nodes("n1", "n2"), busy={"n1": "team/train-0"}))
    assert reasons(decided) == {"n1": "Busy", "n2": "AgentStarting"}
    old = job("n1", run=RUN, node_uid="uid-of-before")
    wide = profile(rollout=at_once(2))
    for left in ({"jobs": (old,), "pods": (pod(old),)}, {"pods": (pod(old),)}):
        assert reasons(plan(observed([wide], nodes("n1"), **left))) == {"n1": "MeasuredByAnotherProfile"}
    fleet = {uid: node_object(name=name, uid=uid) for uid, name in (("1", "c"), ("2", "a"), ("3", "b"))}
    assert list(reasons(plan(observed([NIGHTLY], fleet)))) == ["a", "b", "c"]


def test_the_limit_counts_agents_new_and_old_and_per_cent_of_nodes_not_skipped() -> None:
    three = profile(rollout=at_once(3))
    running = job("n1", run=RUN)
    decided = plan(observed([three], nodes("n1", "n2", "n3", "n4"), jobs=(running,), pods=(pod(running),)))
    assert list(reasons(decided).values()) == ["AgentRunning", "AgentStarting", "AgentStarting", "MaxConcurrentReached"]
    half = profile(rollout=at_once("50%"))
    fleet = nodes("n1", "n2", "n3", "n4") | nodes("m1", "m2", labels={"nvidia.com/gpu.product": "Tesla-T4"})
    assert len(plan(observed([half], fleet)).actions) == 2


FINISHED = job(run=RUN, finished="Complete", finished_at=NOW)
LEFTOVERS: dict[str, dict[str, Any]] = {
    "a pod whose Job is gone": {"pods": (pod(job("n1", run="r0")),)},
    "a Job whose result is not read yet": {"jobs": (FINISHED,)},
    "a Job that is being deleted": {"jobs": (job(run=RUN, deleting=True),)},
    "a Job on a node that is gone": {"jobs": (job("n9", run=RUN),)},
}


@pytest.mark.parametrize("left", LEFTOVERS.values(), ids=LEFTOVERS)
def test_what_may_still_run_counts_in_the_limit(left: dict[str, Any]) -> None:
    decided = plan(observed([NIGHTLY], nodes("n1", "n2"), **left))
    assert not [action for action in decided.actions if isinstance(action, Start)]
    assert reasons(decided)["n2"] == "MaxConcurrentReached"


OLDER = tried(run="older", basis={"spec": "older"})


@pytest.mark.parametrize(
    ("status", "starts"), [(measured(run=RUN), "n2"), (OLDER, "n1"), (measured(run=RUN, number=2), "n2")]
)
def test_a_job_that_is_over_and_that_a_finalizer_keeps_takes_no_place_and_no_report(status: Any, starts: str) -> None:
    here, there = (job(node, run=status.attempt.run, finished="Complete", deleting=True) for node in ("n1", "n9"))
    left = report("n9", status=tried(run=RUN))
    decided = plan(observed([NIGHTLY], nodes("n1", "n2"), jobs=(here, there), reports=(report(status=status), left)))
    assert [action.facts.name for action in decided.actions if isinstance(action, Start)] == [starts]
    assert reasons(decided)["n1"] == ("Measured" if starts == "n2" else "AgentStarting")
    assert [action.report for action in decided.actions if isinstance(action, MarkStale)] == [left]


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_jobs_of_a_node_the_newest_counts_for_a_ramp_and_as_the_one_that_was_measured(turn: int) -> None:
    old, new = (job(run=run, created=NOW - MINUTE * age) for run, age in (("old", 300), (RUN, 1)))
    over = [replace(it, finished="Complete", deleting=True) for it in (old, new)]
    ramping = profile(rollout=at_once(3) | {"rampSeconds": 3600})
    jobs = (over[0], new)[::turn]
    decided = plan(observed([ramping], nodes("n1", "n2"), jobs=jobs, pods=(pod(new),)))
    assert reasons(decided)["n2"] == "Ramping"
    later = report(status=measured(run=RUN, startedAt=format_time(NOW - MINUTE)))
    world = observed([ramping], nodes("n1", "n2"), jobs=over[:1], reports=(later,))
    assert reasons(plan(world)) == {"n1": "Measured", "n2": "Ramping"}, "the older Job hides no newer start"
    for kept in (replace(new, deleting=True, creation_problem="exceeded quota"), over[1]):
        [state] = plan(observed([NIGHTLY], jobs=(kept,))).profiles[0].node_states
        assert "finalizers keep it" in state.message, "it was deleted while it ran, or before it was read"
    reports = (report(status=measured(run=RUN)),)
    assert reasons(plan(observed([NIGHTLY], jobs=tuple(over[::turn]), reports=reports))) == {"n1": "Measured"}


def test_two_profiles_share_the_nodes_one_each_and_then_the_second_has_its_turn() -> None:
    old = profile("z", created=NOW - MINUTE, rollout=at_once(4))
    decided = plan(observed([profile("a", rollout=at_once(4)), old], nodes("n1", "n2", "n3")))
    assert reasons(decided, "z") == {"n1": "AgentStarting", "n2": "MeasuredByAnotherProfile", "n3": "AgentStarting"}
    assert reasons(decided, "a") == {
        "n1": "MeasuredByAnotherProfile",
        "n2": "AgentStarting",
        "n3": "MeasuredByAnotherProfile",
    }
    first, second = profile("a", created=NOW - MINUTE), profile("b")
    decided = plan(observed([first, second], reports=(report(owner="a", status=tried(run=run_of(first))),)))
    assert (reasons(decided, "a"), reasons(decided, "b")) == ({"n1": "Measured"}, {"n1": "AgentStarting"})


ATTEMPTS: dict[str, tuple[Any, str]] = {
    "measured": (tried(run=RUN), "Measured"),
    "failed for good": (tried("failed", run=RUN, failures=3, reason="AgentCrashed"), "AgentCrashed"),
    "failed for a reason of another version": (tried("failed", run=RUN, failures=3, reason="Exotic"), "Failed"),
    "failed for a reason that is none of a failure": (tried("failed", run=RUN, failures=3, reason="Busy"), "Failed"),
    "failed just now, with retries left": (tried("failed", run=RUN, failures=1, ago=timedelta(0)), "Retrying"),
    "failed a while ago, with retries left": (tried("failed", run=RUN, failures=1), "AgentStarting"),
    "disrupted a while ago": (tried("disrupted", run=RUN), "AgentStarting"),
    "disrupted just now": (tried("disrupted", run=RUN, ago=timedelta(0)), "BackingOff"),
    "measured for another spec": (tried(run="older", basis={"spec": "older"}), "AgentStarting"),
    "failed for another spec": (tried("failed", run="older", failures=3, basis={"spec": "older"}), "AgentStarting"),
}


@pytest.mark.parametrize(("status", "reason"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_the_newest_attempt_of_this_run_decides(status: Any, reason: str) -> None:
    assert reasons(plan(observed([NIGHTLY], reports=(report(status=status),)))) == {"n1": reason}


def test_a_running_agent_goes_on_on_a_cordoned_node_and_without_slices() -> None:
    running = job("n1", run=RUN)
    decided = plan(observed([NIGHTLY], nodes("n1", unschedulable=True), jobs=(running,), pods=(pod(running),)))
    assert (decided.actions, reasons(decided)) == ((), {"n1": "AgentRunning"})
    seen = observed([profile()], nodes("n1", labels={}, gpus=None), slices=(), jobs=(job(),), pods=(pod(job()),))
    decided = plan(replace(seen, profiles=(profile(target={"nodeNames": ["n1"]}),)))
    assert [state.reason for state in decided.profiles[0].node_states] == ["AgentRunning"]
    assert decided.actions == ()


def test_a_finished_job_is_collected_into_pool_and_nvlink_domain_of_its_node() -> None:
    ended = pod(FINISHED, "Succeeded", message="{}")
    action = only(observed([NIGHTLY], jobs=(FINISHED,), pods=(ended,), reports=(report(),)))
    assert action == Collect(FINISHED, ended, report(), "NVIDIA-H100-80GB-HBM3")
    node = node_object({"nvidia.com/gpu.product": "NVIDIA-GB200", "nvidia.com/gpu.clique": "5f1e9f9c.2"}, name="n1")
    ended = pod(FINISHED, "Succeeded", message="{}")
    action = only(observed([NIGHTLY], {"uid-n1": node}, jobs=(FINISHED,), pods=(ended,), reports=(report(),)))
    assert isinstance(action, Collect)
    assert (action.pool, action.nvlink_domain) == ("NVIDIA-GB200", "5f1e9f9c.2")


def test_a_job_is_collected_as_of_its_reports_node_and_with_its_own_pod() -> None:
    moved = replace(FINISHED, node_uid="uid-n2")
    ended = pod(moved, "Succeeded", message="{}")
    action = only(observed([NIGHTLY], nodes("n2"), jobs=(moved,), pods=(ended,), reports=(report("n2"),)))
    assert isinstance(action, Collect)
    assert (action.job.node_name, ended.node_name) == ("n2", "n1"), "its pod ran elsewhere: no result"
    earlier = pod(replace(FINISHED, uid="uid-of-the-one-deleted-by-hand"), "Failed", exit_code=137)
    action = only(observed([NIGHTLY], jobs=(FINISHED,), pods=(earlier,), reports=(report(),)))
    assert isinstance(action, Collect)
    assert action.pod is None


def test_a_job_whose_end_is_in_the_report_is_deleted_once() -> None:
    decided = plan(observed([NIGHTLY], jobs=(FINISHED,), reports=(report(status=tried(run=RUN)),)))
    assert told(decided) == [("Drop", "ResultWritten")]
    assert reasons(decided) == {"n1": "Measured"}
    assert plan(observed([NIGHTLY], jobs=(replace(FINISHED, deleting=True),))).actions == ()


def test_an_incomplete_result_or_a_mark_says_why_and_of_which_node() -> None:
    whole = measured(run=RUN)
    partial = whole.model_copy(update={"run": whole.run.model_copy(update={"partial": "deadline: 2 of 3 passes"})})
    (state,) = plan(observed([NIGHTLY], reports=(report(status=partial),))).profiles[0].node_states
    assert (state.reason, "attempt 1, not completely (deadline: 2 of 3 passes)" in state.message) == ("Measured", True)
    action = only(observed([NIGHTLY], {}, reports=(report("n9", status=tried()),)))
    assert isinstance(action, MarkStale)
    assert "Node n9 is no longer in the cluster" in action.message
    assert FRESH not in {c.type for c in action.report.status.conditions} if action.report.status else False


def test_jobs_of_a_deleted_profile_are_deleted_and_its_reports_left_to_the_garbage_collector() -> None:
    left = job(owner="gone", run=RUN)
    assert plan(observed([], jobs=(left,), reports=(report(owner="gone"),))).actions == (
        Drop("Job", "ml", left.name, left.uid, Said("ProfileDeleted", words="its profile is gone")),
    )


def test_a_vanished_nodes_run_is_closed_first_and_its_result_not_overwritten() -> None:
    running = job("n9", run=RUN)
    seen = observed([NIGHTLY], {}, jobs=(running,), pods=(pod(running),), reports=(report("n9"),))
    assert told(plan(seen)) == [("Close", "NodeLost")]
    assert told(plan(replace(seen, own_jobs={}))) == [("Drop", "NodeLost")], (
        "no leader made it: nothing is told of a node"
    )
    assert told(plan(replace(seen, jobs=(), pods=()))) == [("MarkStale", "NodeGone")]
    finished = replace(FINISHED, node_uid="uid-n9", node_name="n9")
    assert told(plan(observed([NIGHTLY], {}, jobs=(finished,), reports=(report("n9"),)))) == [
        ("Collect", "AgentFinished")
    ]


@pytest.mark.parametrize(
    ("status", "actions"),
    [
        (None, [("MarkStale", "NodeGone")]),
        (tried(), [("MarkStale", "NodeGone")]),
        (gone(timedelta(hours=23)), []),
        (gone(timedelta(hours=24)), [("Drop", "RetentionOver")]),
    ],
    ids=["never measured", "measured", "a day is not over", "a day is over"],
)
def test_reports_of_lost_nodes_are_marked_and_go_when_their_time_is_over(
    status: Any, actions: list[tuple[str, str]]
) -> None:
    assert told(plan(observed([NIGHTLY], {}, reports=(report("n9", status=status),)))) == actions


def waiting(of: JobView, **changes: Any) -> tuple[PodView, ...]:
    return (pod(of, "Pending", **changes),)


SLOW = job(run=RUN, created=NOW - 5 * MINUTE)


@pytest.mark.parametrize("changed", [{"created": NOW - 4 * MINUTE}, {}], ids=["younger", "running"])
def test_an_agent_that_runs_or_is_young_is_not_closed(changed: dict[str, Any]) -> None:
    of = replace(SLOW, **changed)
    assert plan(observed([NIGHTLY], jobs=(of,), pods=() if changed else (pod(of),))).actions == ()


def test_a_profile_that_is_refused_or_unreadable_starts_nothing_and_stops_nothing_else() -> None:
    decided = plan(observed([NIGHTLY], nodes("n1") | nodes("n2", unschedulable=True), priority_class_exists=False))
    assert decided.actions == ()
    assert getattr(decided.profiles[0].asked, "reason", None) == "PriorityClassMissing"
    assert reasons(decided) == {"n1": "ProfileNotAccepted", "n2": "Cordoned"}
    broken = profile("broken", problem="spec.workload: missing")
    kept = report(owner="broken", node="n9", status=gone(timedelta(days=9)))
    decided = plan(observed([broken, NIGHTLY], reports=(kept,)))
    assert told(decided) == [("Start", "AgentStarting")]
    assert decided.profiles[0].node_states == ()


def test_what_no_watch_shows_is_looked_at_again_within_seconds() -> None:
    (busy,) = plan(observed([profile()], busy={"n1": "team/train-0"})).profiles
    (suspended,) = plan(observed([profile(suspend=True)])).profiles
    (refused,) = plan(observed([profile("broken", problem="spec.workload: Field required")])).profiles
    assert [each.poll_seconds for each in (busy, suspended, refused)] == [5.0, None, 5.0]
    assert {code for code, row in REASONS.items() if row.poll_seconds is not None} == {
        *("AgentStarting", "AgentUnreachable", "AgentUnschedulable", "BackingOff", "Busy", "CheckingIdle"),
        *("ImagePullFailing", "InsufficientCPU", "InsufficientCPUAndMemory", "InsufficientMemory", "PullingImage"),
        *RULES,
        *("DeviceClassMissing", "DeviceClassShares"),
        *("NotDueYet", "ProfileNotAccepted", "Ramping", "Retrying", "WaitsInQueue"),
    }


@pytest.mark.parametrize(
    ("changes", "wakes"),
    TABLES["wakes"].values(),
    ids=TABLES["wakes"],
)
def test_a_run_that_time_alone_begins_wakes_the_operator_though_nothing_else_happens(
    changes: dict[str, Any], wakes: bool
) -> None:
    basis = {"spec": resolve_profile(profile(**changes), observed()).run}
    seen = observed([profile(**changes)], nodes("n1"), reports=(report(status=measured(10 * MINUTE, basis=basis)),))
    decided = plan(seen)
    assert [state.reason for state in decided.profiles[0].node_states] == ["Measured"]
    at = decided.look_again_at
    assert (at is not None) == wakes
    if at is not None:
        assert [state.current.due for state in plan(replace(seen, now=at)).profiles[0].node_states] != [None]
