"""What the scheduler counts of a pod, in the cases that its own tests have."""

from typing import Any

import pytest

from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.observe.pod_requests import Requests, cpu_text, memory_text, pod_requests
from precision_operator.core.observe.views import occupancy

GIB = 1024**3


def asks(cpu: str, memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}} | more


CASES: dict[str, tuple[dict[str, Any], Requests]] = {
    "nothing": ({"containers": [{}]}, Requests()),
    "containers add up": ({"containers": [asks("1", "1Gi"), asks("500m", "1Gi")]}, Requests(1500, 2 * GIB)),
    "the largest init container": (
        {"containers": [asks("1", "4Gi")], "initContainers": [asks("3", "1Gi"), asks("2", "8Gi")]},
        Requests(3000, 8 * GIB),
    ),
    "init containers that ask for less": (
        {"containers": [asks("4", "4Gi")], "initContainers": [asks("3", "1Gi")]},
        Requests(4000, 4 * GIB),
    ),
    "a sidecar stays beside the containers": (
        {"containers": [asks("2", "2Gi")], "initContainers": [asks("1", "1Gi", restartPolicy="Always")]},
        Requests(3000, 3 * GIB),
    ),
    "a sidecar counts with the init containers after it, not with those before it": (
        {"containers": [asks("1")], "initContainers": [asks("5"), asks("2", restartPolicy="Always"), asks("4")]},
        Requests(6000, 0),
    ),
    "overhead comes on top": (
        {"containers": [asks("1", "1Gi")], "overhead": {"cpu": "250m", "memory": "1Gi"}},
        Requests(1250, 2 * GIB),
    ),
    "a limit stands in for a request": (
        {"containers": [{"resources": {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "1"}}}]},
        Requests(1000, 2 * GIB),
    ),
    "what the pod requests as a whole": (
        {"containers": [asks("1", "1Gi")], "resources": {"requests": {"cpu": "3"}}},
        Requests(3000, GIB),
    ),
    "fractions are rounded up": ({"containers": [asks("0.0001")]}, Requests(1, 0)),
    "junk": ({"containers": [{"resources": {"requests": {"cpu": "many", "memory": None}}}, None]}, Requests()),
}


@pytest.mark.parametrize(("spec", "requests"), CASES.values(), ids=CASES)
def test_a_pod_requests(spec: dict[str, Any], requests: Requests) -> None:
    assert pod_requests(spec) == requests


def test_a_look_at_a_node_adds_up_requests_and_figures_are_as_people_write_them() -> None:
    pods = [
        {
            "metadata": {"namespace": "a", "name": phase},
            "spec": {"containers": [asks("2", "1Gi")]},
            "status": {"phase": phase},
        }
        for phase in ("Running", "Pending", "Succeeded", "Failed")
    ]
    assert occupancy(pods) == Occupancy(None, 0, Requests(4000, 2 * GIB))
    assert [cpu_text(millis) for millis in (8000, 1500, 0)] == ["8", "1500m", "0"]
    assert [memory_text(size) for size in (32 * GIB, GIB // 2)] == ["32.0Gi", "0.5Gi"]
