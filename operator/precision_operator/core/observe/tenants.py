"""Whose a Job, a pod or a report is: labels and owners name a profile by its UID, and anybody can write them.

A profile's Jobs, pods and reports are in its namespace (ownership demands it). What names a profile or a Job of another
namespace was made by somebody else there: it must count as neither's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from precision_operator.core.observe.observed import JobView, PodView, ReportView

Claim = TypeVar("Claim", JobView, ReportView)


def within_namespace(items: Iterable[Claim], profiles: Mapping[str, str]) -> tuple[Claim, ...]:
    """Those that name no profile of another namespace than theirs; `profiles` is the namespace by UID."""
    return tuple(item for item in items if profiles.get(item.profile_uid, item.namespace) == item.namespace)


def pods_within_namespace(
    pods: Iterable[PodView], profiles: Mapping[str, str], jobs: Mapping[str, str]
) -> tuple[PodView, ...]:
    """Those that name neither a profile nor a Job of another namespace than theirs; both by UID."""
    return tuple(
        pod
        for pod in pods
        if profiles.get(pod.profile_uid, pod.namespace) == pod.namespace
        and jobs.get(pod.job_uid, pod.namespace) == pod.namespace
    )
