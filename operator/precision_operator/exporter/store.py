"""All reports, profiles and plans of the watched namespaces, each rendered once, when it changes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from precision_api.facts.names import PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.cluster.object_store import Identity, ObjectStore, identity
from precision_operator.core.observe.observed import Raw
from precision_operator.exporter.entries import Entry, plan_entry, profile_entry, renamed, report_entry
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.reading import GemmTime, owner

_log = logging.getLogger(__name__)
_EVERYTHING = Selection()


@dataclass(frozen=True)
class StoreSnapshot:
    generation: int
    reports: tuple[Entry, ...]
    profiles: tuple[Entry, ...]
    selection: Selection = _EVERYTHING
    gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = field(default_factory=dict)
    """By (namespace, profile, node): GEMM times of the nodes whose full results were read."""
    plans: tuple[Entry, ...] = ()


class Store:
    """The rendered objects; events and lists may come in any order.

    Kinds are named by their plurals, as in paths.
    """

    def __init__(self, selection: Selection | Level = _EVERYTHING) -> None:
        """A level alone stands for all that it shows."""
        self._selection = selection if isinstance(selection, Selection) else Selection(selection)
        self._generation = 0
        self._reports: ObjectStore[Entry] = ObjectStore()
        self._profiles: ObjectStore[Entry] = ObjectStore()
        self._plans: ObjectStore[Entry] = ObjectStore()
        self._kinds = {REPORT_PLURAL: self._reports, PROFILE_PLURAL: self._profiles, PLAN_PLURAL: self._plans}
        self._workloads: dict[tuple[str, ...], str] = {}
        self._gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]] = {}

    def view(self) -> StoreSnapshot:
        """What is there now; later events don't change it."""
        reports, profiles = tuple(self._reports.objects.values()), tuple(self._profiles.objects.values())
        plans = tuple(self._plans.objects.values())
        return StoreSnapshot(self._generation, reports, profiles, self._selection, self._gemms, plans)

    def entry(self, plural: str, raw: Raw) -> Entry:
        """The object, rendered; nothing is held of it yet. A version that is held is not rendered again."""
        uid, _, version = identity(raw)
        held = self._kinds[plural].objects.get(uid)
        if held is not None and held.version == version >= 0:
            return held
        if plural == REPORT_PLURAL:
            return report_entry(raw, self._workload_of(raw), self._selection)
        return (profile_entry if plural == PROFILE_PLURAL else plan_entry)(raw, self._selection)

    def see(self, plural: str, raw: Raw) -> None:
        """Take in an object that was added or changed; with a profile the workload's name in its reports."""
        self._put(plural, self.entry(plural, raw))
        if plural == PROFILE_PLURAL:
            self._name_workloads()

    def forget(self, raw: Raw) -> None:
        """Drop an object that was deleted."""
        uid = str((raw.get("metadata") or {}).get("uid"))
        for store in self._kinds.values():
            self._generation += store.delete(uid)
        self._name_workloads()

    def take(self, plural: str, namespace: str, entries: Sequence[Entry], version: str) -> None:
        """Take in a complete list of one kind in one namespace, read at resourceVersion `version`."""
        for entry in entries:
            self._put(plural, entry)
        listed = {entry.uid for entry in entries}
        self._generation += self._kinds[plural].delete_unlisted(listed, version, namespace)
        if plural == PROFILE_PLURAL:
            self._name_workloads()

    def clear(self, plural: str, namespace: str) -> None:
        """Show none of this kind in this namespace while the cluster doesn't know the kind."""
        self._generation += self._kinds[plural].clear(namespace)

    def put_gemms(self, gemms: Mapping[tuple[str, ...], tuple[GemmTime, ...]]) -> None:
        """Take over the GEMM times of all nodes that were sampled."""
        if gemms != self._gemms:
            self._gemms = gemms
            self._generation += 1

    def _workload_of(self, raw: Raw) -> str:
        try:
            namespace, profile, _ = owner(raw)
        except ValueError:
            return ""
        return self._workloads.get((namespace, profile), "")

    def _name_workloads(self) -> None:
        """Follow the profiles' names of their workloads; reports that bear another one are rendered anew."""
        names = {entry.key: entry.workload for entry in self._profiles.objects.values()}
        if names == self._workloads:
            return
        self._workloads = names
        for entry in tuple(self._reports.objects.values()):
            self._put(REPORT_PLURAL, entry)

    def _put(self, plural: str, entry: Entry) -> None:
        if plural == REPORT_PLURAL:
            workload = self._workloads.get(entry.key[:2], "")
            entry = entry if entry.workload == workload else renamed(entry, workload, self._selection)
        before = self._kinds[plural].objects.get(entry.uid)
        if entry is before or not self._kinds[plural].put(Identity(entry.uid, entry.namespace, entry.version), entry):
            return
        if entry.problem and not (before and before.problem == entry.problem):
            _log.warning("%s/%s is not shown: %s", entry.namespace, entry.name, entry.problem)
        self._generation += 1
