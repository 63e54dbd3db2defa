"""The exporter beside a living operator: what it shows is valid, says that it is simulated, and goes with its node."""

from __future__ import annotations

import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from precision_lab.binaries import binaries
from tests.support.eventually import eventually
from tests.support.site import Scene, Site, specs

pytestmark = pytest.mark.cluster


def scrape(site: Site) -> str:
    with urllib.request.urlopen(f"{site.exporter.url}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def nodes_shown(site: Site, profile: str) -> dict[str, set[str]]:
    """Names of the families in which each node of a profile has a series."""
    shown: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrape(site)):
        for sample in family.samples:
            if sample.labels.get("profile") == profile and "node" in sample.labels:
                shown.setdefault(sample.labels["node"], set()).add(family.name)
    return shown


def test_the_exporter_shows_every_node_and_drops_one_that_is_deleted(scene: Scene) -> None:
    nodes = scene.add_nodes(*specs(3))
    profile = scene.apply(workload={"preset": "llama3-8b"}, benchmarks={}, retention={"deletedNodes": "1s"})
    profile.completes()
    eventually(lambda: nodes_shown(scene.site, profile.name).keys() == set(nodes))
    families = set.intersection(*nodes_shown(scene.site, profile.name).values())
    assert {"precision_node_info", "precision_node_training_tokens_per_second"} <= families

    check = [str(binaries(["promtool"])["promtool"]), "check", "metrics"]
    told = subprocess.run(check, input=scrape(scene.site), text=True, capture_output=True)
    assert (told.returncode, told.stdout + told.stderr) == (0, "")

    scene.lab.delete_node(nodes[0])

    def shown_after_another_pass() -> set[str]:
        scene.site.operator_has_looked()
        return {*nodes_shown(scene.site, profile.name)}

    eventually(lambda: shown_after_another_pass() == set(nodes[1:]))


def test_the_info_series_of_a_replayed_node_says_simulated(scene: Scene) -> None:
    (node,) = scene.add_nodes(*specs(1))
    profile = scene.apply()
    profile.completes()
    eventually(lambda: nodes_shown(scene.site, profile.name))
    families = text_string_to_metric_families(scrape(scene.site))
    told = [s.labels for f in families for s in f.samples if s.labels.get("node") == node and "data" in s.labels]
    assert [(labels["data"], labels["backend"]) for labels in told] == [("simulated", "replay")]
