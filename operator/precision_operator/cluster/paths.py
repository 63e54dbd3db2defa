"""Paths of the API that we speak: collections and single objects, with names quoted."""

from functools import partial
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


profiles = partial(collection, API_VERSION, PROFILE_PLURAL)
reports = partial(collection, API_VERSION, REPORT_PLURAL)
jobs = partial(collection, "batch/v1", "jobs")
pods = partial(collection, "v1", "pods")
config_maps = partial(collection, "v1", "configmaps")
deployments = partial(collection, "apps/v1", "deployments")
leases = partial(collection, "coordination.k8s.io/v1", "leases")
