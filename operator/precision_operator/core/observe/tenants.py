"""Whose a Job, a pod or a report is: labels and owners name a profile by its UID, and anybody can write them.

A profile's Jobs, pods and reports are in its namespace (ownership demands it). What names a profile or a Job of another
namespace was made by somebody else there: it must count as neither's. And against other namespaces a Job counts by what
it holds, whatever it says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from precision_api.facts.grouping import grouped
from precision_api.facts.names import GPU_RESOURCE
from precision_api.kinds.profile import Idle
from precision_operator.core.observe.gpu_labels import whole_number
from precision_operator.core.observe.observed import JobView, Observed, PodView, Raw, ReportView
from precision_operator.core.observe.raw_object import section

YOUNG, TURN = timedelta(seconds=60), timedelta(minutes=10)
"""How long a Job that this leader has created has its node without a pod there: at first, and where that was too short
for its namespace, whose queue or scheduler may be slow."""
COMES_LAST = timedelta(hours=2)
"""So long a namespace comes after the others when the longer time was too short as well, and `TURN` before that."""
STARTED_WITHIN = timedelta(seconds=Idle().start_timeout_seconds)
ANOTHERS_POD, ANOTHERS_PROFILE = "a pod of another namespace", "a profile of another namespace"
"""What a status says in place of a name, unless the admin has names shown."""
Claim = TypeVar("Claim", JobView, PodView, ReportView)


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
    of_own = within_namespace(pods, profiles)
    return tuple(pod for pod in of_own if jobs.get(pod.job_uid, pod.namespace) == pod.namespace)


def holding(pods: Iterable[PodView], nodes: Iterable[Raw], claimed: Container[str]) -> tuple[PodView, ...]:
    """The pods, of which those hold GPUs that got them: their node has as many, or their UID is in `claimed`.

    A node's capacity counts: what runs keeps its GPUs when one of them fails, and kubelets end what they can't admit.
    """
    sizes = {raw["metadata"]["name"]: section(section(raw, "status"), "capacity").get(GPU_RESOURCE) for raw in nodes}
    have = {name: whole_number(str(size)) or 0 for name, size in sizes.items()}
    got = ((pod, 0 < pod.gpus <= have.get(pod.node_name, 0) or pod.uid in claimed) for pod in pods)
    return tuple(pod if has or not pod.holds_gpus else replace(pod, holds_gpus=False) for pod, has in got)


def held_nodes(observed: Observed) -> dict[str, str]:
    """Node by UID of the Jobs that hold one, and a place under the operator's limits, against other namespaces.

    Of those that this leader knows by its own memory: the node where its pod is bound with GPUs and not over; without
    such a pod for a while the node that it was created for. Anybody can write labels, annotations and owners.
    """
    held = {
        job.uid: observed.own_jobs[job.uid]
        for job in observed.jobs
        if job.uid in observed.own_jobs and job.live and abs(observed.now - job.created) < turn_of(job, observed)
    }
    late = observed.now - observed.settings.unresponsive_grace
    for pod in observed.pods:
        is_there = pod.live and (pod.deleting_since is None or pod.deleting_since > late)
        if is_there and pod.holds_gpus and pod.job_uid in observed.own_jobs:
            held[pod.job_uid] = pod.node_name
    return held


def turn_of(job: JobView, observed: Observed) -> timedelta:
    """How long it counts against other namespaces without a bound pod."""
    return TURN if job.namespace in observed.fruitless else YOUNG


def comes_last(namespace: str, observed: Observed) -> bool:
    """Whether its turns have been fruitless of late, so that the others go first."""
    ends = observed.fruitless.get(namespace)
    return ends is not None and abs(observed.now - ends[-1]) < (TURN if len(ends) == 1 else COMES_LAST)


def waiting_jobs(observed: Observed) -> dict[str, JobView]:
    """The leader's own Jobs that no pod with GPUs has been bound for yet, by UID."""
    bound = {pod.job_uid for pod in observed.pods if pod.holds_gpus}
    own = {job.uid: job for job in observed.jobs if job.uid in observed.own_jobs and job.live and not job.deleting}
    return {uid: job for uid, job in own.items() if uid not in bound}


def fruitless_turns(
    before: Mapping[str, tuple[datetime, ...]], waited: Mapping[str, JobView], seen: Observed
) -> dict[str, tuple[datetime, ...]]:
    """When turns of a namespace ended without a bound pod, by its name: the last, and those before since one was bound.

    `waited` are the Jobs that waited at the look before. A turn is of all Jobs of the namespace that wait together.
    """
    turns = {name: ends for name, ends in before.items() if abs(seen.now - ends[-1]) < COMES_LAST}
    bound, waiting = {pod.job_uid for pod in seen.pods if pod.holds_gpus}, waiting_jobs(seen)
    for uid, job in waited.items():
        ends = turns.get(job.namespace, ())
        is_over = uid not in bound and uid not in waiting and abs(seen.now - job.created) >= YOUNG
        if uid in bound and ends:
            turns[job.namespace] = ends[-1:]
        elif is_over and (not ends or job.created > ends[-1] - YOUNG):
            turns[job.namespace] = (*ends, seen.now)
    return turns


def stuck_beyond_share(held: Mapping[str, str], observed: Observed) -> set[str]:
    """UIDs of the Jobs whose places others may have: their containers have not started by when they must as a rule.

    A tenant may wait a day for its own image; beyond its namespace's share of the places, until others want them.
    """
    namespaces = {profile.namespace for profile in observed.profiles}
    share = (observed.settings.fleet_limits.max_concurrent or 0) // max(1, len(namespaces))
    holders = (pod for pod in observed.pods if pod.job_uid in held)
    agents = grouped((pod.namespace, (_is_stuck(pod, observed.now), pod.job_uid)) for pod in holders)
    return {job for pods in agents.values() for stuck, job in sorted(pods)[share:] if stuck}


def _is_stuck(pod: PodView, now: datetime) -> bool:
    return pod.started_at is None and abs(now - (pod.scheduled_at or pod.created)) > STARTED_WITHIN


def words(pod: str) -> str:
    """`pod`, by its key or that it is another namespace's, in a sentence."""
    return pod if pod == ANOTHERS_POD else f"pod {pod}"


def shown_pod(pod: str, namespace: str, observed: Observed) -> str:
    """The key of a pod, as a profile of that namespace may show it."""
    is_own = pod.partition("/")[0] == namespace
    return pod if is_own or observed.settings.show_other_namespaces else ANOTHERS_POD
