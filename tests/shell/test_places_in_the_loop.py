"""What the loop adds to the plan's places: pods that are gone, nodes without room, and the moment to look again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from tests.support.node_objects import node_object
from tests.support.operator_in_memory import JOBS, PODS, OperatorInMemory


async def test_a_job_that_has_lost_its_pod_still_tells_who_took_it() -> None:
    loop = OperatorInMemory("n1")
    loop.apply("nightly")
    await loop.once()
    loop.run_agents()
    job = loop.jobs()["n1"]
    path = f"{PODS}/{job['metadata']['name']}-x"
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for team/a"}
    loop.cluster.objects[path]["status"]["conditions"] = [taken]
    await loop.gatherer.list_everything()
    loop.cache.drop("pods", loop.cluster.objects.pop(path)["metadata"]["uid"])
    now = format_time(datetime.now(UTC))
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": now}
    loop.cluster._store(f"{JOBS}/{job['metadata']['name']}", job | {"status": {"conditions": [failed]}})
    await loop.once()
    (report,) = [body for body in loop.cluster.objects.values() if body.get("kind") == "NodePrecisionReport"]
    attempt = report["status"]["attempt"]
    assert (attempt["outcome"], attempt["reason"]) == ("disrupted", "Preempted")
    assert "for team/a" in attempt["message"]


async def test_nodes_without_room_are_not_looked_at_again_in_each_pass() -> None:
    loop = OperatorInMemory()
    for name in ("n1", "n2"):
        node = node_object(name=name, allocatable={"cpu": "2", "nvidia.com/gpu": "8"})
        loop.cluster._store(f"{paths.NODES}/{name}", node)
    loop.apply("nightly")
    await loop.once()
    looks = looks_at_nodes(loop)
    assert looks == 2
    await loop.once()
    assert looks_at_nodes(loop) == looks
    assert {row["reason"]: row["count"] for row in loop.status("nightly")["reasons"]} == {"InsufficientCPU": 2}


def looks_at_nodes(loop: OperatorInMemory) -> int:
    return sum("spec.nodeName=" in path for _, path in loop.cluster.requests)


async def test_the_next_pass_is_due_when_an_agents_time_is_over() -> None:
    loop = OperatorInMemory("n1")
    loop.apply("nightly")
    await loop.once()
    loop.run_agents()
    (path,) = [path for path in loop.cluster.objects if path.startswith(f"{PODS}/")]
    began = datetime.now(UTC) - timedelta(seconds=1857)
    container = loop.cluster.objects[path]["status"]["containerStatuses"][0]
    container["state"] = {"running": {"startedAt": format_time(began)}}
    assert await loop.once() <= 3.0
