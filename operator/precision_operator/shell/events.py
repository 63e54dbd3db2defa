"""Events: one that says the same again raises the count of the one that is there, as kubectl shows it (x3 over 2h)."""

from typing import Any

from precision_operator.cluster import ApiError, Cluster, paths


async def write_event(cluster: Cluster, body: dict[str, Any]) -> None:
    """Create an event whose name depends on what it says, or count it. Raises ApiError."""
    meta = body["metadata"]
    collection = paths.collection("v1", "events", meta["namespace"])
    try:
        await cluster.create(collection, body)
    except ApiError as error:
        if error.status != 409:
            raise
        await _raise_count(cluster, collection, body)


async def _raise_count(cluster: Cluster, collection: str, body: dict[str, Any]) -> None:
    """One more, with the time of this one. One that somebody else has counted meanwhile is refused (409 Conflict)."""
    name = body["metadata"]["name"]
    events, _ = await cluster.list_all(collection, field_selector=f"metadata.name={name}")
    there = next((event for event in events if event["metadata"]["name"] == name), None)
    if there is None:  # it has just run out
        return
    patch = {
        "metadata": {"resourceVersion": there["metadata"]["resourceVersion"]},
        "count": int(there.get("count") or 1) + 1,
        "lastTimestamp": body["lastTimestamp"],
    }
    await cluster.patch(paths.item(collection, name), patch, "merge")
