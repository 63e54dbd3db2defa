"""`python -m benchmarks.measured_operator OPTIONS`: the operator as it is, which also tells how it fares.

Each line on stdin is a number of seconds by which its event loop's clock jumps ahead, so that timers fire; each line on
stdout answers one with what was so since the last. The thread that renews the Lease keeps the real time.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from precision_operator.__main__ import arguments, run
from precision_operator.cluster.log_format import log_plainly
from precision_operator.cluster.watching import quiet_kopf
from precision_operator.shell.leader_election import LeaseLost

BEAT_SECONDS = 0.01


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock may jump, and which knows for how long it was held."""

    ahead = 0.0
    held = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def jump(self, seconds: float) -> None:
        self.ahead += seconds

    async def beat(self) -> None:
        """Note for how long nothing had a turn."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_SECONDS)
            self.held = max(self.held, time.perf_counter() - began - BEAT_SECONDS)


def cpu_seconds() -> float:
    """Of all threads but the Lease's and the one that asks."""
    idents = [it.ident for it in threading.enumerate() if it.ident and it.name not in ("lease", "asked")]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in idents)


def answer(loop: Loop) -> None:
    """Answer each line until stdin ends."""
    for line in sys.stdin:
        if seconds := float(line):
            loop.call_soon_threadsafe(loop.jump, seconds)
        held, loop.held = loop.held, 0.0
        rows = dict(row.split(":", 1) for row in Path("/proc/self/status").read_text().splitlines())
        peak, rest = (int(rows[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))
        state = {"cpu": cpu_seconds(), "held": held, "peak": peak, "rest": rest}
        print(json.dumps(state), flush=True)


async def beside(beat: Coroutine[Any, Any, None], options: list[str]) -> None:
    """The operator, beside a beat of its loop."""
    beating = asyncio.create_task(beat)
    await run(arguments(options))
    beating.cancel()


def run_to_end(beat: Coroutine[Any, Any, None], options: list[str], loop: Loop | None = None) -> int:
    """The operator and the beat on that loop (None: a plain one). Exit code: 0 after a signal, 3 when the Lease was
    lost."""
    log_plainly()
    quiet_kopf()
    try:
        with asyncio.Runner(loop_factory=(lambda: loop) if loop else None) as runner:
            runner.run(beside(beat, options))
    except LeaseLost as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def main() -> int:
    loop = Loop()
    threading.Thread(target=answer, args=(loop,), name="asked", daemon=True).start()
    return run_to_end(loop.beat(), sys.argv[1:], loop)


if __name__ == "__main__":
    sys.exit(main())
