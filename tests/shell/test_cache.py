"""The operator's picture of the cluster: three writers, and no past state comes back."""

import json
from dataclasses import replace
from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.cluster.object_store import TOMBSTONES
from precision_operator.core.observe.kept_report import kept_report
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.views import job_view, pod_view, profile_view, report_view
from precision_operator.shell.observing.cache import TRIM, Cache, ObjectKind
from tests.support.acting import START
from tests.support.fake_cluster import agent_pod
from tests.support.node_objects import node_object
from tests.support.report_objects import profile_object, report_object


def seen(uid: str = "u1", version: int = 5, **status: Any) -> dict[str, Any]:
    meta = {"name": f"job-{uid}", "namespace": "ml", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "status": status}


def taken(cache: Cache) -> bool:
    """Whether anything changed since this was asked last."""
    changed = cache.changed.is_set()
    cache.changed.clear()
    return changed


def take_list(cache: Cache, items: list[dict[str, Any]], version: str) -> None:
    """A complete list of Jobs, as it comes: its objects, then its end."""
    for raw in items:
        cache.put("jobs", raw)
    cache.end_list("jobs", [raw["metadata"]["uid"] for raw in items], version)


def known(cache: Cache) -> frozenset[str]:
    return frozenset(cache.all("jobs"))


def test_what_changes_nothing_for_decisions_wakes_nobody() -> None:
    cache = Cache()
    cache.put("jobs", seen(version=1))
    assert taken(cache)
    cache.put("jobs", seen(version=2, startTime="2026-11-21T09:00:00Z"))
    assert not taken(cache)
    cache.put("jobs", seen(version=3, conditions=["x"]))
    assert taken(cache)
    cache = Cache()
    node = node_object(resourceVersion="1")
    cache.put("nodes", node)
    taken(cache)
    beat = node_object(resourceVersion="2")
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T09:05:00Z"
    beat["status"]["conditions"].append({"type": "DiskPressure", "status": "False"})
    cache.put("nodes", beat)
    assert not taken(cache)
    cache = Cache(("registry.example/",))
    names = ("registry.example/b:1", "docker.io/library/huge:9", "registry.example/a:1")
    cache.put("nodes", node_object(images=names, resourceVersion="1"))
    (node,) = cache.all("nodes").values()
    assert node_facts(node).images == ("registry.example/a:1", "registry.example/b:1")
    taken(cache)
    cache.put("nodes", node_object(images=names[::-1], resourceVersion="2"))
    assert not cache.changed.is_set()


def test_what_was_deleted_does_not_come_back_and_tombstones_are_bounded() -> None:
    cache = Cache()
    cache.put("jobs", seen(version=5))
    cache.drop("jobs", "u1")
    cache.put("jobs", seen(version=6))
    take_list(cache, [seen(version=6)], "6")
    assert known(cache) == frozenset()
    cache = Cache()
    cache.drop("jobs", "u1")
    assert not taken(cache)
    cache.put("jobs", seen())
    assert known(cache) == frozenset()
    cache = Cache()
    for number in range(TOMBSTONES + 1):
        cache.drop("jobs", f"u{number}")
    cache.put("jobs", seen("u0"))
    cache.put("jobs", seen("u1"))
    assert known(cache) == {"u0"}, "the oldest one is forgotten, and only that one"


def test_a_list_ends_what_it_does_not_show_and_leaves_what_came_after_it_was_read() -> None:
    cache = Cache()
    for uid, version in (("u1", 5), ("u2", 6), ("born-during-the-list", 9)):
        cache.put("jobs", seen(uid, version))
    take_list(cache, [seen("u2", 6)], "7")
    assert known(cache) == {"u2", "born-during-the-list"}, "it is newer than the list"


ENDED = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
JOB = START.job | {
    "metadata": START.job["metadata"]
    | {"uid": "u", "creationTimestamp": "2026-11-21T09:00:00Z", "managedFields": [{"manager": "x"}]},
    "status": {"conditions": [ENDED]},
}
POD = agent_pod(JOB, "Failed", {"waiting": {"reason": "ImagePullBackOff"}}, uid="u")
POD["status"] |= {
    "reason": "Evicted",
    "message": "Usage of EmptyDir volume exceeds the limit.",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}],
    "podIP": "10.0.0.1",
}
REPORT = report_object(ownerReferences=[{"kind": "PrecisionProfile", "uid": "p"}])
VIEWS: dict[ObjectKind, tuple[Any, dict[str, Any]]] = {
    "nodes": (
        node_facts,
        node_object(taints=[{"key": "k", "effect": "NoSchedule"}], ready="False", unschedulable=True, images=()),
    ),
    "profiles": (profile_view, profile_object(generation=3, creationTimestamp="2026-11-21T09:00:00Z")),
    "reports": (lambda raw: report_view(raw) if isinstance(raw, dict) else raw, REPORT),
    "jobs": (job_view, JOB),
    "pods": (pod_view, POD),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_trimming_takes_nothing_that_a_decision_reads(kind: ObjectKind) -> None:
    view, raw = VIEWS[kind]
    assert view(TRIM[kind](raw)) == view(raw)
    assert view(raw) is not None


def test_of_a_report_that_can_be_read_what_was_read_is_all_that_is_kept_and_a_version_is_read_once() -> None:
    cache = Cache()
    for raw in (REPORT, REPORT | {"status": {}}):
        cache.put("reports", raw)
    (kept,) = cache.all("reports").values()
    read = report_view(REPORT)
    assert read is not None
    assert kept == replace(read, status=kept_report(read.status or ReportStatus()))


def test_texts_that_objects_share_are_held_once() -> None:
    cache = Cache()
    for name in ("n1", "n2"):
        cache.put("nodes", json.loads(json.dumps(node_object({"example.com/pool": "a pool"}, name=name))))
    first, second = (node["metadata"]["labels"] for node in cache.all("nodes").values())
    assert first["example.com/pool"] is second["example.com/pool"]
    facts = node_facts(cache.all("nodes")["uid-n1"])
    assert facts.labels is first, "nor does what is read of a node hold its labels twice"
