"""All reports, profiles and plans of the watched namespaces, each rendered once, when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from precision_operator.exporter.entries import Entry, plan_entry, profile_entry, report_entry, resource_version
from precision_operator.exporter.family import Level
from precision_operator.exporter.reading import GemmTime, Raw, owner

_log = logging.getLogger(__name__)
_CHUNK = 100
"""Objects that are rendered in one go beside the event loop (0.5 ms each): stopping has not to wait for all of them."""


@dataclass(frozen=True)
class View:
    """What the store held at one moment."""

    generation: int
    reports: tuple[Entry, ...]
    profiles: tuple[Entry, ...]
    level: Level = "node"
    gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = field(default_factory=dict)
    """By (namespace, profile, node): GEMM times of the nodes whose full results were read."""
    plans: tuple[Entry, ...] = ()


class Store:
    """Objects by UID. Events and lists may come in any order: of an object's versions the newest stays."""

    def __init__(self, level: Level = "node") -> None:
        self._level = level
        self.complete = False
        """Whether every watched namespace has been listed once: before that, absence means nothing."""
        self._generation = 0
        self._reports: dict[str, Entry] = {}
        self._profiles: dict[str, Entry] = {}
        self._plans: dict[str, Entry] = {}
        self._workloads: dict[tuple[str, ...], str] = {}
        self._gone: set[str] = set()
        self._gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = {}

    def view(self) -> View:
        """What is there now; later events don't change it."""
        reports, profiles = tuple(self._reports.values()), tuple(self._profiles.values())
        return View(self._generation, reports, profiles, self._level, self._gemms, tuple(self._plans.values()))

    def see_report(self, raw: Raw) -> None:
        """Take in a report that was added or changed."""
        self._put(self._reports, report_entry(raw, self._workload_of(raw), self._level))

    def see_profile(self, raw: Raw) -> bool:
        """Take in a profile; True when reports stand under another workload name now and must be listed anew."""
        entry = profile_entry(raw)
        before = self._workloads.get(entry.key)
        self._put(self._profiles, entry)
        self._name_workloads()
        reports = self._reports.values() if self._workloads.get(entry.key) != before else ()
        return any(report.key[:2] == entry.key and report.workload != entry.workload for report in reports)

    def see_plan(self, raw: Raw) -> None:
        """Take in a plan that was added or changed."""
        self._put(self._plans, plan_entry(raw))

    def forget(self, raw: Raw) -> None:
        """Drop an object that was deleted."""
        uid = str((raw.get("metadata") or {}).get("uid"))
        self._gone.add(uid)
        for held in (self._reports, self._profiles, self._plans):
            if held.pop(uid, None):
                self._generation += 1
        self._name_workloads()

    def put_gemms(self, gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]]) -> None:
        """Take over the GEMM times of all nodes that were sampled."""
        if gemms != self._gemms:
            self._gemms = gemms
            self._generation += 1

    def begin_list(self) -> None:
        """Call before a list is asked for: what is deleted from now on must not come back through it."""
        self._gone.clear()

    async def take_profiles(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's profiles, read at resourceVersion `version`."""
        self._replace(self._profiles, namespace, [profile_entry(raw) for raw in items], version)
        self._name_workloads()

    async def take_plans(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's plans."""
        self._replace(self._plans, namespace, [plan_entry(raw) for raw in items], version)

    async def take_reports(self, namespace: str, items: Sequence[Raw], version: str) -> None:
        """Take in a complete list of one namespace's reports. Rendered in a thread: the loop goes on serving."""
        entries: list[Entry] = []
        for start in range(0, len(items), _CHUNK):
            wanted = [(raw, self._workload_of(raw)) for raw in items[start : start + _CHUNK]]
            known = [self._unchanged(raw, workload) for raw, workload in wanted]
            entries.extend(await asyncio.to_thread(_rendered, wanted, known, self._level))
        self._replace(self._reports, namespace, entries, version)

    def _workload_of(self, raw: Raw) -> str:
        try:
            namespace, profile, _ = owner(raw)
        except ValueError:
            return ""
        return self._workloads.get((namespace, profile), "")

    def _name_workloads(self) -> None:
        self._workloads = {entry.key: entry.workload for entry in self._profiles.values()}

    def _unchanged(self, raw: Raw, workload: str) -> Entry | None:
        meta = raw.get("metadata") or {}
        held = self._reports.get(str(meta.get("uid")))
        same = held and held.version == resource_version(meta.get("resourceVersion")) and held.workload == workload
        return held if same else None

    def _put(self, held: dict[str, Entry], entry: Entry) -> None:
        before = held.get(entry.uid)
        if entry.uid in self._gone or before == entry or (before and before.version > entry.version):
            return
        if entry.problem and not (before and before.problem == entry.problem):
            _log.warning("%s/%s is not shown: %s", entry.namespace, entry.name, entry.problem)
        held[entry.uid] = entry
        self._generation += 1

    def _replace(self, held: dict[str, Entry], namespace: str, entries: Iterable[Entry], version: str) -> None:
        """Put `entries`, and drop what the list lacks, unless it is younger than the list (the watch was faster)."""
        listed = {entry.uid: entry for entry in entries}
        at = resource_version(version)
        for entry in [*held.values()]:
            if entry.namespace == namespace and entry.uid not in listed and entry.version <= at:
                del held[entry.uid]
                self._generation += 1
        for entry in listed.values():
            self._put(held, entry)


def _rendered(wanted: Sequence[tuple[Raw, str]], known: Sequence[Entry | None], level: Level) -> list[Entry]:
    return [entry or report_entry(raw, workload, level) for (raw, workload), entry in zip(wanted, known, strict=True)]
