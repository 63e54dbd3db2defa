"""An uninstall, noticed before its signal comes.

Helm deletes a Deployment and some milliseconds later the RoleBindings; the pods get SIGTERM up to a second after that.
Who goes on meanwhile is answered with 403. So a program watches its own Deployment, and asks for nothing any more once
it goes: it waits for the signal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from precision_operator.cluster.client import Cluster
from precision_operator.cluster.watching import Watches, WatchTarget

_log = logging.getLogger(__name__)

SIGNAL_SECONDS = 60.0
"""Longer than a kubelet takes. Who then still runs was kept on purpose (`--cascade=orphan`), and ends to begin anew."""


async def own_deployment_deleted(
    cluster: Cluster, name: str, kubeconfig: str | None, after_spawn: Callable[[], None]
) -> None:
    """Returns when the Deployment of this name in our namespace is being deleted; never where there is no name."""
    deleted = asyncio.Event()
    if not name:
        await deleted.wait()
    target = WatchTarget("apps", "v1", "deployments", cluster.namespace, field_selector=f"metadata.name={name}")

    async def take(target: WatchTarget) -> None:
        await cluster.list_all(target.path, field_selector=target.field_selector)

    def register(target: WatchTarget, registry: kopf.OperatorRegistry) -> None:
        async def see(event: Any, **_: Any) -> None:
            if event["type"] == "DELETED" or event["object"]["metadata"].get("deletionTimestamp"):
                deleted.set()

        kopf.on.event(target.group, target.version, target.plural, registry=registry)(see)

    watching = asyncio.create_task(Watches([target], take, register, kubeconfig, after_spawn).run())
    try:
        await deleted.wait()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def signal_comes(stop: asyncio.Event) -> None:
    """Wait for the signal that follows the deletion, within a bound."""
    _log.info("our Deployment is deleted: no request follows; waiting for the signal")
    try:
        await asyncio.wait_for(stop.wait(), SIGNAL_SECONDS)
    except TimeoutError:
        _log.warning("no signal came within %g s: ending, to begin anew", SIGNAL_SECONDS)
