"""What the scheduler counts of a pod, in the cases that its own tests have."""

from typing import Any

import pytest

from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.observe.pod_requests import Requests, cpu_text, memory_text, pod_requests
from precision_operator.core.observe.views import occupancy
from tests.support.golden import beside

TABLES = beside(__file__)

GIB = 1024**3


def asks(cpu: str, memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}} | more


@pytest.mark.parametrize(("spec", "cpu_and_gib"), TABLES["requests"].values(), ids=TABLES["requests"])
def test_a_pod_requests(spec: dict[str, Any], cpu_and_gib: list[int]) -> None:
    cpu, gib = cpu_and_gib or (0, 0)
    assert pod_requests({"spec": spec}) == Requests(cpu, gib * GIB)


@pytest.mark.parametrize(("asked", "has", "reason", "millis"), TABLES["resized"].values(), ids=TABLES["resized"])
def test_a_pod_that_is_resized_counts_with_what_the_scheduler_counts(
    asked: str, has: str | None, reason: str, millis: int
) -> None:
    """What a container asks for; what its kubelet says that it has (None: an old one says nothing), and of a resize."""
    kept = {"allocatedResources": {"cpu": has}, "resources": {"requests": {"cpu": has}}} if has else {}
    status = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}
    for containers, statuses in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        spec = {containers: [asks(asked, name="c", restartPolicy="Always")]}
        pod = {"spec": spec, "status": status | {statuses: [{"name": "c"} | kept]}}
        assert pod_requests(pod).cpu_millis == millis


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
