"""JSON patches of objects that were read before: who has lost the lease, or comes late with one, changes nothing."""

from collections.abc import Mapping
from typing import Any


def whole_status(uid: str, version: str, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A patch that replaces the status, if the object is still the one that was read."""
    return patch_of(uid, version, {"/status": status})


def patch_of(uid: str, version: str, changes: Mapping[str, object]) -> list[dict[str, Any]]:
    """A patch that sets values by path, if the object is still the one that was read.

    So a request of a leader that was stopped, and that lands after its successor has written, changes nothing.
    """
    tests = {"/metadata/uid": uid} | ({"/metadata/resourceVersion": version} if version else {})
    return [
        *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
        *({"op": "add", "path": path, "value": value} for path, value in changes.items()),
    ]
