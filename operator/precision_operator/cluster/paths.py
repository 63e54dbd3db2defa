"""Paths of the API that we speak: collections and single objects, with names quoted."""

from __future__ import annotations

from urllib.parse import quote

from precision_api.facts.names import API_VERSION, PROFILE_PLURAL, REPORT_PLURAL

NODES = "/api/v1/nodes"


def collection(api_version: str, plural: str, namespace: str | None = None) -> str:
    """Path of a collection: of one namespace, or of all (or of a kind that has none) where it is None."""
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    return f"{root}/namespaces/{quote(namespace, safe='')}/{plural}" if namespace else f"{root}/{plural}"


def item(collection_path: str, name: str, subresource: str = "") -> str:
    """Path of one object of a collection, or of its subresource (status, log ...)."""
    return f"{collection_path}/{quote(name, safe='')}" + (f"/{subresource}" if subresource else "")


def profiles(namespace: str | None = None) -> str:
    """Path of the PrecisionProfiles."""
    return collection(API_VERSION, PROFILE_PLURAL, namespace)


def reports(namespace: str | None = None) -> str:
    """Path of the NodePrecisionReports."""
    return collection(API_VERSION, REPORT_PLURAL, namespace)


def jobs(namespace: str | None = None) -> str:
    """Path of the Jobs."""
    return collection("batch/v1", "jobs", namespace)


def pods(namespace: str | None = None) -> str:
    """Path of the Pods."""
    return collection("v1", "pods", namespace)


def config_maps(namespace: str | None = None) -> str:
    """Path of the ConfigMaps."""
    return collection("v1", "configmaps", namespace)


def leases(namespace: str | None = None) -> str:
    """Path of the Leases."""
    return collection("coordination.k8s.io/v1", "leases", namespace)
