"""Limits on what is physical, a profile's and the operator's own: so many agents of a group, so many watts.

The operator's bind the agents of all namespaces together. Each counts all agents, those of one pool, or those of one
group of nodes that share a label's value. For them nodes that lack the label are one group together: a key with a
typing error throttles the fleet, where everybody sees it.
"""

from collections.abc import Iterable

from precision_operator.core.admission.budget_view import Agents, Cap
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import Said


def full(view: Agents | None, caps: Iterable[Cap]) -> Cap | None:
    """The first that has as many agents as it allows."""
    reached = (cap for cap in caps if view is not None and cap.agents is not None and view.used(cap) >= cap.agents)
    return next(reached, None)


def beyond_watts(
    code: str, view: Agents | None, facts: NodeFacts, caps: Iterable[Cap], name: str, alone: bool
) -> Said | None:
    """Of the first that has not the watts left that the node may draw, or `alone` never has; `name` is its fact."""
    for cap in caps:
        stated = view.watts(facts) if view is not None and cap.watts is not None else None
        if view is None or cap.watts is None or stated is None:
            continue
        used = view.used(cap, "watts") if not alone else 0
        if used + stated[0] > cap.watts:
            others = {} if alone else {"drawn": used}
            of_node = {"watts": stated[0], "origin": stated[1], name: cap.name, "budget": cap.watts}
            return Said(code, others | of_node)
    return None
