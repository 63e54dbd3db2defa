"""Whose a Job, a pod or a report is: labels and owners name a profile by its UID, and anybody can write them.

A profile's Jobs, pods and reports are in its namespace (ownership demands it). What names a profile or a Job of another
namespace was made by somebody else there: it must count as neither's. And against other namespaces a Job counts by what
it holds, whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from precision_api.kinds.profile import Idle
from precision_operator.core.observe.observed import JobView, Observed, PodView, ReportView

YOUNG = timedelta(seconds=60)
"""So long a Job that this leader has created has its node without a pod there: it is on the way."""
STARTED_WITHIN = timedelta(seconds=Idle().start_timeout_seconds)
ANOTHERS_POD, ANOTHERS_PROFILE = "a pod of another namespace", "a profile of another namespace"
"""What a status says in place of a name, unless the admin has names shown."""
Claim = TypeVar("Claim", JobView, ReportView)


class Stranger(NamedTuple):
    """What bears the agents' label, and is none of the leader's own."""

    api: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


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


def held_nodes(observed: Observed) -> dict[str, str]:
    """Node by UID of the Jobs that hold one, and a place under the operator's limits, against other namespaces.

    Of those that this leader knows by its own memory: the node where its pod is bound with GPUs and not over, unless
    its container has not started for long; without such a pod for a minute the node that it was created for. Anybody
    can write labels, annotations and owners.
    """
    held = {
        job.uid: observed.own_jobs[job.uid]
        for job in observed.jobs
        if job.uid in observed.own_jobs and job.live and abs(observed.now - job.created) < YOUNG
    }
    late = observed.now - observed.settings.unresponsive_grace
    for pod in observed.pods:
        is_there = pod.live and (pod.deleting_since is None or pod.deleting_since > late)
        if is_there and pod.holds_gpus and not is_stuck(pod, observed.now) and pod.job_uid in observed.own_jobs:
            held[pod.job_uid] = pod.node_name
    return held


def is_stuck(pod: PodView, now: datetime) -> bool:
    """Whether its container has not started by when it must as a rule: a tenant may wait a day for its own image."""
    return pod.started_at is None and abs(now - (pod.scheduled_at or pod.created)) > STARTED_WITHIN


def words(pod: str) -> str:
    """`pod`, by its key or that it is another namespace's, in a sentence."""
    return pod if pod == ANOTHERS_POD else f"pod {pod}"


def shown_pod(pod: str, namespace: str, observed: Observed) -> str:
    """The key of a pod, as a profile of that namespace may show it."""
    is_own = pod.partition("/")[0] == namespace
    return pod if is_own or observed.settings.show_other_namespaces else ANOTHERS_POD
