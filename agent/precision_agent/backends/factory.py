"""Builds the backend of one device inside its process; imports only the one that was asked for."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from precision_agent.protocol import Backend, Refusal
from precision_api.exchange.exits import BACKEND_UNAVAILABLE
from precision_api.exchange.request import MeasurementRequest

CLASSES: Mapping[str, tuple[str, str]] = {
    "torch": ("precision_agent.backends.torch_gemm", "TorchGemm"),
    "transformer-engine": ("precision_agent.backends.transformer_engine", "TransformerEngine"),
}
"""Module and class of each backend that needs a process of its own."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How to build a backend: `place` is the module and the class, `uuid` the one GPU that the process shall see."""

    place: tuple[str, str]
    request: MeasurementRequest
    device: str
    uuid: str | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)


def build(opening: Opening) -> Backend:
    """The backend. Refusal BackendUnavailable where what it needs can't be imported."""
    if opening.uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = opening.uuid
    module, name = opening.place
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, OSError) as error:
        raise Refusal(BACKEND_UNAVAILABLE, f"importing {module}: {error}"[:500]) from None
    backend: Backend = made(opening.request, opening.device, **opening.arguments)
    return backend
