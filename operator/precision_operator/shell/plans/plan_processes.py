"""The processes that solve plans: one for each plan, so that a plan that hangs, or takes all memory, ends by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from precision_operator.planner.answer.work import (
    MOST_SECONDS,
    Work,
    answered,
    bound_memory,
    longest_seconds,
    solved,
    unsolved,
)
from precision_operator.shell.room import Room

AT_ONCE = 4
"""Plans that are solved at one time where memory is not limited."""
OWN_BYTES = 512 << 20
"""What the operator itself keeps of its container's memory: 486 MiB with 10,000 nodes."""
PLAN_BYTES = 768 << 20
"""Container's memory for each plan: one of 200 jobs on 20 pools takes half of it."""


def plans_at_once(limit: int | None) -> int:
    """How many plans a container of so many bytes may solve at one time.

    A container that takes too much is killed whole: the leader with its solvers, and the next leader after it.
    """
    return AT_ONCE if limit is None else min(AT_ONCE, max(1, (limit - OWN_BYTES) // PLAN_BYTES))


@dataclass
class PlanProcesses:
    """Solves plans. `solve` runs in the process; after `seconds` of its work that is ended.

    `limit` is the container's memory in bytes: as many plans are solved at one time as it has room for.
    """

    solve: Callable[[Work], str] = solved
    seconds: Callable[[Work], float] = longest_seconds
    limit: int | None = None
    _running: set[ProcessPoolExecutor] = field(default_factory=set)
    _room: Room = field(init=False)

    def __post_init__(self) -> None:
        self._room = Room(plans_at_once(self.limit))

    async def answer(self, ready: Callable[[], Awaitable[Work]], namespace: str = "") -> str:
        """The answer as JSON of a status. Raises BrokenProcessPool where the process ended by itself.

        `namespace` is the plan's: where there is no room, those of one take turns with those of another. Its work is
        made `ready` once it has a place: nothing that waits holds any.
        """
        async with self._room.taken(namespace):
            work = await ready()
            longest = await asyncio.to_thread(self.seconds, work)
            # Not forked: a fork of a process with sockets and threads inherits their locks.
            pool = ProcessPoolExecutor(1, get_context("spawn"), bound_memory, (self.limit is not None,))
            self._running.add(pool)
            try:
                asked = asyncio.get_running_loop().run_in_executor(pool, answered, self.solve, work)
                return await asyncio.wait_for(asked, longest)
            except TimeoutError:
                return unsolved("TimedOut", MOST_SECONDS)
            finally:
                self._end(pool)

    def end(self) -> None:
        for pool in [*self._running]:
            self._end(pool)

    def _end(self, pool: ProcessPoolExecutor) -> None:
        processes = [*(pool._processes or {}).values()]
        self._running.discard(pool)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
