"""One replica leads and the others stand by: who may write is settled by a Lease, as Kubernetes' own programs do it.

A holder renews its Lease every few seconds. It may write for `renew_deadline` seconds after the *start* of its last
good renewal, by its own clock; the others wait `lease_seconds`, by theirs, after they have last seen the Lease change.
Nobody compares clocks: the times in a Lease are for people. Because the deadline is the shorter of the two and is
looked at just before each write, a leader that was stopped and wakes late has lost its right to write before it knows.

Renewal has a thread with an event loop of its own, since whatever holds up the operator's for some seconds (a large
list that is decoded) must not cost the Lease. It asks that loop for a sign of life, and renews no more without one.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Thread
from typing import Any, Protocol

from precision_operator.cluster import ApiError, Cluster, get_or_none, paths

_log = logging.getLogger(__name__)

JITTER = 1.2
"""Tries are up to this factor further apart, so that replicas that lost the same race don't meet again."""
ANSWER_SECONDS = 20.0
"""A Lease is not renewed for an event loop that has been silent for so long. With `lease_seconds` and a try of the
others this is less than the minute after which the kubelet's liveness probe ends the operator."""
Lease = Mapping[str, Any]
InThread = Callable[[Coroutine[Any, Any, Any]], asyncio.Future[Any]]
"""Runs a coroutine in another thread's event loop; cancelling what it returns cancels the coroutine."""


class LeaseLost(Exception):
    """This replica does not lead (any more), so it must not write."""


@dataclass(frozen=True)
class LeaseTimings:
    """The three times of an election, in seconds. ValueError when they can't keep two replicas apart."""

    lease_seconds: int = 15
    """How long the others wait for a holder that has gone silent: how long a crash takes to be noticed."""
    renew_deadline: float = 10.0
    """How long a holder may write after its last good renewal began."""
    retry_period: float = 2.0
    """Time between two tries to take or renew."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period * JITTER < self.renew_deadline < self.lease_seconds:
            raise ValueError(
                f"the lease lasts {self.lease_seconds:g} s, its holder gives up after {self.renew_deadline:g} s and "
                f"tries every {self.retry_period:g} s: the first must be longer than the second, and the second "
                f"longer than {JITTER:g} times the third"
            )


class ResourceLock(Protocol):
    """Where the Lease is kept. Both raise ApiError."""

    async def read(self) -> Lease | None:
        """The Lease, or None when there is none."""

    async def write(self, lease: Lease) -> None:
        """Keep it; ApiError 409 when it has changed since it was read, or has come to be."""


class Clock:
    """This machine's time: how much has passed, also while it slept, and the wall's for people to read."""

    _STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        """Seconds since some moment; never set, and not standing still while the machine is suspended."""
        return time.clock_gettime(self._STEADY)

    def utc(self) -> datetime:
        """The date and time, as far as this machine knows it."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Let others work."""
        await asyncio.sleep(seconds)


CLOCK = Clock()


class NoElection:
    """The office of a replica that has no others: it leads from the start."""

    leads = True

    def __init__(self) -> None:
        self.first_attempt_done, self.elected = asyncio.Event(), asyncio.Event()
        self.first_attempt_done.set()
        self.elected.set()

    def check(self) -> None:
        """Nothing stands against a write."""

    async def run(self) -> None:
        """Lead for ever."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Nobody waits for it."""


class LeaseElection:
    """The office that a Lease stands for, as one replica runs for it, perhaps in a thread of its own."""

    first_attempt_done: asyncio.Event
    """Set when the first try to lead has been answered, or has failed."""
    elected: asyncio.Event
    """Set when this replica leads. Never cleared: who loses the office ends."""

    def __init__(
        self,
        store: ResourceLock,
        identity: str,
        terms: LeaseTimings = LeaseTimings(),
        clock: Clock = CLOCK,
        call: Callable[[Callable[[], None]], object] = lambda act: act(),
    ) -> None:
        """`call` has the operator's event loop call a function, soon."""
        self.first_attempt_done, self.elected = asyncio.Event(), asyncio.Event()
        self._store = store
        self._identity = identity
        self._terms = terms
        self._clock = clock
        self._call = call
        self._answered_at = clock.now()
        self._until = -math.inf
        self._seen: tuple[str, float] = ("", -math.inf)
        self._other = ""

    @property
    def leads(self) -> bool:
        """Whether the last good renewal began less than the deadline ago."""
        return self._clock.now() < self._until

    def check(self) -> None:
        """Raises LeaseLost unless this replica leads."""
        if not self.leads:
            raise LeaseLost(f"{self._identity} does not lead: its last renewal is too long ago, or another one leads")

    async def run(self) -> None:
        """Stand by until the Lease is free, take it, renew it. Never returns; raises LeaseLost when it is lost."""
        await self._attempt_if_answered()
        while not self.leads:
            self._call(self.first_attempt_done.set)
            await self._clock.sleep(self._terms.retry_period * random.uniform(1, JITTER))
            await self._attempt_if_answered()
        _log.info("leading as %s", self._identity)
        self._call(self.elected.set)
        self._call(self.first_attempt_done.set)  # who waits for it sees that this replica leads
        while True:
            await self._clock.sleep(self._terms.retry_period)
            self.check()  # who slept too long asks nobody: another may have led and gone meanwhile
            await self._attempt_if_answered()
            self.check()

    async def _attempt_if_answered(self) -> None:
        """A try, unless the operator's event loop has been silent for too long: then another replica shall lead."""
        self._call(self._hear)
        if self._clock.now() - self._answered_at < ANSWER_SECONDS:
            await self.attempt()

    def _hear(self) -> None:
        self._answered_at = self._clock.now()

    async def attempt(self) -> None:
        """Take or renew the Lease if that is allowed. Without a clear yes, the right to write is not prolonged."""
        began = self._clock.now()
        try:
            lease = await self._store.read()
            if lease is not None and not self._free(lease):
                self._until = -math.inf
                return
            await self._store.write(claimed(lease, self._identity, self._terms, self._clock.utc()))
        except ApiError as error:
            # 409: another one was faster, or the Lease was edited. No answer: it may be ours; the next look tells.
            _log.log(logging.INFO if error.status == 409 else logging.WARNING, "the lease: %s", error)
            return
        self._until = began + self._terms.renew_deadline

    async def release(self) -> None:
        """Name no holder, so that another replica need not wait. Trouble is logged: the Lease then runs out.

        Call it when nothing is being written and `run` has ended.
        """
        self._until = -math.inf
        try:
            lease = await self._store.read()
            if lease is not None and holder(lease) == self._identity:
                await self._store.write(released(lease, self._clock.utc()))
                _log.info("gave the lease back")
        except ApiError as error:
            _log.warning("giving the lease back: %s", error)

    def _free(self, lease: Lease) -> bool:
        """Whether it is ours, nobody's, or has not changed for as long as its holder said that it would last."""
        version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = (version, self._clock.now())
        who = holder(lease)
        if who not in ("", self._identity, self._other):
            _log.info("standing by: %s leads", who)
            self._other = who
        silent = self._clock.now() - self._seen[1]
        lasts = (lease.get("spec") or {}).get("leaseDurationSeconds")  # its holder's own word, which that relies on
        return who in ("", self._identity) or silent >= float(lasts or self._terms.lease_seconds)


@asynccontextmanager
async def loop_in_thread() -> AsyncIterator[InThread]:
    """An event loop in a thread of its own, which ends with the block."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="lease", daemon=True).start()
    try:
        yield lambda work: asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)


def holder(lease: Lease) -> str:
    """Who holds it; empty when nobody does."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def claimed(lease: Lease | None, identity: str, terms: LeaseTimings, now: datetime) -> dict[str, Any]:
    """The Lease with us as its holder: taken (a transition is counted), or renewed."""
    spec = dict((lease or {}).get("spec") or {})
    ours = {"holderIdentity": identity, "leaseDurationSeconds": terms.lease_seconds, "renewTime": _micro_time(now)}
    if lease is None or holder(lease) != identity:
        turns = 0 if lease is None else int(spec.get("leaseTransitions") or 0) + 1
        ours |= {"acquireTime": ours["renewTime"], "leaseTransitions": turns}
    return {**(lease or {}), "spec": spec | ours}


def released(lease: Lease, now: datetime) -> dict[str, Any]:
    """The Lease without a holder; a duration of 1 s is the least that the API takes (client-go writes the same)."""
    free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time(now)}
    return {**lease, "spec": dict(lease.get("spec") or {}) | free}


def _micro_time(now: datetime) -> str:
    return now.isoformat(timespec="microseconds").replace("+00:00", "Z")


LeaderElector = NoElection | LeaseElection


class LeaseLock:
    """A Lease in a cluster. `cluster` should be one of its own: a crowd of slow requests must not delay a renewal."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._collection = paths.leases(namespace)
        self._name = name

    async def read(self) -> Lease | None:
        return await get_or_none(self._cluster, paths.item(self._collection, self._name))

    async def write(self, lease: Lease) -> None:
        """Replace the one that was read, or create it."""
        if "metadata" in lease:
            await self._cluster.replace(paths.item(self._collection, self._name), dict(lease))
        else:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            await self._cluster.create(self._collection, body | dict(lease))
