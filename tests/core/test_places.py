"""Each stage of an attempt has an end, says which, and the place is free from that moment on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from precision_operator.core.attempts.actions import Close, Collect, Start
from precision_operator.core.observe.observed import JobView, Observed, PodView
from precision_operator.core.observe.views import job_view, pod_view
from precision_operator.core.plan import plan
from precision_operator.core.status.profile_status import profile_status
from tests.support.world import MINUTE, NOW, at_once, job, nodes, observed, pod, profile, report, tried

SECOND = timedelta(seconds=1)
AGES_AGO = NOW - timedelta(days=1)
RUNS = job(created=AGES_AGO, deadline_seconds=1800)
"""Its Job is a day old: only the times of the pod's own stages matter."""
DEAD = nodes("n1", ready="Unknown")
STAGES: dict[str, tuple[dict[str, Any], timedelta, str, str]] = {
    "unplaced": (
        {"of": job(created=NOW), "phase": "Pending", "unschedulable": "0/9"},
        300 * SECOND,
        "PendingTooLong",
        "disrupted",
    ),
    "no scheduler": ({"of": job(created=NOW), "phase": "Pending"}, 300 * SECOND, "PendingTooLong", "disrupted"),
    "its image can't be pulled": (
        {"phase": "Pending", "scheduled_at": NOW, "waiting_reason": "ImagePullBackOff"},
        300 * SECOND,
        "ImagePullFailed",
        "failed",
    ),
    "a Secret is missing": (
        {"phase": "Pending", "scheduled_at": NOW, "waiting_reason": "CreateContainerConfigError"},
        300 * SECOND,
        "StartTooLong",
        "failed",
    ),
    "it pulls": (
        {"phase": "Pending", "scheduled_at": NOW, "waiting_reason": "ContainerCreating"},
        1800 * SECOND,
        "StartTooLong",
        "failed",
    ),
    "it pulls, and its kubelet says nothing": (
        {"phase": "Pending", "scheduled_at": NOW},
        1800 * SECOND,
        "StartTooLong",
        "failed",
    ),
    "it runs": ({"started_at": NOW}, 1860 * SECOND, "DeadlineExceeded", "failed"),
    "nobody knows when it started": ({"scheduled_at": NOW}, 1860 * SECOND, "DeadlineExceeded", "failed"),
    "its pod does not end": (
        {"started_at": AGES_AGO + timedelta(hours=23, minutes=50), "deleting_since": NOW},
        60 * SECOND,
        "NodeUnresponsive",
        "disrupted",
    ),
    "Kubernetes has given its Job up": (
        {"of": replace(RUNS, giving_up_since=NOW), "started_at": NOW},
        60 * SECOND,
        "NodeUnresponsive",
        "disrupted",
    ),
}
NEVER_ANSWERS: dict[str, tuple[dict[str, Any], timedelta]] = {
    "while it starts": ({"phase": "Pending", "scheduled_at": NOW, "waiting_reason": "ContainerCreating"}, 300 * SECOND),
    "while it runs": ({"started_at": NOW}, 1860 * SECOND),
    "while it should end": ({"started_at": NOW, "deleting_since": NOW}, 60 * SECOND),
}


def seen(at: timedelta, of: JobView = RUNS, fleet: Any = None, phase: str = "Running", **changes: Any) -> Observed:
    """An agent's pod, so long after its stage began."""
    return observed([profile()], fleet, now=NOW + at, jobs=(of,), pods=(pod(of, phase, **changes),))


def closed(world: Observed) -> Close | None:
    found = [action for action in plan(world).actions if isinstance(action, Close)]
    return found[0] if found else None


@pytest.mark.parametrize(("changes", "allowed", "reason", "outcome"), STAGES.values(), ids=STAGES)
def test_a_stage_ends_when_its_time_is_over_and_the_plan_says_when(
    changes: dict[str, Any], allowed: timedelta, reason: str, outcome: str
) -> None:
    assert closed(seen(allowed - SECOND, **changes)) is None
    closings = closed(seen(allowed, **changes))
    assert (closings.reason, closings.outcome) == (reason, outcome)
    assert plan(seen(timedelta(0), **changes)).look_again_at == NOW + allowed


@pytest.mark.parametrize(("changes", "allowed"), NEVER_ANSWERS.values(), ids=NEVER_ANSWERS)
def test_what_a_lost_kubelet_has_not_done_is_the_nodes_fault(changes: dict[str, Any], allowed: timedelta) -> None:
    assert closed(seen(allowed - SECOND, fleet=DEAD, **changes)) is None
    closings = closed(seen(allowed, fleet=DEAD, **changes))
    assert (closings.reason, closings.outcome) == ("NodeUnresponsive", "disrupted")
    assert "is unreachable (condition Ready is Unknown (KubeletReady))" in closings.message


def test_the_log_is_read_first_of_an_agent_that_ran_and_whose_kubelet_answers() -> None:
    read = {name for name, (changes, allowed, *_) in STAGES.items() if reads_log(seen(allowed, **changes))}
    assert read == {
        "it runs",
        "nobody knows when it started",
        "its pod does not end",
        "Kubernetes has given its Job up",
    }
    assert not [name for name, (changes, at) in NEVER_ANSWERS.items() if reads_log(seen(at, fleet=DEAD, **changes))]


def reads_log(world: Observed) -> bool:
    return closed(world).pod is not None


@pytest.mark.parametrize("wrong", [timedelta(hours=2), -timedelta(hours=2), -timedelta(days=20_000), 45 * MINUTE])
def test_a_node_whose_clock_is_wrong_costs_no_run(wrong: timedelta) -> None:
    """Its kubelet says when the container started; the control plane, when it was scheduled."""
    told = {"scheduled_at": NOW, "started_at": NOW + wrong}
    assert closed(seen(timedelta(0), **told)) is None
    assert closed(seen((1800 + 1860) * SECOND - SECOND, **told)) is None
    assert closed(seen((1800 + 1860) * SECOND, **told)).reason == "DeadlineExceeded"


def test_a_node_away_for_a_while_costs_no_run_and_unreadable_or_unended_ones_give_places_back() -> None:
    assert closed(seen(20 * MINUTE, fleet=DEAD, started_at=NOW)) is None
    of = job(created=NOW - 5 * MINUTE)
    broken = replace(profile(), spec=None, problem="spec.workload: missing")
    closings = closed(observed([broken], jobs=(of,), pods=(pod(of, "Pending", unschedulable="0/9"),)))
    assert closings.reason == "PendingTooLong"
    of = replace(RUNS, finished="Failed", finished_at=NOW)
    assert isinstance(plan(seen(timedelta(0), of, started_at=NOW)).actions[0], Collect)
    closings = closed(seen(timedelta(0), of, **ABANDONED))
    assert closings.reason == "NodeUnresponsive"


@pytest.mark.parametrize("deadline", [None, 999_999])
def test_no_run_may_take_longer_than_the_longest_preset_whatever_its_annotation_says(deadline: int | None) -> None:
    there = replace(RUNS, deadline_seconds=deadline)
    assert closed(seen((5400 + 60) * SECOND - SECOND, there, started_at=NOW)) is None
    assert closed(seen((5400 + 60) * SECOND, there, started_at=NOW)).reason == "DeadlineExceeded"


def test_a_pod_has_its_own_grace_before_that_of_an_unresponsive_node_begins() -> None:
    for ahead, reason in ((30, None), (-1, None), (-2, "NodeUnresponsive"), (60, "NodeUnresponsive")):
        world = seen(timedelta(0), RUNS, started_at=NOW, deleting_since=NOW + ahead * SECOND)
        end = closed(replace(world, settings=replace(world.settings, unresponsive_grace=2 * SECOND)))
        assert (end and end.reason) == reason, ahead


ABANDONED = {"started_at": NOW, "deleting_since": NOW - MINUTE}


@pytest.mark.parametrize("job_left", ["none", "deleted, and waiting for its pod"])
@pytest.mark.parametrize(("grace", "starts"), [(60, ["n2"]), (61, [])])
def test_a_pod_that_nobody_ends_holds_its_place_for_the_grace_and_its_node_as_long_as_it_is_there(
    grace: int, starts: list[str], job_left: str
) -> None:
    of = replace(RUNS, deleting=True)
    settings = replace(observed().settings, unresponsive_grace=grace * SECOND)
    ended = report(status=tried("disrupted", reason="NodeUnresponsive", ago=timedelta(hours=2)))
    world = observed(
        [profile()],
        nodes("n1", "n2"),
        settings=settings,
        jobs=() if job_left == "none" else (of,),
        pods=(pod(of, **ABANDONED),),
        reports=(ended,),
    )
    assert [action.facts.name for action in plan(world).actions if isinstance(action, Start)] == starts


COLD = nodes("n1", "n2", "n3", "n4", images=())


def started(world: Observed) -> list[str]:
    return [action.facts.name for action in plan(world).actions if isinstance(action, Start)]


def test_two_cold_nodes_pull_at_once_and_a_failed_pull_leaves_one_cold() -> None:
    ran = report("n2", status=tried("succeeded", run="old", basis={"agent": agent_digest(), "spec": "another"}))
    world = observed([profile(rollout=at_once(9))], COLD | nodes("warm"), reports=(ran,))
    assert started(world) == ["n1", "n2", "n3", "warm"], "n2 has run it before"
    basis = {"agent": agent_digest(), "spec": "another"}
    failed = [
        report(name, status=tried("failed", run="old", failures=3, reason="ImagePullFailed", basis=basis))
        for name in ("n1", "n2", "n3")
    ]
    world = observed([profile(rollout=at_once(9))], COLD, reports=tuple(failed))
    assert len(started(world)) == 2


def agent_digest() -> str:
    """What a run that begins now keeps of the agent's image."""
    (start,) = (action for action in plan(observed([profile()])).actions if isinstance(action, Start))
    view = job_view({**start.job, "metadata": {**start.job["metadata"], "uid": "u"}})
    return view.basis["agent"]


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({"phase": "Pending", "scheduled_at": NOW}, 1),
        ({"phase": "Pending", "unschedulable": "0/9"}, 2),
        ({"started_at": NOW}, 2),
    ],
    ids=["one that pulls", "one that has no place", "one that runs"],
)
def test_an_agent_counts_as_pulling_from_getting_its_place_until_it_runs(changes: dict[str, Any], others: int) -> None:
    of = job("n4")
    world = observed([profile(rollout=at_once(9))], COLD, jobs=(of,), pods=(pod(of, **{"phase": "Running"} | changes),))
    assert len(started(world)) == others


@pytest.mark.parametrize(
    ("image", "listed"),
    [
        ("registry.example/agent:2", "registry.example/agent:2"),
        ("registry.example:5000/agent:2@sha256:ab", "registry.example:5000/agent@sha256:ab"),
    ],
)
def test_a_node_lists_an_image_under_the_name_that_its_runtime_gives_it(image: str, listed: str) -> None:
    fleet = nodes("n1", "n2", "n3", images=(listed,))
    owner = profile(rollout=at_once(9) | {"maxImagePulls": 1}, agent={"image": image})
    settings = replace(observed().settings, allowed_images=("registry.example/", "registry.example:5000/"))
    assert started(observed([owner], fleet, settings=settings)) == ["n1", "n2", "n3"]


def test_agents_that_hold_places_and_do_not_measure_are_what_a_profile_waits_for() -> None:
    of = job()
    pulls = pod(of, "Pending", scheduled_at=NOW)
    decided = plan(observed([profile()], nodes("n1", "n2", images=()), jobs=(of,), pods=(pulls,)))
    status = profile_status(decided.profiles[0], NOW, 2)
    assert status.waits_for == "PullingImage (1)"
    assert {row.reason: row.count for row in status.reasons} == {"PullingImage": 1, "MaxConcurrentReached": 1}
    assert (status.nodes.running, status.nodes.failed) == (1, 0)


def test_what_the_cluster_says_of_a_pod_and_a_job_is_read() -> None:
    meta = {"name": "x", "namespace": "ml", "deletionTimestamp": "2026-11-21T09:01:00Z"}
    marks = {"precisionprofiler.io/profile-uid": "p", "precisionprofiler.io/node-uid": "n"}
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"},
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a"},
    ]
    state = {"running": {"startedAt": "2026-11-21T09:00:30Z"}}
    status = {"conditions": conditions, "containerStatuses": [{"name": "agent", "state": state}]}
    names = {"batch.kubernetes.io/job-name": "j", "job-name": "another's: no policy keeps that one"}
    view = pod_view({"metadata": meta | {"labels": marks | names}, "status": status})
    assert isinstance(view, PodView)
    assert view.job == "j"
    assert (view.scheduled_at, view.started_at, view.deleting_since) == (NOW, NOW + 30 * SECOND, NOW + MINUTE)
    assert view.disruption_reason == "PreemptionByScheduler"

    target = {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    notes = {"precisionprofiler.io/deadline-seconds": "1800"}
    raw = {
        "metadata": meta | {"labels": marks | {"precisionprofiler.io/attempt": "1"}, "annotations": notes},
        "status": {"conditions": [target]},
    }
    found = job_view(raw)
    assert (found.giving_up_since, found.deadline_seconds, found.finished) == (NOW, 1800, None)
