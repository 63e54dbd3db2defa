"""Places that nodes would hold for ever: dead kubelets, images that never come, no room, a clock that runs out.

All stories begin at once and wait beside each other. Each is told by what a user applies and what a user reads; the
rest of each fleet is measured at `maxConcurrent: 1` all the same.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from precision_api.facts.names import AGENT_CONTAINER
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.fleet.hardware import HARDWARE
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from tests.support.api_server import MERGE_PATCH
from tests.support.claimant import asked
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, Site, reasons, specs

pytestmark = pytest.mark.cluster

UNATTENDED = NodeSpec("H100", traits=("unattended",))
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Unattended:
    """One node, and what its kubelet would write: the test plays it, or lets it die; nobody else writes there."""

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
        self.scene.site.api.ask("PATCH", f"{_path(pod)}/status", {"status": status}, kind=MERGE_PATCH)

    def _says(self, ready: str, reason: str) -> None:
        now = format_time(datetime.now(UTC))
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": "as the test says"}
        condition |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        path = f"{paths.item(paths.NODES, self.name)}/status"
        self.scene.site.api.ask("PATCH", path, {"status": {"conditions": [condition]}}, kind=STRATEGIC)


def _path(pod: Object) -> str:
    return paths.item(paths.pods(pod["metadata"]["namespace"]), pod["metadata"]["name"])


SHORT = {"pendingTimeoutSeconds": 30}
ONE = {"maxConcurrent": 1, "retry": {"limit": 0}}
FIRST_SIGNAL_SECONDS = 10.0
"""How soon a user reads the cause after the API's first signal of it."""
PATIENCE = 90.0
"""More than the time that any stage here has, on a machine that is busy."""


@pytest.fixture(scope="module")
def plugin(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    return Plugin.of(site.lab, tmp_path_factory.mktemp("plugin"))


@dataclass(frozen=True)
class Story:
    """A profile over a bad node, the first by name, and good ones."""

    profile: Profile
    bad: Unattended
    good: int = 2

    def shows(self, reason: str, plugin: Plugin) -> str:
        """Returns what `why` says once it and WAITS FOR of `kubectl get pp` name the reason."""
        eventually(lambda: reason in self._line(), FIRST_SIGNAL_SECONDS + PATIENCE)
        told: dict[str, Any] = plugin.why(self.bad.name, self.profile)
        assert told["reason"] == reason
        return str(told["message"])

    def _line(self) -> str:
        namespace = self.profile.site.namespace
        return self.profile.site.lab.kubectl("get", "pp", self.profile.name, "-n", namespace, "--no-headers")

    def attempts(self) -> list[tuple[str, str]]:
        """(outcome, reason) of each attempt on the bad node that ended, oldest first."""
        told = [c.object for c in self.profile.history() if c.kind == "reports"]
        mine = [o["status"]["attempt"] for o in told if o["spec"]["nodeName"] == self.bad.name and "status" in o]
        ends = {attempt["number"]: (attempt["outcome"], attempt.get("reason", "")) for attempt in mine}
        return [ends[number] for number in sorted(ends)]

    def message(self) -> str:
        """Of the newest attempt on the bad node."""
        return str(self.profile.attempts()[self.bad.name]["message"])

    def the_others_are_measured(self) -> None:
        eventually(lambda: self.profile.counts().get("succeeded") == self.good, PATIENCE)


def begun(*traits: str, requests: Object | None = None, **idle: int) -> Any:
    """A story whose bad node has these traits, and a pod of somebody else with these requests."""

    def story(site: Site) -> Iterator[Story]:
        scene = Scene(site)
        name, *_ = scene.add_nodes(replace(UNATTENDED, traits=(*UNATTENDED.traits, *traits)), *specs(2))
        bad = Unattended(scene, name)
        bad.lives()
        if requests is not None:
            web = {"name": "web", "image": "registry.example/web:1", "resources": {"requests": requests}}
            asked(site, name, 0, nodeName=name, containers=[web])
        yield Story(scene.apply(rollout=ONE, idle=SHORT | idle), bad)
        for pod in scene.site.get(paths.pods(site.namespace))["items"]:
            if pod["spec"].get("nodeName") == bad.name:
                bad.deletes(pod, 0)
        scene.close()

    return pytest.fixture(story, scope="module", autouse=True)


unscheduled, pulling = begun("no-pods"), begun("cold", startTimeoutSeconds=30)
crowded = begun(requests={"cpu": str(HARDWARE["H100"].cpus - 1)})
refused_image, dead, dying, hanging = (begun() for _ in range(4))


def test_an_image_that_cannot_be_pulled_is_told_and_its_place_given_back(refused_image: Story, plugin: Plugin) -> None:
    refused_image.bad.waits(refused_image.bad.pod(refused_image.profile), "ErrImagePull", "agent:1: not found")
    told = refused_image.shows("ImagePullFailing", plugin)
    assert f"Node {refused_image.bad.name} can't pull the image of attempt 1: agent:1: not found." in told
    refused_image.the_others_are_measured()
    assert refused_image.attempts() == [("failed", "ImagePullFailed")]


def test_a_dead_kubelet_is_told_and_its_place_given_back_with_its_pod_still_there(dead: Story, plugin: Plugin) -> None:
    pod = dead.bad.pod(dead.profile)
    dead.bad.starts(pod)
    dead.bad.dies()
    told = dead.shows("AgentUnreachable", plugin)
    assert f"Node {dead.bad.name} is unreachable while attempt 1 runs on it" in told
    assert "NodeStatusUnknown" in told
    dead.bad.deletes(pod)
    dead.the_others_are_measured()
    assert dead.attempts() == [("disrupted", "NodeUnresponsive")]
    assert dead.message().startswith(
        f"Node {dead.bad.name} is unreachable (condition Ready is Unknown (NodeStatusUnknown)), and its attempt was "
        "given up: its pod was to be gone at "
    )
    kept = [each for each in dead.profile.pods() if each["metadata"]["uid"] == pod["metadata"]["uid"]]
    assert kept[0]["status"]["phase"] == "Running", "Kubernetes has nobody to end it"
    assert reasons(dead.profile.status()) == {"NotReady": 1}
    assert plugin.why(dead.bad.name, dead.profile)["reason"] == "NotReady"


def test_a_node_that_dies_under_each_measurement_is_quarantined_until_asked_for(dying: Story, plugin: Plugin) -> None:
    for _ in range(3):
        pod = dying.bad.pod(dying.profile)
        dying.bad.starts(pod)
        dying.bad.dies()
        dying.bad.deletes(pod)
        number = int(pod["metadata"]["labels"]["precisionprofiler.io/attempt"])
        eventually(lambda number=number: len(dying.attempts()) == number, PATIENCE)  # type: ignore[misc]
        dying.bad.deletes(pod, 0)
        dying.bad.lives()
    assert dying.attempts() == [("disrupted", "NodeUnresponsive")] * 3
    eventually(lambda: reasons(dying.profile.status()) == {"Quarantined": 1}, PATIENCE)
    told = plugin.why(dying.bad.name, dying.profile)
    assert told["message"].startswith(
        "3 attempts in a row ended without a result on it, the last with NodeUnresponsive. Fix the node"
    )
    dying.the_others_are_measured()
    plugin("rerun", f"node/{dying.bad.name}", "-n", dying.profile.site.namespace)
    dying.bad.pod(dying.profile)


def test_an_agent_that_hangs_is_ended_by_the_operator_from_the_start_of_its_container(hanging: Story) -> None:
    hanging.bad.starts(hanging.bad.pod(hanging.profile), timedelta(seconds=1859))
    hanging.the_others_are_measured()
    assert hanging.attempts() == [("failed", "DeadlineExceeded")]
    said = r"The agent did not end itself at its deadline and was stopped after 18\d\d s: there is no log of it\. "
    assert re.match(said, hanging.message()), "kwok plays its pod, which writes nothing"


def test_gpus_that_are_idle_on_a_node_without_cpus_are_told_with_figures(crowded: Story, plugin: Plugin) -> None:
    crowded.the_others_are_measured()
    told = crowded.shows("InsufficientCPU", plugin)
    assert told.startswith("The agent requests 4 CPUs, and the pods on the node already request ")
    assert f"{HARDWARE['H100'].cpus - 1} of {HARDWARE['H100'].cpus}." in told
    assert crowded.attempts() == []


def test_a_pod_that_is_never_scheduled_gives_its_place_to_others_and_is_tried_after_them(unscheduled: Story) -> None:
    unscheduled.the_others_are_measured()
    assert set(unscheduled.attempts()) == {("disrupted", "PendingTooLong")}
    assert unscheduled.message().startswith("The agent's pod was not scheduled within 30 s: 0/")
    jobs: list[Object] = created(unscheduled.profile.history(), "jobs")
    last = [job["metadata"]["annotations"]["precisionprofiler.io/node"] for job in jobs[:3]]
    assert len(set(last)) == 3, "each node once before any a second time"


def test_a_long_pull_is_told_and_counts_as_no_failure_until_its_time_is_over(pulling: Story, plugin: Plugin) -> None:
    pulling.the_others_are_measured()
    assert pulling.attempts() == [("failed", "StartTooLong")], "retries are 0 here"
    assert "did not start within 30 s of being scheduled" in pulling.message()
    told = [c.object["status"] for c in pulling.profile.history() if c.kind == "profiles" and "status" in c.object]
    assert "PullingImage (1)" in {status.get("waitsFor") for status in told}
    assert all(not status["nodes"]["failed"] for status in told if status.get("waitsFor") == "PullingImage (1)")
