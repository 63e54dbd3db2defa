"""The table of faults: what a node's annotations ask for, and what each fault leaves of a good result."""

from __future__ import annotations

import pytest

from precision_api import wire
from precision_lab.faults import FAULTS, Ended, plan_of
from precision_lab.names import AGENT_SECONDS, FAULT, FAULT_RUNS, SCALE
from precision_lab.runtime_log import pieces, rendered
from tests.support.result_objects import result

PUBLISHED = wire.encode(result())
LOG = b"warming up\n" + b"".join(line.encode() + b"\n" for line in PUBLISHED.lines) + b"done\n"
GOOD = Ended(0, PUBLISHED.message.decode(), LOG)
"""An agent that published, with words of its own before and after the result lines."""


def changed(fault: str, argument: str = "") -> Ended:
    """What the fault leaves of the good end."""
    return FAULTS[fault].change(GOOD, argument)


def outcome(ended: Ended) -> str:
    """"whole" when message and log give the result back as an operator reads them, else the reason."""
    try:
        summary = wire.read_message(ended.message)
        log = rendered(pieces(ended.log or b""), tail_lines=summary.detail.lines + 200)
        wire.read_log(log, summary.detail, summary.request_hash)
    except wire.Unreadable as problem:
        return problem.reason
    return "whole"


@pytest.mark.parametrize("fault", ["rotated-log", "noisy-log"])
def test_faults_of_the_log_around_the_result_leave_the_result_whole(fault: str) -> None:
    assert changed(fault) != GOOD
    assert outcome(changed(fault)) == "whole"
