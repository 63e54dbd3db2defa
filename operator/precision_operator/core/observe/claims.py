"""Which GPUs a pod holds by resource claim: named in the pod's status, told by the claim's allocation."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from precision_api.facts.names import GPU_RESOURCE
from precision_operator.core.observe.gpu_slices import DRA_DRIVER
from precision_operator.core.observe.raw_object import entries, mapping, section

_PARTITION = re.compile(r"(.+?)-mig-.+")
"""How NVIDIA's DRA driver names a MIG slice: gpu-0-mig-1g10gb-19-0."""

Device = tuple[str, str]
"""Pool and device."""
PodsClaim = tuple[str, str, str]
"""UID of a pod, and namespace and name of its claim: another pod's may be one that was made since under that name."""
Claims = Mapping[PodsClaim, frozenset[Device] | None]
"""GPUs that a pod has by a claim; None: it could not be read."""


def claim_names(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the ResourceClaims of a pod, those that were made for an extended resource included."""
    status = section(pod, "status")
    made = {str(item.get("name")): item.get("resourceClaimName") for item in entries(status, "resourceClaimStatuses")}
    asked = entries(section(pod, "spec"), "resourceClaims")
    named = [item.get("resourceClaimName") or made.get(str(item.get("name"))) for item in asked]
    mapped = section(status, "extendedResourceClaimStatus").get("resourceClaimName")
    return tuple(dict.fromkeys(str(name) for name in (*named, mapped) if name))


def claim_keys(pod: Mapping[str, Any]) -> list[PodsClaim]:
    """Each of these as a claim of this pod."""
    meta = section(pod, "metadata")
    return [(str(meta.get("uid")), str(meta.get("namespace")), name) for name in claim_names(pod)]


def are_created(pod: Mapping[str, Any]) -> bool:
    """Whether each claim that a pod asks for is there."""
    wanted = entries(section(pod, "spec"), "resourceClaims")
    return bool(wanted) and len(claim_names(pod)) >= len(wanted)


def is_mapped(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler has made a claim of the pod's request for nvidia.com/gpu: the two are one."""
    extended = section(section(pod, "status"), "extendedResourceClaimStatus")
    return any(item.get("resourceName") == GPU_RESOURCE for item in entries(extended, "requestMappings"))


def pods_of(claim: Mapping[str, Any]) -> frozenset[str]:
    """UIDs of the pods that a ResourceClaim is reserved for; none where it is not allocated."""
    status = section(claim, "status")
    consumers = entries(status, "reservedFor") if section(status, "allocation") else ()
    return frozenset(str(row.get("uid")) for row in consumers)


def claimed_gpus(claim: Mapping[str, Any], node: str | None = None) -> frozenset[Device]:
    """The GPUs that a ResourceClaim is allocated, on `node` where one is named; a MIG slice as its GPU.

    Admin access looks at a GPU without having it. Other drivers' devices (NICs, NVLink channels) are no GPUs.
    """
    allocation = section(section(claim, "status"), "allocation")
    terms = entries(mapping(allocation.get("nodeSelector")), "nodeSelectorTerms")
    values = [row.get("values") for term in terms for row in entries(term, "matchFields")]
    elsewhere = node is not None and values and not any(isinstance(names, list) and node in names for names in values)
    return frozenset(() if elsewhere else _allocated(mapping(allocation.get("devices"))))


def _allocated(devices: Mapping[str, Any]) -> Iterator[Device]:
    for item in entries(devices, "results"):
        if item.get("driver") == DRA_DRIVER and item.get("adminAccess") is not True:
            name = str(item.get("device") or "")
            part = _PARTITION.fullmatch(name)
            yield str(item.get("pool") or ""), part[1] if part else name
