"""What agents get where their profile says nothing: the operator's own configuration, told to it by the chart."""

from __future__ import annotations

from pydantic import Field

from precision_api.profile import ProfileSpec, Toleration
from precision_api.schema import Document, Name


class AgentDefaults(Document):
    """The fields of `spec.agent` that have a default of the cluster's, named as there."""

    queue_name: Name | None = Field(None, description="Kueue LocalQueue of profiles that name none.")
    runtime_class_name: Name | None = Field(None, description="RuntimeClass of profiles that name none.")
    tolerations: tuple[Toleration, ...] = Field((), max_length=32, description="Added to those of every profile.")


def filled(spec: ProfileSpec, defaults: AgentDefaults) -> ProfileSpec:
    """The same spec, with the defaults where it says nothing; tolerations are added, each once."""
    agent = spec.agent
    changes = {
        "queue_name": agent.queue_name or defaults.queue_name,
        "runtime_class_name": agent.runtime_class_name or defaults.runtime_class_name,
        "tolerations": tuple(dict.fromkeys((*agent.tolerations, *defaults.tolerations))),
    }
    return spec.model_copy(update={"agent": agent.model_copy(update=changes)})
