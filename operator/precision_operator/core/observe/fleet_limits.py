"""Limits on the agents of all namespaces together: the operator's own configuration, told to it by the chart."""

from typing import Annotated

from pydantic import Field

from precision_api.facts.names import DEFAULT_POOL_LABEL
from precision_api.facts.schema import Document
from precision_api.kinds.fields import LabelKey, Watts
from precision_api.kinds.profile import PoolLimit

AgentCount = Annotated[int, Field(ge=1, le=100_000)]


class FleetTopologyLimit(Document):
    """Limits for each group of nodes that share a label's value; nodes without the label are one group together."""

    key: LabelKey = Field(description="Node label whose value names the group.")
    max: AgentCount | None = Field(None, description="Most agents at once in one group.")
    power_budget_watts: Watts | None = Field(
        None, description="Most power, by enforced limits, that running agents of one group may draw together."
    )


class FleetPoolLimit(PoolLimit):
    """Limits for the nodes of one pool, and what their GPUs may draw."""

    watts_per_gpu: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, alias="wattsPerGPU", description="What one GPU of this pool may draw, where its node has no label for it."
    )


class FleetLimits(Document):
    """What agents of all namespaces share, named as in a profile's `spec.rollout`, which binds its namespace alone."""

    max_concurrent: AgentCount | None = Field(None, description="Most agents at once.")
    power_budget_watts: Watts | None = Field(None, description="Most power that running agents may draw together.")
    pool_label: LabelKey = Field(DEFAULT_POOL_LABEL, description="Node label whose value names the pool.")
    pools: tuple[FleetPoolLimit, ...] = Field((), max_length=256, description="Limits by pool.")
    per_topology: tuple[FleetTopologyLimit, ...] = Field((), max_length=8, description="Limits by rack, domain, zone.")

    @property
    def empty(self) -> bool:
        """Whether nothing is limited."""
        return self == FleetLimits(pool_label=self.pool_label)
