"""`python -m benchmarks.fleet.beating_operator FILE OPTIONS`: the operator as it is, beside a beat of its event loop.

FILE gets a line each second: seconds since 1970, and the longest time for which nothing had a turn in that second.
"""

import asyncio
import sys
import time
from pathlib import Path

from precision_operator.__main__ import arguments, run
from precision_operator.cluster.log_format import log_plainly
from precision_operator.cluster.watching import quiet_kopf
from precision_operator.shell.leader_election import LeaseLost

BEAT_SECONDS, LINE_SECONDS = 0.05, 1.0
"""Twenty beats a second take a thousandth of a core."""


def longest(path: Path, since: float) -> float | None:
    """Seconds of the longest hold since then; None where nothing beat."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return max((float(held) for at, held in rows if float(at) >= since), default=None)


async def beat(path: Path) -> None:
    with path.open("a", buffering=1) as lines:
        held, due = 0.0, time.monotonic() + LINE_SECONDS
        while True:
            began = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)
            held = max(held, time.monotonic() - began - BEAT_SECONDS)
            if began >= due:
                lines.write(f"{time.time():.3f} {held:.4f}\n")
                held, due = 0.0, began + LINE_SECONDS


async def beating(path: Path, options: list[str]) -> None:
    task = asyncio.create_task(beat(path))
    await run(arguments(options))
    task.cancel()


def main() -> int:
    """As the operator's own: 0 after a signal, 3 when the Lease was lost."""
    log_plainly()
    quiet_kopf()
    try:
        asyncio.run(beating(Path(sys.argv[1]), sys.argv[2:]))
    except LeaseLost as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
