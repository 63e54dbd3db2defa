"""Builders of our custom resources as a user or the operator writes them; a test adds what matters to it."""

from typing import Any

from precision_api.facts.names import API_VERSION, PROFILE_KIND, REPORT_KIND

MODEL = {"hiddenSize": 4096, "intermediateSize": 16384, "numAttentionHeads": 32, "numHiddenLayers": 24}
SIZES = {"microBatchSize": 2, "sequenceLength": 512}
NOW = "2026-03-01T10:00:00Z"


def profile(name: str = "p", **spec: Any) -> dict[str, Any]:
    """The smallest profile, with these fields of the spec set."""
    return {
        "apiVersion": API_VERSION,
        "kind": PROFILE_KIND,
        "metadata": {"name": name},
        "spec": {"workload": {"preset": "llama3-8b"}, **spec},
    }


def report(owner: dict[str, Any], name: str = "r") -> dict[str, Any]:
    """A report of node-1, owned by the profile as the server gave it back."""
    metadata = owner["metadata"]
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": API_VERSION,
        "kind": REPORT_KIND,
        "metadata": {"name": name, "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": False}]},
        "spec": {"profile": metadata["name"], "nodeName": "node-1", "nodeUID": "uid-1"},
    }


def path(namespace: str, plural: str, *rest: str) -> str:
    """Path of a collection of ours, of one object, of its subresource."""
    return "/".join([f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}", *rest])


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "AllMeasured", "message": "done", "lastTransitionTime": NOW}
