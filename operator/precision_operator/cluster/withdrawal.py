"""How a program ends: by a signal, or by an uninstall, noticed before its signal comes.

Helm deletes a Deployment and some milliseconds later the RoleBindings; the pods get SIGTERM up to a second after that.
Who goes on meanwhile is answered with 403. So a program watches its own Deployment, and asks for nothing any more once
it goes: it waits for the signal.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Coroutine
from typing import Any

from precision_operator.cluster.client import Cluster
from precision_operator.cluster.errors import ApiError
from precision_operator.cluster.paths import deployments, item

_log = logging.getLogger(__name__)

SIGNAL_SECONDS = 60.0
"""Longer than a kubelet takes. Who then still runs was kept on purpose (`--cascade=orphan`), and ends to begin anew."""
BACK_SECONDS = 10.0
"""Longer than the signal of an uninstall takes: after that it is asked now and then whether we are wanted again."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 4.0
FORBIDDEN_PAUSE_SECONDS = 300.0
"""Roles of an older chart lack this right, and get it by an upgrade, which starts us anew."""


def on_signals(stop: asyncio.Event) -> None:
    """Sets `stop` when SIGINT or SIGTERM comes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def first_of(*works: Coroutine[Any, Any, object]) -> int:
    """Which of them ended first; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return min(map(tasks.index, done))


async def own_deployment_deleted(cluster: Cluster, name: str) -> None:
    """Returns when the Deployment of this name in our namespace is being deleted; never where there is no name.

    One that was there in an earlier list and is not in this one has gone while nobody watched.
    """
    if not name:
        await asyncio.Event().wait()
    path, chosen = deployments(cluster.namespace), f"metadata.name={name}"
    there, pause, problem = False, FIRST_PAUSE_SECONDS, ""
    while True:
        try:
            items, version = await cluster.list_all(path, field_selector=chosen)
            if any(map(_is_going, items)) or (there and not items):
                return
            there, pause = bool(items), FIRST_PAUSE_SECONDS
            async for event in cluster.watch(path, version, field_selector=chosen):
                if event["type"] == "DELETED" or _is_going(event["object"]):
                    return
                there = True
        except ApiError as error:
            if str(error) != problem:
                _log.warning("our own Deployment is not watched: %s", error)
            problem = str(error)
            pause = FORBIDDEN_PAUSE_SECONDS if error.status == 403 else min(2 * pause, LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))


async def signal_comes(stop: asyncio.Event, cluster: Cluster, name: str) -> None:
    """Wait for the signal that follows the deletion, within a bound; or until our Deployment is back, to begin anew."""
    _log.info("our Deployment is deleted: no request follows; waiting for the signal")
    path = item(deployments(cluster.namespace), name)
    waiting = asyncio.create_task(stop.wait())
    try:
        for _ in range(int(SIGNAL_SECONDS / BACK_SECONDS)):
            done, _pending = await asyncio.wait((waiting,), timeout=BACK_SECONDS)
            if done:
                return
            if await _is_back(cluster, path):
                _log.warning("our Deployment is back: ending, to begin anew")
                return
        _log.warning("no signal came within %g s: ending, to begin anew", SIGNAL_SECONDS)
    finally:
        waiting.cancel()


async def _is_back(cluster: Cluster, path: str) -> bool:
    """Whether our Deployment is there; no where nobody says so (our rights have gone with it)."""
    try:
        return not _is_going(await cluster.get(path))
    except ApiError:
        return False


def _is_going(deployment: dict[str, Any]) -> bool:
    return bool(deployment["metadata"].get("deletionTimestamp"))
