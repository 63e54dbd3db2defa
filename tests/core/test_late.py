"""An agent that was ended past its deadline: the end of its log tells whether it hung, and where."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.reasons import Said
from precision_operator.core.results.endings import NoResult
from precision_operator.core.results.ingest import MESSAGE_LIMIT
from precision_operator.core.results.log_tail import HUNG_SECONDS, LOG_CHARACTERS, explained, log_tail, no_log
from tests.support.golden import beside

LATE = NoResult(Said("DeadlineExceeded", words="It is late."))
RAN = timedelta(seconds=1860)


def told(log: str | None) -> NoResult:
    """What is said of an agent that was ended 1860 s after the start of its container."""
    return explained(LATE, "n1", RAN, log)


NO_LOG = (no_log("the kubelet does not answer"), "DeadlineExceeded", "after 1860 s: there is no log of it.")
LOGS = beside(__file__) | {"no log": NO_LOG}


@pytest.mark.parametrize(("log", "reason", "words"), LOGS.values(), ids=LOGS)
def test_the_log_tells_a_hung_agent_from_a_slow_one(log: str, reason: str, words: str) -> None:
    found = told(log)
    assert (found.reason, found.outcome) == (reason, "failed")
    assert words in found.message


@pytest.mark.parametrize(("silent", "reason"), [(HUNG_SECONDS - 1, "DeadlineExceeded"), (HUNG_SECONDS, "AgentHung")])
def test_a_hang_is_silence_of_four_lines(silent: int, reason: str) -> None:
    assert told(f" {1860 - silent} s  measuring").reason == reason


def test_other_ends_stay_and_a_clock_that_jumped_back_gives_no_negative_times() -> None:
    crashed = NoResult(Said("AgentCrashed", words="It crashed."))
    assert explained(crashed, "n1", RAN, "    1 s  measuring") is crashed
    assert told(None) is LATE
    explanation = explained(LATE, "n1", -timedelta(hours=1), "   90 s  measuring")
    assert "was stopped after 0 s: it made progress until 0 s before" in explanation.message


@given(st.text(max_size=LOG_CHARACTERS))
def test_whatever_an_agent_writes_the_message_fits_on_a_line_of_its_report(text: str) -> None:
    found = told(log_tail(f"   99 s  {text}".encode("utf-8", "surrogatepass")))
    assert "\n" not in found.message
    assert len(found.message) <= MESSAGE_LIMIT
