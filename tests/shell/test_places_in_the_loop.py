"""What the loop adds to the plan: pods that are gone, nodes without room, the moment to look again, marks in turns."""

from datetime import UTC, datetime, timedelta

import pytest

from precision_api.facts import names
from precision_operator.cluster import paths
from precision_operator.core.admission.unhurried import UNHURRIED_A_PASS
from precision_operator.core.observe.clock import format_time
from precision_operator.shell.observing.gather import LOOKS_AT_ONCE
from tests.support.node_objects import node_object
from tests.support.operator_in_memory import JOBS, PODS, OperatorInMemory
from tests.support.report_objects import report_object


async def test_a_job_that_has_lost_its_pod_still_tells_who_took_it() -> None:
    loop = OperatorInMemory("n1")
    await loop.begin("nightly")
    loop.run_agents()
    job = loop.jobs()["n1"]
    path = f"{PODS}/{job['metadata']['name']}-x"
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for team/a"}
    loop.cluster.objects[path]["status"]["conditions"] = [taken]
    await loop.list_everything()
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
    await loop.begin("nightly")
    looks = looks_at_nodes(loop)
    assert looks == 2
    await loop.once()
    assert looks_at_nodes(loop) == looks
    assert {row["reason"]: row["count"] for row in loop.status("nightly")["reasons"]} == {"InsufficientCPU": 2}
    took = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}], "nodeName": "n1"}
    loop.cluster._store(f"{PODS}/x", {"metadata": {"name": "x", "namespace": "ml"}, "spec": took, "status": {}})
    await loop.begin("small", agent={"resources": {"cpu": "1"}}, rollout={"maxConcurrent": 2})
    assert (looks_at_nodes(loop), [*loop.jobs()]) == (looks + 2, ["n2"]), "where it has room it looks just before"
    assert (loop.status("small")["nodes"]["distinct"], "distinct" in loop.status("nightly")["nodes"]) == (0, False)


def looks_at_nodes(loop: OperatorInMemory) -> int:
    return sum("spec.nodeName=" in path for _, path in loop.cluster.requests)


async def test_the_next_pass_is_due_when_an_agents_time_is_over() -> None:
    loop = OperatorInMemory("n1")
    await loop.begin("nightly")
    loop.run_agents()
    (path,) = [path for path in loop.cluster.objects if path.startswith(f"{PODS}/")]
    began = datetime.now(UTC) - timedelta(seconds=1857)
    container = loop.cluster.objects[path]["status"]["containerStatuses"][0]
    container["state"] = {"running": {"startedAt": format_time(began)}}
    assert await loop.once() <= 3.0


async def test_thousands_of_marks_of_one_namespace_hold_up_no_start_of_another() -> None:
    loop = OperatorInMemory("n1", namespaces=("ml", "large"))
    loop.apply("nightly", "large", suspend=True)
    owner = {"kind": names.PROFILE_KIND, "name": "nightly", "uid": "uid-ml-nightly"}
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    for number in range(2 * UNHURRIED_A_PASS):
        raw = report_object(f"gone-{number}", namespace="large", ownerReferences=[owner], labels=labels)
        loop.cluster._store(f"{paths.reports('large')}/{raw['metadata']['name']}", raw)
    await loop.begin("own")
    assert list(loop.jobs()) == ["n1"]
    assert loop.condition("own", "Progressing")["status"] == "True"
    assert (marked(loop), loop.cache.changed.is_set()) == (UNHURRIED_A_PASS, True)
    await loop.once()
    assert marked(loop) == 2 * UNHURRIED_A_PASS


@pytest.mark.parametrize("of", ["unknown", "suspended", "active"])
async def test_jobs_that_a_tenant_makes_up_hold_up_no_start_and_tell_of_no_node(of: str) -> None:
    loop = OperatorInMemory("n1", namespaces=("ml", "large"))
    loop.apply("theirs", "large", suspend=of == "suspended", target={"nodeNames": ["none"]})
    uid = loop.cluster.objects[f"{paths.profiles('large')}/theirs"]["metadata"]["uid"] if of != "unknown" else "any"
    for number in range(2 * UNHURRIED_A_PASS):
        marks = {names.LABEL_APP: names.AGENT_APP, names.LABEL_PROFILE_UID: uid, names.LABEL_NODE_UID: f"none-{number}"}
        marks |= {names.LABEL_RUN: "r1", names.LABEL_ATTEMPT: "1"}
        told = {names.ANNOTATION_NODE: f"none-{number}", names.ANNOTATION_PROFILE: "theirs"}
        meta = {"name": f"j{number}", "namespace": "large", "uid": f"j{number}", "labels": marks, "annotations": told}
        raw = {"metadata": meta | {"creationTimestamp": loop.cluster.created}, "spec": {}, "status": {}}
        loop.cluster._store(f"{paths.jobs('large')}/j{number}", raw)
    await loop.begin("own")
    assert (list(loop.jobs()), len(loop.jobs("large"))) == (["n1"], UNHURRIED_A_PASS)
    assert loop.cache.changed.is_set()
    assert not [path for path in loop.cluster.objects if path.startswith(f"{paths.reports('large')}/")]


def marked(loop: OperatorInMemory) -> int:
    """How many reports say that their node is gone."""
    return sum(body.get("status", {}).get("state") == "NodeGone" for body in loop.cluster.objects.values())


async def test_few_idle_nodes_are_looked_at_before_their_turn_where_all_before_them_are_busy() -> None:
    busy, idle = [[f"{word}{at:02}" for at in range(40)] for word in ("busy", "idle")]
    loop = OperatorInMemory(*busy[:32], *idle)
    for name in busy[:32]:
        took = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}], "nodeName": name}
        pod = {"metadata": {"name": name, "namespace": "ml"}, "spec": took, "status": {}}
        loop.cluster._store(f"{PODS}/{name}", pod)
    await loop.begin("nightly", rollout={"maxConcurrent": 1})
    assert [*loop.jobs()] == idle[:1]
    assert 32 < looks_at_nodes(loop) <= 32 + 1 + LOOKS_AT_ONCE
