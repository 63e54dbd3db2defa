"""`python -m benchmarks.fleet.beating_operator [--without=CODE] FILE OPTIONS`: the operator, beside a beat of its loop.

FILE gets a line each second: seconds since 1970, the longest time for which nothing had a turn in that second, and the
number of tasks.
Without `--without` the operator is as it is; with it, it lacks the check whose reason that is, to see who finds out.
"""

import asyncio
import sys
import time
from pathlib import Path

from benchmarks.measured_operator import run_to_end
from precision_operator.core.admission import turns
from precision_operator.core.admission.limits import LIMITS

BEAT_SECONDS, LINE_SECONDS = 0.05, 1.0
"""Twenty beats a second take a thousandth of a core."""


def longest(path: Path, since: float) -> float | None:
    """Seconds of the longest hold since then; None where nothing beat."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return max((float(held) for at, held, _ in rows if float(at) >= since), default=None)


async def beat(path: Path) -> None:
    with path.open("a", buffering=1) as lines:
        held, due = 0.0, time.monotonic() + LINE_SECONDS
        while True:
            began = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)
            held = max(held, time.monotonic() - began - BEAT_SECONDS)
            if began >= due:
                lines.write(f"{time.time():.3f} {held:.4f} {len(asyncio.all_tasks())}\n")
                held, due = 0.0, began + LINE_SECONDS


def take_out(code: str) -> None:
    """No agent waits for this reason any more. KeyError where there is no such check."""
    assert LIMITS[code]
    blocked_by = turns.blocked_by
    turns.blocked_by = lambda request, limits: blocked_by(request, [it for it in limits if it.code != code])


def main() -> int:
    words = sys.argv[1:]
    if words[0].startswith("--without="):
        take_out(words.pop(0).partition("=")[2])
    return run_to_end(beat(Path(words[0])), words[1:])


if __name__ == "__main__":
    sys.exit(main())
