"""Whose a Job, a pod or a report is: labels and owners name a profile by its UID, and anybody can write them.

A profile's Jobs, pods and reports are in its namespace (ownership demands it). What names a profile or a Job of another
namespace was made by somebody else there: it must count as neither's. And against other namespaces a Job counts by what
it holds, whatever it says.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from precision_api.facts.names import GPU_RESOURCE, grouped
from precision_api.kinds.profile import Idle
from precision_operator.core.observe.gpu_labels import whole_number
from precision_operator.core.observe.observed import JobView, Observed, PodView, Raw, ReportView, Vain
from precision_operator.core.observe.raw_object import section

_RESTS = {0: 10, 11: 120, 12: 240, 13: 480, 14: 1440, 15: 1440}
"""How many minutes a node comes last after it was in vain; by those that its namespace has had in vain, in all."""
KEPT = timedelta(minutes=1440)
"""How long all minutes stay spent; fewer are remembered for twice that, or the last rest would end the count."""
YOUNG, LONG = timedelta(minutes=1), timedelta(minutes=10)
"""How long a new Job of this leader has its node without a pod: for a quick scheduler, and for a slow one or queue."""
_QUICK, _SPARED, _MOST = timedelta(minutes=5), timedelta(minutes=14), timedelta(minutes=15)
"""Of the minutes in vain: on nodes that are tried one by one; before the last one, which any node waits for; all."""
STARTED_WITHIN = timedelta(seconds=Idle().start_timeout_seconds)
_LONGEST = 5400
"""When an agent has started, as a rule, and its longest deadline, in seconds."""
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
    pods = tuple(pods)
    named, of = {pod.node_name for pod in pods}, (raw for raw in nodes if pods)
    wanted = ((name, raw) for raw in of if (name := raw["metadata"]["name"]) in named)
    sizes = {name: section(section(raw, "status"), "capacity").get(GPU_RESOURCE) for name, raw in wanted}
    have = {name: whole_number(str(size)) or 0 for name, size in sizes.items()}
    got = ((pod, 0 < pod.gpus <= have.get(pod.node_name, 0) or pod.uid in claimed) for pod in pods)
    return tuple(pod if has or not pod.holds_gpus else replace(pod, holds_gpus=False) for pod, has in got)


def held_nodes(observed: Observed) -> dict[str, str]:
    """Node by UID of the Jobs that hold one, and a place under the operator's limits, against other namespaces.

    Of those that this leader knows by its own memory: the node that it was created for, while its pod is bound there
    with GPUs and not over; without such a pod for a while. Anybody can write labels, annotations and owners.
    """
    nodes, vain = observed.own_jobs, observed.vain
    ages = ((job, abs(observed.now - job.created)) for job in observed.jobs if job.uid in nodes and job.live)
    held = {j.uid: nodes[j.uid] for j, age in ages if age < turn_on(nodes[j.uid], vain.get(j.namespace))[0]}
    late = observed.now - observed.settings.unresponsive_grace
    there = (pod for pod in observed.pods if pod.live and (pod.deleting_since is None or pod.deleting_since > late))
    return held | {pod.job_uid: pod.node_name for pod in _agents(there, observed)}


def turn_on(node: str, vain: Vain | None) -> tuple[timedelta, timedelta]:
    """How long a Job there counts against other namespaces without a bound pod now, and for how long it comes last.

    A node that takes no agents holds up none of its namespace's other nodes.
    """
    if vain is None:
        return YOUNG, timedelta()
    spent, is_next = vain.spent, vain.last(node) is None
    long = min(LONG, _SPARED - spent) if spent <= _QUICK else YOUNG + LONG - spent
    turn = YOUNG if long <= timedelta() or (is_next and spent < _QUICK) else long
    rest = next(rest for most, rest in reversed(_RESTS.items()) if spent >= timedelta(minutes=most))
    return min(turn, _MOST - spent), timedelta(minutes=0 if is_next and spent < _SPARED else rest)


def is_spent(namespace: str, observed: Observed) -> bool:
    """Whether its Jobs have no time left without a bound pod."""
    return namespace in observed.vain and observed.vain[namespace].spent >= _MOST


def comes_last(namespace: str, node: str, observed: Observed) -> bool:
    """Whether turns there have been in vain of late, so that the others go first."""
    vain = observed.vain.get(namespace)
    return vain is not None and abs(observed.now - vain.ended) < turn_on(node, vain)[1]


def _agents(pods: Iterable[PodView], observed: Observed) -> Iterator[PodView]:
    """Those with GPUs on the node that the leader made their Job for, unless that is suspended; any can be by hand."""
    nodes, suspended = observed.own_jobs, {job.uid for job in observed.jobs if job.suspended}
    of_own = (pod for pod in pods if pod.holds_gpus and pod.job_uid not in suspended)
    return (pod for pod in of_own if nodes.get(pod.job_uid) == pod.node_name)


def _bound(observed: Observed) -> set[str]:
    """UIDs of the Jobs with a pod that got GPUs; one that failed and never ran, such as a kubelet refuses, got none."""
    return {pod.job_uid for pod in _agents(observed.pods, observed) if pod.live or pod.started_at is not None}


def agents_since(before: Mapping[str, datetime], seen: Observed) -> dict[str, datetime]:
    """When the leader first saw an agent of each Job, by UID: who renews the pod or suspends the Job gains none."""
    begun = {pod.job_uid: seen.now for pod in _agents(seen.pods, seen) if pod.live}
    return begun | {uid: at for uid, at in before.items() if uid in seen.own_jobs}


def waiting_jobs(observed: Observed) -> dict[str, JobView]:
    """The leader's own Jobs that no pod with GPUs has been bound for yet, by UID; each with the node that it is for."""
    bound = _bound(observed)
    jobs = {job.uid: job for job in observed.jobs if job.uid in observed.own_jobs and job.live and not job.deleting}
    return {uid: replace(job, node_name=observed.own_jobs[uid]) for uid, job in jobs.items() if uid not in bound}


def time_in_vain(before: Mapping[str, Vain], waited: Mapping[str, JobView], seen: Observed) -> dict[str, Vain]:
    """What namespaces have had in vain by now, by their name; `waited` are the Jobs that waited at the look before.

    A pod that is bound gives none of it back: a tenant can have one bound at will, on its own node. Where that took
    longer than a minute, it does on all nodes. What a queue has held says nothing of the node either.
    """
    ages = {name: abs(seen.now - row.ended) for name, row in before.items()}
    vain = {name: row for name, row in before.items() if ages[name] < KEPT * (1 if row.spent >= _MOST else 2)}
    bound, waiting = _bound(seen), waiting_jobs(seen)
    there = {job.uid for job in seen.jobs}  # also one that is being deleted: it has its node to the end of its turn
    for uid, job in waited.items():
        row, node = vain.get(job.namespace, Vain(timedelta(), job.created, job.created)), job.node_name
        if uid in bound and job.namespace in vain:
            last = row.ended if seen.now - job.created > YOUNG else None
            vain[job.namespace] = row._replace(nodes={**row.nodes, "": last, node: last})
        elif uid not in bound and uid not in waiting:
            begin, end = max(row.until, job.created), job.created + turn_on(node, before.get(job.namespace))[0]
            until = max(begin, end if uid in there else min(end, seen.now))
            if until > begin:
                row = vain[job.namespace] = Vain(row.spent + (until - begin), until, seen.now, row.nodes)
            if job.namespace in vain:
                vain[job.namespace] = row._replace(nodes={**row.nodes, "" if job.suspended else node: seen.now})
    return vain


def stuck_beyond_share(held: Mapping[str, str], sharing: Iterable[str], observed: Observed) -> set[str]:
    """UIDs of the Jobs whose places others may have: their agents have not started, or ended, by when they must.

    A tenant may wait a day for its own image; beyond its namespace's share of the places, until others want them.
    `sharing` are the namespaces that have a profile to be measured: with those that hold a place they share all places.
    """
    holders = [pod for pod in observed.pods if pod.job_uid in held]
    namespaces = {*sharing, *(pod.namespace for pod in holders)}
    share = (observed.settings.fleet_limits.max_concurrent or 0) // max(1, len(namespaces))
    started = {pod.job_uid for pod in holders if pod.started_at is not None}
    runs = {job.uid: min(job.deadline_seconds or _LONGEST, _LONGEST) for job in observed.jobs if job.uid in started}
    first = {pod.job_uid: observed.agents_since.get(pod.job_uid, pod.created) for pod in holders}
    ages = ((job, abs(observed.now - at)) for job, at in first.items())
    stuck = {job for job, age in ages if age > STARTED_WITHIN + timedelta(seconds=runs[job] + 60 if job in runs else 0)}
    agents = grouped((pod.namespace, (pod.job_uid in stuck, pod.job_uid)) for pod in holders)
    return {job for pods in agents.values() for is_stuck, job in sorted(pods)[share:] if is_stuck}


def words(pod: str) -> str:
    """`pod`, by its key or that it is another namespace's, in a sentence."""
    return pod if pod == ANOTHERS_POD else f"pod {pod}"


def shown_pod(pod: str, namespace: str, observed: Observed) -> str:
    """The key of a pod, as a profile of that namespace may show it."""
    is_own = pod.partition("/")[0] == namespace
    return pod if is_own or observed.settings.show_other_namespaces else ANOTHERS_POD
