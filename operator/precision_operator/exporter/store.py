"""All reports, profiles and plans of the watched namespaces, each rendered once, when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from precision_operator.cluster.object_store import Identity, ObjectStore, resource_version
from precision_operator.core.observe.observed import Raw
from precision_operator.exporter.entries import Entry, plan_entry, profile_entry, report_entry
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.reading import GemmTime, owner

_log = logging.getLogger(__name__)
_CHUNK = 100
"""Objects that are rendered in one go beside the event loop (0.5 ms each): stopping has not to wait for all of them."""


@dataclass(frozen=True)
class StoreSnapshot:
    """What the store held at one moment."""

    generation: int
    reports: tuple[Entry, ...]
    profiles: tuple[Entry, ...]
    level: Level = "node"
    gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = field(default_factory=dict)
    """By (namespace, profile, node): GEMM times of the nodes whose full results were read."""
    plans: tuple[Entry, ...] = ()


class Store:
    """The rendered objects; events and lists may come in any order."""

    def __init__(self, level: Level = "node") -> None:
        self._level = level
        self.complete = False
        """Whether every watched namespace has been listed once: before that, absence means nothing."""
        self._generation = 0
        self._reports: ObjectStore[Entry] = ObjectStore()
        self._profiles: ObjectStore[Entry] = ObjectStore()
        self._plans: ObjectStore[Entry] = ObjectStore()
        self._workloads: dict[tuple[str, ...], str] = {}
        self._gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = {}

    def view(self) -> StoreSnapshot:
        """What is there now; later events don't change it."""
        reports, profiles = tuple(self._reports.objects.values()), tuple(self._profiles.objects.values())
        plans = tuple(self._plans.objects.values())
        return StoreSnapshot(self._generation, reports, profiles, self._level, self._gemms, plans)

    def see_report(self, raw: Raw) -> None:
        """Take in a report that was added or changed."""
        self._put(self._reports, report_entry(raw, self._workload_of(raw), self._level))

    def see_profile(self, raw: Raw) -> bool:
        """Take in a profile; True when reports stand under another workload name now and must be listed anew."""
        entry = profile_entry(raw)
        before = self._workloads.get(entry.key)
        self._put(self._profiles, entry)
        self._name_workloads()
        reports = self._reports.objects.values() if self._workloads.get(entry.key) != before else ()
        return any(report.key[:2] == entry.key and report.workload != entry.workload for report in reports)

    def see_plan(self, raw: Raw) -> None:
        """Take in a plan that was added or changed."""
        self._put(self._plans, plan_entry(raw))

    def forget(self, raw: Raw) -> None:
        """Drop an object that was deleted."""
        uid = str((raw.get("metadata") or {}).get("uid"))
        for store in (self._reports, self._profiles, self._plans):
            self._generation += store.delete(uid)
        self._name_workloads()

    def put_gemms(self, gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]]) -> None:
        """Take over the GEMM times of all nodes that were sampled."""
        if gemms != self._gemms:
            self._gemms = gemms
            self._generation += 1

    async def take_profiles(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's profiles, read at resourceVersion `version`."""
        self._take(self._profiles, namespace, [profile_entry(raw) for raw in items], version)
        self._name_workloads()

    async def take_plans(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's plans."""
        self._take(self._plans, namespace, [plan_entry(raw) for raw in items], version)

    def clear_plans(self, namespace: str) -> None:
        """Show no plan of this namespace while the cluster doesn't know their kind."""
        self._generation += self._plans.clear(namespace)

    async def take_reports(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's reports. Rendered in a thread: the loop goes on serving."""
        entries: list[Entry] = []
        for start in range(0, len(items), _CHUNK):
            wanted = [(raw, self._workload_of(raw)) for raw in items[start : start + _CHUNK]]
            known = [self._unchanged(raw, workload) for raw, workload in wanted]
            entries.extend(await asyncio.to_thread(_rendered, wanted, known, self._level))
        self._take(self._reports, namespace, entries, version)

    def _workload_of(self, raw: Raw) -> str:
        try:
            namespace, profile, _ = owner(raw)
        except ValueError:
            return ""
        return self._workloads.get((namespace, profile), "")

    def _name_workloads(self) -> None:
        self._workloads = {entry.key: entry.workload for entry in self._profiles.objects.values()}

    def _unchanged(self, raw: Raw, workload: str) -> Entry | None:
        meta = raw.get("metadata") or {}
        held = self._reports.objects.get(str(meta.get("uid")))
        same = held and held.version == resource_version(meta.get("resourceVersion")) and held.workload == workload
        return held if same else None

    def _put(self, store: ObjectStore[Entry], entry: Entry) -> None:
        before = store.objects.get(entry.uid)
        if not store.put(Identity(entry.uid, entry.namespace, entry.version), entry):
            return
        if entry.problem and not (before and before.problem == entry.problem):
            _log.warning("%s/%s is not shown: %s", entry.namespace, entry.name, entry.problem)
        self._generation += 1

    def _take(self, store: ObjectStore[Entry], namespace: str, entries: Sequence[Entry], version: str) -> None:
        for entry in entries:
            self._put(store, entry)
        self._generation += store.delete_unlisted({entry.uid for entry in entries}, version, namespace)


def _rendered(wanted: Sequence[tuple[Raw, str]], known: Sequence[Entry | None], level: Level) -> list[Entry]:
    return [entry or report_entry(raw, workload, level) for (raw, workload), entry in zip(wanted, known, strict=True)]
