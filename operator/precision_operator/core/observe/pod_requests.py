"""What a pod asks of its node in CPU and memory, counted as the scheduler counts it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from precision_operator.core.observe.raw_object import condition_of, entries, millis, quantity, section


@dataclass(frozen=True)
class Requests:
    """CPU in thousandths, memory in bytes."""

    cpu_millis: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(self.cpu_millis + other.cpu_millis, self.memory_bytes + other.memory_bytes)


NOTHING = Requests()


def needed(spec: Mapping[str, Any], of: Callable[[Mapping[str, Any]], Counter[str]]) -> Counter[str]:
    """What a pod's containers need at once by resource, from what `of` says of each.

    Init containers run one after the other, before the containers: the largest of them counts if it is more than all
    containers together. Sidecars (init containers that restart) stay, and count with whatever comes after them.
    """
    together = sum((of(container) for container in entries(spec, "containers")), Counter[str]())
    sidecars, largest = Counter[str](), Counter[str]()
    for container in entries(spec, "initContainers"):
        request = of(container)
        if container.get("restartPolicy") == "Always":
            sidecars += request
            largest |= sidecars
        else:
            largest |= sidecars + request
    return (together + sidecars) | largest


def pod_requests(pod: Mapping[str, Any]) -> Requests:
    """Requests of a pod, with its overhead; what the pod requests as a whole stands above its containers.

    A limit stands in for a request that is left out, as the API server fills it in. A container that is resized counts
    with the larger of what it asks for and what it has; where its node can never give more, with what it has.
    Source: k8s.io/component-helpers resource.PodRequests, with UseStatusResources.
    """
    spec, status = section(pod, "spec"), section(pod, "status")
    rows = entries(status, "containerStatuses") + entries(status, "initContainerStatuses")
    kept = {row.get("name"): row for row in rows if "resources" in row}
    is_infeasible = condition_of(status, "PodResizePending").get("reason") == "Infeasible"

    def of(container: Mapping[str, Any]) -> Counter[str]:
        resources, row = section(container, "resources"), kept.get(container.get("name"))
        asked = _read({**section(resources, "limits"), **section(resources, "requests")})
        if row is None:
            return asked
        has = _read(section(section(row, "resources"), "requests")) | _read(section(row, "allocatedResources"))
        return has if is_infeasible else has | asked

    whole, overhead = section(section(spec, "resources"), "requests"), _read(section(spec, "overhead"))
    total, cpu, memory = needed(spec, of), millis(whole.get("cpu")), quantity(whole.get("memory"))
    cpu, memory = (total["cpu"] if cpu is None else cpu), (total["memory"] if memory is None else memory)
    return Requests(cpu + overhead["cpu"], memory + overhead["memory"])


def _read(resources: Mapping[str, Any]) -> Counter[str]:
    return Counter(cpu=millis(resources.get("cpu")) or 0, memory=quantity(resources.get("memory")) or 0)


def cpu_text(cpu_millis: int) -> str:
    """CPUs as people write them: 8, 1500m."""
    return str(cpu_millis // 1000) if cpu_millis % 1000 == 0 else f"{cpu_millis}m"


def memory_text(memory_bytes: int) -> str:
    """Memory in GiB, with one digit: 31.5Gi."""
    return f"{memory_bytes / 1024**3:.1f}Gi"
