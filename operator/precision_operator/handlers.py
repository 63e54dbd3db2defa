"""kopf's decorators and nothing else: every event goes into the cache, and the loop does the rest.

No timer, daemon, change handler or on.delete: those add finalizers and copy the spec into annotations, and a profile
could not be deleted while the operator is down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from precision_api.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster import kopf_connection
from precision_operator.shell.cache import Cache, Kind
from precision_operator.shell.gather import SELECTORS

RESOURCES: dict[Kind, tuple[str, str, str]] = {
    "nodes": ("", "v1", "nodes"),
    "profiles": (GROUP, VERSION, PROFILE_PLURAL),
    "reports": (GROUP, VERSION, REPORT_PLURAL),
    "jobs": ("batch", "v1", "jobs"),
    "pods": ("", "v1", "pods"),
}


def registry(
    cache: Cache, kubeconfig: str | None, see_plan: Callable[..., Awaitable[None]] | None = None
) -> kopf.OperatorRegistry:
    """One event handler a kind, and the login; `see_plan` takes what is told of CapacityPlans."""
    found = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await kopf_connection(kubeconfig)

    kopf.on.login(registry=found)(login)
    for kind, resource in RESOURCES.items():
        kopf.on.event(*resource, registry=found, id=f"see-{kind}")(_sees(cache, kind))
    if see_plan is not None:
        kopf.on.event(GROUP, VERSION, PLAN_PLURAL, registry=found, id="see-plans")(see_plan)
    return found


def _sees(cache: Cache, kind: Kind) -> Callable[..., Awaitable[None]]:
    async def see(event: Any, **_: Any) -> None:
        cache.hear(kind)
        if event["type"] == "DELETED":
            cache.drop(kind, event["object"]["metadata"]["uid"])
        else:
            cache.put(kind, event["object"])

    return see


def settings() -> kopf.OperatorSettings:
    """kopf, reduced to watching: it writes nothing, and asks for no rights that the chart doesn't give."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = 500
    for kind, selector in SELECTORS.items():
        chosen.watching.label_selectors[RESOURCES[kind]] = selector
    return chosen
