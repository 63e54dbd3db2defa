"""What a node's labels and resources say about its GPUs: name, driver, MIG, sharing.

Each function reads what one thing looks like on real clusters and gives a value, or a text that tells why, for people;
None means "nothing says so". Labels may hold anything: nothing here raises on a value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from precision_api.facts.names import DEFAULT_POOL_LABEL, GPU_RESOURCE
from precision_api.facts.products import ProductClass, is_mig_name, is_shared_name
from precision_operator.core.observe.gpu_slices import DRA_DRIVER, PublishedGpus

PRODUCT_LABELS = (
    DEFAULT_POOL_LABEL,
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Where the GPU's name stands, most exact first. CoreWeave writes an empty model on nodes without GPUs."""

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_COUNT_LABELS = ("nvidia.com/gpu.count", "gpu.nvidia.com/count", "karpenter.k8s.aws/instance-gpu-count")
_DRIVER_PARTS = (
    [f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")],
    [f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev")],
)
MIG_CONFIG = "nvidia.com/mig.config="
_MIG_OFF = ("", "all-disabled")
_PCI_NVIDIA = re.compile(r"feature\.node\.kubernetes\.io/pci-(.+_)?10de(_.+)?\.present")


def first_label(labels: Mapping[str, str], keys: Iterable[str]) -> str | None:
    return next((labels[key].strip() for key in keys if labels.get(key, "").strip()), None)


def whole_number(text: str | None) -> int | None:
    """`text` as a number of at most 18 digits; None when it is anything else."""
    text = (text or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else None


def gpu_count(labels: Mapping[str, str]) -> int | None:
    """How many devices the labels speak of: GPUs, or slices of them where MIG is on."""
    return whole_number(first_label(labels, _COUNT_LABELS))


def driver(labels: Mapping[str, str]) -> str | None:
    """The driver's version; older GPU feature discovery writes it in three labels, of which the last may be empty."""
    if full := first_label(labels, ("nvidia.com/cuda.driver-version.full",)):
        return full
    for keys in _DRIVER_PARTS:
        major, minor, revision = (labels.get(key, "").strip() for key in keys)
        if major:
            return ".".join(item for item in (major, minor, revision) if item)
    return None


RACK_LABEL = "topology.kubernetes.io/rack"
DOMAIN_LABELS = ("topology.nks.nscale.com/accelerator-domain", "ds.coreweave.com/nvlink.domain")
"""Labels by which clouds name the NVLink domain where GPU feature discovery does not."""


def clique(labels: Mapping[str, str], more: Sequence[str] = ()) -> str | None:
    """The NVLink domain: of GPU feature discovery, of a cloud's label, or of one of `more`.

    An all-zero cluster UUID is what a GPU outside any domain reports.
    """
    value = labels.get("nvidia.com/gpu.clique", "").strip()
    return value if value.rpartition(".")[0].strip("0-") else first_label(labels, (*DOMAIN_LABELS, *more))


def mig(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> str | None:
    """Why this is MIG. mig.capable and mig.strategy say nothing: they are set on whole GPUs too."""
    slices = {key: number for key, number in allocatable.items() if key.startswith("nvidia.com/mig-") and number}
    if slices:
        return f"it offers {', '.join(f'{key}: {number}' for key, number in sorted(slices.items()))}"
    for key in PRODUCT_LABELS:
        if is_mig_name(labels.get(key, "")):
            return f"label {key}={labels[key]}"
    for key, value in labels.items():
        if key.startswith("nvidia.com/mig-") and key.endswith(".count") and whole_number(value):
            return f"label {key}={value}"
    config = labels.get("nvidia.com/mig.config", "").strip()
    if config not in _MIG_OFF and labels.get("nvidia.com/mig.capable") != "false":
        return f"label {MIG_CONFIG}{config}"
    if partition := labels.get("cloud.google.com/gke-gpu-partition-size", "").strip():
        return f"label cloud.google.com/gke-gpu-partition-size={partition}"
    return None


def mig_changing(labels: Mapping[str, str]) -> str | None:
    """Why MIG is being switched off at this moment (switched on, it is MIG already for our purpose)."""
    state = labels.get("nvidia.com/mig.config.state", "")
    switching_off = labels.get("nvidia.com/mig.config") in _MIG_OFF and state in ("pending", "rebooting")
    return f"label nvidia.com/mig.config.state={state}" if switching_off else None


def sharing(labels: Mapping[str, str], gpus: int) -> str | None:
    """Why one of the `gpus` allocatable is not one whole GPU. gpu.replicas=1 is no sharing."""
    for key in ("nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy"):
        if labels.get(key, "").strip().lower() not in ("", "none", "false", "disabled"):
            return f"label {key}={labels[key]}"
    if (whole_number(labels.get("nvidia.com/gpu.replicas")) or 1) > 1:
        return f"label nvidia.com/gpu.replicas={labels['nvidia.com/gpu.replicas']}"
    for key in PRODUCT_LABELS:
        if is_shared_name(labels.get(key, "")):
            return f"label {key}={labels[key]}"
    if labels.get("nvidia.com/vgpu.present") == "true":
        return "label nvidia.com/vgpu.present=true: its GPUs are virtual"
    counted = gpu_count(labels)
    # Some device plugins (HAMi) multiply nvidia.com/gpu and set no sharing label.
    if counted and gpus > counted:
        return f"{gpus} allocatable {GPU_RESOURCE}, but only {counted} GPUs"
    return None


def renamed(allocatable: Mapping[str, int]) -> str | None:
    """The shared resource that replaces nvidia.com/gpu. A zero is what the kubelet keeps after sharing was ended."""
    shared = ((key, number) for key, number in allocatable.items() if re.fullmatch(r"nvidia\.com/.*\.shared", key))
    return next((f"{key}: {number}" for key, number in sorted(shared) if number), None)


def evidence(
    labels: Mapping[str, str],
    capacity: Mapping[str, int],
    product: ProductClass | None,
    published: PublishedGpus | None,
) -> str | None:
    """What shows that NVIDIA GPUs are here, whether they are counted or not."""
    if number := capacity.get(GPU_RESOURCE):
        return f"capacity {GPU_RESOURCE}: {number}"
    if published is not None:
        return f"{len(published.gpus)} GPUs in ResourceSlices of {DRA_DRIVER}"
    for key in PRODUCT_LABELS:
        if labels.get(key, "").strip():
            return f"label {key}={labels[key]}"
    pci = [key for key, value in labels.items() if "10de" in key and value == "true" and _PCI_NVIDIA.fullmatch(key)]
    for key in ("nvidia.com/gpu.present", "nvidia.com/gpu.clique", "kubernetes.azure.com/accelerator", *pci):
        if labels.get(key, "").strip() not in ("", "false"):
            return f"label {key}={labels[key]}"
    return f"instance type {labels[INSTANCE_TYPE]}" if product else None
