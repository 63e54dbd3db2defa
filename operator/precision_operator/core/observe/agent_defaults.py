"""What agents get where their profile says nothing: the operator's own configuration, told to it by the chart."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from precision_api.profile import ProfileSpec, Toleration
from precision_api.schema import Document, Name

Identifier = Annotated[int, Field(ge=1, le=2**31 - 1)]


class AgentDefaults(Document):
    """The fields of `spec.agent` that have a default of the cluster's, named as there; and the pods' user."""

    queue_name: Name | None = Field(None, description="Kueue LocalQueue of profiles that name none.")
    runtime_class_name: Name | None = Field(None, description="RuntimeClass of profiles that name none.")
    tolerations: tuple[Toleration, ...] = Field((), max_length=32, description="Added to those of every profile.")
    run_as_user: Identifier | None = Field(65532, description="User of agent pods. null: the cluster chooses it.")
    run_as_group: Identifier | None = Field(65532, description="Group of agent pods. null: the cluster chooses it.")


def filled(spec: ProfileSpec, defaults: AgentDefaults) -> ProfileSpec:
    """The same spec, with the defaults where it says nothing; tolerations are added, each once."""
    agent = spec.agent
    changes = {
        "queue_name": agent.queue_name or defaults.queue_name,
        "runtime_class_name": agent.runtime_class_name or defaults.runtime_class_name,
        "tolerations": tuple(dict.fromkeys((*agent.tolerations, *defaults.tolerations))),
    }
    return spec.model_copy(update={"agent": agent.model_copy(update=changes)})
