"""When a failed node is tried again, when no more, and when it is left alone until somebody asks for it."""

from datetime import timedelta
from typing import Any

import pytest

from precision_api.kinds.profile import Retention, Retry
from precision_api.kinds.report import ReportAttempt, ReportStatus
from precision_operator.core.attempts import retry as retrying
from precision_operator.core.attempts.actions import Collect, Keeping, Start
from precision_operator.core.attempts.node_state import NodeState
from precision_operator.core.plan import plan
from precision_operator.core.reasons import REASONS, Said
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from tests.support.golden import beside
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.simulated_cluster import summary
from tests.support.world import MINUTE, NOW, job, measured, nodes, observed, pod, profile, report, tried

TABLES = beside(__file__)

RETRY = Retry(limit=2, backoff_seconds=60)
CRASH = NoResult(Said("AgentCrashed", words="It crashed."))


def failed(failures: int = 1, reason: str = "AgentCrashed", **changes: Any) -> ReportAttempt:
    status = tried("failed", failures=failures, reason=reason, **changes)
    assert status.attempt is not None
    return status.attempt


@pytest.mark.parametrize(
    ("failures", "retry", "over"), [(1, RETRY, False), (2, RETRY, False), (3, RETRY, True), (1, Retry(limit=0), True)]
)
def test_a_run_has_failed_on_a_node_when_its_retries_are_spent(failures: int, retry: Retry, over: bool) -> None:
    assert retrying.spent(failed(failures), retry) is over


@pytest.mark.parametrize(("reason", "failures", "seconds"), TABLES["rests"])
def test_a_node_rests_by_its_reason_doubled_each_time_up_to_six_hours(reason: str, failures: int, seconds: int) -> None:
    assert retrying.backoff(failed(failures, reason), RETRY) == timedelta(seconds=seconds) <= retrying.LONGEST


def test_nodes_that_rest_come_back_apart_and_longer_rests_are_of_failures() -> None:
    assert {row.kind for row in REASONS.values() if row.backoff_factor > 1} == {"failed"}
    rests = [retrying.rest(HALF_A_MINUTE, 6, f"uid-{n}") for n in range(20)]
    assert len(set(rests)) > 10
    assert rests == [retrying.rest(HALF_A_MINUTE, 6, f"uid-{n}") for n in range(20)]


@pytest.mark.parametrize(
    ("ago", "waits"),
    [
        (timedelta(seconds=59), True),
        (timedelta(seconds=60), False),
        (timedelta(seconds=-59), True),
        (timedelta(days=-40), False),
    ],
    ids=["not yet", "now", "a clock that is a little slow", "a clock that has jumped back"],
)
def test_the_next_attempt_starts_when_the_rest_is_over(ago: timedelta, waits: bool) -> None:
    assert retrying.next_try(failed(ago=ago), RETRY, NOW) == (NOW - ago + MINUTE if waits else None)


def test_a_node_that_rests_says_which_retry_or_try_comes_when() -> None:
    last_report = report(status=tried("failed", failures=1, reason="AgentCrashed", message="Exit 1.", ago=timedelta(0)))
    node_state = plan(observed([profile()], reports=(last_report,))).profiles[0].node_states[0]
    assert (node_state.reason, node_state.state) == ("Retrying", "queued")
    assert "Attempt 1 failed: Exit 1. Retry 1 of 2 starts automatically at 2026-11-21T09:01:00Z." in node_state.message
    untils = []
    for times in (1, 4):
        last_report = report(status=tried("disrupted", reason="PendingTooLong", disruptions=times, ago=timedelta(0)))
        node_state = plan(observed([profile()], reports=(last_report,))).profiles[0].node_states[0]
        assert node_state.reason == "BackingOff"
        untils.append(node_state.message.removesuffix(".")[-20:])
    assert untils[0] == "2026-11-21T09:00:30Z"
    assert "2026-11-21T09:04:00Z" <= untils[1] <= "2026-11-21T09:05:00Z"


def after(*outcomes: str, run: str = "r1", before: ReportStatus | None = None) -> ReportStatus:
    """The report after attempts of one run that ended like this."""
    status = before or ReportStatus()
    for number, outcome in enumerate(outcomes, 1):
        problem = CRASH if outcome == "failed" else NoResult(Said("Disrupted", words="It was moved away."), "disrupted")
        keeping = Keeping(RETRY, Retention())
        status = ingest.failed_status(problem, job(run=run, attempt=number), report(status=status), NOW, keeping)
    return status


def failures(status: ReportStatus) -> int:
    return status.attempt.failures if status.attempt is not None else 0


def test_disruptions_alone_never_fail_a_run() -> None:
    status = after("failed", "disrupted", "disrupted", "failed")
    assert failures(status) == 2
    assert status.failed_runs == 0, "one retry is left"
    assert status.history == ()
    assert failures(after(*["disrupted"] * 50)) == 0
    assert failures(after("failed", run="r2", before=after("failed", "failed"))) == 1


def test_a_node_that_failed_run_after_run_is_quarantined_with_the_last_reason() -> None:
    status = after("failed", "failed", "failed")
    assert [(past.run, past.outcome, past.reason) for past in status.history] == [("r1", "failed", "AgentCrashed")]
    assert (status.failed_runs, status.quarantine) == (1, None)
    assert failed_runs(retrying.QUARANTINE_RUNS - 1).quarantine is None
    status = failed_runs(retrying.QUARANTINE_RUNS)
    assert (status.quarantine.reason, status.quarantine.message, status.state) == (
        "AgentCrashed",
        "It crashed.",
        "Quarantined",
    )
    good = measured().model_copy(update={"failed_runs": 0})
    assert after("failed", "failed", "failed", run="r9", before=good).failed_runs == 1


def failed_runs(runs: int) -> ReportStatus:
    status = ReportStatus()
    for number in range(runs):
        status = after("failed", "failed", "failed", run=f"r{number}", before=status)
    return status


def quarantined(**basis: str) -> ReportStatus:
    """A node in quarantine whose last run was begun for `basis`."""
    status = failed_runs(retrying.QUARANTINE_RUNS)
    return status.model_copy(update={"attempt": status.attempt.model_copy(update={"basis": basis})})


def stand_of(status: ReportStatus, mark: str = "", node: Any = None, **spec: Any) -> NodeState:
    seen = observed([profile(**spec)], {"uid-n1": node or node_object()}, reports=(report(status=status, rerun=mark),))
    decided = plan(seen)
    assert [a for a in decided.actions if isinstance(a, Start)] == [] or decided.profiles[0].node_states[
        0
    ].state == "running"
    return decided.profiles[0].node_states[0]


def test_a_quarantined_node_shows_its_failure_until_a_new_run_would_begin_and_then_waits() -> None:
    assert stand_of(quarantined()).reason == "AgentCrashed"
    node_state = stand_of(quarantined(spec="older"))
    assert (node_state.reason, node_state.state) == ("Quarantined", "waiting")
    assert node_state.message == (
        "3 runs in a row ended without a result on it, the last with AgentCrashed. "
        "Fix the node, then release it with kubectl precision rerun n1."
    )


OTHER_DRIVER = node_object(EIGHT_H100 | {"nvidia.com/cuda.driver-version.full": "580.2"})
RELEASES: dict[str, NodeState] = {
    "a rerun of the node": stand_of(quarantined(), mark="now"),
    "a rerun of the profile": stand_of(quarantined(), rerun="now"),
    "another driver": stand_of(quarantined(driver="570.1"), node=OTHER_DRIVER),
    "other hardware": stand_of(quarantined(hardware="H100/4/")),
}


@pytest.mark.parametrize("node_state", RELEASES.values(), ids=RELEASES)
def test_a_quarantined_node_is_released_by(node_state: NodeState) -> None:
    assert node_state.reason == "AgentStarting"


@pytest.mark.parametrize(
    "spec",
    [{"recipes": ["fp8_current"]}, {"agent": {"image": "registry.example/agent:2"}}],
    ids=["another spec", "another image"],
)
def test_a_quarantined_node_is_not_released_by(spec: dict[str, Any]) -> None:
    assert stand_of(quarantined(spec="older", agent="older"), **spec).reason == "Quarantined"


def test_a_release_gives_the_node_its_retries_and_then_quarantine_again() -> None:
    assert stand_of(after("failed", run="released", before=quarantined())).reason == "Retrying"
    again = after("failed", "failed", "failed", run="released", before=quarantined())
    assert again.quarantine is not None
    assert again.failed_runs == retrying.QUARANTINE_RUNS + 1


def test_a_result_ends_the_quarantine_and_the_row_of_failures_and_losses() -> None:
    good = ingest.finding(summary(job()), None, "no log")
    status = ingest.read_status(good, job(run="released"), report(status=quarantined()), "pool", NOW)
    assert (status.quarantine, status.failed_runs, status.state) == (None, 0, "Measured")
    assert [past.outcome for past in status.history] == ["succeeded", "failed", "failed"], "three runs are kept"
    status = ingest.read_status(good, job(attempt=3), report(status=ended_by(*["NodeLost"] * 2)), "pool", NOW)
    assert (status.attempt.node_losses, status.attempt.disruptions) == (0, 0)


HALF_A_MINUTE = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 30), (1, 30), (2, 60), (3, 120), (7, 1920), (9, 3600), (10**6, 3600)]
)
def test_a_rest_doubles_with_each_time_up_to_its_longest_and_a_share_of_jitter(times: int, seconds: int) -> None:
    step = timedelta(seconds=seconds)
    assert step <= retrying.rest(HALF_A_MINUTE, times, "uid-n1") <= step * (1 + retrying.JITTER)
    assert seconds <= retrying.LONGEST_DISRUPTED.total_seconds()


def ended_by(*reasons: str) -> ReportStatus:
    """The report after attempts that ended so: `AgentCrashed` is a failure, all others are disruptions."""
    status = ReportStatus()
    for number, reason in enumerate(reasons, 1):
        problem = NoResult(Said(reason, words="Why."), "failed" if reason == "AgentCrashed" else "disrupted")
        status = ingest.failed_status(problem, job(attempt=number), report(status=status), NOW)
    return status


@pytest.mark.parametrize(("reasons", "times"), TABLES["in_a_row"])
def test_the_rest_grows_with_disruptions_in_a_row_but_not_with_those_by_others(reasons: list[str], times: int) -> None:
    assert ended_by(*reasons).attempt.disruptions == times


@pytest.mark.parametrize(("reasons", "times"), TABLES["lost"])
def test_attempts_that_were_lost_with_the_node_are_counted_until_it_is_drained(reasons: list[str], times: int) -> None:
    status = ended_by(*reasons)
    assert (status.attempt.node_losses, status.quarantine) == (times, None)


def test_the_third_loss_with_the_node_in_a_row_quarantines_it_until_it_is_released() -> None:
    status = ended_by("NodeUnresponsive", "Evicted", "NodeLost")
    assert (status.quarantine.reason, status.state) == ("NodeLost", "Quarantined")
    assert status.failed_runs == 0, "no run has failed"
    node_state = stand_of(status)
    assert node_state.reason == "Quarantined"
    assert node_state.message.startswith("3 attempts in a row ended without a result on it, the last with NodeLost.")
    status = ended_by(*["NodeUnresponsive"] * 3)
    assert stand_of(status, mark="now").reason == "AgentStarting"
    again = ingest.failed_status(
        NoResult(Said("NodeUnresponsive", words="Why."), "disrupted"), job(run="released"), report(status=status), NOW
    )
    assert again.attempt.node_losses == 1
    assert stand_of(again).reason == "BackingOff"


def test_who_took_the_pod_away_decides_what_the_attempt_says_of_the_node() -> None:
    ends = {
        "PreemptionByScheduler": ("Preempted", "Preempted"),
        "EvictionByEvictionAPI": ("Evicted", "Drained"),
        "DeletionByTaintManager": ("Evicted", "Drained"),
        "TerminationByKubelet": ("Evicted", "Drained"),
        "DeletionByPodGC": ("Evicted", "Drained"),
        "AReasonOfAnotherVersion": ("Disrupted", "Disrupted"),
    }
    failed_job = job(finished="Failed")
    for reason, (ready, drained) in ends.items():
        taken = pod(failed_job, "Failed", disruption="Why.", disruption_reason=reason)
        outcomes = [summary_of(failed_job, taken, is_drained) for is_drained in (False, True)]
        assert [end.reason for end in outcomes if isinstance(end, NoResult)] == [ready, drained], reason
        assert {end.outcome for end in outcomes if isinstance(end, NoResult)} == {"disrupted"}


def test_a_node_that_takes_no_pods_is_being_drained() -> None:
    failed_job = job(finished="Failed")
    fleets = {
        "ready": nodes("n1"),
        "cordoned": nodes("n1", unschedulable=True),
        "to be deleted": nodes("n1", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        "in maintenance": nodes("n1", taints=[{"key": "example.com/maintenance", "effect": "NoExecute"}]),
        "not ready": nodes("n1", ready="Unknown"),
        "in maintenance, which is not what keeps agents away": nodes(
            "n1",
            labels=EIGHT_H100 | {"nvidia.com/gpu.replicas": "4"},
            taints=[{"key": "example.com/maintenance", "effect": "NoExecute"}],
        ),
    }
    found = {name: plan(observed([profile()], fleet, jobs=(failed_job,))).actions[0] for name, fleet in fleets.items()}
    assert [name for name, action in found.items() if isinstance(action, Collect) and action.drained] == [
        "cordoned",
        "to be deleted",
        "in maintenance",
    ]
