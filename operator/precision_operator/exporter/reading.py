"""Reading an object of the watch into the value that the families are made of; what can't be read says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from precision_api.profile import ProfileStatus
from precision_api.report import ReportStatus

Raw = Mapping[str, Any]
"""A Kubernetes object as decoded JSON."""


@dataclass(frozen=True)
class NodeResult:
    """What one profile has found on one node."""

    namespace: str
    profile: str
    node: str
    workload: str
    status: ReportStatus


@dataclass(frozen=True)
class Campaign:
    """How far one profile has come."""

    namespace: str
    profile: str
    status: ProfileStatus


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
    return NodeResult(namespace, profile, node, named, status)


def read_profile(raw: Raw) -> Campaign | None:
    """The progress in a PrecisionProfile, None before the operator's first word; raises ValueError if unreadable."""
    namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
    if not raw.get("status"):
        return None
    return Campaign(namespace, name, ProfileStatus.model_validate(raw["status"]))


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


def _field(raw: Raw, *path: str) -> object:
    value: object = raw
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
