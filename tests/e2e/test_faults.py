"""Whatever an agent leaves behind becomes a result or a named reason, and the operator goes on with the others.

What only the operator can know to be wrong is a condition with a next step, and goes away with its cause.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.core.reasons import REASONS
from tests.support.eventually import eventually
from tests.support.golden import beside
from tests.support.history import created
from tests.support.site import MARK, Profile, Scene, specs

TABLES = beside(__file__)

pytestmark = pytest.mark.cluster
LLAMA = TABLES["llama"]


@dataclass(frozen=True)
class Case:
    """A fault of the lab's table, and what its node's report must say."""

    fault: str
    reason: str = ""
    """Of a failed attempt; empty: there is a result."""
    detail: str = "whole"
    """How a result without its full text is marked."""
    says: str = ""
    """Words of the message."""
    log: str = ""
    """Words of the log's end that a failed attempt keeps."""


CASES = (
    Case(""),
    # There is no result.
    Case("crash", "AgentCrashed", says="exit code 139", log="Fatal Python error: Segmentation fault"),
    Case("exit:14", "AgentRefused", says="GPUBusy"),
    Case("garbage-message", "ResultForeign", says="not JSON"),
    # There is a summary, and the full result is lost.
    Case("no-log", detail="LogUnavailable: The agent's log could not be read"),
    Case("log-without-end", detail="ResultTruncated"),
    # The log is a mess, and the full result is in it.
    Case("noisy-log"),
)
RESULTS = [case for case in CASES if not case.reason]


@pytest.fixture(scope="module")
def story(stage: Scene) -> tuple[Profile, dict[str, str]]:
    """A profile over one node for each fault, all done; and the nodes' names by fault."""
    made = [NodeSpec("GB300", traits=(f"fault:{case.fault}",) if case.fault else ()) for case in CASES]
    nodes = dict(zip((case.fault for case in CASES), stage.add_nodes(*made), strict=True))
    profile = stage.apply(recipes=[], workload={"preset": "llama3-8b"})
    profile.completes(240)
    return profile, nodes


def name_of(case: Case) -> str:
    return case.fault or "none"


@pytest.mark.parametrize("case", [case for case in CASES if case.reason], ids=name_of)
def test_an_agent_without_a_result_is_a_reason_in_the_report(case: Case, story: tuple[Profile, dict[str, str]]) -> None:
    profile, nodes = story
    status = profile.report_of(nodes[case.fault])["status"]
    assert (status["attempt"]["outcome"], status["attempt"]["reason"]) == ("failed", case.reason)
    assert case.says in status["attempt"]["message"]
    assert case.log in status["attempt"]["log"]
    assert "PPR1" not in status["attempt"]["log"]
    assert "run" not in status
    assert status["state"] == "Failed"


@pytest.mark.parametrize("case", RESULTS, ids=name_of)
def test_an_agent_with_a_summary_is_a_result_that_says_whether_it_is_whole(
    case: Case, story: tuple[Profile, dict[str, str]]
) -> None:
    profile, nodes = story
    report = profile.report_of(nodes[case.fault])
    run = report["status"]["run"]
    details = {item["metadata"]["name"] for item in profile.details()}
    assert report["status"]["attempt"]["outcome"] == "succeeded"
    if case.detail == "whole":
        assert run["detail"] in details
        assert "detailProblem" not in run
    else:
        assert "detail" not in run
        assert run["detailProblem"].startswith(case.detail)
        assert f"{report['metadata']['name']}-detail" not in details


def test_the_profile_counts_each_failure_under_its_reason(story: tuple[Profile, dict[str, str]]) -> None:
    profile, _ = story
    status = profile.status()
    expected: dict[str, int] = {}
    for case in CASES:
        if case.reason:
            expected[case.reason] = expected.get(case.reason, 0) + 1
    assert {row["reason"]: row["count"] for row in status["reasons"]} == expected
    assert status["phase"] == "Degraded"
    assert profile.condition("Degraded")["status"] == "True"
    assert all(REASONS[row["reason"]].kind == "failed" for row in status["reasons"])


def test_an_evicted_agent_is_tried_again_and_the_attempt_does_not_count(scene: Scene) -> None:
    (node,) = scene.add_nodes(*specs(1, "fault:evict", "fault-runs:1"))
    profile = scene.completed()
    attempt = profile.attempts()[node]
    assert (attempt["outcome"], attempt["number"]) == ("succeeded", 2)
    told = [change.object.get("status", {}).get("attempt") for change in profile.history() if change.kind == "reports"]
    assert ("disrupted", "Evicted") in [(a["outcome"], a.get("reason")) for a in told if a]
    assert profile.counts()["failed"] == 0


def test_an_agent_whose_pod_somebody_deletes_is_tried_again(scene: Scene) -> None:
    (node,) = scene.add_nodes(*specs(1, "agent-seconds:600"))
    profile = scene.apply()
    (pod,) = eventually(lambda: [p for p in profile.pods() if p["status"]["phase"] == "Running"])
    scene.lab.annotate_node(node, agent_seconds="0")
    scene.lab.kubectl("delete", "pod", pod["metadata"]["name"], "-n", scene.site.namespace, "--wait=false")
    profile.completes()
    assert profile.attempts()[node]["outcome"] == "succeeded"
    assert len(created(profile.history(), "jobs")) == 2


def refused(profile: Profile, reason: str) -> str:
    """The message of the condition that says why a profile is not accepted."""
    eventually(lambda: profile.condition(names.ACCEPTED).get("reason") == reason)
    told: dict[str, Any] = profile.condition(names.ACCEPTED)
    assert told["status"] == "False"
    assert profile.status()["phase"] == "Invalid"
    return str(told["message"])


def test_a_missing_config_map_is_named_and_the_run_starts_when_it_is_there(scene: Scene) -> None:
    scene.add_nodes(*specs(1))
    name, namespace = f"{scene.mark}-model", scene.site.namespace
    source = {"configMapKeyRef": {"name": name, "key": "config.json"}}
    workload = {"name": "mine", "huggingFaceConfig": source, "microBatchSize": 1, "sequenceLength": 1024}
    profile = scene.apply(workload=workload)
    message = refused(profile, "ConfigMapMissing")
    assert message == (
        f"ConfigMap {name}, which spec.workload names, does not exist in namespace {namespace}. "
        "Create it, or correct the name."
    )
    data = {"config.json": json.dumps(LLAMA)}
    scene.lab.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}
    )
    profile.completes()
    assert profile.counts()["succeeded"] == 1
    scene.lab.kubectl("delete", "configmap", name, f"--namespace={namespace}")


def test_a_profile_that_matches_no_node_says_so_and_runs_when_a_node_is_labelled(scene: Scene) -> None:
    (node,) = scene.add_nodes(*specs(1))
    profile = scene.completed(target={"nodeSelector": {MARK: scene.mark, "example.com/team": "training"}})
    told = profile.condition(names.COMPLETE)
    assert told["reason"] == "NothingEligible"
    assert "kubectl get nodes --show-labels" in told["message"]
    assert profile.condition(names.ACCEPTED)["status"] == "True"
    scene.lab.kubectl("label", "node", node, "example.com/team=training")
    eventually(lambda: profile.counts().get("succeeded") == 1)
    assert profile.condition(names.COMPLETE)["reason"] == "AllMeasured"
