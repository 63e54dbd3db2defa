"""Who is compared with whom: profiles by kubectl in, status, metric, page and `why` out."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_lab.fleet.fleet import NodeSpec
from tests.support.eventually import eventually
from tests.support.exposition import samples_in
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, Site, reasons, specs
from tests.support.tenant import TENANT

pytestmark = pytest.mark.cluster

MEASURED_OTHERWISE = {"limit": {"hardware": {"limitWatts": 2400}}, "image": {"software": {"stackHash": "another"}}}
TRAINED = {"workload": {"preset": "llama3-8b"}, "benchmarks": {}}


@pytest.fixture
def scene(site: Site) -> Iterator[Scene]:
    """In another namespace: a node that some test keeps in the shared one would be a peer, or come nearest."""
    corner = Scene(replace(site, namespace=TENANT))
    yield corner
    corner.close()


def slow_by_metric(profile: Profile, node: str) -> float | None:
    """What the exporter says of the node in the profile; None where it does not judge it."""
    with urllib.request.urlopen(f"{profile.site.exporter.url}/metrics/shard/0", timeout=10) as answer:
        rows = samples_in(answer.read())
    mine = {"profile": profile.name, "node": node}
    return next((s.value for s in rows if s.name == "precision_node_slow" and mine.items() <= s.labels.items()), None)


def alone(profile: Profile) -> Any:
    """The row of the status that says that nodes are compared with nobody; empty where none does."""
    return next((row for row in profile.status().get("reasons", ()) if row["reason"] == "NoPeers"), {})


def test_a_repaired_node_is_held_against_its_like_and_who_has_no_like_is_told_so(scene: Scene, tmp_path: Path) -> None:
    *like, repaired = scene.add_nodes(*specs(4, products=("GB200",)), *specs(1, "scale:0.8", products=("GB200",)))
    pair = scene.add_nodes(*specs(2, products=("H100",)))
    [driver] = scene.add_nodes(NodeSpec("GB200", traits=("driver:590.1.1",)))
    limit, image, rack = scene.add_nodes(*specs(2, products=("GB200",)), *specs(1, products=("GB300",)))
    plugin = Plugin.of(scene.lab, tmp_path)
    scene.apply("fleet", target={"nodeNames": like}, rollout={"maxConcurrent": 4}, **TRAINED).completes()
    repair = scene.apply("repair", target={"nodeNames": [repaired]}, **TRAINED)
    repair.completes()
    assert [pool["slowNodes"] for pool in repair.status()["pools"]] == [[repaired]]
    assert repair.counts()["slow"] == 1
    [why] = plugin.json("why", repaired, "--profile", "repair", "-n", scene.site.namespace)
    assert (why["standing"]["reason"], why["standing"]["comparedNodes"]) == ("Slow", 5)
    assert ", ".join(sorted(like)[:3]) in why["standing"]["message"]
    eventually(lambda: slow_by_metric(repair, repaired) == 1.0)
    page = tmp_path / "page.html"
    plugin("report", repaired, "--profile", "repair", "-n", scene.site.namespace, "-o", str(page))
    assert f"{repaired} is slow" in page.read_text()

    for name, nodes, words in (
        ("pair", pair, "1 other nodes of the namespace have a rate that counts beside its own"),
        ("driver", [driver], "5 others differ: its driver is 590.1.1, theirs 5"),
        ("limit", [limit], "5 others differ: its power limit is 2,400 W, theirs 4,800 W"),
        ("image", [image], "5 others differ: its software (agent image) is another, theirs "),
        ("rack", [rack], "; 5 others differ: its GPUs are GB300, theirs GB200, its power limit is "),
    ):
        profile = scene.completed(name, target={"nodeNames": nodes}, **TRAINED)
        if name in MEASURED_OTHERWISE:  # no stand-in measures so: its report says that one did
            patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": MEASURED_OTHERWISE[name]}))
            report = profile.report_of(nodes[0])["metadata"]["name"]
            scene.lab.kubectl("patch", "npr", report, "-n", scene.site.namespace, *patch)
        eventually(lambda profile=profile, nodes=nodes: reasons(profile.status()) == {"NoPeers": len(nodes)})
        message = lambda profile=profile: alone(profile)["message"]  # noqa: E731
        eventually(lambda words=words, message=message: words in message(), why=message)
        [why] = plugin.json("why", nodes[0], "--profile", name, "-n", scene.site.namespace)
        assert (why["standing"], why["noPeers"]) == (None, message())
        assert slow_by_metric(profile, nodes[0]) is None
        plugin("report", nodes[0], "--profile", name, "-n", scene.site.namespace, "-o", str(page))
        assert words in page.read_text()
