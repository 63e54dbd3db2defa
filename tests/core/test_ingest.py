"""What a finished agent left behind becomes a report, or a reason: whatever it was."""

import base64
import gzip
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.exchange.exits import EXITS
from precision_api.exchange.message import Detail, Summary
from precision_api.exchange.request import canonical
from precision_api.exchange.result import CUT_OFF, Gpu, MeasurementResult, RecipeResult
from precision_api.exchange.summary import recipe_summaries
from precision_api.exchange.wire import encode, encode_refusal, read_message
from precision_api.facts.recipes import RECIPES
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.actions import MarkFresh, MarkStale
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import JobView, PodView, Termination
from precision_operator.core.reasons import REASONS, Said
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from precision_operator.core.results.ingest import finding
from precision_operator.core.results.reading import read
from tests.agent.test_run import fullest
from tests.support.report_objects import recipe_row, report_status
from tests.support.result_objects import HASH, recipe_result, result
from tests.support.world import MINUTE, NOW, gone, job, pod, report

GOOD = encode(result())
FINISHED = job("node-1", finished="Complete", finished_at=NOW, request_hash=HASH)
FAILED = replace(FINISHED, finished="Failed", failure_reason="BackoffLimitExceeded")
LATE = replace(FAILED, failure_reason="DeadlineExceeded", finished_at=NOW + 35 * MINUTE)


def ended(message: str | bytes = b"", exit_code: int = 0, **changes: Any) -> PodView:
    text = message.decode() if isinstance(message, bytes) else message
    phase = "Failed" if exit_code else "Succeeded"
    return pod(FINISHED, phase, termination=Termination(exit_code, changes.pop("reason", ""), text), **changes)


def status(**changes: Any) -> ReportStatus:
    """The status that a good result leads to; `changes` are of the result."""
    published = encode(result(**changes))
    found = finding(read_message(published.message), "\n".join(published.lines))
    return ingest.read_status(found, FINISHED, report(), "pool-1", NOW)


PROBLEMS: dict[str, tuple[JobView, PodView | None, str, str]] = {
    "the pod is gone after the deadline": (LATE, None, "DeadlineExceeded", "failed"),
    "the kubelet never told the end": (FAILED, pod(FINISHED, "Failed"), "PodLost", "disrupted"),
    "never told, after the deadline": (LATE, pod(FINISHED, "Failed"), "DeadlineExceeded", "failed"),
    "deleted by somebody": (FAILED, ended(exit_code=143, deleting_since=NOW), "PodLost", "disrupted"),
    "deleted while it crashed": (FAILED, ended(exit_code=139, deleting_since=NOW), "AgentCrashed", "failed"),
    "too much, and no end is told": (FAILED, pod(FINISHED, "Failed", failure="Evicted"), "AgentOutOfStorage", "failed"),
    "too much, and its kubelet can't find it any more": (
        FAILED,
        ended(exit_code=137, reason="ContainerStatusUnknown", failure="Evicted"),
        "AgentOutOfStorage",
        "failed",
    ),
    "killed by the kubelet's clock": (
        FAILED,
        ended(exit_code=137, failure="DeadlineExceeded"),
        "DeadlineExceeded",
        "failed",
    ),
    "its kubelet can't find it": (
        FAILED,
        ended(exit_code=137, reason="ContainerStatusUnknown"),
        "ContainerLost",
        "disrupted",
    ),
    "killed at the deadline": (LATE, ended(exit_code=137), "DeadlineExceeded", "failed"),
    "a crash": (FAILED, ended("Traceback", 1), "AgentCrashed", "failed"),
    "a planned end": (FAILED, ended(encode_refusal("GPUBusy", "pid 7"), 14), "AgentRefused", "failed"),
    "a backend that can't be loaded": (
        FAILED,
        ended(encode_refusal("BackendUnavailable", "libcublas.so.13: cannot open"), 15),
        "BackendUnavailable",
        "failed",
    ),
    "the answer to another request": (
        replace(FINISHED, request_hash="cd" * 32),
        ended(GOOD.message),
        "ResultForeign",
        "failed",
    ),
}


@pytest.mark.parametrize(("of", "left", "reason", "outcome"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_no_result_has_a_reason_that_users_can_read(
    of: JobView, left: PodView | None, reason: str, outcome: str
) -> None:
    problem = summary_of(of, left)
    assert isinstance(problem, NoResult)
    assert (problem.reason, problem.outcome) == (reason, outcome)
    assert REASONS[problem.reason].kind == "failed"
    assert problem.message.endswith((".", "}"))


@pytest.mark.parametrize("code", [row.code for row in EXITS if row.code])
def test_every_planned_end_without_a_message_is_named(code: int) -> None:
    problem = summary_of(FAILED, ended(exit_code=code))
    assert isinstance(problem, NoResult)
    assert problem.reason == ("BackendUnavailable" if code == 15 else "AgentRefused")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def with_number(value: Any, number: float) -> Any:
    """A summary's JSON with every figure replaced by `number`, which an honest agent would never write."""
    if isinstance(value, dict):
        return {key: with_number(part, number) for key, part in value.items()}
    if isinstance(value, list) and len(value) == 4 and isinstance(value[0], float):
        return [number, number, number, value[3]]
    if isinstance(value, list):
        return [with_number(part, number) for part in value]
    return number if isinstance(value, float) else value


MESSAGES = st.one_of(
    st.text(max_size=200),
    st.sampled_from(['{"v":"PPS1"}', '{"v":"PPE1","reason":"x"}', "[]", "null", "{}"]),
    NUMBERS.map(lambda number: json.dumps(with_number(json.loads(GOOD.message), number))),
    st.integers(0, len(GOOD.message)).map(lambda end: GOOD.message.decode()[:end]),
)


@given(message=MESSAGES, exit_code=st.integers(-1, 300), late=st.booleans())
def test_whatever_a_message_holds_it_ends_as_a_report(message: str, exit_code: int, late: bool) -> None:
    of = LATE if late else FINISHED
    summary = summary_of(of, ended(message, exit_code))
    if isinstance(summary, NoResult):
        written = ingest.failed_status(summary, of, report(), NOW)
    else:
        written = ingest.read_status(finding(summary, None, "no log"), of, report(), "pool", NOW)
    assert ReportStatus.model_validate(ingest.status_json(written)) == written


def test_a_figure_that_is_not_valid_or_damaged_is_absent_and_no_best() -> None:
    absurd = Summary.model_validate(with_number(json.loads(GOOD.message), 1e300))
    written = ingest.read_status(finding(absurd, None), FINISHED, report(status=status()), "pool", NOW)
    assert (written.attempt.outcome, written.attempt.reason) == ("failed", "ResultDamaged")
    assert written.results == status().results, "the older result stays"
    energy = {"valid": False, "reasons": ["CounterStuck"]}
    broken = recipe_result("bf16").model_dump(mode="json", by_alias=True)
    broken["training"]["energy"] = energy
    written = status(recipes=(RecipeResult.model_validate(broken),))
    told = ingest.status_json(written)["results"][0]
    assert not told.keys() & {"watts", "tokensPerJoule", "speedup", "powerScope"}
    assert told["powerInvalid"] == ["CounterStuck"]
    assert written.tokens_per_joule is None
    assert read("n1", "GB200", ReportStatus()).marks.best is None


def test_a_good_result_is_read_whole_and_without_its_own_log_the_summary_stands_alone() -> None:
    summary = summary_of(FINISHED, ended(GOOD.message))
    assert isinstance(summary, Summary)
    outcome = finding(summary, "noise on stderr\n" + "\n".join(GOOD.lines) + "\n")
    assert isinstance(outcome.result, MeasurementResult)
    assert (outcome.result, outcome.detail_problem) == (result(), "")
    outcome = finding(read_message(GOOD.message), None, "connection refused")
    assert outcome.result is None
    assert "The summary is used." in outcome.detail_problem
    written = ingest.read_status(outcome, FINISHED, report(), "pool", NOW)
    assert (written.run.detail, written.run.detail_problem) == (None, outcome.detail_problem)
    assert written.state == "Measured"
    other = encode(result(node="node-2"))
    summary = read_message(GOOD.message)
    mixed = summary.model_copy(update={"detail": read_message(other.message).detail})
    assert finding(mixed, "\n".join(other.lines)).detail_problem.startswith("DetailUnreadable: ")


@pytest.mark.parametrize("watts", [1e300, 1.7e308, -1.0])
def test_a_power_limit_that_no_gpu_has_makes_the_full_result_unreadable(watts: float) -> None:
    """The sum of such limits is an integer that no report can hold: its Job would be read again and again for a day."""
    document = json.loads(result(gpus=(Gpu(uuid="GPU-1", name="x"),) * 2).model_dump_json(by_alias=True))
    for gpu in document["gpus"]:
        gpu["enforced_limit_watts"] = watts
    packed = gzip.compress(canonical(document).encode(), mtime=0)
    log = f"PPR1 1/1 {base64.b64encode(packed).decode()}"
    detail = Detail(lines=1, bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())
    summary = read_message(GOOD.message).model_copy(update={"detail": detail})
    written = ingest.read_status(finding(summary, log), FINISHED, report(), "pool", NOW)
    assert (written.state, written.hardware.limit_watts) == ("Measured", None)
    assert "enforced_limit_watts" in (written.run.detail_problem or "")


def test_a_report_holds_figures_versions_origin_and_what_kubectl_shows() -> None:
    written = status()
    assert (written.hardware.product, written.hardware.pool) == ("GB200", "pool-1")
    assert (written.run.provenance, written.run.detail) == ("replayed", f"{report().name}-detail")
    assert written.run.passes == 3, "what the intervals of the result are made of, not what its preset asks for today"
    assert (written.attempt.outcome, written.attempt.number) == ("succeeded", 1)
    without_risk = [row for row in written.results if not RECIPES[row.recipe].risk]
    fastest = max(without_risk, key=lambda row: float(row.speedup or 0))
    best = f"{fastest.recipe} {float(fastest.speedup):.2f}x"
    assert (written.data, written.state, written.best) == ("replayed", "Measured", best)
    assert {c.type: c.status for c in written.conditions} == {"Fresh": "True", "Succeeded": "True"}
    bf16 = written.results[0]
    assert (bf16.recipe, bf16.tokens_per_second, bf16.speedup) == ("bf16", "123460", None)


def test_a_run_that_ended_early_or_was_stopped_hands_in_what_it_has() -> None:
    written = status(partial={"reason": "deadline", "message": "2 of 3 passes"})
    assert written.state == "Partial"
    assert {c.type: (c.reason, c.message) for c in written.conditions}["Succeeded"] == (
        "Partial",
        "deadline: 2 of 3 passes",
    )
    stopped = encode(result(partial={"reason": "terminated", "message": "the agent was told to stop"})).message
    assert isinstance(summary_of(FINISHED, ended(stopped)), Summary)


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        ({"disruption": "gpu-a is drained", "disruption_reason": "EvictionByEvictionAPI"}, "Drained"),
        ({"disruption": "training", "disruption_reason": "PreemptionByScheduler"}, "Preempted"),
        ({"deleting_since": NOW}, "PodLost"),
    ],
)
@pytest.mark.parametrize("cut_off", CUT_OFF)
def test_what_an_agent_gives_whose_pod_is_taken_is_no_result(cut_off: str, taken: dict[str, Any], reason: str) -> None:
    def read(partial: dict[str, str] | None) -> Summary | NoResult:
        return summary_of(FINISHED, ended(encode(result(partial=partial)).message, **taken), drained=True)

    stopped = read({"reason": cut_off, "message": "7 palindromes were complete"})
    assert isinstance(stopped, NoResult)
    assert (stopped.reason, stopped.outcome) == (reason, "disrupted")
    assert isinstance(read(None), Summary), "it was done before its pod went"
    assert isinstance(read({"reason": "deadline", "message": "2 of 3 passes"}), Summary), "it ended itself"


@pytest.mark.parametrize("of", [FINISHED, replace(FINISHED, node_name="n7")], ids=["n0 for n7", "the pod ran on n0"])
def test_a_result_of_another_node_than_that_on_which_its_pod_ran_is_none(of: JobView) -> None:
    elsewhere = replace(ended(GOOD.message), node_name="n7" if of is FINISHED else "node-1")
    summary = summary_of(of, elsewhere)
    assert isinstance(summary, NoResult)
    assert (summary.reason, summary.outcome) == ("ResultForeign", "failed")


JUDGED = [("verified", "mxfp8"), ("emulated", "mxfp8"), ("fallback", "bf16"), ("partial", "bf16"), ("unknown", "bf16")]


@pytest.mark.parametrize(
    ("provenance", "usable"), [("replayed", True), ("simulated", True), ("measured", False), ("trial", False)]
)
def test_an_assumed_precision_is_usable_only_where_nothing_ran(provenance: str, usable: bool) -> None:
    raw = report_status([recipe_row("mxfp8", 1.4, verdict="assumed")], provenance=provenance, simulated=[])
    row = read("n1", "GB200", ReportStatus.model_validate(raw)).rows["mxfp8"]
    assert (row.usable, row.verdict) == (usable, "assumed" if usable else "unknown")


@pytest.mark.parametrize(("verdict", "best"), JUDGED)
def test_a_recipe_whose_precision_is_not_proved_is_never_the_best(verdict: str, best: str) -> None:
    results = [recipe_row("bf16"), recipe_row("mxfp8", 1.4, verdict=verdict)]
    assert read("n1", "GB200", ReportStatus.model_validate({"results": results})).marks.best == best


@pytest.mark.parametrize("loss", ["not_learning", "diverging", "diverged"])
def test_a_recipe_that_does_not_learn_is_never_the_best(loss: str) -> None:
    results = [recipe_row("bf16"), recipe_row("mxfp8", 1.4, lossVerdict=loss)]
    assert read("n1", "GB200", ReportStatus.model_validate({"results": results})).marks.best == "bf16"


PROBLEM = NoResult(Said("AgentCrashed", words="It crashed."))


def test_a_failure_keeps_the_older_result_its_logs_end_and_any_message() -> None:
    before = report(status=status())
    second = replace(FAILED, attempt=2, run="r2")
    written = ingest.failed_status(PROBLEM, second, before, NOW + MINUTE)
    assert (written.results, written.run) == (before.status.results, before.status.run)
    assert (written.attempt.run, written.attempt.number, written.attempt.outcome) == ("r2", 2, "failed")
    assert [(c.type, c.status) for c in written.conditions] == [("Fresh", "True"), ("Succeeded", "False")]
    assert written.state == "Failed"
    first = ingest.failed_status(PROBLEM, FAILED, report(), NOW, log="Traceback")
    assert ingest.report_json(first)["attempt"]["log"] == "Traceback"
    second = ingest.failed_status(PROBLEM, replace(FAILED, attempt=2), report(status=first), NOW)
    assert "log" not in ingest.report_json(second)["attempt"]
    written = ingest.failed_status(NoResult(Said("AgentCrashed", words="x" * 9000)), FAILED, report(), NOW)
    assert ReportStatus.model_validate(ingest.status_json(written)) == written


def test_conditions_turn_only_when_their_status_does() -> None:
    first = ingest.failed_status(PROBLEM, FAILED, report(), NOW)
    again = ingest.failed_status(
        NoResult(Said("DeadlineExceeded", words="Late.")), FAILED, report(status=first), NOW + MINUTE
    )
    assert (first.conditions[0].last_transition_time, again.conditions[0].reason) == (
        again.conditions[0].last_transition_time,
        "DeadlineExceeded",
    )


def test_a_vanished_node_keeps_its_figures_from_when_it_vanished_also_marked_twice() -> None:
    before = report(status=status())
    after = ingest.marked_status(MarkStale(before, Said("NodeGone", words="It is gone.")), NOW + MINUTE)
    assert (after.results, after.attempt, after.state) == (before.status.results, before.status.attempt, "NodeGone")
    assert {c.type: (c.status, c.reason) for c in after.conditions}["Fresh"] == ("False", "NodeGone")
    first = gone(timedelta(hours=5))
    again = ingest.marked_status(MarkStale(report(status=first), Said("NodeGone", words="It is gone.")), NOW)
    assert again.conditions[0].last_transition_time == first.conditions[0].last_transition_time
    stale = ingest.marked_status(
        MarkStale(report(status=status()), Said("DriverChange", words="Another driver.")), NOW - 5 * MINUTE
    )
    vanished = ingest.marked_status(MarkStale(report(status=stale), Said("NodeGone", words="It is gone.")), NOW)
    fresh = next(c for c in vanished.conditions if c.type == "Fresh")
    assert (fresh.reason, fresh.last_transition_time) == ("NodeGone", format_time(NOW))
    assert vanished.results == stale.results == status().results


def test_a_mark_that_is_taken_back_leaves_the_figures_fresh_again() -> None:
    stale = ingest.marked_status(
        MarkStale(report(status=status()), Said("DriverChange", words="Another driver.")), NOW - MINUTE
    )
    fresh = ingest.marked_status(MarkFresh(report(status=stale), Said("Measured", words="It is undone.")), NOW)
    condition = next(c for c in fresh.conditions if c.type == "Fresh")
    assert (condition.status, condition.message, condition.last_transition_time) == (
        "True",
        "It is undone.",
        format_time(NOW),
    )
    assert (fresh.state, fresh.results) == ("Measured", status().results)


def test_the_detail_goes_with_its_report_and_a_summary_has_its_figures_again() -> None:
    body = ingest.detail(report(uid="u"), b"packed")
    assert body["metadata"]["name"] == f"{report().name}-detail"
    owners = [(owner["kind"], owner["name"], owner["uid"]) for owner in body["metadata"]["ownerReferences"]]
    assert owners == [("NodePrecisionReport", report().name, "u")]
    assert body["binaryData"] == {"result.json.gz": "cGFja2Vk"}
    sent = fullest("llama3-8b", 50).model_copy(update={"noise_floor": 0.006})
    published = encode(sent)
    assert read_message(published.message).dropped
    cut = read_message(published.message).model_copy(update={"noise_floor": None, "gemm_error": None})
    outcome = finding(cut, "\n".join(published.lines))
    assert outcome.summary.recipes == recipe_summaries(sent)
    assert (outcome.summary.noise_floor, outcome.summary.gemm_error is None) == (0.006, False)
