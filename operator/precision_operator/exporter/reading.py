"""Reading an object of the watch into the value that the families are made of; what can't be read says why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from precision_api.facts.names import PROFILE_KIND
from precision_api.kinds.profile import ProfileStatus, Schedule, Thresholds
from precision_api.kinds.report import ReportRun, ReportStatus
from precision_operator.core.eligibility.schedule import refresh_interval
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.observe.kept_report import kept_report
from precision_operator.core.observe.observed import Raw
from precision_operator.core.results.reading import Reading, read

Target = tuple[frozenset[str], frozenset[str]]
"""A profile's conditions on nodes, and its tolerations, each as text."""


@dataclass(frozen=True, slots=True)
class RelativeRate:
    """One node beside its peers: its rate over their median, and whether that is too little."""

    result: Reading
    relative: float
    slow: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The node's, as its reading has them."""
        return self.result.labels


@dataclass(frozen=True, slots=True)
class GemmTime:
    """How long one GEMM of a workload takes on one node, in seconds."""

    recipe: str
    gemm: str
    pass_: str
    mode: str
    seconds: float


@dataclass(frozen=True)
class ProfileProgress:
    """How far one profile has come."""

    namespace: str
    profile: str
    status: ProfileStatus
    refresh_seconds: float | None = None
    """How long two results may be apart, by schedule and maxAge; None where no new ones are asked for."""
    target: Target = (frozenset(), frozenset())

    @property
    def eligible(self) -> int:
        """Nodes that it can measure."""
        return self.status.nodes.eligible if self.status.nodes else 0


def read_report(raw: Raw, workload: str) -> Reading | None:
    """The result in a NodePrecisionReport, None while there is none yet; raises ValueError when it can't be read."""
    namespace, profile, node = owner(raw)
    if not raw.get("status"):
        return None
    status = kept_report(ReportStatus.model_validate(raw["status"]))
    recipes = [result.recipe for result in status.results]
    if len(set(recipes)) != len(recipes):
        raise ValueError(f"status.results names a recipe twice: {', '.join(recipes)}")
    run, attempt = status.run, status.attempt
    if not (run or attempt or recipes or status.quarantine):
        return None
    for time in (run and run.finished_at, attempt and attempt.finished_at):
        if time:
            seconds(time)
    pool = status.hardware.pool if status.hardware else ""
    return read(node, pool, status, namespace, profile, _workload_of(run, workload))


def named(result: Reading, workload: str) -> Reading:
    """The same result where the profile calls the workload `workload`; the very same one if that changes nothing."""
    name = _workload_of(result.run, workload)
    return result if name == result.workload else replace(result, workload=name)


def _workload_of(run: ReportRun | None, workload: str) -> str:
    """The workload's name as the report has it; `workload`, the profile's name for it, and the hash stand in for it."""
    return (run.workload if run else None) or workload or (run.workload_hash if run else "")


def read_profile(raw: Raw) -> ProfileProgress:
    """The progress in a PrecisionProfile, Pending before the operator's first word; raises ValueError if unreadable."""
    namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
    status = ProfileStatus.model_validate(raw.get("status") or {"phase": "Pending", "nodes": {}})
    return ProfileProgress(namespace, name, status, refresh_seconds(raw), (conditions(raw), tolerations(raw)))


def owner(raw: Raw) -> tuple[str, str, str]:
    """(namespace, profile, node) of a report; raises ValueError when one is missing."""
    return text(raw, "metadata", "namespace"), text(raw, "spec", "profile"), text(raw, "spec", "nodeName")


def owner_uid(raw: Raw) -> str:
    """UID of the profile that owns a report; empty where none does."""
    rows = _field(raw, "metadata", "ownerReferences")
    owners = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return next((str(row.get("uid") or "") for row in owners if row.get("kind") == PROFILE_KIND), "")


def workload_name(raw: Raw) -> str:
    """What a profile's user calls the workload: its name, else its preset; empty when it has neither.

    Read without the schema: a profile that a newer operator understands must still name its workload here.
    """
    workload = _field(raw, "spec", "workload")
    if not isinstance(workload, Mapping):
        return ""
    return str(workload.get("name") or workload.get("preset") or "")


def refresh_seconds(raw: Raw) -> float | None:
    """How long two results of a profile may be apart; None where it is suspended, or can't be read."""
    if _field(raw, "spec", "suspend") is True:
        return None
    try:
        return refresh_interval(Schedule.model_validate(_field(raw, "spec", "schedule") or {}))
    except ValueError:
        return None


def conditions(raw: Raw) -> frozenset[str]:
    """What a profile's target asks of nodes, each as text: the more there is, the fewer nodes it means."""
    target = _field(raw, "spec", "target")
    parts = [(key, part) for key, part in target.items() if key != "cordoned"] if isinstance(target, dict) else []
    rows = ((key, list(part.items()) if isinstance(part, dict) else part) for key, part in parts)
    several = ("nodeSelector", "matchExpressions", "excludeTaints")
    split = ((key, row if key in several and isinstance(row, list) else [row]) for key, row in rows)
    return frozenset(json.dumps((key, value), sort_keys=True) for key, row in split for value in row)


def tolerations(raw: Raw) -> frozenset[str]:
    """What a profile's agents tolerate: the more there is, the more nodes it means; {""} is all."""
    rows = _field(raw, "spec", "agent", "tolerations")
    dicts = (row for row in (rows if isinstance(rows, list) else ()) if isinstance(row, dict))
    texts = frozenset(json.dumps(row, sort_keys=True) if row.get("key") else "" for row in dicts)
    return texts & {""} or texts


def slow_node_percent(raw: Raw) -> float:
    """A profile's threshold for slow nodes, by the same default as the operator's."""
    percent = _field(raw, "spec", "thresholds", "slowNodePercent")
    return float(percent) if isinstance(percent, int) else float(Thresholds().slow_node_percent)


def text(raw: Raw, *path: str) -> str:
    """The non-empty string at `path`; raises ValueError when there is none."""
    value = _field(raw, *path)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{'.'.join(path)} is missing")
    return value


@lru_cache(maxsize=64)
def seconds(time: str) -> float:
    """An RFC 3339 time as seconds since 1970; raises ValueError for anything else."""
    return parse_time(time).timestamp()


def _field(raw: Raw, *path: str) -> object:
    value: object = raw
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None  # as JSON has them; Mapping asks much longer
    return value
