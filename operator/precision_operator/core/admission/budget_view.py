"""What a limit looks at: the agents that there are, and one candidate node of one profile."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from precision_api.facts.names import LABEL_WATTS_PER_GPU
from precision_api.facts.products import PARTS, Part, ProductClass, part, part_of_class
from precision_api.kinds.profile import NodeCounts, Rollout
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.gpu_labels import whole_number
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, Observed, ProfileView, RefusedCreation
from precision_operator.core.reasons import Said

MOST_WATTS = max(product.power_limit_watts for product in PARTS)
"""What a GPU is taken to draw of which nobody says it."""


@dataclass(frozen=True)
class Agent:
    """One agent that runs or is about to, of whatever profile."""

    profile_uid: str
    namespace: str
    node_uid: str
    profile: str = ""
    """The profile's key, for people."""
    node: str = ""
    """The node's name, for people."""

    def __str__(self) -> str:
        return f"agent of {self.profile} on node {self.node}"


Unit = Literal["agents", "watts"]
Group = tuple[str, ...]
"""By what agents are counted: one of these (pools and those seen are of one that looks), or a node's label."""
ALL, PROFILE, POOL, SEEN = ("all",), ("profile",), ("pool",), ("seen",)


class Cap(NamedTuple):
    """One limit that a candidate falls under: which agents it counts, and how many or how many watts it allows."""

    name: str
    """As users read it."""
    by: Group
    value: Hashable
    """Which group of these."""
    agents: int | None = None
    watts: int | None = None


class _Total(Counter[Hashable]):
    """So many agents or watts of each group."""

    counted = 0
    """How many of the agents are in it."""


@dataclass
class Agents:
    """Agents that run or are about to.

    Of a thousand starts, which are appended to `live`, each is counted once, where somebody asks.
    """

    live: Sequence[Agent]
    nodes: Mapping[str, NodeFacts]
    """Facts of all nodes by UID, with their pools as the limits see them; a node that is gone has none."""
    _totals: dict[tuple[Unit, Group], _Total] = field(default_factory=dict, repr=False, compare=False, kw_only=True)
    """Goes over to each value that is made of this one with the same agents, and to others that look at them."""

    def used(self, cap: Cap, of: Unit = "agents") -> int:
        """How many agents there are in the group of a limit, or how many watts they may draw."""
        return self._total(of, cap.by).get(cap.value, 0)

    def watts(self, facts: NodeFacts) -> tuple[int, str] | None:
        """What a node under measurement may draw, in watts, and who says so; None where nobody does."""
        raise NotImplementedError

    def group(self, by: Group, agent: Agent) -> Hashable:
        """The group that an agent counts with; None where its node is gone, or has no such label."""
        facts = self.nodes.get(agent.node_uid)
        match by:
            case ("all",):
                return True
            case ("profile",):
                return agent.profile_uid
            case ("label", key):
                return facts.labels.get(key) if facts is not None else None
        return facts.pool if facts is not None else None

    def _total(self, of: Unit, by: Group) -> _Total:
        total = self._totals.get((of, by)) or self._totals.setdefault((of, by), _Total())
        while total.counted < len(self.live):
            agent = self.live[total.counted]
            total[self.group(by, agent)] += self.amount(of, agent)
            total.counted += 1
        return total

    def amount(self, of: Unit, agent: Agent) -> int:
        """One agent, or the watts that it may draw."""
        if of == "agents":
            return 1
        facts = self.nodes.get(agent.node_uid)
        stated = self.watts(facts) if facts is not None and facts.gpu else (0, "")
        return stated[0] if stated is not None else facts.gpus * MOST_WATTS if facts is not None else 0


@dataclass
class FleetView(Agents):
    """The agents of all namespaces that hold a place, and what limits them together."""

    caps: FleetLimits
    pending: "FleetView | None" = None
    """Those that hold none yet, but count against the candidate's namespace."""

    def used(self, cap: Cap, of: Unit = "agents") -> int:
        return super().used(cap, of) + (self.pending.used(cap, of) if self.pending is not None else 0)

    def watts(self, facts: NodeFacts) -> tuple[int, str] | None:
        """By the node's label, the pool's row of the limits, or its product: never by what a tenant's agent reports."""
        labelled = whole_number(facts.labels.get(LABEL_WATTS_PER_GPU))
        if labelled:
            return facts.gpus * labelled, f"node label {LABEL_WATTS_PER_GPU}"
        pool = self.nodes.get(facts.uid, facts).pool  # a profile may name another label for its pools
        for row in self.caps.pools:
            if row.name == pool and row.watts_per_gpu is not None:
                return facts.gpus * row.watts_per_gpu, f"wattsPerGPU of pool {row.name}"
        product = _part(facts.product_name, facts.product)
        return (facts.gpus * product.power_limit_watts, f"factory limit of {product.name}") if product else None


@dataclass
class BudgetView(Agents):
    """The agents of its namespace as one profile sees them: the same for each of its candidates."""

    observed: Observed
    profile: AcceptedProfile
    limits: Callable[[str], int | None]
    """Enforced watts of a node's GPUs by node UID; None where no report of the namespace tells them."""
    matched: Set[str]
    """UIDs of the nodes that its target matches."""
    tally: NodeCounts
    starts: Mapping[tuple[str, str], datetime]
    """When agents of the namespace were last created, by profile UID and node UID."""
    trying: int = 0
    """Agents of the profile that have no pod yet: whether the cluster takes them isn't known."""
    pulling: int = 0
    """Agents of the profile that may be pulling their image."""
    hold: RefusedCreation | None = None
    """The cluster's refusal that concerns the profile as a whole."""
    _caps: dict[str | None, tuple[Cap, ...]] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    @cached_property
    def rollout(self) -> Rollout:
        return self.profile.spec.rollout

    @property
    def agents(self) -> int:
        """Agents of the profile that run or are about to."""
        return self._total("agents", PROFILE).get(self.profile.uid, 0)

    def caps(self, facts: NodeFacts) -> tuple[Cap, ...]:
        """The profile's limits that a candidate falls under, but those of racks: the same throughout its pool."""
        if facts.pool in self._caps:
            return self._caps[facts.pool]
        rollout, uid = self.rollout, self.profile.uid
        caps = [Cap("spec.rollout.powerBudgetWatts", (*SEEN, uid), True, watts=rollout.power_budget_watts)]
        pool = next((row for row in rollout.pools if row.name == facts.pool), None)
        if pool is not None:
            name = f"powerBudgetWatts of pool {pool.name}"
            caps.append(Cap(name, (*POOL, uid), pool.name, pool.max_concurrent, pool.power_budget_watts))
        return self._caps.setdefault(facts.pool, tuple(caps))

    def watts(self, facts: NodeFacts) -> tuple[int, str]:
        """By the last report of the namespace, else by its product."""
        if limit := self.limits(facts.uid):
            return limit, "enforced limits"
        product = _part(facts.product_name, facts.product)
        if product is None:
            return facts.gpus * MOST_WATTS, f"the most of any known GPU: {facts.gpu} is none, and not yet measured"
        return facts.gpus * product.power_limit_watts, f"{product.name} default, not yet measured"

    def group(self, by: Group, agent: Agent) -> Hashable:
        """As of any agents; `SEEN` are its own, wherever they are, and those of others on its nodes."""
        if by[:1] == SEEN:
            return agent.node_uid in self.matched or agent.profile_uid == self.profile.uid
        return super().group(by, agent)

    @cached_property
    def newest(self) -> dict[Hashable, datetime]:
        """The newest creation that the ramp still waits for, by what an agent counts with; starts are added to it."""
        wait = timedelta(seconds=self.rollout.ramp_seconds)
        newest: dict[Hashable, datetime] = {}
        for (profile, node), at in self.starts.items():
            if recent(at, wait, self.observed.now):
                labels = (self.observed.nodes.get(node, {}).get("metadata") or {}).get("labels") or {}
                group = self.ramp_group(profile, labels)
                newest[group] = max(at, newest.get(group, at))
        return newest

    def ramp_group(self, profile_uid: str, labels: Mapping[str, str]) -> Hashable:
        """What an agent counts with: its domain of the first topology key; without a key its profile."""
        topology = self.rollout.per_topology
        return ("group", labels.get(topology[0].key)) if topology else ("profile", profile_uid)


@dataclass
class AdmissionRequest:
    """One candidate node of one profile, and all that bears on whether its agent may start at this moment."""

    view: BudgetView
    facts: NodeFacts
    taken_by: str | None = None
    """The profile whose agent is on the node, in words."""
    attempt: ReportAttempt | None = None
    """The newest attempt of this profile on this node, in this run."""
    elsewhere: Callable[[str, str], Iterable[tuple[ProfileView, Said]]] = lambda *_: ()
    """Profiles of a namespace whose limits on places leave no room on a node, each with the limit; asked for late."""
    cold: Callable[[], bool] = bool
    """Whether the node would have to pull the agent's image; asked for late."""
    fleet: FleetView | None = None
    """The agents of all namespaces, where the operator's own limits are for them."""

    @property
    def kind(self) -> Hashable:
        """What `KIND_CHECKS` see of the node but its pool: the same for all profiles of a namespace."""
        drawn = self.fleet.watts(self.facts) if self.fleet is not None else None
        return self.facts.way, self.facts.gpu, self.view.watts(self.facts), self.fleet_caps, drawn

    @cached_property
    def fleet_caps(self) -> tuple[Cap, ...]:
        """The operator's limits that the candidate falls under, the widest first."""
        if self.fleet is None:
            return ()
        limits, facts = self.fleet.caps, self.fleet.nodes[self.facts.uid]
        caps = [Cap("in the cluster", ALL, True, limits.max_concurrent, limits.power_budget_watts)]
        for pool in limits.pools:
            if pool.name == facts.pool:
                caps.append(Cap(f"in pool {pool.name}", POOL, pool.name, pool.max_concurrent, pool.power_budget_watts))
        for rack in limits.per_topology:
            value = facts.labels.get(rack.key)
            name = f"where {rack.key} is {value}" if value is not None else f"on nodes without the label {rack.key}"
            caps.append(Cap(name, ("label", rack.key), value, rack.max, rack.power_budget_watts))
        return tuple(caps)


def recent(moment: datetime, wait: timedelta, now: datetime) -> bool:
    """Whether `moment` is less than `wait` ago. One that lies further ahead is from a clock that has jumped back."""
    return abs(now - moment) < wait


@lru_cache
def _part(name: str | None, product: ProductClass | None) -> Part | None:
    """The part that a node's GPUs are; None for one that the table does not know."""
    named = part(name) if name else None
    return part_of_class(product) if named is None and product is not None else named
