"""The operator's own limits, which bind the agents of all namespaces together: so many agents, so many watts.

Each counts all agents, those of one pool, or those of one group of nodes that share a label's value. Nodes that lack
the label are one group together: a key with a typing error throttles the fleet, where everybody sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial

from precision_operator.core.admission.budget_view import (
    AdmissionRequest,
    FleetView,
    Live,
    label_of,
    node_watts,
    pool_of,
)
from precision_operator.core.reasons import Said, said


@dataclass(frozen=True)
class _Cap:
    """One limit that a candidate falls under: which agents it counts, and how many or how many watts it allows."""

    where: str
    of: str
    group: Callable[[Live], Hashable]
    value: Hashable
    agents: int | None
    watts: int | None


def agents_reached(request: AdmissionRequest) -> Said | None:
    for fleet, cap in _caps(request):
        if cap.agents is not None and fleet.there(cap.of, cap.group)[cap.value] >= cap.agents:
            return said("FleetLimitReached", where=cap.where, limit=cap.agents)
    return None


def power_too_small(request: AdmissionRequest) -> Said | None:
    for fleet, cap in _caps(request):
        watts, origin = node_watts(request.facts, fleet.limits)
        if cap.watts is not None and cap.watts < watts:
            return said("FleetPowerTooSmall", watts=watts, origin=origin, where=cap.where, budget=cap.watts)
    return None


def power_reached(request: AdmissionRequest) -> Said | None:
    for fleet, cap in _caps(request):
        if cap.watts is None:
            continue
        watts, origin = node_watts(request.facts, fleet.limits)
        drawn = fleet.drawn(cap.of, cap.group)[cap.value]
        if drawn + watts > cap.watts:
            facts = {"drawn": drawn, "watts": watts, "origin": origin, "where": cap.where, "budget": cap.watts}
            return said("FleetPowerReached", **facts)
    return None


def _caps(request: AdmissionRequest) -> Iterator[tuple[FleetView, _Cap]]:
    """The operator's limits that the candidate falls under, the widest first."""
    fleet = request.fleet
    if fleet is None:
        return
    limits, facts = fleet.caps, fleet.nodes[request.facts.uid]
    yield fleet, _Cap("in the cluster", "all", _all, True, limits.max_concurrent, limits.power_budget_watts)
    for row in limits.pools:
        if row.name == facts.pool:
            where = f"in pool {row.name}"
            yield fleet, _Cap(where, "pool", pool_of, row.name, row.max_concurrent, row.power_budget_watts)
    for key in limits.per_topology:
        value = facts.labels.get(key.key)
        where = f"where {key.key} is {value}" if value is not None else f"on nodes without the label {key.key}"
        group = partial(label_of, key.key)
        yield fleet, _Cap(where, f"label {key.key}", group, value, key.max, key.power_budget_watts)


def _all(item: Live) -> bool:
    return True
