"""One cluster with its simulated fleet: what tests, the demo and the command line start, use and end."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from precision_lab.builds.binaries import binaries as find_binaries
from precision_lab.builds.programs import CLUSTER
from precision_lab.cluster.control_plane import ControlPlane, new_control_plane, run_blocking, start_control_plane
from precision_lab.cluster.kubeconfig import Credentials, write
from precision_lab.cluster.kwok import start_kwok
from precision_lab.cluster.objects import is_so
from precision_lab.fleet.fleet import NodeSpec, manifests, node_manifest
from precision_lab.fleet.nodes import create_nodes
from precision_lab.processes.ports import free_ports
from precision_lab.processes.processes import Processes, launch, named, ticks

DESCRIPTION = "lab.json"
KUBELETS = "kubelets"
"""The process that stands in for those of simulated nodes."""
KUBECTL_SECONDS = 360
ESTABLISHED_SECONDS = 60


class KubectlError(Exception):
    """kubectl ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """How a lab is started. Without `simulate` it is a control plane alone: no kwok, no stand-in, no nodes."""

    agent_seconds: float = 2.0
    simulate: bool = True
    name: str = ""
    """A named lab can be found again (`Lab.find`), also by other processes."""
    apiserver_flags: tuple[str, ...] = ()
    kubelets: str = "precision_lab.kubelet.fake_kubelet"
    """The module whose program stands in for the kubelets of simulated nodes."""
    kubernetes_flags: tuple[str, ...] = ()
    """Of API server, controller manager and scheduler alike: feature gates, an emulated version."""


@dataclass(slots=True)
class Lab:
    """A running cluster. `with start_lab([...]) as lab:` ends it with the block, unless it was detached there."""

    plane: ControlPlane
    binaries: Mapping[str, Path]
    """Where each program of the cluster lies, kubectl among them."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plane.kubeconfig

    @property
    def run_dir(self) -> Path:
        """The folder with everything of this cluster; it vanishes with the cluster."""
        return self.plane.run_dir

    @property
    def processes(self) -> Processes:
        """To start more programs that shall end with the cluster (an operator), or to stop one of it."""
        return self.plane.processes

    @classmethod
    def find(cls, run_dir: Path) -> Self:
        """The living lab of a run folder. FileNotFoundError when it never came up."""
        description = json.loads((run_dir / DESCRIPTION).read_text())
        programs = {name: Path(path) for name, path in description["programs"].items()}
        processes = Processes(run_dir, description["socket"])
        return cls(ControlPlane(processes, description["port"], description["address"]), programs)

    @classmethod
    def named(cls, name: str) -> Self | None:
        """The living lab of this name, if there is one."""
        processes = named(name)
        return cls.find(processes.run_dir) if processes and (processes.run_dir / DESCRIPTION).exists() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if error is not None or not self.processes.detached:
            self.close()

    def close(self) -> None:
        """Stops everything that was started for this lab, and nothing else; removes the run folder."""
        self.processes.end()

    def detach(self) -> None:
        """Lets the lab live on after its block and its owners, until `close` or `precision-lab down`."""
        self.processes.detach()

    def kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """What kubectl prints. Raises KubectlError with its words when it fails."""
        command = [str(self.binaries["kubectl"]), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        cache = {"KUBECACHEDIR": str(self.run_dir / "kubectl-cache"), "HOME": str(self.run_dir)}
        done = subprocess.run(
            command, input=stdin, env=cache, capture_output=True, text=True, check=False, timeout=KUBECTL_SECONDS
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """What `kubectl get ... -o json` prints, as data."""
        raw = any(argument.startswith("--raw") for argument in arguments)
        return json.loads(self.kubectl("get", *arguments, *(() if raw else ("-o", "json"))))

    def apply(self, *objects: Mapping[str, Any]) -> str:
        """Applies objects with kubectl, in this order; returns what it said."""
        return self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in objects))

    def add_nodes(self, specs: Iterable[NodeSpec]) -> list[str]:
        """Adds a fleet; returns the nodes' names when all are Ready and the busy ones are busy."""
        made = list(manifests(specs))
        run_blocking(create_nodes(self.kubeconfig, made))
        return [node["metadata"]["name"] for node in made]

    def add_node(self, spec: NodeSpec, name: str) -> str:
        """Adds one node under this name, also one that was there before; returns the name."""
        run_blocking(create_nodes(self.kubeconfig, [node_manifest(spec, name, 0)]))
        return name

    def delete_node(self, name: str) -> None:
        """Takes a node away at once, as a cloud does; its pods stay until the cluster collects them."""
        self.kubectl("delete", "node", name, "--wait=false")

    def annotate_node(self, name: str, **annotations: str | None) -> None:
        """Sets the lab's annotations of a node (`fault="crash"`, `fault_runs="1"`, `scale="0.8"`); None removes one."""
        keys = {key: f"lab.precisionprofiler.io/{key.replace('_', '-')}" for key in annotations}
        changes = [f"{keys[key]}={value}" if value else f"{keys[key]}-" for key, value in annotations.items()]
        self.kubectl("annotate", "--overwrite", "node", name, *changes)

    def wait_until_established(self, *definitions: str) -> None:
        """Returns once these definitions (all, without names) are established. Raises KubectlError after a minute.

        `kubectl wait --for=condition=Established` ends with an error at a definition that has no conditions yet, and so
        does a JSONPath that filters them: what a definition lacks at first is asked for again.
        """
        for _ in ticks(ESTABLISHED_SECONDS, 0.1):
            items = [self.get("crd", name) for name in definitions] or self.get("crd")["items"]
            waiting = [item["metadata"]["name"] for item in items if not is_so("Established", item)]
            if not waiting:
                return
        raise KubectlError(f"after {ESTABLISHED_SECONDS} s not established: {', '.join(waiting)}")

    def create_namespace(self, name: str) -> str:
        """Makes a namespace in which pods can start at once (its default service account exists); returns its name."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
        return name

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a new token of an existing service account: what a program in its pod could do."""
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h")
        path = self.run_dir / f"sa-{namespace}-{name}.kubeconfig"
        return write(path, Credentials(self.plane.url, self.plane.ca, token=token.strip()), namespace)


def start_lab(specs: Sequence[NodeSpec] = (), settings: LabSettings = LabSettings()) -> Lab:
    """Starts a cluster with these nodes; returns when it is ready. Whatever fails on the way stops it again.

    Builds the programs first where they are missing. Raises ProcessError, BuildFailed, NoToolchain, ValueError.
    """
    programs = find_binaries(CLUSTER)
    processes = launch(settings.name)
    try:
        plane, _ = new_control_plane(processes)
        return fill(plane, programs, specs, settings)
    except BaseException:
        processes.end()
        raise


def fill(plane: ControlPlane, programs: Mapping[str, Path], specs: Sequence[NodeSpec], settings: LabSettings) -> Lab:
    """Starts a control plane, and the simulated fleet where the settings want it. Raises ProcessError."""
    start_control_plane(plane, programs, settings.apiserver_flags, settings.kubernetes_flags)
    lab = Lab(plane, programs)
    if settings.simulate:
        (log_port,) = free_ports(1)
        start_kwok(plane, programs, log_port)
        stand_in = [sys.executable, "-m", settings.kubelets, str(plane.kubeconfig), str(log_port)]
        stand_in += [str(plane.run_dir / "pods"), str(settings.agent_seconds)]
        # It takes up all agent pods that are there, so nothing has to wait for it.
        plane.processes.start(KUBELETS, stand_in, grace_seconds=2.0)
        lab.add_nodes(specs)
    description = {
        "port": plane.port,
        "address": plane.address,
        "socket": plane.processes.socket_name,
        "programs": {name: str(path) for name, path in programs.items()},
    }
    (plane.run_dir / DESCRIPTION).write_text(json.dumps(description))
    return lab
