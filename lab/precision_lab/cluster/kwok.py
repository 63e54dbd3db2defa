"""kwok: keeps the simulated nodes Ready and plays every pod on them that is not an agent."""

from collections.abc import Mapping
from pathlib import Path

from precision_api.facts.names import KWOK_NODE
from precision_lab.cluster.control_plane import ControlPlane
from precision_lab.processes.ports import free_ports

STAGES = Path(__file__).parent / "stages"
LEASE_SECONDS = 200
"""Well inside the controller manager's grace (300 s), and rare enough for 10,000 nodes."""


def start_kwok(plane: ControlPlane, programs: Mapping[str, Path], log_port: int) -> None:
    """Starts kwok. Every node will say that its kubelet listens on 127.0.0.1:`log_port`: there the API server asks for
    pod logs, and there the stand-in answers."""
    (own_port,) = free_ports(1)
    flags = [
        f"--kubeconfig={plane.kubeconfig}",
        f"--manage-nodes-with-annotation-selector={KWOK_NODE}=fake",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        "--node-ip=127.0.0.1",
        f"--node-port={log_port}",
        "--v=WARN",
        f"--server-address=127.0.0.1:{own_port}",
        *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
    ]
    # The user's own ~/.kwok/kwok.yaml would come first: this cluster has its home elsewhere.
    plane.processes.start("kwok", [programs["kwok"], *flags], env={"HOME": str(plane.run_dir)}, grace_seconds=1.0)
