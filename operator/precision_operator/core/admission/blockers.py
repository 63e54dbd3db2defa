"""Who stands in the way of a node that waits for a limit: agents, failed nodes or a pod, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from precision_operator.core.admission.budget_view import Agent
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, Occupancy
from precision_operator.core.observe.tenants import words


@dataclass(frozen=True)
class Wait:
    """A node that waits for a limit of one profile, and all that may stand in its way."""

    profile: AcceptedProfile
    facts: NodeFacts
    agents: tuple[Agent, ...]
    nodes: Mapping[str, NodeFacts]
    """Facts of all nodes by UID, as the profile sees them; agents may be on one that is gone."""
    failed_nodes: tuple[str, ...]
    """Name and reason of each node of the profile that has failed."""
    occupancy: Occupancy | None
    """Who holds GPUs of the node; None where nobody has looked."""
    kept_for: str | None = None
    """The pod that the node's GPUs are kept for."""


Blockers = Callable[[Wait], tuple[str, ...]]


def own_agents(wait: Wait) -> tuple[str, ...]:
    return _agents(wait, lambda agent: agent.profile_uid == wait.profile.uid)


def agents_on_node(wait: Wait) -> tuple[str, ...]:
    return _agents(wait, lambda agent: agent.node_uid == wait.facts.uid)


def agents_in_pool(wait: Wait) -> tuple[str, ...]:
    return _neighbours(wait, lambda facts: facts.pool == wait.facts.pool)


def agents_in_topology(wait: Wait) -> tuple[str, ...]:
    """Agents of the namespace in the same domain of any topology key that the rollout limits."""
    labels = wait.facts.labels
    keys = [row.key for row in wait.profile.spec.rollout.per_topology if row.key in labels]
    return _neighbours(wait, lambda facts: any(facts.labels.get(key) == labels[key] for key in keys))


def agents_on_nodes(wait: Wait) -> tuple[str, ...]:
    """Agents of the namespace on any node that is still there."""
    return _neighbours(wait, lambda facts: True)


def failed_nodes(wait: Wait) -> tuple[str, ...]:
    return tuple(f"node {node}" for node in wait.failed_nodes)


def waiting_pod(wait: Wait) -> tuple[str, ...]:
    """The pod that the node's GPUs are kept for."""
    return (words(wait.kept_for),) if wait.kept_for is not None else ()


def _neighbours(wait: Wait, counts: Callable[[NodeFacts], bool]) -> tuple[str, ...]:
    """Of nodes that are there. A profile's limits count the agents of its namespace alone."""
    near = {uid for uid in {agent.node_uid for agent in wait.agents} & wait.nodes.keys() if counts(wait.nodes[uid])}
    return _agents(wait, lambda agent: agent.namespace == wait.profile.namespace and agent.node_uid in near)


def _agents(wait: Wait, counts: Callable[[Agent], bool]) -> tuple[str, ...]:
    return tuple(str(agent) for agent in wait.agents if counts(agent))
