"""The verdict on Nodes of a real API server, with the chart's grant and policy alone, and who taints by it.

`make node-readiness SOURCE=CHECKOUT` runs it with Node Readiness Controller itself; CI has a stand-in.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from precision_api.acceptance.reference import sha256_of
from precision_lab.release.install import NAMESPACE, REPOSITORY, render
from precision_operator.cluster import paths
from precision_operator.core.observe.node_gate import CONDITION
from precision_operator.core.observe.raw_object import condition_of
from tests.support.api_server import MERGE_PATCH
from tests.support.eventually import eventually
from tests.support.history import Object, Watches
from tests.support.node_readiness import PLURAL, RULES, has_taint, readiness_controller
from tests.support.plugin import Plugin
from tests.support.site import Scene, specs

pytestmark = pytest.mark.cluster
CONTROLLER = os.environ.get("NODE_READINESS", "")
NODES = 20 if CONTROLLER else 9
RULE = yaml.safe_load((REPOSITORY / "integrations/node-readiness/rule.yaml").read_text())
NAME, TAINT = RULE["metadata"]["name"], RULE["spec"]["taint"]
LAB = "acceptance.simulated=true"
TAINTED, OPEN = True, False


@contextmanager
def operated(scene: Scene, *values: str) -> Iterator[None]:
    """The operator as the chart with these values has it, with what it grants and guards."""
    site, rendered = scene.site, render(scene.lab, NAMESPACE, values)
    made = [it for it in rendered if it["metadata"]["name"].endswith("node-condition")]
    pods = [it["spec"]["template"]["spec"] for it in rendered if it["kind"] == "Deployment"]
    flags = next(pod["containers"][0]["args"] for pod in pods if pod["containers"][0]["name"] == "operator")
    ours = [flag for flag in flags if flag.startswith(("--accept-simulated", "--node-condition"))]
    text = yaml.safe_dump_all(made)
    if made:
        scene.lab.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    with site.operated_by(replace(site.operator, argv=(*site.operator.argv, *ours))):
        yield
    if made:
        scene.lab.kubectl("delete", "-f", "-", stdin=text)


def _state(node: Object) -> tuple[bool, str]:
    """Whether it is tainted, and what its condition says."""
    return has_taint(node, TAINT), condition_of(node["status"], CONDITION).get("status", "")


def test_a_rule_keeps_nodes_tainted_until_a_verdict_opens_them(scene: Scene, tmp_path: Path) -> None:
    site, lab, plugin = scene.site, scene.lab, Plugin.of(scene.lab, tmp_path)
    running = scene.add_nodes(*specs(NODES, products=("H100",)))
    profile = scene.completed(workload={"preset": "llama3-8b"}, benchmarks={"training": {"enabled": True}})
    trial = "--accept-simulated", "--accept-level", "a trial"
    plugin("reference", "create", scene.mark, "-n", site.namespace, "--profile", scene.mark, *trial)
    text = site.get(paths.item(paths.config_maps(site.namespace), scene.mark))["data"]["reference.json"]
    sha256, row = sha256_of(text), "acceptance.nodeCondition.profiles[0]"
    gated = (
        LAB, "acceptance.nodeCondition.enabled=true", f"acceptance.gateTaints={{{TAINT['key']}}}",
        f"watchNamespaces={{{site.namespace}}}",
        f"{row}.namespace={site.namespace}", f"{row}.profile={scene.mark}", f"{row}.referenceSha256={sha256}",
        f"{row}.recipes={{{','.join(json.loads(text)['recipes'])}}}",
    )  # fmt: skip
    watched = Watches(site.api, {"nodes": paths.NODES})

    def story(node: str) -> tuple[tuple[bool, str], ...]:
        seen = (change.object for change in watched.all_changes() if change.object["metadata"]["name"] == node)
        return tuple(state for state, _ in groupby(map(_state, seen)))

    def counted() -> Object:
        (counts,) = plugin.json("acceptance", "-n", site.namespace, "--profile", scene.mark)
        return {key: count for key, count in counts.items() if count and key not in ("pool", "minutes", "conditions")}

    def would_taint(nodes: int) -> bool:
        results = site.get(paths.item(RULES, NAME)).get("status", {}).get("dryRunResults", {})
        return (results.get("affectedNodes"), results.get("taintsToAdd")) == (NODES, nodes)

    def ends(node: str, *last: tuple[bool, str]) -> None:
        eventually(lambda: story(node)[-len(last) :] == last, why=lambda: story(node))

    with readiness_controller(lab, CONTROLLER):
        lab.apply(RULE)
        eventually(lambda: would_taint(NODES))
        with operated(scene, LAB):  # the chart's value is off
            profile.patch(acceptance={"reference": {"name": scene.mark, "sha256": sha256}})
            eventually(lambda: counted() == {"nodes": NODES, "neverJudged": NODES, "wouldOpen": NODES}, why=counted)
        with operated(scene, *gated):
            eventually(lambda: counted() == {"nodes": NODES, "true": NODES}, why=counted)
            assert would_taint(NODES), "it counted once"
            lab.kubectl("delete", PLURAL, NAME)
            lab.apply(RULE)
            eventually(lambda: would_taint(0))
            lab.kubectl("patch", PLURAL, NAME, "--type=merge", "-p", '{"spec":{"dryRun":false}}')
            good, slow = scene.add_nodes(*specs(1, products=("H100",)), *specs(1, "scale:0.8", products=("H100",)))
            ends(good, (TAINTED, "True"), (OPEN, "True"))
            ends(slow, (TAINTED, "False"))
            lab.annotate_node(running[1], fault="agent:slow_gpu")
            for node in running[:2]:
                status = {"nodeInfo": {"bootID": f"{node}-again"}}
                site.api.ask("PATCH", f"{paths.NODES}/{node}/status", {"status": status}, kind=MERGE_PATCH)
            caught = (OPEN, "True"), (OPEN, "Unknown"), (TAINTED, "Unknown")
            ends(running[0], *caught, (TAINTED, "True"), (OPEN, "True"))
            ends(running[1], *caught, (TAINTED, "False"))
            assert {*map(story, running[2:])} == {((OPEN, ""), (OPEN, "True"))}
            assert all(tainted for tainted, _ in story(slow)[1:])
        lab.kubectl("delete", PLURAL, NAME)
        assert not any(has_taint(node, TAINT) for node in scene.nodes())
    watched.close()
