"""The owner of all that is created for a profile: with it, the cluster's garbage collector takes its objects away."""

from __future__ import annotations

from typing import Any

from precision_api.facts import names


def owner(name: str, uid: str) -> dict[str, Any]:
    """The profile as only owner: with it go its Jobs, reports and details, by the cluster's own garbage collector."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
