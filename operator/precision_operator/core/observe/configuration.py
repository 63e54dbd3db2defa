"""What the operator's own configuration, told to it by the chart, says of agents.

Defaults where their profile says nothing, and limits on the agents of all namespaces together.
"""

import argparse
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from precision_api.facts.names import DEFAULT_POOL_LABEL, GROUP
from precision_api.facts.schema import Document, Name, StringMap
from precision_api.kinds.fields import LabelKey, Watts
from precision_api.kinds.profile import PoolLimit, ProfileSpec, Toleration

OWN_KEYS = (f"{GROUP}/", "app.kubernetes.io/")
"""Labels and annotations below these are the operator's: it finds its Jobs and pods by them."""
AgentCount = Annotated[int, Field(ge=1, le=100_000)]


def _not_ours(marks: Mapping[str, str]) -> Mapping[str, str]:
    ours = [key for key in sorted(marks) if key.startswith(OWN_KEYS)]
    if ours:
        raise ValueError(f"{ours[0]} is set by the operator: choose another key")
    return marks


Marks = Annotated[StringMap, AfterValidator(_not_ours)]

Identifier = Annotated[int, Field(ge=1, le=2**31 - 1)]


class AgentDefaults(Document):
    """The fields of `spec.agent` that have a default of the cluster's, named as there; and what all agent pods get."""

    queue_name: Name | None = Field(None, description="Kueue LocalQueue of profiles that name none.")
    runtime_class_name: Name | None = Field(None, description="RuntimeClass of profiles that name none.")
    tolerations: tuple[Toleration, ...] = Field((), max_length=32, description="Added to those of every profile.")
    scheduler_name: Name | None = Field(None, description="Scheduler of agent pods. null: the cluster's default.")
    pod_labels: Marks = Field({}, description="Labels of agent pods and their Jobs, such as a policy asks for.")
    pod_annotations: Marks = Field({}, description="Annotations of agent pods.")
    flavor_labels: tuple[LabelKey, ...] = Field(
        (DEFAULT_POOL_LABEL,),
        max_length=16,
        description="Labels of a node that agent pods ask for beside its name: Kueue chooses a flavor by them.",
    )
    run_as_user: Identifier | None = Field(65532, description="User of agent pods. null: the cluster chooses it.")
    run_as_group: Identifier | None = Field(65532, description="Group of agent pods. null: the cluster chooses it.")
    fs_group: Identifier | None = Field(None, description="Group that owns the volumes of agent pods.")
    supplemental_groups: tuple[Identifier, ...] = Field(
        (), max_length=16, description="More groups of agent pods, such as the one that owns the GPUs' devices."
    )
    se_linux_options: StringMap = Field({}, description="SELinux context of agent pods.")

    @property
    def pod_security(self) -> dict[str, object]:
        """What of a pod's securityContext these defaults set, named as there; what is not set is left out."""
        chosen: dict[str, object] = {
            "runAsUser": self.run_as_user,
            "runAsGroup": self.run_as_group,
            "fsGroup": self.fs_group,
            "supplementalGroups": list(self.supplemental_groups),
            "seLinuxOptions": dict(self.se_linux_options),
        }
        return {field: value for field, value in chosen.items() if value}


def filled(spec: ProfileSpec, defaults: AgentDefaults) -> ProfileSpec:
    """The same spec, with the defaults where it says nothing; tolerations are added, each once."""
    agent = spec.agent
    changes = {
        "queue_name": agent.queue_name or defaults.queue_name,
        "runtime_class_name": agent.runtime_class_name or defaults.runtime_class_name,
        "tolerations": tuple(dict.fromkeys((*agent.tolerations, *defaults.tolerations))),
    }
    return spec.model_copy(update={"agent": agent.model_copy(update=changes)})


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
        return self == FleetLimits(pool_label=self.pool_label)


def parts(text: str) -> tuple[str, ...]:
    """What a command line lists as `A,B`, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def namespaces(text: str) -> tuple[str, ...]:
    """`A,B` with at least one name. Raises argparse.ArgumentTypeError."""
    if names := parts(text):
        return names
    raise argparse.ArgumentTypeError("name at least one namespace, such as precision-system")
