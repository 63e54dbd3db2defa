"""What is said of an agent that was still there past its deadline: the end of its log tells whether it hung.

An agent that works ends itself at its deadline with what it has. One that has to be ended reacts to nothing, and where
it stood is the first thing that its node's owner asks.
"""

from datetime import timedelta

from precision_api.exchange.progress_line import LINE_SECONDS, last_progress
from precision_api.facts.plain_text import shortened
from precision_operator.core.reasons import said
from precision_operator.core.results.endings import NoResult
from precision_operator.core.results.log_tail import is_no_log

HUNG_SECONDS = 4 * int(LINE_SECONDS)
"""Without a line for this long an agent hung. One that is only slow is past its deadline by a step that is not over."""
_WORDS = 100
"""Characters of its last line, which anybody in its container may have written, that the message repeats."""


def explained(problem: NoResult, node: str, ran: timedelta, log: str | None) -> NoResult:
    """`problem`; where it is that the agent was ended past its deadline, what the end of its `log` shows is in it.

    `ran` is how long its container had run, `log` what the report keeps; None where no log was asked for.
    """
    if problem.reason != "DeadlineExceeded" or log is None:
        return problem
    seconds = max(0, int(ran.total_seconds()))
    last = last_progress(log)
    if last is None:
        what = "there is no log of it" if is_no_log(log) else "the end of its log shows no phase"
        return NoResult(said("DeadlineExceeded", seconds=seconds, what=what))
    silent, words = max(0, seconds - last.seconds), shortened(last.words, _WORDS)
    if silent < HUNG_SECONDS:
        what = f"it made progress until {silent} s before ({words})"
        return NoResult(said("DeadlineExceeded", seconds=seconds, what=what))
    return NoResult(said("AgentHung", seconds=seconds, silent=silent, words=words, node=node))
