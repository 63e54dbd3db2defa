"""The end of a failed agent's log, as its report keeps it: the Job goes as soon as it is read, and its log with it.

Whoever can run code on the node can write the log, so nothing in it is trusted: it ends as lines of plain words. Of an
agent that was still there past its deadline it tells whether it hung: an agent that works ends itself then with what it
has. One that has to be ended reacts to nothing, and where it stood is the first thing that its node's owner asks.
"""

import re
from datetime import timedelta

from precision_api.exchange.progress_line import LINE_SECONDS, last_progress
from precision_api.facts.plain_text import plain, shortened, uncontrolled
from precision_operator.core.reasons import said
from precision_operator.core.results.endings import NoResult

LOG_LINES = 20
"""Lines of the log that are read; a runtime counts each piece of a long line as one."""
LOG_BYTES = LOG_LINES * (16 * 1024 + 1)
"""As much as so many pieces can hold (16 KiB each, CRI log format): the kubelet counts its limit from the front of the
lines that were asked for, so that less would cut off the very end."""
LOG_CHARACTERS = 1024
"""What a report keeps of it, as `status.attempt.log` allows."""

_CUT = "..."
_NO_LOG = "(no log: "
_RESULT = re.compile(r"PPR1 [0-9]{1,3}/[0-9]{1,3} .*")
"""Lines of the full result (precision_api.exchange.wire), which say nothing to people; words may stand before one."""
HUNG_SECONDS = 4 * int(LINE_SECONDS)
"""Without a line for this long an agent hung. One that is only slow is past its deadline by a step that is not over."""
_WORDS = 100
"""Characters of its last line, which anybody in its container may have written, that the message repeats."""


def log_tail(raw: bytes) -> str:
    """The last lines of `raw` that say anything, 1,024 characters at most, without control characters; else why none.

    Nothing but printable characters and line ends comes back; a beginning that was cut off is shown as "...".
    """
    text = raw.decode("utf-8", "replace")
    words = _RESULT.sub("", text)
    shown = [line for raw_line in words.split("\n")[-LOG_LINES - 1 :] if (line := _plain(raw_line))]
    if not shown:
        return no_log("its last lines are those of the full result" if text != words else "it is empty")
    kept = "\n".join(shown)
    return kept if len(kept) <= LOG_CHARACTERS else _CUT + kept[len(_CUT) - LOG_CHARACTERS :]


def no_log(why: str) -> str:
    """What stands in the place of a log that is not there: `why`, on one line."""
    return f"{_NO_LOG}{' '.join(_plain(why.replace(chr(10), ' ')).split())[:300]})"


def _plain(line: str) -> str:
    """A line as a terminal would leave it: what carriage returns have written over is gone, other spaces are spaces."""
    last = uncontrolled(line[-4 * LOG_CHARACTERS :]).rstrip("\r").rsplit("\r", 1)[-1].expandtabs(4)
    return plain(last).rstrip()


def explained(problem: NoResult, node: str, ran: timedelta, log: str | None) -> NoResult:
    """`problem`; where it is that the agent was ended past its deadline, what the end of its `log` shows is in it.

    `ran` is how long its container had run, `log` what the report keeps; None where no log was asked for.
    """
    if problem.reason != "DeadlineExceeded" or log is None:
        return problem
    seconds = max(0, int(ran.total_seconds()))
    last = last_progress(log)
    if last is None:
        what = "there is no log of it" if log.startswith(_NO_LOG) else "the end of its log shows no phase"
        return NoResult(said("DeadlineExceeded", seconds=seconds, what=what))
    silent, words = max(0, seconds - last.seconds), shortened(last.words, _WORDS)
    if silent < HUNG_SECONDS:
        what = f"it made progress until {silent} s before ({words})"
        return NoResult(said("DeadlineExceeded", seconds=seconds, what=what))
    return NoResult(said("AgentHung", seconds=seconds, silent=silent, words=words, node=node))
