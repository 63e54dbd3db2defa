"""How many nodes have a result as their profiles ask for, each node once over all profiles.

Nobody names the nodes without a result. The operator counts what the profiles of one namespace share; of several, a
target that holds others of the same nodes is counted for all of them: one whose conditions are among theirs, that
tolerates what they do, and has as many nodes. Where two others overlap, the nodes that have results under both count
once.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from precision_operator.core.results.pool import finished_seconds
from precision_operator.exporter.entries import Entry
from precision_operator.exporter.families.node import GONE
from precision_operator.exporter.reading import ProfileProgress, Target

LATE_SECONDS = 86_400
"""Beyond the age that a profile asks for: one night that was missed is made up for in the next."""
FleetState = Literal["current", "old", "missing"]


@dataclass(frozen=True)
class FleetNodes:
    """The nodes that so many profiles can measure."""

    profiles: int
    eligible: int
    results_until: tuple[float, ...]
    """Of each node with a result, ascending: until when (seconds since 1970) it is young enough; inf where any age
    will do, -inf where the result is out of date."""

    def count(self, state: FleetState) -> int:
        """How many are in that state now; the states add up to all of them."""
        old = bisect_left(self.results_until, time.time())
        current = min(len(self.results_until) - old, self.eligible)
        counts = {"current": current, "old": min(old, self.eligible - current)}
        return counts.get(state, self.eligible - sum(counts.values()))


def fleet_nodes(reports: Iterable[Entry], profiles: Iterable[Entry]) -> FleetNodes:
    """Of the newest reports and profiles. A node counts by the profile for which its result holds the longest, of those
    that ask for an age, if any does."""
    by_key = {entry.key: entry.campaign for entry in profiles if entry.campaign is not None}
    until: dict[str, tuple[bool, float]] = {}
    targets: dict[str, set[Target]] = {}
    for entry in reports:
        result, campaign = entry.result, by_key.get(entry.key[:2])
        if campaign is None or result is None or result.finished_at is None or result.stale == GONE:
            continue
        asked = campaign.refresh_seconds
        age = math.inf if asked is None else asked + LATE_SECONDS
        limit = asked is not None, finished_seconds(result) + age if result.holds else -math.inf
        until[result.node] = max(limit, until.get(result.node, limit))
        targets.setdefault(result.node, set()).add(campaign.target)
    return FleetNodes(len(by_key), _eligible(by_key.values(), targets), tuple(sorted(it[1] for it in until.values())))


def _eligible(campaigns: Collection[ProfileProgress], targets: Mapping[str, set[Target]]) -> int:
    nodes: dict[Target, int] = {}
    for campaign in campaigns:
        nodes[campaign.target] = max(campaign.eligible, nodes.get(campaign.target, 0))

    def holds(wide: Target, target: Target) -> bool:
        tolerates = "" in wide[1] or wide[1] >= target[1]
        return tolerates and wide[0] <= target[0] and nodes[wide] >= nodes[target]

    holders = {target: {it for it in nodes if holds(it, target)} for target in nodes}
    widest = {target for target, of in holders.items() if len(of) == 1}
    twice = sum(len(widest & set().union(*map(holders.__getitem__, it))) - 1 for it in targets.values())
    counts = ((it.status.nodes.distinct if it.status.nodes else None, it.eligible) for it in campaigns)
    distinct = sum(eligible if distinct_nodes is None else distinct_nodes for distinct_nodes, eligible in counts)
    return max([min(distinct, sum(map(nodes.__getitem__, widest)) - twice), *nodes.values()], default=0)
