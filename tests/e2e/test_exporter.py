"""The exporter beside a living operator: what it shows is valid, says that it is simulated, and goes with its node."""

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from precision_api.facts import names
from precision_lab.builds.binaries import binaries
from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_operator.monitoring import rule_file
from tests.support.eventually import eventually
from tests.support.site import Scene, Site, specs

pytestmark = pytest.mark.cluster


def scrape(site: Site) -> str:
    """All that the exporter gives: itself, pools, profiles and plans, and the nodes of its one shard."""

    def body(path: str) -> str:
        with urllib.request.urlopen(f"{site.exporter.url}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    return body("/metrics/shard/0") + body("/metrics")


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
    profile = scene.completed(workload={"preset": "llama3-8b"}, benchmarks={}, retention={"deletedNodes": "1s"})
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


@contextmanager
def watched_by_prometheus(site: Site, folder: Path) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes the site's exporter, with the chart's rules at a lab's pace."""
    rules = folder / "rules.yaml"
    rules.write_text(rule_file.text(lasts="2s", interval="1s"))
    address = site.exporter.url.removeprefix("http://")
    target = Target("precision-profiler-exporter", address, ("/metrics", "/metrics/shard/0"))
    settings = PrometheusSettings((target,), (rules,), scrape_seconds=1.0, evaluation_seconds=1.0)
    prometheus = start_prometheus(site.lab.processes, settings)
    try:
        yield prometheus
    finally:
        prometheus.stop()


def test_a_slow_node_of_a_living_cluster_ends_as_its_alert_and_as_no_other(scene: Scene, tmp_path: Path) -> None:
    alike = ("H100",)
    *_, slow = scene.add_nodes(*specs(4, products=alike), *specs(1, "scale:0.8", products=alike))
    profile = scene.completed(workload={"preset": "llama3-8b"}, benchmarks={})
    mine = f'alertstate="firing",node=~"{scene.mark}-.*"'
    with watched_by_prometheus(scene.site, tmp_path) as prometheus:
        fired = prometheus.wait_for(f"ALERTS{{{mine}}}", seconds=60)
        assert [(alert.labels["alertname"], alert.labels["node"]) for alert in fired] == [("PrecisionNodeSlow", slow)]
        assert not prometheus.query('ALERTS{alertname="PrecisionExporterDown"}')
        scene.lab.annotate_node(slow, scale=None)
        again = f"{names.ANNOTATION_RERUN}=now"
        scene.lab.kubectl("annotate", "pp", profile.name, again, f"--namespace={scene.site.namespace}")
        eventually(lambda: not prometheus.query(f"ALERTS{{{mine}}}"), 90)
