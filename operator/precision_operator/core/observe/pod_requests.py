"""What a pod asks of its node in CPU and memory, counted as the scheduler counts it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_operator.core.observe.raw_object import entries, millis, quantity, section


@dataclass(frozen=True)
class Requests:
    """CPU in thousandths, memory in bytes."""

    cpu_millis: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(self.cpu_millis + other.cpu_millis, self.memory_bytes + other.memory_bytes)

    def larger(self, other: "Requests") -> "Requests":
        return Requests(max(self.cpu_millis, other.cpu_millis), max(self.memory_bytes, other.memory_bytes))


NOTHING = Requests()


def pod_requests(spec: Mapping[str, Any]) -> Requests:
    """Requests of a pod's spec, with its overhead.

    Init containers run one after the other, before the containers: the largest of them counts if it is more than all
    containers together. Sidecars (init containers that restart) stay, and count with whatever comes after them. What
    the pod requests as a whole stands above its containers. Source: k8s.io/component-helpers resource.PodRequests.
    """
    together = sum((_of(container) for container in entries(spec, "containers")), NOTHING)
    sidecars, largest = NOTHING, NOTHING
    for container in entries(spec, "initContainers"):
        request = _of(container)
        if container.get("restartPolicy") == "Always":
            sidecars += request
            largest = largest.larger(sidecars)
        else:
            largest = largest.larger(sidecars + request)
    needed = (together + sidecars).larger(largest)
    whole = section(section(spec, "resources"), "requests")
    cpu, memory = millis(whole.get("cpu")), quantity(whole.get("memory"))
    stated = Requests(needed.cpu_millis if cpu is None else cpu, needed.memory_bytes if memory is None else memory)
    return stated + _read(section(spec, "overhead"))


def _of(container: Mapping[str, Any]) -> Requests:
    """A container's requests; its limit stands in for a request that is left out, as the API server fills it in."""
    resources = section(container, "resources")
    return _read({**section(resources, "limits"), **section(resources, "requests")})


def _read(resources: Mapping[str, Any]) -> Requests:
    return Requests(millis(resources.get("cpu")) or 0, quantity(resources.get("memory")) or 0)


def cpu_text(cpu_millis: int) -> str:
    """CPUs as people write them: 8, 1500m."""
    return str(cpu_millis // 1000) if cpu_millis % 1000 == 0 else f"{cpu_millis}m"


def memory_text(memory_bytes: int) -> str:
    """Memory in GiB, with one digit: 31.5Gi."""
    return f"{memory_bytes / 1024**3:.1f}Gi"
