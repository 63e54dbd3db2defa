"""Who stands in the way of a node that waits for a limit: agents, failed nodes or a pod, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from precision_api.kinds.profile import Rollout
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import Occupancy


@dataclass(frozen=True)
class Agent:
    """One agent that runs or is about to, of whatever profile; `facts` are None when its node is gone."""

    profile: str
    profile_uid: str
    namespace: str
    node: str
    node_uid: str
    facts: NodeFacts | None

    def __str__(self) -> str:
        return f"agent of {self.profile} on node {self.node}"


@dataclass(frozen=True)
class Wait:
    """A node that waits for a limit of one profile, and all that may stand in its way."""

    profile_uid: str
    namespace: str
    rollout: Rollout
    facts: NodeFacts
    agents: tuple[Agent, ...]
    failed_nodes: tuple[str, ...]
    """Name and reason of each node of the profile that has failed."""
    occupancy: Occupancy | None
    """Who holds GPUs of the node; None where nobody has looked."""
    kept_for: str | None = None
    """The pod that the node's GPUs are kept for."""


Blockers = Callable[[Wait], tuple[str, ...]]


def own_agents(wait: Wait) -> tuple[str, ...]:
    return _agents(wait, lambda agent: agent.profile_uid == wait.profile_uid)


def agents_on_node(wait: Wait) -> tuple[str, ...]:
    return _agents(wait, lambda agent: agent.node_uid == wait.facts.uid)


def agents_in_pool(wait: Wait) -> tuple[str, ...]:
    return _neighbours(wait, lambda agent: agent.facts is not None and agent.facts.pool == wait.facts.pool)


def agents_in_topology(wait: Wait) -> tuple[str, ...]:
    """Agents of the namespace in the same domain of any topology key that the rollout limits."""
    keys = [row.key for row in wait.rollout.per_topology if row.key in wait.facts.labels]
    labels = wait.facts.labels
    return _neighbours(wait, lambda agent: any(_label(agent, key) == labels[key] for key in keys))


def agents_on_nodes(wait: Wait) -> tuple[str, ...]:
    """Agents of the namespace on any node that is still there."""
    return _neighbours(wait, lambda agent: agent.facts is not None)


def failed_nodes(wait: Wait) -> tuple[str, ...]:
    return tuple(f"node {node}" for node in wait.failed_nodes)


def gpu_holder(wait: Wait) -> tuple[str, ...]:
    """The pod that holds GPUs of the node."""
    return (f"pod {wait.occupancy.holder}",) if wait.occupancy is not None else ()


def waiting_pod(wait: Wait) -> tuple[str, ...]:
    """The pod that the node's GPUs are kept for."""
    return (f"pod {wait.kept_for}",) if wait.kept_for is not None else ()


def _neighbours(wait: Wait, counts: Callable[[Agent], bool]) -> tuple[str, ...]:
    """A profile's limits count the agents of its namespace alone."""
    return _agents(wait, lambda agent: agent.namespace == wait.namespace and counts(agent))


def _agents(wait: Wait, counts: Callable[[Agent], bool]) -> tuple[str, ...]:
    return tuple(str(agent) for agent in wait.agents if counts(agent))


def _label(agent: Agent, key: str) -> str | None:
    return agent.facts.labels.get(key) if agent.facts is not None else None
