"""Limits on what is physical, a profile's and the operator's own: so many agents of a group, so many watts.

The operator's bind the agents of all namespaces together. Each counts all agents, those of one pool, or those of one
group of nodes that share a label's value. For them nodes that lack the label are one group together: a key with a
typing error throttles the fleet, where everybody sees it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from precision_operator.core.admission.budget_view import ALL, POOL, SEEN, AdmissionRequest, Agents, Group, node_watts
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import Facts


@dataclass(frozen=True)
class Cap:
    """One limit that a candidate falls under: which agents it counts, and how many or how many watts it allows."""

    name: str
    """As users read it."""
    by: Group
    value: Hashable
    """Which group of these."""
    agents: int | None = None
    watts: int | None = None


def full(view: Agents | None, caps: Iterable[Cap]) -> Cap | None:
    """The first that has as many agents as it allows."""
    counted = (cap for cap in caps if view is not None and cap.agents is not None and _there(view, cap) >= cap.agents)
    return next(counted, None)


def too_small(view: Agents | None, facts: NodeFacts, caps: Iterable[Cap], name: str) -> Facts | None:
    """Of the first that allows fewer watts than the node alone may draw; `name` is the fact that names it."""
    if view is None:
        return None
    watts, origin = node_watts(facts, view.limits)
    cap = next((cap for cap in caps if cap.watts is not None and cap.watts < watts), None)
    return {"watts": watts, "origin": origin, name: cap.name, "budget": cap.watts} if cap is not None else None


def drawn(view: Agents | None, facts: NodeFacts, caps: Iterable[Cap], name: str) -> Facts | None:
    """Of the first that has not the watts left that the node may draw."""
    if view is None:
        return None
    watts, origin = node_watts(facts, view.limits)
    for cap in caps:
        used = view.drawn(cap.by)[cap.value] if cap.watts is not None else 0
        if cap.watts is not None and used + watts > cap.watts:
            return {"drawn": used, "watts": watts, "origin": origin, name: cap.name, "budget": cap.watts}
    return None


def caps_of_profile(request: AdmissionRequest) -> Iterator[Cap]:
    """The profile's limits that the candidate falls under, those of racks last."""
    rollout, facts = request.view.rollout, request.facts
    yield Cap("spec.rollout.powerBudgetWatts", SEEN, True, watts=rollout.power_budget_watts)
    for pool in (row for row in rollout.pools if row.name == facts.pool):
        yield Cap(
            f"powerBudgetWatts of pool {pool.name}", POOL, pool.name, pool.max_concurrent, pool.power_budget_watts
        )
        break
    for rack in rollout.per_topology:
        if rack.key in facts.labels:  # else of no group; whether that may be is a check of its own
            yield Cap(rack.key, ("label", rack.key), facts.labels[rack.key], rack.max)


def caps_of_fleet(request: AdmissionRequest) -> Iterator[Cap]:
    """The operator's limits that the candidate falls under, the widest first."""
    fleet = request.fleet
    if fleet is None:
        return
    limits, facts = fleet.caps, fleet.nodes[request.facts.uid]
    yield Cap("in the cluster", ALL, True, limits.max_concurrent, limits.power_budget_watts)
    for pool in limits.pools:
        if pool.name == facts.pool:
            yield Cap(f"in pool {pool.name}", POOL, pool.name, pool.max_concurrent, pool.power_budget_watts)
    for rack in limits.per_topology:
        value = facts.labels.get(rack.key)
        name = f"where {rack.key} is {value}" if value is not None else f"on nodes without the label {rack.key}"
        yield Cap(name, ("label", rack.key), value, rack.max, rack.power_budget_watts)


def _there(view: Agents, cap: Cap) -> int:
    return view.there(cap.by)[cap.value]
