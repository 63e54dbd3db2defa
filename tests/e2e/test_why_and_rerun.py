"""The plugin as kubectl runs it: a node that fails run after run says so, is released by rerun, and measured."""

from functools import partial
from typing import Any

import pytest
import yaml

from precision_api.facts.names import ANNOTATION_RERUN
from precision_lab.fleet.fleet import NodeSpec
from tests.support.eventually import eventually
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, reasons, specs

pytestmark = pytest.mark.cluster

ONCE = {"maxConcurrent": 4, "retry": {"limit": 0}}
OTHER = {"name": "other", "shapes": [{"m": 2048, "k": 4096, "n": 4096}]}


def test_a_node_that_fails_run_after_run_is_quarantined_and_rerun_releases_it(scene: Scene, plugin: Plugin) -> None:
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("fault:crash",)))
    profile = scene.apply(rollout=ONCE)
    for runs in (1, 2):
        eventually(lambda runs=runs: profile.report_of(node).get("status", {}).get("failedRuns") == runs)
        assert plugin.why(node, profile)["reason"] == "AgentCrashed"
        said = plugin("rerun", f"node/{node}", "-n", scene.site.namespace)
        assert f"node {node}, profile {scene.site.namespace}/{profile.name}: it is measured again" in said
    eventually(lambda: profile.report_of(node)["status"].get("quarantine"))
    profile.patch(workload=OTHER)
    told = eventually(partial(judged_as, plugin, node, profile, "Quarantined"))
    assert (told["state"], told["due"]["reason"], told["judged"]) == ("waiting", "SpecChange", True)
    assert told["message"] == (
        "3 runs in a row ended without a result on it, the last with AgentCrashed. Fix the node, then release it with "
        f"kubectl precision rerun {node}."
    )
    assert told["quarantine"]["reason"] == "AgentCrashed"
    scene.lab.annotate_node(node, fault=None)
    assert "Its quarantine since" in plugin("rerun", node, "-n", scene.site.namespace)
    eventually(lambda: plugin.why(node, profile)["reason"] == "Measured")
    assert "quarantine" not in profile.report_of(node)["status"]
    assert plugin.why(node, profile)["attempt"]["outcome"] == "succeeded"


def test_a_profile_that_is_rerun_measures_all_its_nodes_once_more(scene: Scene, plugin: Plugin) -> None:
    scene.add_nodes(*specs(2))
    profile = scene.completed(rollout=ONCE)
    before = {node: attempt["run"] for node, attempt in profile.attempts().items()}
    said = plugin("rerun", profile.name, "-n", scene.site.namespace)
    assert "its 2 eligible nodes are measured again" in said
    assert profile.get()["metadata"]["annotations"][ANNOTATION_RERUN].endswith("Z")

    def measured_anew() -> bool:
        now = profile.attempts()
        return all(now[node]["run"] != run and now[node]["outcome"] == "succeeded" for node, run in before.items())

    eventually(measured_anew)


def test_why_as_text_names_profile_reason_and_the_pod_in_the_way(scene: Scene, plugin: Plugin) -> None:
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("busy",)))
    profile = scene.apply()
    eventually(lambda: profile.counts().get("waiting") == 1)
    told = plugin("why", node, "-n", scene.site.namespace)
    assert f"{scene.site.namespace}/{profile.name}: waiting, Busy\n" in told
    assert "It is measured when no pod holds its GPUs." in told
    assert "  blocked by   pod " in told


def test_a_dry_run_names_the_limit_of_another_profile_as_the_operator_does_once_it_is_applied(
    scene: Scene, plugin: Plugin
) -> None:
    held, free = scene.add_nodes(NodeSpec("H100", traits=("fault:hang",)), NodeSpec("H100"))
    pool = scene.nodes()[0]["metadata"]["labels"]["nvidia.com/gpu.product"]
    one_in_the_pool = {"maxConcurrent": 2, "pools": [{"name": pool, "maxConcurrent": 1}]}
    first = scene.apply(f"{scene.mark}-first", rollout=one_in_the_pool)
    eventually(lambda: plugin.why(held, first)["reason"] == "AgentRunning")
    second = f"{scene.mark}-second"
    (plugin.folder / "second.yaml").write_text(yaml.safe_dump(scene.manifest(second)))
    rows = {row["node"]: row for row in plugin.json("dry-run", "-f", "second.yaml")}
    said = {node: (rows[node]["reason"], rows[node]["message"]) for node in (held, free)}
    assert [said[node][0] for node in (held, free)] == ["MeasuredByAnotherProfile", "LimitOfAnotherProfile"]
    limiting = f"Profile {scene.site.namespace}/{first.name} limits this place: the number of agents in"
    assert said[free][1].startswith(limiting)
    applied = scene.apply(second)
    eventually(lambda: reasons(applied.status()) == {"LimitOfAnotherProfile": 1, "MeasuredByAnotherProfile": 1})
    told = {node: plugin.why(node, applied) for node in (held, free)}
    assert {node: (each["reason"], each["message"]) for node, each in told.items()} == said


def judged_as(plugin: Plugin, node: str, profile: Profile, reason: str) -> dict[str, Any]:
    """What `why` answers with this reason, once the operator has judged the same spec; empty before.

    The plugin plans by itself, with what is in the cluster: it may be ahead of the operator.
    """
    answer = plugin.why(node, profile)
    return answer if answer["reason"] == reason and answer["judged"] else {}
