"""kopf's decorators and nothing else: every event goes into the cache, and the loop does the rest.

No timer, daemon, change handler or on.delete: those add finalizers and copy the spec into annotations, and a profile
could not be deleted while the operator is down.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import kopf

from precision_api.facts.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster.client import PAGE_ITEMS, PAGE_TENANT
from precision_operator.cluster.object_store import identity
from precision_operator.cluster.watch_loop import WatchTarget
from precision_operator.shell.observing.cache import OF_CLUSTER, Cache, ObjectKind
from precision_operator.shell.observing.gather import FIELD_SELECTORS, PAGE, SELECTORS

RESOURCES: dict[ObjectKind, tuple[str, str, str]] = {
    "nodes": ("", "v1", "nodes"),
    "slices": ("resource.k8s.io", "v1", "resourceslices"),
    "profiles": (GROUP, VERSION, PROFILE_PLURAL),
    "reports": (GROUP, VERSION, REPORT_PLURAL),
    "jobs": ("batch", "v1", "jobs"),
    "pods": ("", "v1", "pods"),
}


def targets(namespaces: Sequence[str], slices: bool = True) -> dict[WatchTarget, ObjectKind | None]:
    """All that is watched, by the cache's kind; None: CapacityPlans, which the cache doesn't hold.

    `slices`: ResourceSlices too, where the cluster serves them.
    """
    chosen: dict[WatchTarget, ObjectKind | None] = {}
    for kind, resource in RESOURCES.items():
        selectors, optional = (SELECTORS.get(kind), FIELD_SELECTORS.get(kind)), kind == "slices"
        if optional and not slices:
            continue
        for namespace in [None] if kind in OF_CLUSTER else namespaces:
            page = PAGE.get(kind, PAGE_ITEMS)
            chosen[WatchTarget(*resource, namespace, *selectors, page_items=page, optional=optional)] = kind
    plan = (GROUP, VERSION, PLAN_PLURAL)
    return chosen | {WatchTarget(*plan, name, page_items=PAGE_TENANT, optional=True): None for name in namespaces}


def register(
    kinds: dict[WatchTarget, ObjectKind | None], cache: Cache, see_plan: Callable[..., Awaitable[None]]
) -> Callable[[WatchTarget, kopf.OperatorRegistry], None]:
    """Adds the event handler of one target; `see_plan` takes the events of CapacityPlans."""

    def add(target: WatchTarget, registry: kopf.OperatorRegistry) -> None:
        kind = kinds[target]
        see = see_plan if kind is None else _sees(cache, kind, target.namespace)
        kopf.on.event(target.group, target.version, target.plural, registry=registry, id=f"see-{target.plural}")(see)

    return add


def _sees(cache: Cache, kind: ObjectKind, namespace: str | None) -> Callable[..., Awaitable[None]]:
    async def see(event: Any, **_: Any) -> None:
        cache.touch(kind, namespace)
        if event["type"] == "DELETED":
            gone = identity(event["object"])
            cache.drop(kind, gone.uid, gone.version)
        else:
            cache.put(kind, event["object"])

    return see
