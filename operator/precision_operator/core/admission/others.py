"""What agents hold against other namespaces: nodes and places under the operator's limits; and who makes room for whom.

A Job that holds neither may get both at any time, so it is withdrawn where another namespace's agent takes its place:
its next one is of the same attempt. In its own namespace it counts like any other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from precision_api.facts.names import grouped
from precision_operator.core.admission.budget_view import AdmissionRequest, Agent, Cap, FleetView, Unit
from precision_operator.core.attempts.actions import Drop
from precision_operator.core.observe import tenants
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView
from precision_operator.core.reasons import Said

LOST = "a deleted profile"
_MAKES_ROOM = Said("Withdrawn", words="it has no node yet, and it is another namespace's turn")


class Others:
    """What is held while one plan is made; `sharing` are the namespaces that have a profile to be measured."""

    def __init__(
        self, observed: Observed, live: Mapping[tuple[str, str], Agent], owners: Mapping[str, str], sharing: set[str]
    ) -> None:
        """`live` are all agents, `owners` their profiles in words."""
        self._observed, held, caps = observed, tenants.held_nodes(observed), observed.settings.fleet_limits
        self._owners = owners
        items: dict[str, JobView | PodView] = {pod.job_uid: pod for pod in observed.pods}
        items |= {job.uid: job for job in observed.jobs}
        holders = [(node, items[job]) for job, node in held.items()]
        self._nodes = grouped((node, (of.namespace, owners.get(of.profile_uid, LOST))) for node, of in holders)
        """Namespace and profile of the agents that hold a node, by its name."""
        for job in tenants.stuck_beyond_share(held, sharing, observed):
            del held[job]
        places = [(node, items[job]) for job, node in held.items()]
        uids = {str(raw["metadata"]["name"]): uid for uid, raw in observed.nodes.items()} if places else {}
        agents = {node: Agent(of.profile_uid, of.namespace, uids.get(node, "")) for node, of in places}  # one a node
        self._places = [*agents.values()]
        self._fleet = None if caps.empty else FleetView(self._places, observed.facts_of(caps.pool_label), caps)
        self._pending = {job: agent for (_, job), agent in live.items() if job not in held and items[job].live}
        waiting = (job for job in observed.jobs if job.uid in observed.own_jobs and job.live and not job.deleting)
        self._loose = {job.uid: job for job in waiting if job.uid not in held}
        """Jobs that hold nothing, and may get it yet."""
        self._recent = {uid for uid, job in self._loose.items() if abs(observed.now - job.created) < tenants.LONG}
        self._facing: dict[str, FleetView] = {}

    def taken_by(self, namespace: str, node: str) -> str | None:
        """Who of another namespace holds the node, in words; None: nobody."""
        holders = self._nodes.get(node, [])
        if self._observed.vain and (uids := self._evens(namespace)):
            even = (self._loose[uid] for uid in uids if self._observed.own_jobs[uid] == node)
            holders = [*holders, *((job.namespace, self._owners.get(job.profile_uid, LOST)) for job in even)]
        owner = next((owner for of, owner in holders if of != namespace), None) if holders else None
        return owner if owner is None or self._observed.settings.show_other_namespaces else tenants.ANOTHERS_PROFILE

    def _evens(self, namespace: str) -> set[str]:
        """The others' Jobs of the last ten minutes where neither namespace has time left: they hold what they are for.

        Else each would withdraw the other's before a pod is bound, for ever.
        """
        if not tenants.is_spent(namespace, self._observed):
            return set()
        others = ((uid, self._loose[uid].namespace) for uid in self._recent if uid in self._loose)
        return {uid for uid, of in others if of != namespace and tenants.is_spent(of, self._observed)}

    def fleet_facing(self, namespace: str) -> FleetView | None:
        """The agents that count against the namespace's, where the operator's own limits are for them."""
        if self._fleet is None:
            return None
        if namespace not in self._facing:
            even = self._evens(namespace)
            live = tuple(a for uid, a in self._pending.items() if a.namespace == namespace or uid in even)
            pending = FleetView(live, self._fleet.nodes, self._fleet.caps)
            self._facing[namespace] = replace(self._fleet, pending=pending)
        return self._facing[namespace]

    def take(self, agent: Agent, profile: ProfileView, node: str) -> None:
        """One more agent is about to start."""
        self._nodes.setdefault(node, []).append((profile.namespace, f"profile {profile.key}"))
        self._places.append(agent)

    def make_room(self, start: AdmissionRequest) -> Iterator[Drop]:
        """The Jobs of other namespaces on whose node or in whose place an agent starts, which counts already."""
        own_jobs, namespace, node = self._observed.own_jobs, start.view.profile.namespace, start.facts.name
        even = self._evens(namespace)
        loose = {uid: job for uid, job in self._loose.items() if job.namespace != namespace and uid not in even}
        out = {uid for uid, job in loose.items() if own_jobs[uid] == node and not job.suspended}
        for cap in start.fleet_caps if loose else ():
            agents = {uid: self._pending[uid] for uid in loose if uid not in out and uid in self._pending}
            out |= set(_over(start.fleet, cap, agents))
        for job in [self._loose.pop(uid) for uid in loose if uid in out]:
            yield Drop("Job", job.namespace, job.name, job.uid, _MAKES_ROOM)


def next_release(observed: Observed) -> datetime | None:
    """When the next Job without a bound pod stops counting against other namespaces; None: there is none."""
    if len({profile.namespace for profile in observed.profiles}) < 2:
        return None
    vain, waiting = observed.vain, tenants.waiting_jobs(observed).values()
    ends = [it.created + (tenants.turn_on(it.node_name, vain.get(it.namespace))[0] or tenants.LONG) for it in waiting]
    return min((at for at in ends if at > observed.now), default=None)


def _over(fleet: FleetView | None, cap: Cap, agents: Mapping[str, Agent]) -> Iterator[str]:
    """Those that a limit has no room for, the first ones first served."""
    assert fleet is not None  # else there is no cap
    inside = {uid: agent for uid, agent in agents.items() if fleet.group(cap.by, agent) == cap.value}
    limits: tuple[tuple[Unit, int | None], ...] = (("agents", cap.agents), ("watts", cap.watts))
    for unit, most in limits:
        used = fleet.used(cap, unit)
        for uid, agent in inside.items():
            used += fleet.amount(unit, agent)
            if most is not None and used > most:
                yield uid
