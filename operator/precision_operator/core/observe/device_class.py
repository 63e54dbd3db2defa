"""What the DeviceClass of the agents' resource claims says of the GPUs that it hands out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_operator.core.observe.gpu_slices import DRA_DRIVER
from precision_operator.core.observe.raw_object import entries, section


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
    for item in entries(section(raw, "spec"), "config"):
        opaque = section(item, "opaque")
        strategy = section(section(opaque, "parameters"), "sharing").get("strategy")
        if opaque.get("driver") == DRA_DRIVER and strategy:
            return DeviceClass(sharing=str(strategy))
    return USUAL
