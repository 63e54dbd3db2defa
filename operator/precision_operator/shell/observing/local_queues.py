"""Kueue's LocalQueues, read in whichever version of its API the cluster serves; a cluster may have no Kueue at all."""

from precision_operator.cluster import Cluster, get_or_none, paths

GROUP = "kueue.x-k8s.io"
PLURAL = "localqueues"


class LocalQueues:
    """Looks queues up. Which version is served is asked anew whenever a queue is not there: an upgrade may drop one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api_version: str | None = None
        """Group and version that answered last; None: not asked yet, or there is no Kueue."""

    async def has(self, namespace: str, name: str) -> bool:
        """Whether there is such a LocalQueue; False without Kueue. Raises ApiError for any other answer than a 404."""
        before = self._api_version
        if before is not None and await self._there(before, namespace, name):
            return True
        self._api_version = await self._served()
        if self._api_version is None or self._api_version == before:
            return False
        return await self._there(self._api_version, namespace, name)

    async def _there(self, api_version: str, namespace: str, name: str) -> bool:
        path = paths.item(paths.collection(api_version, PLURAL, namespace), name)
        return await get_or_none(self._cluster, path) is not None

    async def _served(self) -> str | None:
        """The first version, in the API server's order of preference, that serves LocalQueues; None without any."""
        group = await get_or_none(self._cluster, f"/apis/{GROUP}")
        for version in (group or {}).get("versions") or ():
            api_version = str(version["groupVersion"])
            kinds = await get_or_none(self._cluster, f"/apis/{api_version}")
            if any(kind.get("name") == PLURAL for kind in (kinds or {}).get("resources") or ()):
                return api_version
        return None
