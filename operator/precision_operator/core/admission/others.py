"""What agents hold against other namespaces: nodes and places under the operator's limits; and who makes room for whom.

A Job that holds neither may get both at any time, so it is withdrawn where another namespace's agent takes its place:
its next one is of the same attempt. In its own namespace it counts like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from precision_operator.core.admission.budget_view import AdmissionRequest, Agent, Cap, FleetView, Unit
from precision_operator.core.attempts.actions import Drop
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView
from precision_operator.core.observe.tenants import ANOTHERS_PROFILE, held_nodes, is_stuck
from precision_operator.core.reasons import Said

LOST = "a deleted profile"
QUEUE_TURN = timedelta(minutes=10)
"""So long Kueue's Jobs are not withdrawn for one another: each would lose its place in the queue again and again."""
_MAKES_ROOM = Said("Withdrawn", words="it has no node yet, and it is another namespace's turn")


class Others:
    """What is held while one plan is made; `live` are all agents, `owners` their profiles in words."""

    def __init__(self, observed: Observed, live: Mapping[tuple[str, str], Agent], owners: Mapping[str, str]) -> None:
        held, caps = held_nodes(observed), observed.settings.fleet_limits
        items: dict[str, JobView | PodView] = {pod.job_uid: pod for pod in observed.pods}
        items |= {job.uid: job for job in observed.jobs}
        uids = {str(raw["metadata"]["name"]): uid for uid, raw in observed.nodes.items()}
        self._observed = observed
        self._nodes: dict[str, dict[str, str]] = {}
        """By name of a node, and of the namespace whose agent holds it: whose it is."""
        for job, node in held.items():
            owner = owners.get(items[job].profile_uid, LOST)
            self._nodes.setdefault(node, {}).setdefault(items[job].namespace, owner)
        agents = (Agent(items[job].profile_uid, items[job].namespace, uids.get(held[job], "")) for job in held)
        self._fleet = None if caps.empty else FleetView(tuple(agents), observed.facts_of(caps.pool_label), caps)
        self._unheld = [(job, agent) for (_, job), agent in live.items() if job not in held]
        self._pending: dict[tuple[str, bool], FleetView] = {}
        at_work = (pod for pod in observed.pods if pod.live and pod.holds_gpus and not is_stuck(pod, observed.now))
        bound = {pod.job_uid for pod in at_work}
        waiting = (job for job in observed.jobs if job.live and not job.deleting and job.uid not in bound)
        self._loose = {job.uid: job for job in waiting if job.uid not in held}
        """Jobs that hold nothing, and may get it yet."""

    def taken_by(self, namespace: str, node: str) -> str | None:
        """Who of another namespace holds the node, in words; None: nobody."""
        owner = next((owner for of, owner in self._nodes.get(node, {}).items() if of != namespace), None)
        return owner if owner is None or self._observed.settings.show_other_namespaces else ANOTHERS_PROFILE

    def fleet_facing(self, profile: ProfileView) -> FleetView | None:
        """The agents that count against the profile's, where the operator's own limits are for them."""
        if self._fleet is None:
            return None
        key = profile.namespace, _is_queued(profile)
        if key not in self._pending:
            own = [agent for _, agent in self._unheld if agent.namespace == key[0]]
            others = [a for uid, a in self._unheld if key[1] and a.namespace != key[0] and self._in_turn(uid)]
            self._pending[key] = FleetView((*own, *others), self._fleet.nodes, self._fleet.caps)
        return self._fleet.facing(self._pending[key])

    def take(self, agent: Agent, profile: ProfileView, node: str) -> None:
        """One more agent is about to start."""
        self._nodes.setdefault(node, {}).setdefault(profile.namespace, f"profile {profile.key}")
        if self._fleet is not None:
            self._fleet = self._fleet.with_one_more(agent)

    def make_room(self, start: AdmissionRequest) -> Iterator[Drop]:
        """The Jobs of other namespaces on whose node or in whose place an agent starts, which counts already."""
        profile = start.view.profile
        is_queued, own_jobs = _is_queued(profile), self._observed.own_jobs
        others = {uid: job for uid, job in self._loose.items() if job.namespace != profile.namespace}
        there = (job for uid, job in others.items() if own_jobs.get(uid, job.node_name) == start.facts.name)
        out = {job.uid for job in there if not (is_queued and job.suspended)}
        for cap in start.fleet_caps:
            may_go = [job for uid, job in others.items() if uid in own_jobs and uid not in out]
            out |= _over(start, cap, [job for job in may_go if not (is_queued and self._in_turn(job.uid))])
        for uid in out:
            job = self._loose.pop(uid)
            yield Drop("Job", job.namespace, job.name, uid, _MAKES_ROOM)

    def _in_turn(self, uid: str) -> bool:
        job = self._loose.get(uid)
        if job is None or not job.suspended or uid not in self._observed.own_jobs:
            return False
        return abs(self._observed.now - job.created) < QUEUE_TURN


def _over(start: AdmissionRequest, cap: Cap, jobs: Iterable[JobView]) -> set[str]:
    """UIDs of those that a limit has no room for, the oldest of them first served."""
    out: set[str] = set()
    fleet = start.fleet
    limits: tuple[tuple[Unit, int | None], ...] = (("agents", cap.agents), ("watts", cap.watts))
    assert fleet is not None  # else there is no cap
    agents = [(job.uid, Agent(job.profile_uid, job.namespace, job.node_uid)) for job in sorted(jobs, key=_age)]
    inside = [(uid, agent) for uid, agent in agents if fleet.group(cap.by, agent) == cap.value]
    for unit, most in limits:
        used = fleet.used(cap, unit)
        for uid, agent in inside if most is not None else ():
            used += fleet.amount(unit, agent)
            if most is not None and used > most:
                out.add(uid)
    return out


def _age(job: JobView) -> tuple[datetime, str]:
    return job.created, job.name


def _is_queued(profile: ProfileView) -> bool:
    return profile.spec is not None and profile.spec.agent.queue_name is not None
