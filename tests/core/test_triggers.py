"""Why a node is measured again: every cause by itself, what is no cause, and that each is honoured once."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.actions import MarkFresh, MarkStale, Start
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.eligibility.triggers import CHECKS, CurrentRun, current_run, run_inputs
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.plan import plan
from precision_operator.core.reasons import REASONS
from precision_operator.core.results.ingest import marked_status
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.world import MINUTE, NOW, job, measured, observed, profile, report, tried

DRIVER = "nvidia.com/cuda.driver-version.full"


def node(driver: str | None = "570.86.15", gpus: int = 8) -> dict[str, Any]:
    return node_object(EIGHT_H100 | ({DRIVER: driver} if driver else {}), gpus=gpus)


def found(of: ProfileView, told: ReportView | None, raw: dict[str, Any] | None = None) -> CurrentRun:
    asked = resolve_profile(of, observed([of]))
    assert isinstance(asked, ResolvedProfile)
    return current_run(run_inputs(asked, node_facts(raw or node()), told, NOW))


def begun_for(of: ProfileView, raw: dict[str, Any] | None = None, rerun: str = "") -> dict[str, str]:
    """The basis of a run that begins now."""
    return dict(found(of, report(rerun=rerun), raw).basis)


PLAIN = profile(created=NOW - timedelta(days=9))
BASIS = begun_for(PLAIN)
OTHER_IMAGE = {"agent": {"image": "registry.example/agent:2"}}
NIGHTLY = {"schedule": {"cron": "0 2 * * *"}}


def again(name: str = "nightly", **changes: Any) -> ProfileView:
    """PLAIN, edited."""
    return profile(name, created=PLAIN.created, **changes)


CAUSES: dict[str, tuple[ProfileView, dict[str, Any], str, timedelta]] = {
    "RerunNode": (PLAIN, node(), "2026-11-21", MINUTE),
    "Rerun": (again(rerun="2026-11-21"), node(), "", MINUTE),
    "DriverChange": (PLAIN, node("580.95.05"), "", MINUTE),
    "HardwareChange": (PLAIN, node(gpus=4), "", MINUTE),
    "AgentChange": (again(**OTHER_IMAGE), node(), "", MINUTE),
    "SpecChange": (again(recipes=["fp8_current"]), node(), "", MINUTE),
    "Scheduled": (again(**NIGHTLY), node(), "", MINUTE),
    "TooOld": (again(schedule={"maxAge": "1h"}), node(), "", timedelta(hours=1, seconds=1)),
}
"""By the cause: the profile, its node, the mark of a rerun on the node's report, and the age of its result."""


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_begins_a_run_and_is_honoured_once(cause: str) -> None:
    of, raw, mark, ago = CAUSES[cause]
    before = found(of, report(status=measured(basis=BASIS, ago=ago), rerun=mark), raw)
    assert (before.due, before.attempt) == (cause, None)
    assert REASONS[cause].kind == "due"
    done = report(status=measured(run=before.run, basis=dict(before.basis), ago=timedelta(0)), rerun=mark)
    after = found(of, done, raw)
    assert (after.due, after.run) == (None, before.run), "the run that it began is the node's own from then on"


def seven_of_eight() -> dict[str, Any]:
    """A node with one GPU that is not healthy: the kubelet counts it in capacity alone."""
    offered = {"nvidia.com/gpu": "7"}
    return node_object(EIGHT_H100 | {DRIVER: "570.86.15"}, allocatable=offered, capacity={"nvidia.com/gpu": "8"})


def test_a_gpu_that_is_ill_for_a_while_begins_no_run_and_the_result_holds_again_when_it_is_back() -> None:
    first = measured(basis=BASIS)
    ill = plan(observed([PLAIN], {"uid-n1": seven_of_eight()}, reports=(report(status=first),)))
    (stand,) = ill.profiles[0].node_states
    assert (stand.reason, stand.current and stand.current.due) == ("GPUsMissing", "HardwareChange")
    assert not [action for action in ill.actions if isinstance(action, Start)]
    (stale,) = [action for action in ill.actions if isinstance(action, MarkStale)]
    assert stale.reason == "HardwareChange"
    well = found(PLAIN, report(status=first))
    assert (well.due, well.attempt) == (None, first.attempt)


@pytest.mark.parametrize("cause", ["Rerun", "SpecChange", "Scheduled", "TooOld"])
def test_a_node_with_an_ill_gpu_is_measured_with_the_others_for_any_other_cause(cause: str) -> None:
    of, _, mark, ago = CAUSES[cause]
    now = found(of, report(status=measured(basis=BASIS, ago=ago), rerun=mark), seven_of_eight())
    assert (now.due, now.basis["hardware"]) == (cause, "H100/7/")


def test_a_gpu_that_is_lost_begins_a_run_at_once_or_once_the_run_failed() -> None:
    failed = tried("failed", basis=BASIS, failures=9, reason="GPUUnhealthy")
    (stand,) = (
        plan(observed([PLAIN], {"uid-n1": seven_of_eight()}, reports=(report(status=failed),))).profiles[0].node_states
    )
    assert (stand.current.due, stand.reason == "GPUsMissing") == ("HardwareChange", False)
    assert found(PLAIN, report(status=measured(basis=BASIS)), node(gpus=7)).due == "HardwareChange"


def test_every_check_has_a_row_above_and_what_was_never_measured_is_due() -> None:
    assert {code for code, _ in CHECKS} == {*CAUSES, "VerdictOpen"}, "its row: tests/shell/test_verdicts.py"
    assert found(PLAIN, None).due == found(PLAIN, report()).due == "FirstRun"


@pytest.mark.parametrize("cause", ["DriverChange", "HardwareChange", "AgentChange", "SpecChange"])
def test_a_cause_that_the_profile_does_not_name_begins_nothing(cause: str) -> None:
    of, raw, mark, ago = CAUSES[cause]
    kept = tuple(each for each in of.spec.rerun_on if each != cause)
    deaf = replace(of, spec=of.spec.model_copy(update={"rerun_on": kept}))
    assert found(deaf, report(status=measured(basis=BASIS, ago=ago), rerun=mark), raw).due is None


NO_CAUSE: dict[str, tuple[ProfileView, dict[str, Any], dict[str, str]]] = {
    "nothing has changed": (PLAIN, node(), BASIS),
    "the driver's label is gone": (PLAIN, node(None), BASIS),
    "the driver was not known then": (PLAIN, node(), BASIS | {"driver": ""}),
    "a leading zero, which DRA drops": (PLAIN, node("580.159.4"), BASIS | {"driver": "580.159.04"}),
    "the GPUs are gone for a moment": (PLAIN, node(gpus=0), BASIS),
    "the image was not known then": (again(**OTHER_IMAGE), node(), BASIS | {"agent": ""}),
    "a report from before runs had a basis": (again(recipes=["mxfp8"], **OTHER_IMAGE), node("999.1"), {}),
    "a rerun that is honoured": (again(rerun="x"), node(), begun_for(again(rerun="x"))),
    "a rerun that was taken back": (PLAIN, node(), begun_for(again(rerun="x"))),
    "a tick that is honoured": (again(**NIGHTLY), node(), begun_for(again(**NIGHTLY))),
    "a schedule that was taken out": (PLAIN, node(), begun_for(again(**NIGHTLY))),
    "a result that is just young enough": (again(schedule={"maxAge": "1h"}), node(), BASIS),
    "another rollout": (again(rollout={"maxConcurrent": 9}, retention={"history": 9}), node(), BASIS),
}


@pytest.mark.parametrize(("of", "raw", "basis"), NO_CAUSE.values(), ids=NO_CAUSE)
def test_what_is_unknown_or_the_same_begins_none(of: ProfileView, raw: dict[str, Any], basis: dict[str, str]) -> None:
    ago = timedelta(hours=1) if of.spec and of.spec.schedule.max_age else MINUTE
    result = found(of, report(status=measured(run="r7", basis=basis, ago=ago)), raw)
    assert (result.due, result.run) == (None, "r7")


def test_two_marks_are_two_runs_and_what_comes_again_is_one_of_its_own() -> None:
    first = found(PLAIN, report(status=measured(basis=BASIS), rerun="1"))
    second = found(PLAIN, report(status=measured(run=first.run, basis=dict(first.basis)), rerun="2"))
    assert second.due == "RerunNode"
    assert len({BASIS["spec"], first.run, second.run}) == 3
    newer = again(**OTHER_IMAGE)
    first = found(PLAIN, None)
    second = found(newer, report(status=measured(run=first.run, basis=dict(first.basis))))
    third = found(PLAIN, report(status=measured(run=second.run, basis=dict(second.basis))))
    assert (third.due, third.basis) == ("AgentChange", first.basis)
    assert len({first.run, second.run, third.run}) == 3


def test_a_rerun_of_the_profile_runs_each_node_once_and_of_a_node_only_that_one() -> None:
    fleet = {f"uid-{n}": node_object(EIGHT_H100, name=n) for n in ("n1", "n2")}
    basis = begun_for(PLAIN, node(None))
    told = tuple(report(n, status=measured(basis=basis), rerun="x" if n == "n2" else "") for n in ("n1", "n2"))
    wide = {"rollout": {"maxConcurrent": 2}}
    decided = plan(observed([again(**wide)], fleet, reports=told))
    assert [a.facts.name for a in decided.actions if isinstance(a, Start)] == ["n2"]
    both = plan(observed([again(rerun="y", **wide)], fleet, reports=told))
    assert [a.facts.name for a in both.actions if isinstance(a, Start)] == ["n2", "n1"], (
        "the one that is asked for first"
    )


def stale(status: ReportStatus, **world: Any) -> list[str]:
    seen = observed([PLAIN], {"uid-n1": node("580.95.05")}, reports=(report(status=status),), **world)
    return [action.reason for action in plan(seen).actions if isinstance(action, MarkStale)]


def test_old_figures_are_marked_with_the_reason_until_a_new_run_is_on_its_way() -> None:
    status = measured(basis=BASIS)
    assert stale(status) == ["DriverChange"]
    assert stale(status, busy={"n1": "team/train-0"}) == ["DriverChange"], "also while the node waits"
    assert stale(measured(basis=BASIS), jobs=(job(run="new"),)) == []


def test_a_driver_change_that_is_undone_before_a_new_run_takes_the_mark_away() -> None:
    newest = report(status=measured(basis=begun_for(PLAIN, node("580.95.05"))))
    changed = observed([PLAIN], {"uid-n1": node("585.10.01")}, reports=(newest,))
    (mark,) = (action for action in plan(changed).actions if isinstance(action, MarkStale))
    marked = replace(newest, status=marked_status(mark, NOW))
    (fresh,) = plan(observed([PLAIN], {"uid-n1": node("580.95.05")}, reports=(marked,))).actions
    assert isinstance(fresh, MarkFresh)
    assert "DriverChange" in fresh.message
    again = observed(
        [PLAIN], {"uid-n1": node("580.95.05")}, reports=(replace(newest, status=marked_status(fresh, NOW)),)
    )
    assert not plan(again).actions, "once"
