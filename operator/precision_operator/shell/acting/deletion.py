"""Deletes one very object: never another one that has its name by now."""

from typing import Literal

from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.actions import Deletable
from precision_operator.shell.observing.cache import Cache


async def delete(cluster: Cluster, cache: Cache, kind: Deletable, namespace: str, name: str, uid: str) -> None:
    """Delete the object of that UID; gone, or another of the same name, is as good. Raises ApiError."""
    collection = paths.jobs(namespace) if kind == "Job" else paths.reports(namespace)
    cached: Literal["jobs", "reports"] = "jobs" if kind == "Job" else "reports"
    try:
        raw = await cluster.delete(paths.item(collection, name), uid=uid)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        raw = {}
    if (raw.get("metadata") or {}).get("deletionTimestamp"):
        cache.put(cached, raw)
    else:
        cache.drop(cached, uid)
