"""The loop: gather, decide, act, tell; one pass over all profiles for whatever has changed, and now and then anyway."""

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from precision_operator.cluster import ApiError
from precision_operator.cluster.watch_loop import PACE
from precision_operator.core.admission.turns import LOOKS_PER_PASS
from precision_operator.core.admission.unhurried import for_one_pass
from precision_operator.core.attempts.actions import Start
from precision_operator.core.attempts.faults import Fault
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.observe.book import EMPTY, Kept
from precision_operator.core.observe.observed import Observed, ProfileView
from precision_operator.core.plan import Plan, plan
from precision_operator.core.reasons import REASONS
from precision_operator.core.status.events import Note, notes
from precision_operator.core.status.telling import Change, Told, tell
from precision_operator.shell.acting.act import ACTIONS_AT_ONCE, Actor
from precision_operator.shell.acting.node_conditions import AGAIN_SECONDS
from precision_operator.shell.leader_election import LeaderElector, LeaseLost
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.observing.gather import LOOKS_AT_ONCE, REFERENCE_SECONDS, Gatherer
from precision_operator.shell.telemetry import FaultLog, Telemetry

_log = logging.getLogger(__name__)
T = TypeVar("T")

SETTLE_SECONDS = 0.1
"""Events come in bursts; a pass waits this long so that one plan answers a burst."""
PASS_AGAIN_SECONDS = 600.0
"""When a pass comes although nothing has changed."""
STATUS_SECONDS = 2.0
"""Least time between two writes of one profile's status."""
MOST_COLLECTED = 100_000
"""So many new objects may be gone through in one garbage collection."""
ROUNDS, ROUNDS_SECONDS = 8, 1.0
"""How often, and how long, a pass goes on to the next candidates, where nodes are busy or the cluster refuses some."""
LOOK_GRACE_SECONDS = 0.25
"""A pass waits so long for the looks at nodes that it has begun."""


class Reconciler:
    """Runs passes until it is cancelled."""

    def __init__(
        self, cache: Cache, gatherer: Gatherer, actor: Actor, telemetry: Telemetry, watched: asyncio.Event | None = None
    ) -> None:
        """`watched` is set when the watches have listed everything once; None: it is listed."""
        self._cache = cache
        self._gatherer = gatherer
        self._actor = actor
        self._telemetry = telemetry
        self._watched = watched
        self._written: dict[str, float] = {}
        self._book: Kept = EMPTY
        """What plans take over from each other."""
        self._told: Told | None = None
        self._observed_at = 0.0
        """When the last plan's world was: looks that have ended since serve the next one."""
        self._failures = self._made = 0
        self._faults = FaultLog(telemetry.fault)
        self._faulty = 0
        """Passes in a row in which something could not be planned for, or a status not be written."""
        self._refused = 0
        """Passes in a row in which an action was refused: the same refusal must not be asked for in a hot loop."""
        self._turn = asyncio.Lock()
        self.ready = False
        """Whether everything has been listed once: this replica could lead, whether it does or not."""

    async def run(self, elector: LeaderElector) -> None:
        """Once elected, a pass whenever something changed; errors of the API are waited out.

        The first pass comes after a list of agents that began after the election: the one who led before may have
        created some last that no watch has shown yet.
        """
        await elector.first_attempt_done.wait()
        leading = elector.elected.is_set()
        await (self._watched.wait() if self._watched else asyncio.sleep(0))
        self.ready = True
        try:
            await elector.elected.wait()
            if not leading:
                await self._list_agents()
            while True:
                self._cache.changed.clear()
                async with self._turn:
                    due = await self._guarded_pass()
                await self._wait(due)
        finally:
            self._actor.end()

    async def finish(self) -> None:
        """Begin nothing any more. Returns when the actions in flight have ended; no pass follows."""
        self._actor.closed = True
        await self._turn.acquire()
        await self._actor.settled()

    async def _list_agents(self) -> None:
        while True:
            try:
                return await self._gatherer.list_agents()
            except ApiError as error:
                _log.warning("listing agents: %s", error)
            await asyncio.sleep(min(PACE.longest_pause_seconds, self._pause()))

    async def _wait(self, due: float) -> None:
        try:
            await asyncio.wait_for(self._cache.changed.wait(), due)
            await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            return

    def _pause(self) -> float:
        """Seconds until the next try after failures: 0.5, 1, 2 ... 30, with jitter."""
        self._failures += 1
        return _backoff(self._failures)

    async def _guarded_pass(self) -> float:
        try:
            with self._telemetry.reconcile():
                due = await self.once()
        except ApiError as error:
            _log.warning("reconcile: %s", error)
            return self._pause()
        except LeaseLost:
            raise
        except Exception as error:
            # Whatever it is, the next pass may do: who serves a fleet does not end over one mistake.
            self._faults.looked("pass", [Fault("pass", "", error)])
            return self._pause()
        self._failures = 0
        self._faults.looked("pass", [])
        return due

    async def once(self) -> float:
        """One pass. Returns the seconds after which the next one is due although nothing changed."""
        await self._actor.starts.confirm()
        observed, decided, again = await self._act()
        if decided.actions:
            observed = replace(await self._gatherer.observe(), occupancy=observed.occupancy)
            decided = replace(await self._plan(observed), actions=decided.actions)
        strangers = self._gatherer.strangers()
        self._telemetry.saw(decided, len(strangers))
        await self._actor.tell_strangers(strangers)
        due = await self._tell_all(decided, observed)
        if await self._actor.node_conditions.write(observed):
            due = min(due, AGAIN_SECONDS)
        if observed.references:  # nobody watches these ConfigMaps: a pass reads them again
            due = min(due, REFERENCE_SECONDS)
        self._telemetry.saw_conditions(*self._actor.node_conditions.figures(observed, decided.profiles))
        if decided.look_again_at is not None:
            due = max(0.0, min(due, (decided.look_again_at - observed.now).total_seconds()))
        self._refused = self._refused + 1 if again else 0
        return min(due, 30.0, 0.25 * 2**self._refused) if again else due

    async def _aside(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` gives, in a thread: the loop goes on meanwhile, as it would not while garbage is collected.

        What a plan makes stays for hours, and is no cycle: where it is much, later collections pass over it.
        """
        gc.disable()
        try:
            return await asyncio.to_thread(work, *arguments)
        finally:
            self._made += gc.get_count()[0]
            if self._made > MOST_COLLECTED:
                self._made = 0
                gc.freeze()
            gc.enable()

    async def _plan(self, observed: Observed, whole: bool = True) -> Plan:
        decided = await self._aside(plan, observed, whole, self._book)
        self._book = decided.book
        return decided

    async def _act(self) -> tuple[Observed, Plan, int]:
        """Decide and act. Returns the last plan with all tries that have ended, and how many must be made again.

        What is ready starts before more nodes are looked at; so do the next candidates where the cluster refuses some.
        Plans may be cut but for the last two: what is left of a pass has its looks and starts, and all have a status.
        """
        again, looked, begun, whole, clock = 0, 0, 0, False, asyncio.get_running_loop().time
        self._gatherer.forget_idle(self._actor.creations.left, self._observed_at)
        end = clock() + ROUNDS_SECONDS
        for left in reversed(range(ROUNDS)):
            is_late, self._observed_at = clock() >= end, clock()
            observed = await self._gatherer.observe()
            is_last = looked >= LOOKS_PER_PASS or not left or is_late
            decided = await self._plan(observed, whole or left < 2 or is_late)
            looks = () if is_last else _looks(decided, observed, looked - 2 * begun)
            started = {action.facts.name for action in decided.actions if isinstance(action, Start)}
            if not looks or started:
                actions, later = for_one_pass(decided.actions, observed.own_jobs)
                again += await self._actor.act(actions, self._gatherer.at_once(ACTIONS_AT_ONCE))
                self._gatherer.invalidate_probes(started - self._actor.creations.left)
                begun += len(started - self._actor.creations.left)
                refused = self._actor.starts.refused
                if not looks and (started or not decided.cut if is_last else not (refused or decided.cut)):
                    break
            looked += len(await self._gatherer.probe(looks, LOOK_GRACE_SECONDS))
            whole = is_last
        done, self._actor.ended = self._actor.ended, []
        # What is left waits with what is to be tried again, and for a second where nothing came of this pass.
        if not again and (later or (decided.nodes_to_probe and looked < LOOKS_PER_PASS)):
            decided = replace(decided, look_again_at=observed.now + timedelta(seconds=1))
            if done:
                self._cache.changed.set()
        return observed, replace(decided, actions=tuple(done)), again

    async def _tell_all(self, decided: Plan, observed: Observed) -> float:
        """Write the statuses that changed, those of few nodes first. Returns the seconds until the next pass is due.

        What can't be worked out or written for one profile is tried again; the others have theirs.
        """
        due, faults, refused = PASS_AGAIN_SECONDS, [*self._gatherer.faults, *decided.faults], False
        there = {item.profile.uid for item in decided.profiles}
        self._written = {uid: at for uid, at in self._written.items() if uid in there}
        self._gatherer.faults.clear()
        self._told = changes = await self._aside(tell, decided, observed, self._told)
        for item, change in changes.rows:
            try:
                due = min(due, await self._tell(item, change))
            except ApiError as error:
                _log.warning("status of %s: %s", item.profile.key, error)
                refused = True
            except LeaseLost:
                raise
            except Exception as error:
                faults.append(Fault("status", item.profile.key, error))
        faulty = self._faults.looked("plan", [*faults, *changes.faults]) or refused
        self._faulty = self._faulty + 1 if faulty else 0
        return min(due, _backoff(self._faulty)) if faulty else due

    async def _tell(self, item: ProfilePlan, change: Change | None) -> float:
        """Write one profile's status if it changed. Returns the seconds until it wants to be looked at again."""
        due = item.poll_seconds or PASS_AGAIN_SECONDS
        if change is None:
            return due
        now = asyncio.get_running_loop().time()
        rest = self._written.get(item.profile.uid, -STATUS_SECONDS) + STATUS_SECONDS - now
        if rest > 0:
            return min(due, rest)
        profile, said, document = item.profile, notes(change.before, change.status), change.document
        what = f"status of {profile.key}"
        await self._actor.writes.run(profile.uid, profile.namespace, what, lambda: self._write(profile, document, said))
        return due

    async def _write(self, profile: ProfileView, document: dict[str, Any], said: Sequence[Note]) -> None:
        """Write a profile's status, then its events. Raises ApiError, but not where the profile changed or is gone."""
        began = asyncio.get_running_loop().time()
        try:
            await self._actor.write_profile_status(profile, document)
        except ApiError as error:
            if error.status in (404, 409, 422) and not error.refuses_fields:
                _log.info("status of %s: %s", profile.key, error)
                return
            raise
        self._written[profile.uid] = began
        await self._actor.tell(profile, said)


def _looks(decided: Plan, observed: Observed, in_vain: int) -> tuple[str, ...]:
    """The nodes to look at: with those that come next, as many as looks were in vain, but few that may wait."""
    more = decided.profiles if in_vain > len(decided.nodes_to_probe) else ()
    looking = [item for item in more if any(s.reason == "CheckingIdle" for s in item.node_states)]
    behind = {s.facts.name for item in looking for s in item.node_states if REASONS[s.reason].place_taken}
    left = sorted(behind - observed.occupancy.keys(), key=lambda name: (observed.looked.get(name, 0.0), name))
    names = dict.fromkeys((*decided.nodes_to_probe, *left))
    wanted = len(decided.nodes_to_probe)
    return tuple(names)[: min(LOOKS_PER_PASS, max(wanted, min(in_vain, wanted + LOOKS_AT_ONCE)))]


def _backoff(times: int) -> float:
    """Seconds until the next try after so many in a row: 0.5, 1, 2 ... 30, with jitter."""
    return float(min(30.0, 0.25 * 2 ** min(times, 7)) * random.uniform(0.8, 1.2))
