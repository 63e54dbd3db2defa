"""One real node: its containerd and its kubelet, with folders, control groups and pod network of its own.

All of it runs inside the sandbox of the cluster. A node's containerd owns a mount namespace in which the folder of
device plugins is the node's own, since a kubelet keeps that folder at one path whatever its root is; the kubelet and
its device plugin join it.
"""

import base64
import json
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from precision_api.facts.products import ProductClass
from precision_lab.cluster.certificates import Authority, issue
from precision_lab.cluster.control_plane import ControlPlane
from precision_lab.cluster.kubeconfig import Credentials, write
from precision_lab.processes import cgroups
from precision_lab.processes.processes import ProcessError, Processes, ticks

CNI_PROGRAMS = Path("/usr/lib/cni")
PAUSE_IMAGE = "localhost/pause:1"
DNS_ADDRESS = "10.99.0.10"
KUBELET_PORT = 11250
POD_PIDS = 1024
"""Processes and threads that a pod may have."""
START_SECONDS = 60.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class RealNode:
    name: str
    gpus: int = 0
    """Devices that its device plugin offers; 0: it has none."""
    product: ProductClass | None = None
    """The GPUs' product class, whose labels and taint the node gets."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A real node of a running cluster; `index` (from 0) makes its addresses."""

    spec: RealNode
    index: int
    inside: Processes
    programs: Mapping[str, Path]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def folder(self) -> Path:
        return self.inside.run_dir / "nodes" / self.name

    @property
    def address(self) -> str:
        """Of its kubelet; the control plane has the first one of this network."""
        return node_address(self.index)

    @property
    def containerd(self) -> str:
        """The container runtime's name among the processes."""
        return f"containerd-{self.name}"

    @property
    def kubelet(self) -> str:
        """The kubelet's name among the processes."""
        return f"kubelet-{self.name}"

    @property
    def plugin(self) -> str:
        """The device plugin's name among the processes."""
        return f"device-plugin-{self.name}"

    @property
    def dra_driver(self) -> str:
        """The DRA driver's name among the processes."""
        return f"dra-driver-{self.name}"

    @property
    def claim_fault(self) -> Path:
        """The file that says what the DRA driver does wrong, as the driver's source describes."""
        return self.folder / "claim-fault"

    @property
    def unhealthy(self) -> Path:
        """The file that lists the IDs of GPUs which the device plugin reports as unhealthy."""
        return self.folder / "unhealthy-gpus"

    def pull_from(self, server: str, authority: Path | None = None, login: str = "") -> None:
        """Sets how the node pulls from a registry, from now on.

        `server` is http://HOST:PORT, or https:// with the file of its certificate authority; `login` is USER:PASSWORD.
        """
        lines = [f'server = "{server}"', f'[host."{server}"]', *([f'ca = "{authority}"'] if authority else [])]
        if login:
            encoded = base64.b64encode(login.encode()).decode()
            lines += [f'[host."{server}".header]', f'authorization = "Basic {encoded}"']
        hosts = self.folder / "registries" / server.partition("://")[2] / "hosts.toml"
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text("\n".join(lines))

    def start_kubelet(self) -> None:
        """Starts the kubelet, also again after it was stopped: its pods live on meanwhile."""
        self.inside.start(self.kubelet, [*self._joined(), self.programs["kubelet"], *self._kubelet_flags()])

    def start_plugin(self, mounts: Sequence[str], variables: Sequence[str]) -> None:
        """Starts the device plugin; every container with GPUs gets these mounts and variables."""
        options = [f"--gpus={self.spec.gpus}", f"--unhealthy={self.unhealthy}"]
        options += [f"--mount={mount}" for mount in mounts] + [f"--env={variable}" for variable in variables]
        self.inside.start(self.plugin, [*self._joined(), self.programs["gpu-device-plugin"], *options])

    def start_dra_driver(
        self, kubeconfig: Path, devices: Sequence[Mapping[str, Any]], mounts: Sequence[str], variables: Sequence[str]
    ) -> None:
        """Starts the DRA driver, also again: it publishes `devices` (as a ResourceSlice has them) as the node's pool.

        Every container with a claim gets the GPUs of its claim, these mounts and these variables.
        """
        published = self.folder / "devices.json"
        published.write_text(json.dumps(devices))
        options = [f"--kubeconfig={kubeconfig}", f"--node={self.name}", f"--devices={published}"]
        options += [f"--kubelet-root={self.folder / 'kubelet'}", f"--cdi={self.folder / 'cdi'}"]
        options += [f"--fault={self.claim_fault}"]
        options += [f"--mount={mount}" for mount in mounts] + [f"--env={variable}" for variable in variables]
        self.inside.start(self.dra_driver, [*self._joined(), self.programs["gpu-dra-driver"], *options])

    def ctr(self, *words: str) -> list[str]:
        """The command line of `ctr` for this node's containerd, to be run outside or inside the sandbox."""
        socket = f"--address={self.folder / 'containerd.sock'}"
        return [str(self.programs["ctr"]), socket, "--namespace=k8s.io", *words]

    def start_containerd(self) -> None:
        """Starts containerd in a mount namespace of its own; returns when its socket is there. Raises ProcessError."""
        private = 'mount -t tmpfs tmpfs /var/lib/kubelet && mount --bind "$0" "$1" && shift && exec "$@"'
        boot = [str(self.folder / "boot-id"), BOOT_ID]
        command = ["unshare", "--mount", "sh", "-c", private, *boot, str(self.programs["containerd"])]
        path = f"{self.programs['containerd'].parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        configuration = f"--config={self.folder / 'containerd.toml'}"
        self.inside.start(self.containerd, [*command, configuration], env={"PATH": path})
        wait_until((self.folder / "containerd.sock").exists, self.inside, self.containerd)

    def reboot(self) -> None:
        """Cuts the node's power and starts it again, without its device plugin: no program of it is asked to end.

        What is on disk stays; what a machine keeps in memory (sockets, the runtime's state, the boot id) is new.
        """
        running = {name for name, state in self.inside.states().items() if state.exit is None}
        for name in (self.kubelet, self.plugin, self.dra_driver, self.containerd):
            if name in running:
                self.inside.stop(name, signal.SIGKILL)
        for _ in ticks(START_SECONDS):
            if not (pids := self._processes()):
                break
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            raise ProcessError(f"processes {self._processes()} do not end by SIGKILL")
        shutil.rmtree(self.folder / "containerd" / "state", ignore_errors=True)
        (self.folder / "containerd.sock").unlink(missing_ok=True)
        self.write_boot_id()
        self.start_containerd()
        self.start_kubelet()

    def write_boot_id(self) -> None:
        """A new one, as the kernel makes at each boot."""
        (self.folder / "boot-id").write_text(f"{uuid.uuid4()}\n")

    def _processes(self) -> list[int]:
        """Ids, on this machine, of all containers' processes of this node and of the shims that watch them."""
        group, socket = f"/{self.inside.run_dir.name}/{self.name}/", str(self.folder / "containerd.sock")
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                shim = socket in (folder / "cmdline").read_text().split("\0")
                if shim or group in (folder / "cgroup").read_text():
                    pids.append(int(folder.name))
            except OSError:  # it has ended
                continue
        return pids

    def _joined(self) -> list[str]:
        """Runs a program where this node's containerd sees its mounts."""
        containerd = self.inside.states()[self.containerd].pid
        return ["nsenter", f"--mount=/proc/{containerd}/ns/mnt", "--"]

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'pki'}",
            "--v=2",  # says when a container gets SIGTERM
        ]


def node_address(index: int) -> str:
    """The address of node `index` in the cluster's network."""
    return f"10.250.0.{index + 11}"


def prepare(node: Node, plane: ControlPlane, authority: Authority) -> None:
    """Writes the node's configuration and makes its control groups."""
    folder = node.folder
    for part in ("cdi", "cni", "pki", "kubelet", "podlogs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    node.unhealthy.touch()
    node.write_boot_id()
    cgroups.create(f"{plane.run_dir.name}/{node.name}")
    pair = issue(authority, datetime.now(UTC), f"system:node:{node.name}", "system:nodes")
    write(folder / "kubeconfig", Credentials(plane.url, authority.pem, pair))
    template = files(__package__).joinpath("containerd.toml").read_text(encoding="utf-8")
    text = template.format(folder=folder, pause=PAUSE_IMAGE, cni=CNI_PROGRAMS, runc=node.programs["runc"])
    (folder / "containerd.toml").write_text(text)
    (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_network(node)))
    (folder / "resolv.conf").write_text(f"nameserver {DNS_ADDRESS}\n")
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet_configuration(node, plane)))


def wait_until(holds: Callable[[], bool], processes: Processes, name: str, seconds: float = START_SECONDS) -> None:
    """Returns when `holds` is true. Raises ProcessError when the process ends before, or time is over."""
    for _ in ticks(seconds):
        if holds():
            return
        processes.check(name)
    raise ProcessError(f"{name} is not ready after {seconds:.0f} s: {processes.log(name)[-1500:]}")


def _network(node: Node) -> dict[str, Any]:
    """A bridge of the node's own; all nodes share one network namespace, which routes between the bridges."""
    ipam = {
        "type": "host-local",
        "dataDir": str(node.folder / "addresses"),
        "ranges": [[{"subnet": f"10.244.{node.index + 1}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": f"pods{node.index}", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": f"pods-{node.name}", "plugins": [bridge]}


def _kubelet_configuration(node: Node, plane: ControlPlane) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plane.run_dir.name}/{node.name}",
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{node.folder / 'containerd.sock'}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(plane.run_dir / "pki" / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        # The machine's disk is not the lab's affair: nothing is evicted and no image is deleted for its sake.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "address": node.address,
        "port": KUBELET_PORT,
        "healthzBindAddress": node.address,
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": str(node.folder / "resolv.conf"),
        "podLogsDir": str(node.folder / "podlogs"),
        "podPidsLimit": POD_PIDS,
        "nodeStatusUpdateFrequency": "5s",
        "volumeStatsAggPeriod": "10s",  # a volume that outgrows its limit is seen at the second look
        "shutdownGracePeriod": "0s",
    }
