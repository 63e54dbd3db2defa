"""What real nodes of each product say of themselves: one row per machine, as GPU feature discovery labels it."""

from dataclasses import dataclass

from precision_api.facts.products import ProductClass


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of machine. `memory_mib` is of one GPU, as the driver reports it (nvidia.com/gpu.memory)."""

    product: ProductClass
    label: str
    """nvidia.com/gpu.product."""
    arch: str
    gpus: int
    memory_mib: int
    compute: tuple[int, int]
    family: str
    machine: str
    instance_type: str
    driver: str
    cpus: int
    host_memory_gib: int
    rack_nodes: int
    """Nodes in one rack; on Grace also the trays of one NVLink domain."""

    @property
    def is_grace(self) -> bool:
        """A superchip whose NVLink reaches beyond the node."""
        return self.arch == "arm64"


_ROWS = (
    Hardware(
        *("GB200", "NVIDIA-GB200", "arm64", 4, 189471, (10, 0), "blackwell"),
        *("GB200-NVL", "p6e-gb200.36xlarge", "580.126.20", 144, 960, 18),
    ),
    Hardware(
        *("GB300", "NVIDIA-GB300", "arm64", 4, 284208, (10, 3), "blackwell"),
        *("GB300-NVL", "p6e-gb300.36xlarge", "580.126.20", 144, 960, 18),
    ),
    Hardware(
        *("H100", "NVIDIA-H100-80GB-HBM3", "amd64", 8, 81559, (9, 0), "hopper"),
        *("PowerEdge-XE9680", "p5.48xlarge", "580.105.08", 192, 2048, 4),
    ),
    Hardware(
        *("H200", "NVIDIA-H200", "amd64", 8, 143771, (9, 0), "hopper"),
        *("PowerEdge-XE9680", "p5en.48xlarge", "580.105.08", 192, 2048, 4),
    ),
    Hardware(
        *("B200", "NVIDIA-B200", "amd64", 8, 183359, (10, 0), "blackwell"),
        *("DGXB200", "p6-b200.48xlarge", "580.105.08", 192, 2048, 4),
    ),
    Hardware(
        *("B300", "NVIDIA-B300-SXM6-AC", "amd64", 8, 275040, (10, 3), "blackwell"),
        *("DGXB300", "p6-b300.48xlarge", "580.126.20", 192, 2048, 4),
    ),
)
HARDWARE: dict[ProductClass, Hardware] = {row.product: row for row in _ROWS}
"""Labels and memory as seen on real nodes (NVIDIA/k8s-device-plugin #1501, AICR conformance evidence) or as nvidia-smi
prints them; host sizes are those of the cloud instance that the row names."""
