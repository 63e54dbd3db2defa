"""Lists and watches that outlive their errors: each target goes round alone, and says how it fares.

What lists and watches one target is the subclass's: kopf (`watching`), or the client alone (the exporter, which loads
no kopf). Here is when it begins again, and what is known of it meanwhile.
"""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from precision_operator.cluster.client import PAGE_ITEMS
from precision_operator.cluster.errors import ApiError
from precision_operator.cluster.paths import collection


@dataclass(frozen=True)
class Pace:
    """How long a loop waits, in seconds."""

    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 4.0
    """A CRD that comes late, or rights that come back, are noticed within this time and its jitter."""
    kopf_pauses_seconds: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """Between kopf's own attempts, before it gives up."""
    steady_seconds: float = 10.0
    """A watch that has run for so long holds; longer than kopf's own attempts take."""


PACE = Pace()


@dataclass(frozen=True)
class WatchTarget:
    """What one watch shows: a kind, in one namespace or (None) in the cluster."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    page_items: int = PAGE_ITEMS
    """How many objects are asked for at once."""
    optional: bool = False
    """Whether all else goes on where the kind is not served (404) or may not be read (403, roles of an older chart)."""

    @property
    def path(self) -> str:
        """The collection's path."""
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        return collection(api_version, self.plural, self.namespace)

    def __str__(self) -> str:
        return self.plural if self.namespace is None else f"{self.plural} in {self.namespace}"


@dataclass
class WatchState:
    """How one watch fares."""

    listed: bool = False
    """Whether its objects have been listed once since the start."""
    problem: str = ""
    """Why it is not watched now; empty while it is, and before the first attempt."""
    watched: bool = False
    """Whether its watch runs, and did not end within the first seconds."""
    forbidden: bool = False
    """Whether the API server refused the last list for want of rights (403), as in a namespace that was deleted."""
    ends: int = 0
    """How often an attempt to list and watch has ended."""


def all_settled(states: Mapping[WatchTarget, WatchState]) -> bool:
    """Whether each kind has been listed once, or may not be: a namespace without rights must not hold up the others.

    Where no namespace can be served, or a kind of the cluster can't, it is waited for.
    """
    lost = {target.namespace for target, state in states.items() if state.forbidden and not target.optional}
    namespaces = {target.namespace for target in states} - {None}
    is_served = None not in lost and (not namespaces or bool(namespaces - lost))
    return is_served and all(state.listed or state.forbidden for state in states.values())


class WatchEnded(Exception):
    """A watch that has ended; the message says why."""


class WatchLoop(ABC):
    """Lists and watches each target until `run` is cancelled."""

    def __init__(self, targets: Sequence[WatchTarget], log: logging.Logger, pace: Pace = PACE) -> None:
        self.states: Mapping[WatchTarget, WatchState] = {target: WatchState() for target in targets}
        self.listed = asyncio.Event()
        """Set when every target has been listed once, or may not be (`all_settled`)."""
        self._log = log
        self._pace = pace

    async def run(self) -> None:
        """List, watch, and begin again what ends. Never returns; what is no API error is raised."""
        async with asyncio.TaskGroup() as group:
            for target in self.states:
                group.create_task(self._keep(target), name=f"watch of {target}")

    @abstractmethod
    async def _go_round(self, target: WatchTarget) -> None:
        """List and watch once, until the watch ends. Raises ApiError or WatchEnded."""

    async def _keep(self, target: WatchTarget) -> None:
        loop, pause = asyncio.get_running_loop(), self._pace.first_pause_seconds
        while True:
            began = loop.time()
            try:
                await self._go_round(target)
            except (ApiError, WatchEnded) as error:
                self._failed(target, error)
            if loop.time() - began > self._pace.steady_seconds:
                pause = self._pace.first_pause_seconds
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, self._pace.longest_pause_seconds)

    def _mark_listed(self, target: WatchTarget) -> None:
        self.states[target].listed, self.states[target].forbidden = True, False
        self._settle()

    def _settle(self) -> None:
        if all_settled(self.states):
            self.listed.set()

    def _holds(self, target: WatchTarget) -> None:
        """The watch has run for so long that it is taken for steady."""
        state = self.states[target]
        if state.problem:
            self._log.info("%s: watched now", target)
        state.problem, state.watched = "", True

    def _failed(self, target: WatchTarget, error: ApiError | WatchEnded) -> None:
        state, problem = self.states[target], str(error)
        if problem != state.problem:
            every = self._pace.longest_pause_seconds
            self._log.warning("%s: not watched: %s; tried again every %g s", target, problem, every)
        status = error.status if isinstance(error, ApiError) else None
        state.problem, state.watched, state.forbidden = problem, False, status == 403
        state.ends += 1
        state.listed = state.listed or (target.optional and status in (403, 404))
        self._settle()
