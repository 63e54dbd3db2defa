"""Limits on what is physical, a profile's and the operator's own: so many agents of a group, so many watts.

The operator's bind the agents of all namespaces together. Each counts all agents, those of one pool, or those of one
group of nodes that share a label's value. For them nodes that lack the label are one group together: a key with a
typing error throttles the fleet, where everybody sees it.
"""

from __future__ import annotations

from collections.abc import Iterable

from precision_operator.core.admission.budget_view import Agents, Cap
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import Facts


def full(view: Agents | None, caps: Iterable[Cap]) -> Cap | None:
    """The first that has as many agents as it allows."""
    counted = (cap for cap in caps if view is not None and cap.agents is not None and view.used(cap) >= cap.agents)
    return next(counted, None)


def beyond_watts(
    view: Agents | None, facts: NodeFacts, caps: Iterable[Cap], name: str, alone: bool = False
) -> Facts | None:
    """Of the first that has not the watts left that the node may draw, or `alone` never has; `name` is its fact."""
    if view is None or (stated := view.watts(facts)) is None:
        return None
    watts, origin = stated
    for cap in caps:
        used = view.used(cap, "watts") if cap.watts is not None and not alone else 0
        if cap.watts is not None and used + watts > cap.watts:
            others = {} if alone else {"drawn": used}
            return {**others, "watts": watts, "origin": origin, name: cap.name, "budget": cap.watts}
    return None
