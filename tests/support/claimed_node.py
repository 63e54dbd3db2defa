"""The real GPU node as one whose GPUs come by resource claim: the device plugin is gone, a DRA driver is there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from precision_lab.nodes.node import Node
from tests.support.fake_nvml import compile_nvml
from tests.support.installed import GPU_NODE, TEAM, Installed, Object, command_of, processes_of

NVML_IN_PODS = "/opt/fake-nvml"
NVML_VARIABLES = (f"LD_LIBRARY_PATH={NVML_IN_PODS}", "FAKE_NVML_SCRIPT=/opt/claimed-gpus/gpus")
"""The fake NVML shows the GPUs that the DRA driver has handed over, and no others."""


@dataclass(frozen=True)
class Container:
    """What the kernel says of a running agent's program."""

    pid: int

    @classmethod
    def of(cls, pod: Object) -> "Container":
        """The program of an agent's pod."""
        pids = [pid for pid in processes_of(pod["metadata"]["uid"]) if "precision_agent" in " ".join(command_of(pid))]
        assert pids, pod["metadata"]["name"]
        return cls(pids[0])

    def gpus(self) -> set[str]:
        """Device nodes of GPUs, by name."""
        return {path.name for path in Path(f"/proc/{self.pid}/root/dev").glob("nvidia*")}

    def variable(self, name: str) -> str | None:
        pairs = Path(f"/proc/{self.pid}/environ").read_text().split("\0")
        return dict(pair.partition("=")[::2] for pair in pairs).get(name)

    def user(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("Uid:")).split()[1])

    def root_options(self) -> list[str]:
        """How its root is mounted: `ro` or `rw`, and more."""
        rows = [line.split() for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]
        return next(row[5].split(",") for row in rows if row[4] == "/")


@dataclass(frozen=True)
class ClaimedNode:
    """The node; its DRA driver runs."""

    installed: Installed
    tainted: Sequence[str]
    library: Path
    """The fake NVML's folder."""

    @property
    def node(self) -> Node:
        return self.installed.real.nodes[GPU_NODE]

    def start_driver(self) -> None:
        """Starts the DRA driver; returns when all GPUs are published."""
        mounts = [f"{self.library}:{NVML_IN_PODS}"]
        self.installed.real.start_dra_driver(GPU_NODE, self.tainted, mounts, NVML_VARIABLES)

    def stop_driver(self) -> None:
        """Ends the driver alone: what it has published stays for a while."""
        self.installed.lab.processes.stop(self.node.dra_driver)

    @contextmanager
    def fault(self, text: str) -> Iterator[None]:
        """The driver does this wrong in the block: `fail MESSAGE`, `add UUID` or `drop`."""
        self.node.claim_fault.write_text(text)
        try:
            yield
        finally:
            self.node.claim_fault.write_text("")

    def claims(self) -> list[Object]:
        found: list[Object] = self.installed.lab.get("resourceclaims", "--namespace", TEAM)["items"]
        return found

    def prepared(self) -> list[str]:
        """Names of what the driver has written for claims and not removed yet."""
        return sorted(path.name for path in (self.node.folder / "cdi").iterdir())


@contextmanager
def claimed_node(installed: Installed, folder: Path, tainted: Sequence[str] = ()) -> Iterator[ClaimedNode]:
    """The GPU node's device plugin makes room for a DRA driver for the length of the block.

    Devices named in `tainted` (`gpu-3`) bear the taint of an XID error; `folder` gets the fake NVML.
    """
    compile_nvml(folder)
    folder.chmod(0o755)  # the agent's user reads it
    found = ClaimedNode(installed, tainted, folder)
    installed.real.stop_plugin(GPU_NODE)
    try:
        found.start_driver()
        yield found
    finally:
        installed.real.stop_dra_driver(GPU_NODE)
        installed.real.start_plugin(GPU_NODE)
