"""Parts of a raw Kubernetes object, which may hold anything: what is missing, or of another type, is empty.

With them Kubernetes quantities (8, "8", "8k", "1e3", "16Gi") as numbers.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import Any

from precision_operator.core.observe.clock import time_or_none

_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?", re.ASCII)


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def section(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping below a key."""
    return mapping(raw.get(key))


def entries(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in the list below a key."""
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((row for row in entries(status, "conditions") if row.get("type") == kind), {})


def turned(condition: Mapping[str, Any], status: str) -> datetime | None:
    """When a condition took this status; None where it has another one."""
    return time_or_none(condition.get("lastTransitionTime")) if condition.get("status") == status else None


def quantity(value: object) -> int | None:
    """A Kubernetes quantity (8, "8", "8k", "1e3", "16Gi") as a whole number, rounded down; None if it is not one."""
    number = _number(value)
    return int(number) if number is not None else None


def millis(value: object) -> int | None:
    """A Kubernetes quantity in thousandths, rounded up as the scheduler does; None if it is not one."""
    number = _number(value)
    return ceil(number * 1000) if number is not None else None


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix.endswith("i"):
        return number * Decimal(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    return number.scaleb(int(suffix[1:]) if len(suffix) > 1 else _SUFFIXES[suffix])
