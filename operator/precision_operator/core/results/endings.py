"""How an attempt ended: the summary that its agent left behind, or a reason why there is none.

What comes back may be damaged, foreign or hostile; whatever it is, it ends as a value.
"""

from dataclasses import dataclass
from typing import Literal

from precision_api.exchange.exits import BACKEND_UNAVAILABLE, exit_of
from precision_api.exchange.message import Summary
from precision_api.exchange.result import CUT_OFF
from precision_api.exchange.wire import AgentRefused, WireError, read_message
from precision_operator.core.observe.observed import JobView, PodView, Termination
from precision_operator.core.reasons import Reasoned, Said, said

KILLED = (137, 143)
"""Exit codes of a container that was told to end: by SIGKILL, by SIGTERM."""
LOST = ("Unknown", "ContainerStatusUnknown")
"""Reasons of a container whose end nobody saw: containerd's after a restart of its node, and the kubelet's."""


@dataclass(frozen=True)
class NoResult(Reasoned):
    """Why an attempt gave no result; `disrupted` attempts do not count against the node."""

    said: Said
    outcome: Literal["failed", "disrupted"] = "failed"


def summary_of(job: JobView, pod: PodView | None, drained: bool = False) -> Summary | NoResult:
    """The summary in the pod's termination message, or why there is none.

    What an agent hands in whose pod Kubernetes took before it was done is none: the node is measured again. Nor is one
    of another node than the Job's: a Job may be relabelled.

    `drained` says that the node takes no pods just now: then an eviction is a drain.
    """
    if pod is None:
        if job.failure_reason == "PodFailurePolicy":  # whose only rule is for disruptions: these often take the pod
            return NoResult(said("Disrupted", text=job.failure_message), "disrupted")
        return _without_end(job)
    end = pod.termination
    if end is None:
        return _disrupted(pod, drained) if pod.disruption else _ended_by_kubelet(job, pod) or _without_end(job)
    try:
        summary = read_message(end.message, job.request_hash)
    except WireError as error:
        if pod.disruption:
            return _disrupted(pod, drained)
        if pod.deleting_since is not None and end.exit_code in KILLED and end.reason != "OOMKilled":
            return _without_end(job)  # somebody deleted the pod, and its container ended by the signal that follows
        if isinstance(error, AgentRefused):
            return _refused(job, error.reason, end.exit_code, error.message)
        # First what the kubelet did to the pod: it may lose sight of the container that it has just evicted.
        return _ended_by_kubelet(job, pod) or _unreadable(job, end, error)
    if summary.partial and summary.partial.partition(":")[0] in CUT_OFF:
        if pod.disruption:
            return _disrupted(pod, drained)
        if pod.deleting_since is not None:
            return NoResult(said("PodLost"), "disrupted")
    if {pod.node_name, summary.node} != {job.node_name}:
        ran = f"its pod ran on {pod.node_name}, and it says {summary.node}"
        return NoResult(said("ResultForeign", detail=ran, node=job.node_name))
    return summary


_EVICTED_BY = {
    "EvictionByEvictionAPI": "an eviction",
    "DeletionByTaintManager": "a NoExecute taint of the node",
    "TerminationByKubelet": "its kubelet",
    "DeletionByPodGC": "the collector of pods whose node is gone",
}
"""Reasons of the condition DisruptionTarget (k8s.io/api/core/v1) but for preemption, in words."""


def _disrupted(pod: PodView, drained: bool) -> NoResult:
    if pod.disruption_reason == "PreemptionByScheduler":
        return NoResult(said("Preempted", text=pod.disruption), "disrupted")
    by = _EVICTED_BY.get(pod.disruption_reason)
    if by is None:
        return NoResult(said("Disrupted", text=pod.disruption), "disrupted")
    if drained:
        return NoResult(said("Drained", text=pod.disruption), "disrupted")
    return NoResult(said("Evicted", by=by, text=pod.disruption), "disrupted")


def _ended_by_kubelet(job: JobView, pod: PodView) -> NoResult | None:
    """An end that no DisruptionTarget tells of: too much local storage, the deadline, no admission."""
    text = pod.failure_message.strip(" .") or pod.failure
    if pod.failure == "Evicted":
        return NoResult(said("AgentOutOfStorage", text=text))
    if pod.failure == "DeadlineExceeded":
        return _deadline(job)
    if pod.failure and pod.termination is None:
        return NoResult(said("PodRejected", node=job.node_name, text=text), "disrupted")
    return None


def _refused(job: JobView, name: str, exit_code: int, detail: str) -> NoResult:
    """What the agent refused: for its image's sake, or for what it met on the node."""
    code = name if name == BACKEND_UNAVAILABLE.reason else "AgentRefused"
    return NoResult(said(code, name=name, exit_code=exit_code, detail=detail, node=job.node_name))


def _without_end(job: JobView) -> NoResult:
    """The pod is gone or over, and its container's end was never seen: the kubelet or the node went away under it."""
    if job.failure_reason == "DeadlineExceeded":
        return _deadline(job)
    return NoResult(said("PodLost"), "disrupted")


def _deadline(job: JobView) -> NoResult:
    seconds = int((job.finished_at - job.created).total_seconds()) if job.finished_at else 0
    return NoResult(said("DeadlineExceeded", seconds=seconds, what="its log is gone"))


def _unreadable(job: JobView, end: Termination, error: WireError) -> NoResult:
    """No readable summary: a crash says more than its missing message; a clean exit makes the message the problem."""
    exit_code = end.exit_code
    if end.reason in LOST:
        text = end.message or f"exit code {exit_code}, reason {end.reason}"
        return NoResult(said("ContainerLost", node=job.node_name, text=text), "disrupted")
    if end.reason == "OOMKilled":
        return NoResult(said("AgentOutOfMemory", limit="limit"))
    if job.failure_reason == "DeadlineExceeded":
        return _deadline(job)
    named = exit_of(exit_code)
    if 10 <= exit_code <= 29 and named.code == exit_code and error.code == "ResultMissing":
        return _refused(job, named.reason, exit_code, named.sentence)
    if exit_code != 0:
        return NoResult(said("AgentCrashed", exit_code=exit_code, node=job.node_name))
    code = error.code if error.code in ("ResultMissing", "ResultForeign", "ResultNewer") else "ResultDamaged"
    return NoResult(said(code, detail=error.message, node=job.node_name))
