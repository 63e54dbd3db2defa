"""Nodes that go away in the middle of a run, for good or to come back as another machine of the same name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from precision_api import names
from tests.support.eventually import eventually
from tests.support.history import created
from tests.support.site import Profile, Scene, node_uid, specs

pytestmark = pytest.mark.cluster

POD_SECONDS = 150
"""The cluster's own pod collector gives a node that is gone 40 s to come back, and looks every 20 s."""


@pytest.fixture(scope="module")
def lost(stage: Scene) -> tuple[Profile, str, str]:
    """A profile, and the name and UID of a node that was deleted while its agent ran."""
    node, *_ = stage.add_nodes(*specs(1, "agent-seconds:600"), *specs(2))
    uid = node_uid(stage, node)
    profile = stage.apply()
    eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in of_node(profile.pods(), uid)))
    stage.lab.delete_node(node)
    profile.completes()
    return profile, node, uid


def of_node(items: list[dict[str, Any]], uid: str) -> list[dict[str, Any]]:
    """Those that belong to the node of this UID."""
    return [item for item in items if item["metadata"]["labels"][names.LABEL_NODE_UID] == uid]


def test_the_run_on_a_deleted_node_is_closed_in_its_report(lost: tuple[Profile, str, str]) -> None:
    profile, node, uid = lost
    eventually(lambda: of_node(profile.reports(), uid)[0].get("status", {}).get("state") == "NodeGone")
    (report,) = of_node(profile.reports(), uid)
    attempt = report["status"]["attempt"]
    assert (attempt["outcome"], attempt["reason"]) == ("failed", "NodeLost")
    assert attempt["message"].startswith(f"Node {node} was deleted during the run.")
    fresh = {c["type"]: (c["status"], c["reason"]) for c in report["status"]["conditions"]}
    assert fresh == {"Fresh": ("False", "NodeGone"), "Succeeded": ("False", "NodeLost")}


def test_the_other_nodes_are_measured_and_the_lost_one_counts_no_longer(lost: tuple[Profile, str, str]) -> None:
    profile, _, _ = lost
    assert profile.condition(names.COMPLETE)["reason"] == "AllMeasured"
    assert (profile.counts()["matched"], profile.counts()["succeeded"]) == (2, 2)


def test_a_node_that_comes_back_under_the_same_name_is_measured_as_its_own(
    lost: tuple[Profile, str, str], stage: Scene
) -> None:
    profile, node, uid = lost
    stage.add_node_again(node)
    eventually(lambda: profile.counts()["succeeded"] == 3)
    by_uid = {r["spec"]["nodeUID"]: r for r in profile.reports() if r["spec"]["nodeName"] == node}
    assert by_uid.keys() == {uid, node_uid(stage, node)}
    assert by_uid[node_uid(stage, node)]["status"]["attempt"]["outcome"] == "succeeded"
    assert by_uid[uid]["status"]["state"] == "NodeGone"
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(profile.history(), "jobs"))
    assert set(jobs.values()) == {1}


def test_job_and_pod_of_a_deleted_node_go_away(lost: tuple[Profile, str, str]) -> None:
    profile, _, uid = lost
    assert of_node(profile.jobs(), uid) == []
    eventually(lambda: not of_node(profile.pods(), uid), POD_SECONDS)


def test_the_report_of_a_deleted_node_stays_for_the_retention_and_no_longer(scene: Scene) -> None:
    gone, stays = scene.add_nodes(*specs(2))
    profile = scene.apply(retention={"deletedNodes": "1s"})
    profile.completes()
    scene.lab.delete_node(gone)
    eventually(lambda: profile.report_of(gone).get("status", {}).get("state") in (None, "NodeGone"))

    def is_gone_after_another_pass() -> bool:
        scene.site.operator_has_looked()
        return not profile.report_of(gone)

    eventually(is_gone_after_another_pass)
    assert profile.report_of(stays)["status"]["state"] == "Measured"
    states = [
        change.object["status"]["state"]
        for change in profile.history()
        if change.kind == "reports" and change.object["spec"]["nodeName"] == gone and "status" in change.object
    ]
    assert states == ["Measured", "NodeGone", "NodeGone"]
