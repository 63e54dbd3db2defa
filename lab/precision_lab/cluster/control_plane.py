"""The control plane: etcd, API server, controller manager and scheduler, each a real one, on loopback."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from precision_lab.cluster.certificates import Authority, issue, write_cluster_pki
from precision_lab.cluster.kubeconfig import Credentials, administrator, write
from precision_lab.processes.ports import free_ports
from precision_lab.processes.processes import ProcessError, Processes
from precision_operator.cluster import ApiError, Cluster, paths

LOOPBACK = "127.0.0.1"
READY_SECONDS = 90.0
NODE_GRACE_SECONDS = 300
"""Longer than the leases of a large simulated fleet; Kubernetes' own default is 50."""
PROBE_SECONDS = 0.05
CLIENT_FLAGS = ("--leader-elect=false", "--secure-port=0", "--kube-api-qps=300", "--kube-api-burst=600")
"""Of controller manager and scheduler."""
SERVICE_RANGE = "10.99.0.0/16"
USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
"""Kubeconfig name -> (user, group) in its client certificate."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane: where it is and how its administrator gets in."""

    processes: Processes
    port: int
    address: str = LOOPBACK
    """Where nodes and pods reach the API server; people and their programs do on loopback."""

    @property
    def run_dir(self) -> Path:
        """The folder with everything of this cluster."""
        return self.processes.run_dir

    @property
    def url(self) -> str:
        """The API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run_dir / "admin.kubeconfig"

    @property
    def ca(self) -> bytes:
        """The certificate that clients trust."""
        return (self.run_dir / "pki" / "ca.crt").read_bytes()


def new_control_plane(processes: Processes, address: str = LOOPBACK) -> tuple[ControlPlane, Authority]:
    """A control plane with its keys, certificates and kubeconfigs, not started yet, and what issues more of them."""
    (port,) = free_ports(1)
    plane = ControlPlane(processes, port, address)
    authority = write_cluster_pki(plane.run_dir / "pki", datetime.now(UTC), [address])
    for name, (user, group) in USERS.items():
        pair = issue(authority, datetime.now(UTC), user, group)
        write(plane.run_dir / f"{name}.kubeconfig", Credentials(plane.url, authority.pem, pair))
    return plane, authority


def start_control_plane(
    plane: ControlPlane, programs: Mapping[str, Path], extra: tuple[str, ...] = (), common: tuple[str, ...] = ()
) -> None:
    """Starts all four and returns when pods can be made; `extra` are further flags of the API server.

    `common` are flags of API server, controller manager and scheduler alike (feature gates, an emulated version).

    Raises ProcessError with the log's end when one of them does not come up.
    """
    processes = plane.processes
    etcd, etcd_peer = free_ports(2)
    processes.start("etcd", [programs["etcd"], *_etcd_flags(plane.run_dir, etcd, etcd_peer)])
    # Asked politely, an API server waits for its watches; nothing of it is worth that second.
    flags = [*_apiserver_flags(plane, etcd), *extra, *common]
    processes.start("kube-apiserver", [programs["kube-apiserver"], *flags], grace_seconds=0.5)
    run_blocking(_until(plane, "kube-apiserver", _ready))
    start_controller_manager(plane, programs, common=common)
    name, flags = "kube-scheduler", [f"--kubeconfig={plane.run_dir / 'scheduler.kubeconfig'}", *CLIENT_FLAGS, *common]
    processes.start(name, [programs[name], *flags], grace_seconds=0.5)
    run_blocking(_until(plane, "kube-controller-manager", _default_service_account))


def start_controller_manager(
    plane: ControlPlane,
    programs: Mapping[str, Path],
    node_grace_seconds: int = NODE_GRACE_SECONDS,
    common: tuple[str, ...] = (),
) -> None:
    """Starts the controller manager; a node whose kubelet has been silent for so long becomes NotReady."""
    name = "kube-controller-manager"
    flags = [*_controller_manager_flags(plane.run_dir, node_grace_seconds), *common]
    plane.processes.start(name, [programs[name], *flags], grace_seconds=0.5)


def _etcd_flags(run_dir: Path, port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={run_dir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # this data does not outlive the cluster
        f"--quota-backend-bytes={4 << 30}",
        "--log-level=warn",
    ]


def _apiserver_flags(plane: ControlPlane, etcd: int) -> list[str]:
    pki = plane.run_dir / "pki"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--secure-port={plane.port}",
        *_serving_flags(plane),
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
    ]


def _serving_flags(plane: ControlPlane) -> list[str]:
    if plane.address == LOOPBACK:  # no valid endpoint of a Service, and nobody asks for one
        return [f"--bind-address={LOOPBACK}", f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none"]
    return ["--bind-address=0.0.0.0", f"--advertise-address={plane.address}"]


def _controller_manager_flags(run_dir: Path, node_grace_seconds: int) -> list[str]:
    return [
        f"--kubeconfig={run_dir / 'controller-manager.kubeconfig'}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={run_dir / 'pki' / 'sa.key'}",
        f"--root-ca-file={run_dir / 'pki' / 'ca.crt'}",
        *CLIENT_FLAGS,
        "--concurrent-job-syncs=10",
        "--concurrent-gc-syncs=10",
        f"--node-monitor-grace-period={node_grace_seconds}s",
    ]


def run_blocking(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, from code that is not async itself but may be called where a loop runs already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _ready(cluster: Cluster) -> bool:
    return await cluster.get_text("/readyz") == "ok"


async def _default_service_account(cluster: Cluster) -> bool:
    """Before it exists, every pod of the namespace is refused."""
    await cluster.get(paths.item(paths.collection("v1", "serviceaccounts", "default"), "default"))
    return True


async def _until(plane: ControlPlane, name: str, holds: Callable[[Cluster], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    async with administrator(plane.kubeconfig) as cluster:
        while True:
            try:
                if await holds(cluster):
                    return
            except ApiError as problem:
                plane.processes.check(name)
                if time.monotonic() > deadline:
                    raise ProcessError(f"{name} was not ready within {READY_SECONDS:.0f} s: {problem}") from problem
            await asyncio.sleep(PROBE_SECONDS)
