"""What the DeviceClass of the agents' resource claims says of the GPUs that it hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_operator.core.observe.gpu_slices import DRA_DRIVER


@dataclass(frozen=True)
class DeviceClass:
    """Whether the class is there, and by which strategy its GPUs are shared between claims (None: they are not)."""

    exists: bool = True
    sharing: str | None = None


USUAL = DeviceClass()
"""A class that is there and shares nothing."""


def device_class(raw: Mapping[str, Any] | None) -> DeviceClass:
    """The class as the API server holds it; None: there is none of that name. Never raises on what it holds."""
    if raw is None:
        return DeviceClass(exists=False)
    config = _mapping(raw.get("spec")).get("config")
    for item in config if isinstance(config, list) else ():
        opaque = _mapping(_mapping(item).get("opaque"))
        strategy = _mapping(_mapping(opaque.get("parameters")).get("sharing")).get("strategy")
        if opaque.get("driver") == DRA_DRIVER and strategy:
            return DeviceClass(sharing=str(strategy))
    return USUAL


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
