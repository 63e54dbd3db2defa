"""What a limit looks at: the agents that there are, and one candidate node of one profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self

from precision_api.facts.products import PARTS, part, part_of_class
from precision_api.kinds.profile import Rollout
from precision_api.kinds.report import ReportAttempt
from precision_operator.core.attempts.node_state import Tally
from precision_operator.core.attempts.refusal import hold_of
from precision_operator.core.observe.fleet_limits import FleetLimits
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, Observed, RefusedCreation

MOST_WATTS = max(product.power_limit_watts for product in PARTS)
"""What a GPU of no known product is taken to draw, until its first report."""


@dataclass(frozen=True)
class Live:
    """One agent that runs or is about to, of whatever profile; `facts` are None when its node is gone."""

    profile_uid: str
    node_uid: str
    facts: NodeFacts | None
    matched: bool = True
    """Whether its node is one of the candidate's profile."""


def pool_of(agent: Live) -> str | None:
    """The pool of an agent's node; None when the node is gone."""
    return agent.facts.pool if agent.facts is not None else None


def label_of(key: str, agent: Live) -> str | None:
    """The value of a label of an agent's node; None when it has none, or the node is gone."""
    return agent.facts.labels.get(key) if agent.facts is not None else None


@dataclass(frozen=True)
class Agents:
    """Agents that run or are about to, until the next one starts.

    What is counted of them is counted once, and goes over to the value after the next start.
    """

    live: tuple[Live, ...]
    limits: Mapping[str, int]
    """Enforced watts of a node's GPUs by node UID, where a report tells them."""
    _totals: dict[tuple[str, str], tuple[Callable[[Live], Hashable], Callable[[Live], int], Counter[Hashable]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def there(self, of: str, group: Callable[[Live], Hashable]) -> Counter[Hashable]:
        """How many agents there are, by `group`; `of` names it."""
        return self._total(("agents", of), group, lambda item: 1)

    def drawn(self, of: str, group: Callable[[Live], Hashable]) -> Counter[Hashable]:
        """Watts that the agents may draw, by `group`; `of` names it."""
        return self._total(("watts", of), group, self._watts)

    def with_one_more(self, item: Live, **changes: Any) -> Self:
        """The value after one more start, so that a thousand starts count each agent once.

        This one must not be asked any more.
        """
        later = replace(self, live=(*self.live, item), **changes)
        for key, (group, weight, counted) in self._totals.items():
            counted[group(item)] += weight(item)
            later._totals[key] = group, weight, counted
        return later

    def _total(
        self, key: tuple[str, str], group: Callable[[Live], Hashable], weight: Callable[[Live], int]
    ) -> Counter[Hashable]:
        if key not in self._totals:
            counted: Counter[Hashable] = Counter()
            for item in self.live:
                counted[group(item)] += weight(item)
            self._totals[key] = group, weight, counted
        return self._totals[key][2]

    def _watts(self, item: Live) -> int:
        return node_watts(item.facts, self.limits)[0] if item.facts is not None and item.facts.gpu else 0


@dataclass(frozen=True)
class FleetView(Agents):
    """The agents of all namespaces, and what limits them together."""

    caps: FleetLimits
    nodes: Mapping[str, NodeFacts]
    """Facts of all nodes by UID, with their pools as the limits see them."""


@dataclass(frozen=True)
class BudgetView(Agents):
    """The agents of its namespace as one profile sees them: the same for each of its candidates."""

    observed: Observed
    profile: AcceptedProfile
    tally: Tally
    starts: Mapping[tuple[str, str], datetime]
    """When agents of the namespace were last created, by profile UID and node UID."""
    trying: int = 0
    """Agents of the profile that have no pod yet: whether the cluster takes them isn't known."""
    pulling: int = 0
    """Agents of the profile that may be pulling their image."""

    @cached_property
    def rollout(self) -> Rollout:
        return self.profile.spec.rollout

    @cached_property
    def hold(self) -> RefusedCreation | None:
        """The cluster's refusal that concerns the profile as a whole."""
        return hold_of(self.observed.refused_of.get(self.profile.uid, {}).values())

    @property
    def agents(self) -> int:
        """Agents of the profile that run or are about to."""
        return self.there("profile", lambda item: item.profile_uid)[self.profile.uid]

    @cached_property
    def newest(self) -> Mapping[Hashable, datetime]:
        """The newest creation that the ramp still waits for, by what an agent counts with."""
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


@dataclass(frozen=True)
class AdmissionRequest:
    """One candidate node of one profile, and all that bears on whether its agent may start at this moment."""

    view: BudgetView
    facts: NodeFacts
    taken_by: str | None = None
    """Key of the profile whose agent is on the node."""
    attempt: ReportAttempt | None = None
    """The newest attempt of this profile on this node, in this run."""
    elsewhere: tuple[AdmissionRequest, ...] = ()
    """The same node as other profiles of the namespace with physical limits see it, each of which matches it."""
    cold: bool = False
    """Whether the node would have to pull the agent's image."""
    fleet: FleetView | None = None
    """The agents of all namespaces, where the operator's own limits are for them."""


def recent(moment: datetime, wait: timedelta, now: datetime) -> bool:
    """Whether `moment` is less than `wait` ago. One that lies further ahead is from a clock that has jumped back."""
    return abs(now - moment) < wait


def node_watts(facts: NodeFacts, limits: Mapping[str, int]) -> tuple[int, str]:
    """What a node under measurement may draw, and where that is from: the last report's limits, else the product's."""
    if facts.uid in limits:
        return limits[facts.uid], "enforced limits"
    product = part(facts.product_name) if facts.product_name else None
    if product is None and facts.product is not None:
        product = part_of_class(facts.product)
    if product is None:
        return facts.gpus * MOST_WATTS, f"the most of any known GPU: {facts.gpu} is none, and not yet measured"
    return facts.gpus * int(product.power_limit_watts), f"{product.name} default, not yet measured"
