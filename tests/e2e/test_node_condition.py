"""The verdict on Nodes of a real API server: the operator with the chart's grant and the chart's policy alone."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from precision_api.acceptance.reference import sha256_of
from precision_lab.release.install import NAMESPACE, render
from precision_operator.cluster import paths
from precision_operator.core.observe.node_gate import CONDITION
from tests.support.api_server import MERGE_PATCH
from tests.support.eventually import eventually
from tests.support.plugin import Plugin
from tests.support.site import Object, Scene, specs

pytestmark = pytest.mark.cluster
NODES = 9
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRole", "ClusterRoleBinding")


@pytest.fixture
def granted(scene: Scene) -> Iterator[str]:
    """What the chart renders for the condition; the policy's name."""
    rendered = render(scene.lab, NAMESPACE, ["acceptance.nodeCondition.enabled=true"])
    made = [it for it in rendered if it["kind"] in KINDS and "node-condition" in it["metadata"]["name"]]
    text = yaml.safe_dump_all(made)
    scene.lab.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    yield next(it["metadata"]["name"] for it in made if it["kind"] == KINDS[0])
    scene.lab.kubectl("delete", "-f", "-", stdin=text)


def conditions(scene: Scene) -> dict[str, Object]:
    rows = {it["metadata"]["name"]: it["status"]["conditions"] for it in scene.nodes()}
    return {name: next((it for it in of if it["type"] == CONDITION), {}) for name, of in rows.items()}


def test_a_verdict_opens_nodes_and_a_reboot_closes_one_until_it_is_measured(
    scene: Scene, granted: str, tmp_path: Path
) -> None:
    site, plugin = scene.site, Plugin.of(scene.lab, tmp_path)
    added = scene.add_nodes(*specs(NODES, products=("H100",)))
    scene.completed(workload={"preset": "llama3-8b"}, benchmarks={"training": {"enabled": True}})
    trial = "--accept-simulated", "--accept-level", "a trial"
    plugin("reference", "create", scene.mark, "-n", site.namespace, "--profile", scene.mark, *trial)
    text = site.get(paths.item(paths.config_maps(site.namespace), scene.mark))["data"]["reference.json"]
    reference = {"name": scene.mark, "sha256": sha256_of(text)}
    recipes = sorted(json.loads(text)["recipes"])
    row = {"namespace": site.namespace, "profile": scene.mark, "referenceSha256": reference["sha256"]}
    gate = {"policy": granted, "profiles": [row | {"recipes": recipes}]}
    flags = ("--accept-simulated", f"--node-condition={json.dumps(gate)}")
    with site.operated_by(replace(site.operator, argv=(*site.operator.argv, *flags))):
        scene.profile(scene.mark).patch(acceptance={"reference": reference})
        says = lambda: {name: row.get("status") for name, row in conditions(scene).items()}  # noqa: E731
        eventually(lambda: set(says().values()) == {"True"}, seconds=120)
        path = f"{paths.NODES}/{added[0]}/status"
        code, raw = site.api.call("PATCH", path, {"status": {"nodeInfo": {"bootID": "another"}}}, kind=MERGE_PATCH)
        assert code == 200, raw
        eventually(lambda: says()[added[0]] == "Unknown", seconds=60)
        eventually(lambda: says()[added[0]] == "True", seconds=120)
        message = conditions(scene)[added[0]]["message"]
        assert message.endswith(f" (node {raw['metadata']['uid']}, boot another)")
    counts = plugin.json("acceptance", "-n", site.namespace, "--profile", scene.mark)
    assert [(row["nodes"], row["true"], row["wouldClose"]) for row in counts] == [(NODES, NODES, 0)]
