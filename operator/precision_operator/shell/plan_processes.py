"""The processes that solve plans: one for each plan, so that a plan that hangs, or takes all memory, ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from precision_operator.planner.work import (
    MOST_SECONDS,
    Work,
    answered,
    bound_memory,
    longest_seconds,
    solved,
    unsolved,
)

AT_ONCE = 4
"""Plans that are solved at one time."""


@dataclass
class PlanProcesses:
    """Solves AT_ONCE plans at one time. `solve` runs in the process; after `seconds` of its work that is ended."""

    solve: Callable[[Work], str] = solved
    seconds: Callable[[Work], float] = longest_seconds
    _running: set[ProcessPoolExecutor] = field(default_factory=set)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def answer(self, work: Work) -> str:
        """The answer as JSON of a status. Raises BrokenProcessPool where the process ended by itself."""
        async with self._room:
            # Not forked: a fork of a process with sockets and threads inherits their locks.
            pool = ProcessPoolExecutor(1, get_context("spawn"), bound_memory)
            self._running.add(pool)
            try:
                asked = asyncio.get_running_loop().run_in_executor(pool, answered, self.solve, work)
                return await asyncio.wait_for(asked, self.seconds(work))
            except TimeoutError:
                return unsolved("TimedOut", MOST_SECONDS)
            finally:
                self._end(pool)

    def ids(self) -> set[int]:
        """The processes that solve."""
        return {number for pool in self._running for number in (pool._processes or {})}

    def end(self) -> None:
        """End all of them, whatever they are at."""
        for pool in [*self._running]:
            self._end(pool)

    def _end(self, pool: ProcessPoolExecutor) -> None:
        processes = [*(pool._processes or {}).values()]
        self._running.discard(pool)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
