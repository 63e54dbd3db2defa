"""What is watched, and where its events go: all but plans into the cache, and the loop does the rest."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from precision_api.facts.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL, VERSION
from precision_operator.cluster.client import PAGE_TENANT, Json
from precision_operator.cluster.object_store import identity
from precision_operator.cluster.watch_loop import WatchTarget
from precision_operator.cluster.watching import Watches
from precision_operator.shell.observing.cache import OF_CLUSTER, Cache, ObjectKind
from precision_operator.shell.observing.gather import FIELD_SELECTORS, PAGE, SELECTORS, Gatherer
from precision_operator.shell.plans.capacity_plans import Planning

Kinds = dict[WatchTarget, ObjectKind | None]
RESOURCES: dict[ObjectKind, tuple[str, str, str]] = {
    "nodes": ("", "v1", "nodes"),
    "slices": ("resource.k8s.io", "v1", "resourceslices"),
    "profiles": (GROUP, VERSION, PROFILE_PLURAL),
    "reports": (GROUP, VERSION, REPORT_PLURAL),
    "jobs": ("batch", "v1", "jobs"),
    "pods": ("", "v1", "pods"),
}


def targets(namespaces: Sequence[str], slices: bool = True) -> Kinds:
    """All that is watched, by the cache's kind; None: CapacityPlans, which the cache doesn't hold.

    `slices`: ResourceSlices too, where the cluster serves them.
    """
    chosen: Kinds = {}
    for kind, resource in RESOURCES.items():
        selectors, optional = (SELECTORS.get(kind), FIELD_SELECTORS.get(kind)), kind == "slices"
        if optional and not slices:
            continue
        for namespace in [None] if kind in OF_CLUSTER else namespaces:
            by_kopf = kind == "profiles"
            chosen[WatchTarget(*resource, namespace, *selectors, PAGE[kind], by_kopf=by_kopf, optional=optional)] = kind
    plan = partial(WatchTarget, GROUP, VERSION, PLAN_PLURAL, page_items=PAGE_TENANT, by_kopf=True, optional=True)
    return chosen | {plan(namespace=name): None for name in namespaces}


class Observing(Watches):
    """The operator's watches: into the cache, and of CapacityPlans to who solves them."""

    def __init__(self, kinds: Kinds, cache: Cache, gatherer: Gatherer, plans: Planning, **how: Any) -> None:
        """`how` is what Watches takes beside the targets, which are these kinds'."""
        super().__init__(targets=[*kinds], **how)
        self._kinds, self._cache, self._gatherer, self._plans = kinds, cache, gatherer, plans

    async def _list(self, target: WatchTarget) -> str:
        if kind := self._kinds[target]:
            return await self._gatherer.list_one(kind, target.namespace)
        return await self._plans.list_one(str(target.namespace))

    def _see(self, target: WatchTarget, event: Json) -> None:
        kind = self._kinds[target]
        if kind is None:
            self._plans.see(event)
        elif event["type"] == "DELETED":
            gone = identity(event["object"])
            self._cache.drop(kind, gone.uid, gone.version)
        else:
            self._cache.put(kind, event["object"])
