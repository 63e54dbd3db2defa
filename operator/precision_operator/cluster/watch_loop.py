"""Lists and watches that outlive their errors: each target goes round alone, and says how it fares.

A watch that ends goes on from the last version that it showed; a new list follows only where the API server has
forgotten that version (410), and now and then, should a watch have lost anything.
"""

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from precision_operator.cluster.client import PAGE_ITEMS, Cluster, Json
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
LIST_SECONDS = 6 * 3600.0
"""About how often a kind is listed again, should its watch have lost anything."""
_LIST_AGAIN = (410, 404, 403)
"""The version is forgotten; or the kind, or the right to read it, was away, and with it perhaps objects."""


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
    by_kopf: bool = False
    """Whether the operator has kopf watch it."""
    optional: bool = False
    """Whether all else goes on where the kind is not served (404) or may not be read (403, roles of an older chart)."""

    @property
    def path(self) -> str:
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
    heard_at: float = field(default_factory=time.monotonic)
    """When its last event, bookmark or list came, by time.monotonic; before the first, the start."""

    def seconds_since_heard(self) -> float:
        return time.monotonic() - self.heard_at


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
    """Lists and watches each target until `run` is cancelled, with the client alone."""

    def __init__(
        self,
        cluster: Cluster,
        targets: Sequence[WatchTarget],
        log: logging.Logger,
        list_seconds: float = LIST_SECONDS,
        pace: Pace = PACE,
    ) -> None:
        """A target is listed again about `list_seconds` after its last list."""
        self.states: Mapping[WatchTarget, WatchState] = {target: WatchState() for target in targets}
        self.listed = asyncio.Event()
        """Set when every target has been listed once, or may not be (`all_settled`)."""
        self._cluster = cluster
        self._log = log
        self._list_seconds = list_seconds
        self._pace = pace
        self._versions: dict[WatchTarget, str] = {}
        """What each was seen up to; one that is missing must be listed."""
        self._list_at: dict[WatchTarget, float] = {}
        """When each is to be listed again, by the event loop's clock."""
        self._turn = asyncio.Lock()
        """One list at a time, in the order of the targets."""

    async def run(self) -> None:
        """List, watch, and begin again what ends. Never returns; what is no API error is raised."""
        async with asyncio.TaskGroup() as group:
            for target in self.states:
                group.create_task(self._keep(target), name=f"watch of {target}")

    @abstractmethod
    async def _list(self, target: WatchTarget) -> str:
        """Take in a complete list. Returns the resourceVersion that it was read at. Raises ApiError."""

    @abstractmethod
    def _see(self, target: WatchTarget, event: Json) -> None:
        """Take in an event: an object was added, modified or deleted."""

    async def _go_round(self, target: WatchTarget) -> None:
        """List if that is due, then watch until the watch ends. Raises ApiError or WatchEnded."""
        loop = asyncio.get_running_loop()
        if target not in self._versions or loop.time() >= self._list_at[target]:
            async with self._turn:
                self._versions[target] = await self._list(target)
            self._list_at[target] = loop.time() + self._seconds_to_list()
            self._mark_listed(target)
        await self._watch(target)

    def _seconds_to_list(self) -> float:
        return self._list_seconds * random.uniform(0.9, 1.1)  # two programs don't meet

    async def _watch(self, target: WatchTarget) -> None:
        """Take in what changes after the version that was seen, until the API server ends the watch."""
        steady = asyncio.get_running_loop().call_later(self._pace.steady_seconds, self._holds, target)
        selectors = target.label_selector, True, target.field_selector
        try:
            async for event in self._cluster.watch(target.path, self._versions[target], *selectors):
                self._hear(target)
                if event["type"] != "BOOKMARK":
                    self._see(target, event)
                self._versions[target] = event["object"]["metadata"]["resourceVersion"]
        finally:
            steady.cancel()

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
        self._hear(target)
        self._settle()

    def _hear(self, target: WatchTarget) -> None:
        self.states[target].heard_at = time.monotonic()

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
        status = error.status if isinstance(error, ApiError) else None
        if status in _LIST_AGAIN:
            self._versions.pop(target, None)
        if status == 410:
            return
        state, problem = self.states[target], str(error)
        if problem != state.problem:
            every = self._pace.longest_pause_seconds
            self._log.warning("%s: not watched: %s; tried again every %g s", target, problem, every)
        state.problem, state.watched, state.forbidden = problem, False, status == 403
        state.ends += 1
        state.listed = state.listed or (target.optional and status in (403, 404))
        if target.optional and status == 404:
            self._hear(target)
        self._settle()
