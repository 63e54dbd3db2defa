"""When a place that an attempt holds is given back: every stage of an attempt has an end.

Each has a time of its own. What the kubelet should have done by then and has not is the node's fault, not the
attempt's: a kubelet that is gone keeps its pods, and with them their Jobs, for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from precision_api.kinds.profile import Idle, ProfileSpec
from precision_operator.core.attempts.agent_request import DEADLINE_SECONDS
from precision_operator.core.attempts.manifest import POD_GRACE_SECONDS
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import JobView, PodView, Settings
from precision_operator.core.observe.waiting_pods import NO_DEVICES
from precision_operator.core.reasons import Said, said

NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
"""Why a container waits whose image can't be had."""
_ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
"""Why a container waits that nothing is wrong with: its image is being pulled, its volumes are mounted."""

CLOCK_SLACK = timedelta(seconds=30)
"""How far apart clocks of a node and of the control plane may be before one counts as wrong; times are in seconds."""

Outcome = Literal["failed", "disrupted"]


@dataclass(frozen=True)
class End:
    """How an attempt ends that gets no further: when its stage began, how long that may take, and what is said then."""

    since: datetime
    allowed: timedelta
    outcome: Outcome
    said: Said
    has_log: bool = False
    """Whether the agent's container runs, its kubelet answers, and its log tells what went wrong."""

    @property
    def at(self) -> datetime:
        """When the place is given back."""
        return self.since + self.allowed

    def is_over(self, now: datetime) -> bool:
        return _is_late(self.since, self.allowed, now)


def end_of(
    job: JobView, pod: PodView | None, node: NodeFacts | None, spec: ProfileSpec | None, settings: Settings
) -> End | None:
    """The next end of an attempt whose result isn't there; None where only its agent's own end is waited for.

    `node` is None where it is gone. A profile whose spec can't be read gets the times of one that says nothing.
    """
    ends = _ends(job, pod, node, spec.idle if spec is not None else Idle(), settings)
    return min(ends, key=lambda end: end.at, default=None)


def is_abandoned(pod: PodView, settings: Settings, now: datetime) -> bool:
    """Whether a pod that was deleted should have been ended long since: nobody is there to end it."""
    since = pod.deleting_since
    return pod.live and since is not None and _is_late(since, settings.unresponsive_grace, now)


def _is_late(since: datetime, allowed: timedelta, now: datetime) -> bool:
    """What lies further ahead than a pod's own grace is from before the clock jumped back: it always would be late."""
    return not -max(allowed, timedelta(seconds=POD_GRACE_SECONDS)) < now - since < allowed


def is_starting(pod: PodView) -> bool:
    """Whether the pod has its node, and its container is on the way."""
    return _scheduled(pod) is not None and pod.started_at is None and pod.phase == "Pending"


def is_failing_to_start(pod: PodView) -> bool:
    """Whether what keeps the container from starting is an error."""
    return is_starting(pod) and pod.waiting_reason not in _ON_ITS_WAY


def running_since(pod: PodView) -> datetime:
    """From when an agent's own time counts: the start of its container, as far as it is known."""
    return pod.started_at or pod.scheduled_at or pod.created


def tells_impossible_start(pod: PodView, idle: Idle) -> bool:
    """Whether its container cannot have started when its kubelet says: its node's clock is wrong.

    An agent's time is then counted from the last moment at which it can have started, by when it was scheduled.
    """
    if pod.started_at is None or pod.scheduled_at is None:
        return False
    late = pod.started_at - pod.scheduled_at
    return not -CLOCK_SLACK <= late <= timedelta(seconds=idle.start_timeout_seconds) + CLOCK_SLACK


def _ends(job: JobView, pod: PodView | None, node: NodeFacts | None, idle: Idle, settings: Settings) -> Iterator[End]:
    if job.suspended:
        if (seconds := idle.queue_timeout_seconds) is not None:
            what_for = said("QueueTimeout", seconds=seconds)
            yield End(job.queued_since or job.created, timedelta(seconds=seconds), "disrupted", what_for)
        return
    if pod is None:
        yield _without_pod(job, idle, settings)
        return
    if not pod.live:
        return
    if (since := pod.deleting_since or job.giving_up_since) is not None:
        what = f"its pod was to be gone at {format_time(since)} and is still there"
        end = _unresponsive(since, settings.unresponsive_grace, job, node, what)
        yield replace(end, has_log=pod.started_at is not None and (node is None or node.not_ready is None))
    if pod.phase == "Pending":
        yield _not_started(job, pod, node, idle)
    else:  # anybody may have changed the annotation
        longest = max(DEADLINE_SECONDS.values())
        allowed = timedelta(seconds=min(job.deadline_seconds or longest, longest) + POD_GRACE_SECONDS)
        if tells_impossible_start(pod, idle):
            allowed += timedelta(seconds=idle.start_timeout_seconds)
            yield _running(job, pod.scheduled_at or pod.created, allowed, node)
        else:
            yield _running(job, running_since(pod), allowed, node)


def _without_pod(job: JobView, idle: Idle, settings: Settings) -> End:
    if job.giving_up_since is not None:
        return End(job.giving_up_since, settings.unresponsive_grace, "disrupted", said("PodLost"))
    since, allowed = job.active_since or job.created, timedelta(seconds=idle.pending_timeout_seconds)
    what_for = said("PodNotCreated", seconds=idle.pending_timeout_seconds)
    return End(since, allowed, "failed", what_for)


def _not_started(job: JobView, pod: PodView, node: NodeFacts | None, idle: Idle) -> End:
    scheduled = _scheduled(pod)
    pending = timedelta(seconds=idle.pending_timeout_seconds)
    if scheduled is None:
        text = pod.unschedulable or "the scheduler has not looked at it"
        reason = "PendingTooLong"
        if pod.claims and not pod.claims_created:
            reason, text = "ClaimNotCreated", pod.claim_problem or "no event says why"
        elif pod.claims and NO_DEVICES in text:
            reason = "ClaimNotAllocated"
        what_for = said(reason, seconds=idle.pending_timeout_seconds, text=text, node=job.node_name)
        return End(job.active_since or job.created, pending, "disrupted", what_for)
    if node is not None and node.not_ready is not None:
        what = f"its pod was scheduled at {format_time(scheduled)} and has not started"
        return _unresponsive(scheduled, pending, job, node, what)
    if pod.claims and pod.claim_problem:
        seconds = idle.pending_timeout_seconds
        what_for = said("ClaimNotPrepared", seconds=seconds, text=pod.claim_problem, node=job.node_name)
        return End(scheduled, pending, "disrupted", what_for)
    text = pod.waiting_message or pod.waiting_reason or "its container is being created"
    if pod.waiting_reason in NO_IMAGE:
        what_for = said("ImagePullFailed", image="of the agent", text=text)
        return End(scheduled, pending, "failed", what_for)
    allowed = pending if is_failing_to_start(pod) else timedelta(seconds=idle.start_timeout_seconds)
    what_for = said("StartTooLong", seconds=int(allowed.total_seconds()), text=text)
    return End(scheduled, allowed, "failed", what_for)


def _scheduled(pod: PodView) -> datetime | None:
    """When the pod got its node: a container that waits for something has one."""
    return pod.scheduled_at or (pod.created if pod.waiting_reason else None)


def _running(job: JobView, started: datetime, allowed: timedelta, node: NodeFacts | None) -> End:
    if node is not None and node.not_ready is not None:
        what = f"it had to end itself by {format_time(started + allowed)}"
        return _unresponsive(started, allowed, job, node, what)
    what = "its log is read first"
    what_for = said("DeadlineExceeded", seconds=int(allowed.total_seconds()), what=what)
    return End(started, allowed, "failed", what_for, has_log=True)


def _unresponsive(since: datetime, allowed: timedelta, job: JobView, node: NodeFacts | None, what: str) -> End:
    state = (node.not_ready if node is not None else None) or "its pods do not end"
    what_for = said("NodeUnresponsive", node=job.node_name, why=state, what=what)
    return End(since, allowed, "disrupted", what_for)
