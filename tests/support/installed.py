"""Precision Profiler as its users have it: the chart installed by Helm, with the images just built, on real nodes."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_api.facts import names
from precision_lab.builds.image_archives import image_archives
from precision_lab.fleet.fleet import fleet
from precision_lab.lab import Lab, LabSettings
from precision_lab.nodes.cluster import FLEET, RealLab, start_real_lab
from precision_lab.release.helm import Release
from tests.support import site
from tests.support.eventually import eventually

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
GPU_NODE = "gpu-a"
TEAM = "team-a"
"""The watched namespace."""
AGENT_RESOURCES = {"cpu": "200m", "memory": "1Gi"}
"""These machines are small: the default asks for what a GPU node has to spare."""
SIMULATED_NODES = 20
ONLY_GPU_NODE = {"nodeNames": [GPU_NODE]}
OPERATOR, EXPORTER = "precision-profiler-operator", "precision-profiler-exporter"
Object = dict[str, Any]


@dataclass(frozen=True)
class Installed:
    """A cluster with real and simulated nodes, and the release in it."""

    real: RealLab
    release: Release
    images: Mapping[str, Path]
    """The docker-archives that its nodes have, by target (`operator`, `agent`)."""

    @property
    def lab(self) -> Lab:
        return self.real.lab

    def values(self, **changes: Any) -> Object:
        """The chart's values: only what every user must say, and `changes`."""
        return {"watchNamespaces": [TEAM], **changes}

    def ready(self, seconds: float = 60) -> None:
        """Returns when all replicas of operator and exporter are available."""
        for name in (OPERATOR, EXPORTER):
            self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={seconds:.0f}s")

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """kubectl in the release's namespace."""
        return self.lab.kubectl(*words, f"--namespace={self.release.namespace}", stdin=stdin)

    def apply(self, name: str, **spec: Any) -> "Profile":
        """Applies a profile in the watched namespace."""
        self.lab.apply(profile_manifest(name, **spec))
        return Profile(self.lab, name)

    def pods(self, component: str) -> list[Object]:
        """Pods of one Deployment that are not ending."""
        selector = f"app.kubernetes.io/component={component}"
        found = self.lab.get("pods", "--namespace", self.release.namespace, "--selector", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def holder(self) -> str:
        """Who holds the Lease: the pod, and what each start of its container has anew; empty where nobody does."""
        lease = self.lab.get("lease", OPERATOR, "--namespace", self.release.namespace)
        return str(lease["spec"].get("holderIdentity", ""))

    def leader(self) -> str:
        """The name of the pod that holds the Lease; empty where nobody does."""
        return self.holder().rpartition("_")[0]

    def another_leads(self, former: str, seconds: float = 40) -> str:
        """Returns the next holder as soon as it is not `former`; a killed container may win again when it is back."""
        return eventually(lambda: (holder := self.holder()) and holder != former and holder, seconds)

    def offered_gpus(self) -> int:
        """GPUs that the real GPU node offers now."""
        return int(self.lab.get("node", GPU_NODE)["status"]["allocatable"].get(names.GPU_RESOURCE, 0))

    def kill_processes(self, pod: Object) -> None:
        """SIGKILL for all processes of a pod's program, as an out-of-memory killer or an operator's debugger does."""
        killed = [pid for pid in processes_of(pod["metadata"]["uid"]) if command_of(pid)[:1] != ["/pause"]]
        assert killed, f"no process of {pod['metadata']['name']} runs"
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    @contextmanager
    def paced(self, pace: float) -> Iterator[None]:
        """Agents on the real GPU node that start in this block wait so many seconds for each replayed one."""
        self.real.replay_options(f"--replay-pace={pace}")
        try:
            yield
        finally:
            self.real.replay_options()

    def at_work(self, name: str, pace: float = 0.05, **spec: Any) -> "tuple[Profile, Object]":
        """A profile of the real GPU node, and its agent's pod, which measures by now: some fifteen seconds at 0.05."""
        with self.paced(pace):
            profile = self.apply(name, target=ONLY_GPU_NODE, **spec)
            return profile, profile.running_agent()


@dataclass(frozen=True)
class Profile:
    """A profile in the watched namespace."""

    lab: Lab
    name: str

    def get(self) -> Object:
        return dict(self.lab.get("pp", self.name, "--namespace", TEAM))

    def status(self) -> Object:
        return dict(self.get().get("status", {}))

    def completes(self, seconds: int = 110) -> Object:
        """Waits as a user does; returns the status."""
        self.lab.kubectl("wait", f"pp/{self.name}", "-n", TEAM, "--for=condition=Complete", f"--timeout={seconds}s")
        return self.status()

    def delete(self) -> None:
        self.lab.kubectl("delete", "pp", self.name, "-n", TEAM, "--ignore-not-found")

    def reasons(self) -> set[str]:
        """Why nodes of this profile have no result (yet)."""
        return {row["reason"] for row in self.status().get("reasons", ())}

    def reports(self) -> list[Object]:
        return self._items("npr")

    def _items(self, kind: str, *selectors: str) -> list[Object]:
        selector = ",".join((f"{names.LABEL_PROFILE_UID}={self.get()['metadata']['uid']}", *selectors))
        return list(self.lab.get(kind, "--namespace", TEAM, "--selector", selector)["items"])

    def report(self, node: str = GPU_NODE) -> Object:
        """Its report of a node; empty where there is none."""
        return next((report for report in self.reports() if report["spec"]["nodeName"] == node), {})

    def attempt(self, node: str = GPU_NODE) -> Object:
        """The newest attempt on a node that has ended; empty before."""
        return dict(self.report(node).get("status", {}).get("attempt", {}))

    def ends(self, reason: str, seconds: float = 240) -> Object:
        """The newest attempt, once it has ended for this reason. Fails with the attempt where it ends for another."""
        attempt = eventually(self.attempt, seconds, self.situation)
        assert attempt.get("reason") == reason, attempt
        return attempt

    def measured(self, seconds: float = 240) -> int:
        """Waits until the GPU node is measured; returns the number of the attempt that did it."""
        eventually(lambda: self.report().get("status", {}).get("state") == "Measured", seconds, self.situation)
        return int(self.attempt()["number"])

    def pods(self) -> list[Object]:
        """The pods of its agents, on all nodes, also those that have ended."""
        return self._items("pods", f"{names.LABEL_APP}={names.AGENT_APP}")

    def situation(self) -> str:
        """What a failed test shows of it: phase, reasons, the newest attempt, and each pod's status."""
        pods = [(pod["metadata"]["name"], pod["status"]) for pod in self.pods()]
        status = self.status()
        return f"{status.get('phase')} {status.get('reasons')} attempt {self.attempt()} pods {pods}"

    def runs(self, node: str = GPU_NODE) -> int:
        """How many runs of a node its report remembers; each has one row, whatever the number of its attempts."""
        return len(self.report(node).get("status", {}).get("history", ()))

    def agent(self, node: str = GPU_NODE) -> Object | None:
        """The agent's pod on a node, as long as it has not ended."""
        here = [pod for pod in self.pods() if pod["spec"].get("nodeName") == node]
        return next((pod for pod in here if pod["status"]["phase"] in ("Pending", "Running")), None)

    def running_agent(self, node: str = GPU_NODE, seconds: float = 180) -> Object:
        """The agent's pod on a node, once its program measures."""

        def look() -> Object | None:
            pod = self.agent(node)
            return pod if pod and pod["status"]["phase"] == "Running" and "measuring" in log_of(self.lab, pod) else None

        found = eventually(look, seconds, self.situation)
        assert found
        return found

    def jobs(self) -> list[Object]:
        return self._items("jobs")


@contextmanager
def cluster(apiserver_flags: Sequence[str] = ()) -> Iterator[Installed]:
    """Real nodes with the images just built, simulated ones beside them, namespaces that enforce `restricted`."""
    images = image_archives()
    settings = LabSettings(agent_seconds=0.3, apiserver_flags=tuple(apiserver_flags))
    with start_real_lab(on_nodes(images), FLEET, fleet(SIMULATED_NODES), settings) as real:
        release = Release(real.lab)
        for namespace in (release.namespace, TEAM):
            real.lab.create_namespace(namespace)
            real.lab.kubectl("label", "namespace", namespace, RESTRICTED)
        yield Installed(real, release, images)


def on_nodes(images: Mapping[str, Path]) -> dict[str, list[Path]]:
    """Which archives each real node needs: operator and exporter run on the plain ones, agents where the GPUs are."""
    return {"node-a": [images["operator"]], "node-b": [images["operator"]], GPU_NODE: [images["agent"]]}


def profile_manifest(name: str, **spec: Any) -> Object:
    """A profile with one retry, of small agents."""
    defaults = {
        "workload": {"preset": "llama3-8b"},
        "rollout": {"maxConcurrent": 25, "retry": {"limit": 1, "backoffSeconds": 1}},
        "agent": {"resources": AGENT_RESOURCES},
    }
    return site.profile_manifest(TEAM, name, defaults, **spec)


def processes_of(pod_uid: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if f"pod{pod_uid}" in text:
            found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> list[str]:
    """A process's command line; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def log_of(lab: Lab, pod: Object) -> str:
    """What a pod has said so far."""
    meta = pod["metadata"]
    return lab.kubectl("logs", meta["name"], "-n", meta["namespace"])


def conditions(status: Object) -> dict[str, str]:
    """Type to status."""
    return {row["type"]: row["status"] for row in status.get("conditions", ())}
