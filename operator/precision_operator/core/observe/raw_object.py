"""Parts of a raw Kubernetes object, which may hold anything: what is missing, or of another type, is empty."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from precision_operator.core.observe.clock import time_or_none


def mapping(value: object) -> Mapping[str, Any]:
    """`value` where it is a mapping."""
    return value if isinstance(value, Mapping) else {}


def section(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping below a key."""
    return mapping(raw.get(key))


def entries(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in the list below a key."""
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type."""
    return next((row for row in entries(status, "conditions") if row.get("type") == kind), {})


def turned(condition: Mapping[str, Any], status: str) -> datetime | None:
    """When a condition took this status; None where it has another one."""
    return time_or_none(condition.get("lastTransitionTime")) if condition.get("status") == status else None
