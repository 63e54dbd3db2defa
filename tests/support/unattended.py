"""A node whose kubelet the test plays, or lets die: the API server is real, and nobody else writes there."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from precision_api.facts.names import AGENT_CONTAINER
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from tests.support.api_server import MERGE_PATCH
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.site import Profile, Scene

UNATTENDED = NodeSpec("H100", traits=("unattended",))
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Unattended:
    """One node, and what its kubelet would write."""

    scene: Scene
    name: str

    def lives(self) -> None:
        """Its kubelet is heard of; returns when the node controller has taken its taints away."""
        self._says("True", "KubeletReady")
        path = paths.item(paths.NODES, self.name)
        eventually(lambda: all(t["key"] == "nvidia.com/gpu" for t in self.scene.site.get(path)["spec"]["taints"]))

    def dies(self) -> None:
        """Its kubelet is heard of no more, and the node controller says so."""
        self._says("Unknown", "NodeStatusUnknown")

    def pod(self, profile: Profile) -> Object:
        """The agent's pod, once it is scheduled here; not one that was deleted."""

        def scheduled() -> Object | None:
            here = [pod for pod in profile.pods() if pod["spec"].get("nodeName") == self.name]
            return next((pod for pod in here if "deletionTimestamp" not in pod["metadata"]), None)

        return eventually(scheduled) or {}

    def starts(self, pod: Object, ago: timedelta = timedelta(0)) -> None:
        """The agent's container runs, since so long ago; its pod was scheduled then."""
        at = format_time(datetime.now(UTC) - ago)
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
        self._container(pod, "Running", {"running": {"startedAt": at}}, startTime=at, conditions=[scheduled])

    def waits(self, pod: Object, reason: str, message: str) -> None:
        """The agent's container waits for something."""
        self._container(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def deletes(self, pod: Object, seconds: int = 1) -> None:
        """Somebody deletes the pod; 0: by force. Kubernetes does it where a node was not heard of for 300 s."""
        status, answer = self.scene.site.api.call("DELETE", _path(pod), {"gracePeriodSeconds": seconds})
        assert status in (200, 202, 404), answer

    def _container(self, pod: Object, phase: str, state: Object, **more: Any) -> None:
        container = {"name": AGENT_CONTAINER, "image": "agent", "imageID": "", "restartCount": 0, "state": state}
        status = {"phase": phase, "containerStatuses": [container | {"ready": phase == "Running"}], **more}
        code, answer = self.scene.site.api.call("PATCH", f"{_path(pod)}/status", {"status": status}, kind=MERGE_PATCH)
        assert code == 200, answer

    def _says(self, ready: str, reason: str) -> None:
        now = format_time(datetime.now(UTC))
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": "as the test says"}
        condition |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        path = f"{paths.item(paths.NODES, self.name)}/status"
        code, answer = self.scene.site.api.call("PATCH", path, {"status": {"conditions": [condition]}}, kind=STRATEGIC)
        assert code == 200, answer


def _path(pod: Object) -> str:
    return paths.item(paths.pods(pod["metadata"]["namespace"]), pod["metadata"]["name"])
