"""The end of a failed agent's log, as its report keeps it: the Job goes as soon as it is read, and its log with it.

Whoever can run code on the node can write the log, so nothing in it is trusted: it ends as lines of plain words.
"""

import re

from precision_api.facts.plain_text import plain, uncontrolled

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


def is_no_log(kept: str) -> bool:
    """Whether what a report keeps says why there is no log."""
    return kept.startswith(_NO_LOG)


def _plain(line: str) -> str:
    """A line as a terminal would leave it: what carriage returns have written over is gone, other spaces are spaces."""
    last = uncontrolled(line[-4 * LOG_CHARACTERS :]).rstrip("\r").rsplit("\r", 1)[-1].expandtabs(4)
    return plain(last).rstrip()
