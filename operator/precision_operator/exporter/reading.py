"""Reading an object of the watch into the value that the families are made of; what can't be read says why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from precision_api.names import FRESH
from precision_api.profile import ProfileStatus, Thresholds
from precision_api.report import ReportStatus
from precision_operator.core.outliers import Comparable, Measured, comparable

Raw = Mapping[str, Any]
"""A Kubernetes object as decoded JSON."""

_ETA = re.compile(r"(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d)Z")
_LATE = timedelta(hours=4)
"""How long an ETA may be over before its bare time of day is taken for tomorrow's."""


@dataclass(frozen=True)
class NodeResult:
    """What one profile has found on one node."""

    namespace: str
    profile: str
    node: str
    workload: str
    status: ReportStatus

    @cached_property
    def pool(self) -> str:
        """The node's pool when it was measured; empty before the first result."""
        return self.status.hardware.pool if self.status.hardware else ""

    @property
    def fresh(self) -> bool:
        """Whether the newest attempt gave these figures, and nothing has made them out of date since."""
        attempt = self.status.attempt
        outdated = any(c.type == FRESH and c.status == "False" for c in self.status.conditions)
        return not outdated and self.status.run is not None and (attempt is None or attempt.outcome == "succeeded")

    @cached_property
    def comparable(self) -> Comparable | None:
        """What it is judged by beside its like; None while it is out of date."""
        return comparable(Measured(self.node, self.pool, self.status)) if self.fresh else None


@dataclass(frozen=True, slots=True)
class Standing:
    """One node beside its like: its rate over their median, and whether that is too little."""

    result: NodeResult
    relative: float
    slow: bool


@dataclass(frozen=True, slots=True)
class GemmTime:
    """How long one GEMM of a workload takes on one node, in seconds."""

    recipe: str
    gemm: str
    pass_: str
    mode: str
    seconds: float


@dataclass(frozen=True)
class Campaign:
    """How far one profile has come."""

    namespace: str
    profile: str
    status: ProfileStatus
    read_at: datetime
    """A status tells the time of day at which it will end; this says of which day."""


def read_report(raw: Raw, workload: str) -> NodeResult | None:
    """The result in a NodePrecisionReport, None while there is none yet; raises ValueError when it can't be read.

    The workload's name stands in the report; `workload`, the profile's name for it, and the hash stand in for it.
    """
    namespace, profile, node = owner(raw)
    if not raw.get("status"):
        return None
    status = ReportStatus.model_validate(raw["status"])
    recipes = [result.recipe for result in status.results]
    if len(set(recipes)) != len(recipes):
        raise ValueError(f"status.results names a recipe twice: {', '.join(recipes)}")
    run = status.run
    named = (run.workload if run else None) or workload or (run.workload_hash if run else "")
    return NodeResult(namespace, profile, node, named, _slim(status))


def _slim(status: ReportStatus) -> ReportStatus:
    """The status without what no family shows: 10,000 of them are held."""
    attempt = status.attempt.model_copy(update={"basis": {}, "message": None, "log": None}) if status.attempt else None
    return status.model_copy(update={"history": (), "recommendation": None, "attempt": attempt})


def read_profile(raw: Raw, now: datetime) -> Campaign | None:
    """The progress in a PrecisionProfile, None before the operator's first word; raises ValueError if unreadable."""
    namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
    if not raw.get("status"):
        return None
    return Campaign(namespace, name, ProfileStatus.model_validate(raw["status"]), now)


def owner(raw: Raw) -> tuple[str, str, str]:
    """(namespace, profile, node) of a report; raises ValueError when one is missing."""
    return text(raw, "metadata", "namespace"), text(raw, "spec", "profile"), text(raw, "spec", "nodeName")


def workload_name(raw: Raw) -> str:
    """What a profile's user calls the workload: its name, else its preset; empty when it has neither.

    Read without the schema: a profile that a newer operator understands must still name its workload here.
    """
    workload = _field(raw, "spec", "workload")
    if not isinstance(workload, Mapping):
        return ""
    return str(workload.get("name") or workload.get("preset") or "")


def slow_node_percent(raw: Raw) -> float:
    """A profile's threshold for slow nodes, by the same default as the operator's."""
    told = _field(raw, "spec", "thresholds", "slowNodePercent")
    return float(told) if isinstance(told, int) else float(Thresholds().slow_node_percent)


def text(raw: Raw, *path: str) -> str:
    """The non-empty string at `path`; raises ValueError when there is none."""
    value = _field(raw, *path)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{'.'.join(path)} is missing")
    return value


def seconds(time: str) -> float:
    """An RFC 3339 time as seconds since 1970; raises ValueError for anything else."""
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def eta_seconds(told: str, now: datetime) -> float | None:
    """A status' ETA (`14:35Z`, or with its date) as seconds since 1970; None for anything else.

    A bare time of day is at most 20 hours ahead, and stays for a while after it has passed.
    """
    found = _ETA.fullmatch(told)
    if found is None:
        return None
    moment = datetime.fromisoformat(f"{found[1] or now.date().isoformat()}T{found[2]}:00+00:00")
    if found[1] is None:
        moment += timedelta(days=1) if moment < now - _LATE else timedelta(days=-1 if moment - now > 20 * _HOUR else 0)
    return moment.timestamp()


_HOUR = timedelta(hours=1)


def _field(raw: Raw, *path: str) -> object:
    value: object = raw
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
