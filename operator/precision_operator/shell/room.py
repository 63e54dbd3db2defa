"""Places that namespaces take in turns."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """So many places. One that comes free is taken by the namespace that has the fewest, then by the one whose last
    turn is the longest ago; in it by who came first."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._has: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def taken(self, namespace: str) -> AsyncIterator[None]:
        """A place of this namespace, for as long as the block takes."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._has[namespace] -= 1
            self._give()

    def _give(self) -> None:
        while self._waiting and self._has.total() < self.places:
            namespace = min(self._waiting, key=self._has.__getitem__)
            turns = self._waiting.pop(namespace)
            turn = turns.popleft()
            if turns:
                self._waiting[namespace] = turns  # behind all others
            if not turn.done():  # cancelled
                self._has[namespace] += 1
                turn.set_result(None)
