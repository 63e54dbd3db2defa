"""The lines that an agent writes on stderr while it runs, and what the last of them says once it has been stopped.

People follow them with `kubectl logs -f`; the operator reads them where an agent did not end itself at its deadline.
"""

import re
from dataclasses import dataclass

LINE_SECONDS = 30.0
"""Between two lines of a phase that goes on, at most, as long as its steps are shorter than that."""
_LINE = re.compile(r" *(\d{1,9}) s  (\S.*?)(?:, about \d+:\d\d left)?")


@dataclass(frozen=True)
class Progress:
    """The last line: seconds since the agent began, by its own clock, and its words: a phase, or a note."""

    seconds: int
    words: str


def progress_line(seconds: float, text: str) -> str:
    """One line, whatever line ends `text` has; `seconds` since the agent began."""
    return f"{seconds:5.0f} s  {' '.join(text.split())}"


def last_progress(log: str) -> Progress | None:
    """What the last such line of a log says, without the time left; None where there is none.

    Whoever can run code in the agent's container can write the log: the words are not trusted.
    """
    for line in reversed(log.splitlines()):
        if match := _LINE.fullmatch(line.rstrip()):
            return Progress(int(match[1]), match[2])
    return None
