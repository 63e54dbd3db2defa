"""A stand-in for the agent program, for the lab's own tests: does what its request (plain words) tells it to."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """One a line: `message TEXT`, `say TEXT`, `complain TEXT`, `crash`, `exit N`, `politely` (17 on SIGTERM), and
    `wait PIPE`, which tells the pipe that it waits for a signal now."""
    for line in os.environ["PRECISION_REQUEST"].splitlines():
        word, _, rest = line.partition(" ")
        if word == "message":
            Path(os.environ["PRECISION_TERMINATION_LOG"]).write_text(rest)
        elif word == "say":
            print(rest, flush=True)
        elif word == "complain":
            print(rest, file=sys.stderr, flush=True)
        elif word == "politely":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(17))
        elif word == "wait":
            Path(rest).write_text("waiting")
            signal.pause()
        elif word == "crash":
            os.abort()
        else:
            sys.exit(int(rest))


if __name__ == "__main__":
    main()
