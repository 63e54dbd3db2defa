"""The table of faults: what a node's annotations ask for, and what each fault leaves of a good result."""

from __future__ import annotations

import pytest

from precision_api.exchange import wire
from precision_lab.kubelet.faults import FAULTS, Ended, plan_of
from precision_lab.kubelet.runtime_log import pieces, rendered
from precision_lab.names import AGENT_SECONDS, FAULT, FAULT_RUNS, SCALE
from tests.support.result_objects import result

PUBLISHED = wire.encode(result())
LOG = b"warming up\n" + b"".join(line.encode() + b"\n" for line in PUBLISHED.lines) + b"done\n"
GOOD = Ended(0, PUBLISHED.message.decode(), LOG)
"""An agent that published, with words of its own before and after the result lines."""


def changed(fault: str, argument: str = "") -> Ended:
    """What the fault leaves of the good end."""
    return FAULTS[fault].change(GOOD, argument)


def outcome(ended: Ended) -> str:
    """ "whole" when message and log give the result back as an operator reads them, else why not."""
    try:
        summary = wire.read_message(ended.message)
        log = rendered(pieces(ended.log or b""), tail_lines=summary.detail.lines + 200)
        wire.read_log(log, summary.detail, summary.request_hash)
    except wire.WireError as problem:
        return problem.code
    return "whole"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("rotated-log", "whole"),
        ("noisy-log", "whole"),
        ("log-without-front", "ResultMissing"),
        ("log-without-end", "ResultMissing"),
        ("damaged-log", "ResultDigestMismatch"),
        ("no-log", "ResultMissing"),
        ("bomb", "ResultTooLarge"),
        ("garbage-message", "ResultForeign"),
        ("foreign-message", "ResultForeign"),
        ("cut-message", "ResultDamaged"),
        ("no-message", "ResultMissing"),
    ],
)
def test_a_fault_leaves_the_result_whole_or_gives_its_own_reason(fault: str, expected: str) -> None:
    assert changed(fault) != GOOD
    assert outcome(changed(fault)) == expected


@pytest.mark.parametrize("fault", ["log-without-front", "log-without-end", "damaged-log"])
def test_a_fault_of_the_result_lines_leaves_an_agent_alone_that_wrote_none(fault: str) -> None:
    silent = Ended(14, "", b"nothing to say\n")
    assert FAULTS[fault].change(silent, "") == silent


@pytest.mark.parametrize(
    ("fault", "argument", "exit_code", "reason"),
    [
        ("crash", "", 139, ""),
        ("exit", "42", 42, ""),
        ("oom", "", 137, "OOMKilled"),
        ("refuse", "DeviceMissing", 12, ""),
    ],
)
def test_a_fault_of_the_process_ends_it_with_its_code_and_without_a_result(
    fault: str, argument: str, exit_code: int, reason: str
) -> None:
    ended = changed(fault, argument)
    assert (ended.exit_code, ended.reason) == (exit_code, reason)
    assert outcome(ended) != "whole"


def test_a_refusal_carries_the_words_of_the_agents_own_table() -> None:
    with pytest.raises(wire.AgentRefused) as refused:
        wire.read_message(changed("refuse", "GPUBusy").message)
    assert refused.value.reason == "GPUBusy"


def test_an_evicted_pod_is_marked_as_a_target_of_disruption() -> None:
    ended = changed("evict")
    assert (ended.pod_reason, ended.disruption) == ("Evicted", "TerminationByKubelet")


def test_a_node_without_annotations_runs_the_replay_at_full_speed_for_the_given_time() -> None:
    plan = plan_of({}, earlier_runs=0, seconds=2.0)
    assert plan.agent_arguments == ("run", "--backend", "replay", "--replay-scale", "1")
    assert plan.seconds == 2.0


def test_annotations_set_speed_time_and_the_replays_own_fault() -> None:
    plan = plan_of({SCALE: "0.8", AGENT_SECONDS: "0.5", FAULT: "agent:silent_fallback"}, earlier_runs=0, seconds=2.0)
    assert plan.agent_arguments[-3:] == ("0.8", "--replay-fault", "silent_fallback")
    assert plan.seconds == 0.5


@pytest.mark.parametrize(("earlier", "faulty"), [(0, True), (1, True), (2, False)])
def test_a_fault_with_a_number_of_runs_hits_only_that_many(earlier: int, faulty: bool) -> None:
    plan = plan_of({FAULT: "crash", FAULT_RUNS: "2"}, earlier_runs=earlier, seconds=1.0)
    assert (plan.fault is FAULTS["crash"]) == faulty


def test_an_unknown_fault_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown fault 'meltdown', choose from crash, exit"):
        plan_of({FAULT: "meltdown"}, earlier_runs=0, seconds=1.0)
