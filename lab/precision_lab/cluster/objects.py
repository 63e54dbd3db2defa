"""What the lab's modules call a Kubernetes object: a plain dict, as the API server gives it."""

from typing import Any

Object = dict[str, Any]


def is_so(condition: str, item: Object) -> bool:
    rows = item.get("status", {}).get("conditions") or ()
    return any((row["type"], row["status"]) == (condition, "True") for row in rows)
