"""Objects as the exporter keeps them: their lines, rendered, and what is needed to order and replace them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

from pydantic import ValidationError

from precision_api.facts.json_text import rows_of
from precision_operator.cluster.object_store import resource_version
from precision_operator.core.observe.observed import Raw
from precision_operator.core.results.reading import Reading
from precision_operator.exporter.families.family import Family
from precision_operator.exporter.families.plan import read_plan
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.families.table import NODE_FAMILIES, PLAN_FAMILIES, PROFILE_FAMILIES
from precision_operator.exporter.reading import (
    ProfileProgress,
    named,
    owner,
    owner_uid,
    read_profile,
    read_report,
    slow_node_percent,
    text,
    workload_name,
)

Lines = tuple[bytes, ...]
"""One object's samples by family, in the table's order; empty where the family is not shown."""
Subject = TypeVar("Subject")
_next_stamp = count(1).__next__


@dataclass(frozen=True, slots=True)
class Entry:
    """One object. `shown` is False when it has nothing to show yet, or can't be read (`problem` says why)."""

    uid: str
    namespace: str
    name: str
    version: int
    """resourceVersion; of one object's versions, the highest is the newest."""
    lines: Lines = ()
    shown: bool = False
    problem: str = ""
    key: tuple[str, ...] = ()
    """What the series are told apart by: (namespace, profile, node), (namespace, profile) or (namespace, plan)."""
    owner: str = ""
    """UID of the profile that owns a report; empty where none does."""
    created: str = ""
    workload: str = ""
    result: Reading | None = None
    """What a report says, for its pool."""
    percent: float = 0.0
    """A profile's threshold for slow nodes."""
    campaign: ProfileProgress | None = None
    """What a profile says."""
    series: int = 0
    """Number of samples in `lines`."""
    size: int = 0
    """Bytes of `lines`."""
    stamp: int = field(default_factory=_next_stamp, compare=False)
    """Two entries with one number have the same lines."""


def report_entry(raw: Raw, workload: str, selection: Selection) -> Entry:
    """A report, rendered; never raises for what a status holds, only (ValueError) for an object without identity."""
    key: tuple[str, ...] = ()
    of = owner_uid(raw)
    try:
        key = owner(raw)
        result = read_report(raw, workload)
        if result is None:
            return _identity(raw, workload, key=key, owner=of)
        return _identity(raw, workload, key=key, owner=of, result=result, **_rendered(result, selection))
    except ValueError as error:
        return _identity(raw, workload, key=key, owner=of, problem=_one_line(error))


def renamed(entry: Entry, workload: str, selection: Selection) -> Entry:
    """A report's entry where its profile calls the workload `workload`; a name in the report itself comes first."""
    entry = replace(entry, workload=workload)
    result = entry.result and named(entry.result, workload)
    if result is None or result is entry.result:
        return entry
    return replace(entry, result=result, stamp=_next_stamp(), **_rendered(result, selection))


def profile_entry(raw: Raw, selection: Selection) -> Entry:
    """A profile, rendered; `workload` is its user's name for the workload."""
    entry = _identity(raw, workload_name(raw))
    entry = replace(entry, key=(entry.namespace, entry.name), percent=slow_node_percent(raw))
    try:
        campaign = read_profile(raw)
        return replace(entry, campaign=campaign, **_shown(PROFILE_FAMILIES, campaign, selection))
    except ValueError as error:
        return replace(entry, problem=_one_line(error))


def plan_entry(raw: Raw, selection: Selection) -> Entry:
    """A plan, rendered; one that can't be read, or would give a series twice, says so in `problem`."""
    entry = _identity(raw, "")
    entry = replace(entry, key=(entry.namespace, entry.name))
    try:
        plan = read_plan(raw)
        pools = [pool.name for pool in plan.status.pools] if plan else []
        if len(set(pools)) != len(pools):
            raise ValueError(f"status.pools names a pool twice: {', '.join(pools)}")
        return replace(entry, **_shown(PLAN_FAMILIES, plan, selection)) if plan else entry
    except ValueError as error:
        return replace(entry, problem=_one_line(error))


def of_profiles_there(reports: Iterable[Entry], profiles: Iterable[Entry]) -> list[Entry]:
    """The reports but those of a deleted profile whose name another one has by now: they stay until the cluster's
    garbage collector comes, and their figures are none of the new one's.
    """
    uids = {profile.key: profile.uid for profile in profiles}
    return [entry for entry in reports if not entry.owner or uids.get(entry.key[:2], entry.owner) == entry.owner]


def newest_of_each(entries: Iterable[Entry]) -> tuple[list[Entry], int]:
    """The entries with lines, one for each key, and how many older ones gave way.

    A node that came back under its old name has a new UID and so a second report; both would give the same series.
    """
    newest: dict[tuple[str, ...], Entry] = {}
    replaced = 0
    for entry in entries:
        if not entry.shown:
            continue
        other = newest.setdefault(entry.key, entry)
        if other is not entry:
            replaced += 1
            newest[entry.key] = max(other, entry, key=lambda it: (it.created, it.uid))
    return list(newest.values()), replaced


def _identity(raw: Raw, workload: str, **fields: Any) -> Entry:
    meta = raw.get("metadata") or {}
    return Entry(
        uid=text(raw, "metadata", "uid"),
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        version=resource_version(meta.get("resourceVersion")),
        created=str(meta.get("creationTimestamp", "")),
        workload=workload,
        **fields,
    )


def _shown(families: Sequence[Family[Subject]], subject: Subject, selection: Selection) -> dict[str, Any]:
    lines = tuple([family.render(subject) if selection.shows(family) else b"" for family in families])
    return {"lines": lines, "shown": True, "series": count_lines(lines), "size": sum(map(len, lines))}


def _rendered(result: Reading, selection: Selection) -> dict[str, Any]:
    return _shown(NODE_FAMILIES, replace(result, rows={**result.rows}), selection)  # each family goes through all rows


def count_lines(lines: Iterable[bytes]) -> int:
    """The number of samples in rendered lines."""
    return sum([line.count(b"\n") for line in lines])


def _one_line(error: ValueError) -> str:
    """The error for a log line, cut: what a status holds may be hostile."""
    if isinstance(error, ValidationError):
        details = rows_of(error)
        return "; ".join(f"status.{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details)[:300]
    return " ".join(str(error).split())[:300]
