"""A cluster with real nodes, and a simulated fleet beside them: `with start_real_lab(...) as real:`.

Real nodes get their images here: the pause image, which is made, and archives that are imported into containerd.
"""

import hashlib
import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from precision_api.facts.names import GPU_RESOURCE
from precision_lab.builds.binaries import binaries
from precision_lab.builds.programs import CLUSTER, NODE
from precision_lab.cluster.control_plane import NODE_GRACE_SECONDS, new_control_plane, start_controller_manager
from precision_lab.cluster.objects import Object, is_so
from precision_lab.fleet import slices
from precision_lab.fleet.fleet import NodeSpec, node_manifest
from precision_lab.lab import Lab, LabSettings, fill
from precision_lab.nodes import sandbox
from precision_lab.nodes.node import PAUSE_IMAGE, Node, RealNode, node_address, prepare, wait_until
from precision_lab.nodes.support import missing
from precision_lab.processes.processes import ProcessError, Processes, launch

PROXY = "kube-proxy"
REPLAYED_GPU = Path(__file__).parent / "replayed_gpu"
REPLAYED_GPU_IN_PODS = "/opt/replayed-gpu"
AGENT_IN_IMAGE = "/opt/precision-agent"
VARIABLES = (f"PYTHONPATH={REPLAYED_GPU_IN_PODS}:{AGENT_IN_IMAGE}",)
"""Of every container with GPUs."""
READY_SECONDS = 60
FLEET = (RealNode("node-a"), RealNode("node-b"), RealNode("gpu-a", gpus=8, product="H100"))
"""Two plain nodes for operator and exporter, and one whose device plugin offers the eight GPUs of an H100 box."""
DEFAULTS = LabSettings()
IMPORT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class RealLab:
    """A running cluster with real nodes; it ends with its block."""

    lab: Lab
    outside: Processes
    """The processes that are not in the sandbox: what leads into it."""
    nodes: Mapping[str, Node]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.close()

    def forward(self, port: int) -> None:
        """Makes a loopback port of the sandbox reachable on the same port of this machine. Raises ProcessError."""
        _forward(self.outside, port)

    def import_images(self, archives: Mapping[str, Sequence[Path]]) -> None:
        """Gives running nodes more images: archives by the node's name. Raises ProcessError."""
        import_all({self.nodes[name]: paths for name, paths in archives.items()})

    def replay_options(self, *options: str) -> None:
        """Options (`--replay-scale=0.8`) of every agent that starts from now on."""
        (self.lab.run_dir / REPLAYED_GPU.name / "options").write_text("\n".join(options))

    @contextmanager
    def agents_run(self, code: str) -> Iterator[None]:
        """Agents on real nodes that start in this block run this Python program instead of measuring."""
        program = self.lab.run_dir / REPLAYED_GPU.name / "instead.py"
        program.write_text(code)
        try:
            yield
        finally:
            program.unlink()

    @contextmanager
    def node_grace(self, seconds: int) -> Iterator[None]:
        """In the block a node is NotReady when its kubelet has been silent for so many seconds."""
        self._restart_controller_manager(seconds)
        try:
            yield
        finally:
            self._restart_controller_manager(NODE_GRACE_SECONDS)

    def _restart_controller_manager(self, node_grace_seconds: int) -> None:
        self.lab.processes.stop("kube-controller-manager", signal.SIGKILL)
        start_controller_manager(self.lab.plane, self.lab.binaries, node_grace_seconds)

    def reboot(self, node: str) -> None:
        """Cuts a node's power and starts it again, with its device plugin; returns when the kubelet has started."""
        real_node = self.nodes[node]
        real_node.reboot()
        if real_node.spec.gpus:
            real_node.start_plugin(self._mounts, VARIABLES)

    def unhealthy_gpus(self, node: str, *devices: str) -> None:
        """Which GPUs (`GPU-0`) of a node its device plugin reports as unhealthy; none: all are healthy."""
        self.nodes[node].unhealthy.write_text("\n".join(devices))

    def start_plugin(self, node: str) -> None:
        """Starts a GPU node's device plugin; returns when all its GPUs are allocatable. Raises ProcessError."""
        self.nodes[node].start_plugin(self._mounts, VARIABLES)
        self._until_allocatable(node, self.nodes[node].spec.gpus, self.nodes[node].plugin)

    def stop_plugin(self, node: str) -> None:
        """Ends a GPU node's device plugin; returns when none of its GPUs is allocatable. Raises ProcessError."""
        self.lab.processes.stop(self.nodes[node].plugin)
        self._until_allocatable(node, 0, self.nodes[node].kubelet)

    def start_dra_driver(
        self, node: str, tainted: Sequence[str] = (), mounts: Sequence[str] = (), variables: Sequence[str] = ()
    ) -> None:
        """Starts a GPU node's DRA driver; returns when the node's GPUs are published. Raises ProcessError.

        The devices of these names (`gpu-3`) bear the taint of an XID error. Containers with a claim get these mounts
        and variables too.
        """
        real_node = self.nodes[node]
        assert real_node.spec.product, f"{node} has no GPUs"
        gpus = slices.whole_gpus(node_manifest(NodeSpec(real_node.spec.product, traits=("dra",)), node, 0))[
            : real_node.spec.gpus
        ]
        devices = [gpu | ({"taints": [slices.XID]} if gpu["name"] in tainted else {}) for gpu in gpus]
        self.lab.apply(*slices.device_classes())
        real_node.start_dra_driver(self.lab.kubeconfig, devices, [*self._mounts, *mounts], [*VARIABLES, *variables])
        wait_until(
            lambda: len(self.published(node)) == len(devices), self.lab.processes, real_node.dra_driver, READY_SECONDS
        )

    def stop_dra_driver(self, node: str) -> None:
        """Ends a node's DRA driver, and takes its slices away as the kubelet does half a minute later."""
        self.lab.processes.stop(self.nodes[node].dra_driver)
        self.lab.kubectl("delete", "resourceslices", f"--field-selector=spec.nodeName={node}")

    def published(self, node: str) -> list[Object]:
        """The devices in the ResourceSlices of a node."""
        slices = self.lab.get("resourceslices", f"--field-selector=spec.nodeName={node}")["items"]
        return [device for item in slices for device in item["spec"].get("devices", ())]

    @property
    def _mounts(self) -> list[str]:
        """What every container with GPUs gets, as NVIDIA's programs give it the driver's files."""
        return [f"{self.lab.run_dir / REPLAYED_GPU.name}:{REPLAYED_GPU_IN_PODS}"]

    def _until_allocatable(self, node: str, gpus: int, process: str) -> None:
        def offered() -> int:
            return int(_node(self.lab, node).get("status", {}).get("allocatable", {}).get(GPU_RESOURCE, 0))

        wait_until(lambda: offered() == gpus, self.lab.processes, process, READY_SECONDS)


def start_real_lab(
    images: Mapping[str, Sequence[Path]],
    fleet: Sequence[RealNode] = FLEET,
    specs: Sequence[NodeSpec] = (),
    settings: LabSettings = DEFAULTS,
) -> RealLab:
    """Starts a cluster whose real nodes are `fleet` and whose simulated ones are `specs`; returns when all are Ready.

    `images`: image archives by the name of the node that gets them. Raises ProcessError, with what this machine lacks
    where real nodes can't run here, BuildFailed, NoToolchain, ValueError.
    """
    lacking = missing()
    if lacking:
        raise ProcessError(" ".join(lacking))
    programs = binaries([*CLUSTER, *NODE])
    outside = launch(settings.name)
    try:
        addresses = [sandbox.ADDRESS, *(node_address(index) for index in range(len(fleet)))]
        inside = sandbox.open_sandbox(outside, [f"{address}/24" for address in addresses])
        plane, authority = new_control_plane(inside, sandbox.ADDRESS)
        _forward(outside, plane.port)
        lab = fill(plane, programs, specs, settings)
        nodes = {spec.name: Node(spec, index, inside, programs) for index, spec in enumerate(fleet)}
        _copy_replayed_gpu(inside.run_dir)
        pause = write_pause_archive(programs["pause"], inside.run_dir / "pause.tar")
        for node in nodes.values():
            prepare(node, plane, authority)
            node.start_containerd()
        import_all({node: [pause, *images.get(name, ())] for name, node in nodes.items()})
        for node in nodes.values():
            node.start_kubelet()
        _start_proxy(lab, programs[PROXY], fleet[0].name)
        real = RealLab(lab, outside, nodes)
        for node in nodes.values():
            _make_ready(real, node)
    except BaseException:
        outside.end()
        raise
    return real


def _forward(outside: Processes, port: int) -> None:
    name = f"forward-{port}"
    pid = sandbox.first_process(outside)
    outside.start(name, [sys.executable, "-m", "precision_lab.nodes.forward", str(pid), str(port)])


def _copy_replayed_gpu(run_dir: Path) -> None:
    """Pods mount the copy: the lab's own files stay out of containers."""
    target = run_dir / REPLAYED_GPU.name
    shutil.copytree(REPLAYED_GPU, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (target, *target.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _start_proxy(lab: Lab, program: Path, node: str) -> None:
    """One kube-proxy for all nodes, since all of them share the sandbox's network."""
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(lab.kubeconfig)},
        "hostnameOverride": node,
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "bindAddress": sandbox.ADDRESS,
    }
    path = lab.run_dir / f"{PROXY}.yaml"
    path.write_text(yaml.safe_dump(configuration))
    lab.processes.start(PROXY, [program, f"--config={path}"])


def _make_ready(real: RealLab, node: Node) -> None:
    """Waits until a node is Ready; a GPU node then has its labels, its taint and all its GPUs. Raises ProcessError."""
    lab = real.lab
    wait_until(lambda: is_so("Ready", _node(lab, node.name)), lab.processes, node.kubelet, READY_SECONDS)
    if not node.spec.gpus:
        return
    labels = gpu_labels(node.spec)
    lab.kubectl("label", "--overwrite", "node", node.name, *(f"{key}={value}" for key, value in labels.items()))
    lab.kubectl("taint", "--overwrite", "node", node.name, f"{GPU_RESOURCE}:NoSchedule")
    real.start_plugin(node.name)


def gpu_labels(spec: RealNode) -> dict[str, str]:
    """The labels that GPU feature discovery and the cloud give to such a node."""
    assert spec.product, f"{spec.name} has no GPUs"
    labels = node_manifest(NodeSpec(spec.product), spec.name, 0)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith(("nvidia.com/", "topology.kubernetes.io/"))}


def _node(lab: Lab, name: str) -> Object:
    nodes_of_name = lab.get("nodes", "--field-selector", f"metadata.name={name}")["items"]
    return nodes_of_name[0] if nodes_of_name else {}


def write_pause_archive(program: Path, archive: Path) -> Path:
    """A docker-archive of an image that holds `program` (linked statically) alone; returns `archive`."""
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": json.dumps(config).encode()}
    archive.write_bytes(_tar(files | {"manifest.json": json.dumps(manifest).encode()}))
    return archive


def import_all(archives: Mapping[Node, Sequence[Path]]) -> None:
    """Imports each node's archives, the nodes side by side. Raises ProcessError."""
    with ThreadPoolExecutor(max(1, len(archives))) as threads:
        for done in [threads.submit(_import, node, paths) for node, paths in archives.items()]:
            done.result()


def _import(node: Node, archives: Sequence[Path]) -> None:
    for archive in archives:
        command = node.ctr("images", "import", str(archive))
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=IMPORT_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise ProcessError(f"importing {archive.name} on {node.name} took over {late.timeout:.0f} s") from None
        if done.returncode != 0:
            raise ProcessError(f"importing {archive.name} on {node.name}: {done.stderr.strip()[-1000:]}")


def _tar(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
