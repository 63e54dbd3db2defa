"""What a kubelet tells of a pod: whole patches."""

from __future__ import annotations

from typing import Any

import pytest

from precision_lab.kubelet import pod_status
from precision_lab.kubelet.faults import Ended

POD: dict[str, Any] = {
    "metadata": {"name": "pp-1-x", "namespace": "team", "uid": "u-1"},
    "spec": {"containers": [{"name": "agent", "image": "registry.example/agent:1"}]},
}
START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def conditions(patch: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Condition type -> (status, reason)."""
    return {item["type"]: (item["status"], item.get("reason", "")) for item in patch["status"]["conditions"]}


def test_an_agent_that_published_gives_a_succeeded_pod_with_its_message() -> None:
    patch = pod_status.terminated(POD, Ended(0, "summary", b"log"), START, END)
    assert patch == {
        "metadata": {"uid": "u-1"},
        "status": {
            "phase": "Succeeded",
            "startTime": START,
            "hostIP": "127.0.0.1",
            "conditions": [
                {"type": kind, "status": "False", "lastTransitionTime": END, "reason": "PodCompleted"}
                for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {
                    "name": "agent",
                    "image": "registry.example/agent:1",
                    "imageID": "",
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "containerID": pod_status.container_id(POD),
                    "state": {
                        "terminated": {
                            "exitCode": 0,
                            "reason": "Completed",
                            "message": "summary",
                            "startedAt": START,
                            "finishedAt": END,
                            "containerID": pod_status.container_id(POD),
                        }
                    },
                }
            ],
        },
    }


@pytest.mark.parametrize(
    ("ended", "reason", "pod_reason"),
    [
        pytest.param(Ended(14), "Error", None, id="exit code"),
        pytest.param(Ended(137, reason="OOMKilled"), "OOMKilled", None, id="killed"),
        pytest.param(Ended(0, pod_reason="DeadlineExceeded"), "Completed", "DeadlineExceeded", id="too late"),
    ],
)
def test_any_other_end_gives_a_failed_pod(ended: Ended, reason: str, pod_reason: str | None) -> None:
    patch = pod_status.terminated(POD, ended, START, END)
    assert patch["status"]["phase"] == "Failed"
    assert patch["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == reason
    assert patch["status"].get("reason") == pod_reason
    assert conditions(patch)["Ready"] == ("False", "PodFailed")


def test_a_disruption_is_a_condition_that_jobs_understand() -> None:
    ended = Ended(137, "low on disk", pod_reason="Evicted", disruption="TerminationByKubelet")
    assert conditions(pod_status.terminated(POD, ended, START, END))["DisruptionTarget"] == (
        "True",
        "TerminationByKubelet",
    )


def test_a_container_that_waits_for_its_image_keeps_the_pod_pending() -> None:
    patch = pod_status.waiting(POD, START, "ImagePullBackOff", "Back-off pulling image")
    assert patch["status"]["phase"] == "Pending"
    assert patch["status"]["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    }


def test_a_running_pod_is_ready_and_its_container_has_an_id() -> None:
    patch = pod_status.running(POD, START)
    assert patch["status"]["phase"] == "Running"
    assert conditions(patch)["Ready"] == ("True", "")
    assert patch["status"]["containerStatuses"][0]["containerID"].startswith("containerd://")
