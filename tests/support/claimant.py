"""Pods of others that ask for GPUs by claim, as a training job does."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from precision_api.facts.names import GPU_RESOURCE
from precision_lab.fleet.slices import GPU_DRIVER
from tests.support.history import Object
from tests.support.site import Site

RESOURCE, PODS = "/apis/resource.k8s.io/v1", "/api/v1/namespaces/default/pods"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNS = "Running"
_numbers = count(1)


def gpus(number: int, **more: Any) -> Object:
    return {"allocationMode": "ExactCount", "count": number} | more


def asked(site: Site, nodes: str | list[str], asks: Object | int, priority: str = "", **more: Any) -> str:
    """Creates a pod that may run on these nodes; a number is one of nvidia.com/gpu. Returns its name."""
    name = f"asks-{next(_numbers)}"
    container: Object = {"name": "work", "image": "registry.example/work:1"}
    values = [nodes] if isinstance(nodes, str) else nodes
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec: Object = {
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "containers": [container],
        **({"priorityClassName": priority} if priority else {}),
        **more,
    }
    if isinstance(asks, int):
        container["resources"] = {"limits": {GPU_RESOURCE: str(asks)}}
    else:
        exactly = {"deviceClassName": GPU_DRIVER} | asks
        wanted = {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        site.api.ask("POST", TEMPLATES, {**kind, "metadata": {"name": name}, "spec": wanted})
        container["resources"] = {"claims": [{"name": "gpus"}]}
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": name}]
    site.api.ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    return name


def said_of(site: Site, pod: str) -> str:
    """The message of a pod's condition PodScheduled; Running where it runs."""
    status = site.get(f"{PODS}/{pod}").get("status", {})
    if status.get("phase") == RUNS:
        return RUNS
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    return str(conditions.get("PodScheduled", {}).get("message", ""))


def runs(site: Site, pod: str) -> bool:
    return bool(site.get(f"{PODS}/{pod}").get("status", {}).get("phase") == RUNS)


def gone(site: Site, *pods: str) -> None:
    """Deletes such pods, with their templates."""
    for name in pods:
        site.api.call("DELETE", f"{PODS}/{name}")
        site.api.call("DELETE", f"{TEMPLATES}/{name}")


@contextmanager
def priority_class(site: Site, name: str, value: int = 1000) -> Iterator[str]:
    site.api.ask("POST", PRIORITIES, {"metadata": {"name": name}, "value": value})
    try:
        yield name
    finally:
        site.api.call("DELETE", f"{PRIORITIES}/{name}")
