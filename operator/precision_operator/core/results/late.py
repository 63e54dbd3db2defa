"""What is said of an agent that was still there past its deadline: the end of its log tells whether it hung.

An agent that works ends itself at its deadline with what it has. One that has to be ended reacts to nothing, and where
it stood is the first thing that its node's owner asks.
"""

from __future__ import annotations

from datetime import datetime

from precision_api.plain_text import shortened
from precision_api.progress_line import LINE_SECONDS, last_progress
from precision_operator.core.observe.observed import JobView, PodView
from precision_operator.core.reasons import sentence
from precision_operator.core.results.ingest import NoResult
from precision_operator.core.results.log_tail import is_no_log
from precision_operator.core.rollout.places import running_since

HUNG_SECONDS = 4 * int(LINE_SECONDS)
"""Without a line for this long an agent hung. One that is only slow is past its deadline by a step that is not over."""
_WORDS = 100
"""Characters of its last line, which anybody in its container may have written, that the message repeats."""


def explained(problem: NoResult, job: JobView, pod: PodView | None, at: datetime, log: str | None) -> NoResult:
    """`problem`; where it is that the agent was ended past its deadline, what the end of its `log` shows is in it.

    `at` is when it was ended, `log` what the report keeps of it; None where none was asked for.
    """
    if problem.reason != "DeadlineExceeded" or pod is None or log is None:
        return problem
    seconds = max(0, int((at - running_since(pod)).total_seconds()))
    last = last_progress(log)
    if last is None:
        what = "there is no log of it" if is_no_log(log) else "the end of its log shows no phase"
        return NoResult("DeadlineExceeded", sentence("DeadlineExceeded", seconds=seconds, what=what))
    silent, words = max(0, seconds - last.seconds), shortened(last.words, _WORDS)
    if silent < HUNG_SECONDS:
        what = f"it made progress until {silent} s before ({words})"
        return NoResult("DeadlineExceeded", sentence("DeadlineExceeded", seconds=seconds, what=what))
    hung = sentence("AgentHung", seconds=seconds, silent=silent, words=words, node=job.node_name)
    return NoResult("AgentHung", hung)
