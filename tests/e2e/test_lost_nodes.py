"""Nodes that go away in the middle of a run, for good or to come back as another machine of the same name."""

from collections import Counter
from dataclasses import dataclass

import pytest

from precision_api.facts import names
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, node_uid, specs

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Loss:
    """A profile over three nodes, of which one was deleted while its agent ran; the other two are measured."""

    profile: Profile
    node: str
    uid: str

    def mine(self, items: list[Object]) -> list[Object]:
        """Those that belong to the lost node, not to another one of its name."""
        return [item for item in items if item["metadata"]["labels"][names.LABEL_NODE_UID] == self.uid]


def lose_a_node(scene: Scene) -> Loss:
    """Loses a node in the middle of its run; returns when the profile is complete without it."""
    node, *_ = scene.add_nodes(*specs(1, "agent-seconds:600"), *specs(2))
    profile = scene.apply()
    loss = Loss(profile, node, node_uid(scene, node))
    eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in loss.mine(profile.pods())))
    scene.lab.delete_node(node)
    profile.completes()
    return loss


@pytest.fixture(scope="module")
def deserted(stage: Scene) -> Loss:
    """A node that was deleted for good while its agent ran.

    One for all tests, because the cluster's own pod collector takes a minute: it gives such a node 40 s to come back
    and looks every 20 s. It ends with them: nodes that stay measured are compared with those of other tests.
    """
    return lose_a_node(stage)


COLLECTOR_SECONDS = 150
"""More than twice what the cluster's pod collector needs to take the pods of a node that is gone."""


def test_the_run_on_a_deleted_node_is_closed_in_its_report(deserted: Loss) -> None:
    profile = deserted.profile
    eventually(lambda: deserted.mine(profile.reports())[0].get("status", {}).get("state") == "NodeGone")
    (report,) = deserted.mine(profile.reports())
    attempt = report["status"]["attempt"]
    assert (attempt["outcome"], attempt["reason"]) == ("disrupted", "NodeLost")
    assert attempt["message"].startswith(f"Node {deserted.node} was deleted during the run.")
    told = {c["type"]: (c["status"], c["reason"]) for c in report["status"]["conditions"]}
    assert told == {"Fresh": ("False", "NodeGone"), "Succeeded": ("False", "NodeLost")}


def test_the_other_nodes_are_measured_and_a_lost_one_counts_no_longer(deserted: Loss) -> None:
    assert deserted.profile.condition(names.COMPLETE)["reason"] == "AllMeasured"
    counts = deserted.profile.counts()
    assert (counts["matched"], counts["succeeded"], counts["failed"]) == (2, 2, 0)


def test_job_and_pod_of_a_node_that_is_gone_for_good_go_away(deserted: Loss) -> None:
    assert deserted.mine(deserted.profile.jobs()) == []
    eventually(lambda: not deserted.mine(deserted.profile.pods()), COLLECTOR_SECONDS)


def test_a_node_that_comes_back_under_the_same_name_is_measured_as_its_own(scene: Scene) -> None:
    loss = lose_a_node(scene)
    profile, node = loss.profile, loss.node
    scene.add_node_again(node)
    eventually(lambda: profile.counts()["succeeded"] == 3)
    assert loss.mine(profile.pods()) == []
    reports = {r["spec"]["nodeUID"]: r["status"] for r in profile.reports() if r["spec"]["nodeName"] == node}
    assert reports.keys() == {loss.uid, node_uid(scene, node)}
    assert reports[node_uid(scene, node)]["attempt"]["outcome"] == "succeeded"
    assert reports[loss.uid]["state"] == "NodeGone"
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(profile.history(), "jobs"))
    assert set(jobs.values()) == {1}


def test_the_report_of_a_deleted_node_stays_for_the_retention_and_no_longer(scene: Scene) -> None:
    gone, stays = scene.add_nodes(*specs(2))
    profile = scene.completed(retention={"deletedNodes": "1s"})
    scene.lab.delete_node(gone)

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
