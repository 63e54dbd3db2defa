"""The status patches with which a kubelet tells of one pod: pure functions from pod and facts to a patch."""

import hashlib
from typing import Any

from precision_lab.kubelet.faults import Ended

Patch = dict[str, Any]
_READY_TYPES = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def running(pod: Patch, now: str) -> Patch:
    """The containers have started."""
    conditions = [_condition(kind, "True", now) for kind in _READY_TYPES]
    state = {"running": {"startedAt": now}}
    return _patch(pod, _status("Running", now, conditions, _containers(pod, state, ready=True)))


def waiting(pod: Patch, now: str, reason: str, message: str) -> Patch:
    """The containers can't start; the pod stays Pending."""
    conditions = [_condition("Ready", "False", now, "ContainersNotReady")]
    state = {"waiting": {"reason": reason, "message": message}}
    return _patch(pod, _status("Pending", now, conditions, _containers(pod, state, ready=False)))


def terminated(pod: Patch, ended: Ended, started: str, finished: str) -> Patch:
    """The containers have ended, and with them the pod: restartPolicy is Never."""
    succeeded = ended.exit_code == 0 and not ended.pod_reason
    why = "PodCompleted" if succeeded else "PodFailed"
    conditions = [_condition(kind, "False", finished, why) for kind in ("Ready", "ContainersReady")]
    if ended.disruption:
        conditions.append(_condition("DisruptionTarget", "True", finished, ended.disruption))
    state = {
        "terminated": {
            "exitCode": ended.exit_code,
            "reason": ended.reason or ("Completed" if ended.exit_code == 0 else "Error"),
            "message": ended.message,
            "startedAt": started,
            "finishedAt": finished,
            "containerID": container_id(pod),
        }
    }
    status = _status("Succeeded" if succeeded else "Failed", started, conditions, _containers(pod, state, ready=False))
    if ended.pod_reason:
        status |= {"reason": ended.pod_reason, "message": ended.message}
    return _patch(pod, status)


def container_id(pod: Patch) -> str:
    """A runtime's name for the pod's only container."""
    return f"containerd://{hashlib.sha256(pod['metadata']['uid'].encode()).hexdigest()}"


def _patch(pod: Patch, status: Patch) -> Patch:
    """With the UID: a pod of the same name that came later must not get it (the API server answers 409)."""
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}


def _status(phase: str, start: str, states: list[Patch], containers: list[Patch]) -> Patch:
    return {
        "phase": phase,
        "startTime": start,
        "hostIP": "127.0.0.1",
        "conditions": states,
        "containerStatuses": containers,
    }


def _containers(pod: Patch, state: Patch, ready: bool) -> list[Patch]:
    """One status for each container. A container that waits has no id yet."""
    identity = {} if "waiting" in state else {"containerID": container_id(pod)}
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
            **identity,
        }
        for container in pod["spec"]["containers"]
    ]


def _condition(kind: str, status: str, now: str, reason: str = "") -> Patch:
    condition = {"type": kind, "status": status, "lastTransitionTime": now}
    return {**condition, "reason": reason} if reason else condition
