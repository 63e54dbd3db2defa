"""The switch that stops all agents: one ConfigMap in the operator's namespace, read again and again."""

import asyncio
import logging
from collections.abc import Callable

from precision_operator.cluster import ApiError, Cluster, get_or_none, paths
from precision_operator.core.observe.stop import Stop, stop_in, unreadable

_log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
"""An admin's word is heard within this time."""


async def stop_said(cluster: Cluster, namespace: str, name: str) -> Stop | None:
    """What the ConfigMap says; None without a `name`. Raises ApiError."""
    raw = await get_or_none(cluster, paths.item(paths.config_maps(namespace), name)) if name else None
    data = None if raw is None else {str(key): str(text) for key, text in (raw.get("data") or {}).items()}
    return stop_in(data, f"ConfigMap {namespace}/{name}")


class Switch:
    """What the ConfigMap says now. As long as it can't be read, what it said last; before that, nothing may start."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, wake: Callable[[], None]) -> None:
        """Without a `name` there is no switch. `wake` is called when it says something else."""
        self._place = (cluster, namespace, name)
        self._origin = f"ConfigMap {namespace}/{name}"
        self._wake = wake
        self._problem = ""
        self._known = not name
        self._named = bool(name)
        self.stop: Stop | None = unreadable("it has not been read yet", self._origin) if name else None

    async def keep(self) -> None:
        while self._named:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.Event().wait()

    async def look(self) -> None:
        """Read it once."""
        try:
            stop = await stop_said(*self._place)
        except ApiError as error:
            self._failed(error)
            return
        self._problem, self._known = "", True
        self._say(stop)

    def _failed(self, error: ApiError) -> None:
        if str(error) != self._problem:
            _log.warning("%s: %s; %s", self._origin, error, "what it said last holds" if self._known else "agents wait")
        self._problem = str(error)
        if not self._known:
            self._say(unreadable(error.message, self._origin))

    def _say(self, stop: Stop | None) -> None:
        if stop == self.stop:
            return
        if stop is None:
            _log.info("%s: agents may run", self._origin)
        else:
            _log.warning("%s: %s %s", self._origin, stop.mode, stop.words)
        self.stop = stop
        self._wake()
