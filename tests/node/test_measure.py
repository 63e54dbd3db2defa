"""A profile over the real node and twenty simulated ones: report, metrics through the Service, `kubectl precision`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.processes.ports import free_ports
from tests.support.installed import (
    EXPORTER,
    GPU_NODE,
    SIMULATED_NODES,
    TEAM,
    Installed,
    Object,
    Profile,
    conditions,
    log_of,
)
from tests.support.plugin import Plugin

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def fleet(installed: Installed) -> Iterator[Profile]:
    """It goes with its tests: whenever the real node's GPUs change, it would measure that node again."""
    profile = installed.apply("fleet")
    profile.completes(90)
    yield profile
    profile.delete()


@pytest.fixture(scope="module")
def prometheus(installed: Installed) -> Prometheus:
    """A Prometheus in the cluster's network, which scrapes the exporter's Service."""
    service = installed.lab.get("service", EXPORTER, "--namespace", installed.release.namespace)
    (port,) = free_ports(1)
    installed.real.forward(port)
    address = f"{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
    target = Target("precision-exporter", address, ("/metrics", "/metrics/shard/0"))
    return start_prometheus(installed.lab.processes, PrometheusSettings((target,), scrape_seconds=1.0, port=port))


def test_the_real_node_and_the_simulated_ones_are_measured(fleet: Profile) -> None:
    status = fleet.status()
    assert status["phase"] == "Complete"
    assert status["nodes"]["succeeded"] == SIMULATED_NODES + 1
    assert conditions(status)["Degraded"] == "False"


def test_the_report_of_the_real_node_says_that_its_figures_are_simulated(fleet: Profile) -> None:
    status: Object = fleet.report()["status"]
    assert (status["state"], status["data"], status["hardware"]["gpus"]) == ("Measured", "simulated", 8)
    assert status["run"]["detail"], "the full result came through the kubelet's log"


def test_prometheus_reads_the_nodes_through_the_service(fleet: Profile, prometheus: Prometheus) -> None:
    query = f'count(precision_node_training_tokens_per_second{{recipe="bf16",profile="{fleet.name}"}})'
    (sample,) = prometheus.wait_for(f"{query} == {SIMULATED_NODES + 1}")
    assert sample.value == SIMULATED_NODES + 1


def test_the_plugin_answers_in_this_cluster(fleet: Profile, installed: Installed, tmp_path: Path) -> None:
    plugin = Plugin.of(installed.lab, tmp_path)
    assert "Complete" in plugin("status", fleet.name, "-n", TEAM)
    rows = {row["node"]: row for row in plugin.json("nodes", fleet.name, "-n", TEAM)}
    assert len(rows) == SIMULATED_NODES + 1
    assert GPU_NODE in rows


def test_without_torch_in_its_image_the_agent_says_so_and_the_image_is_blamed(installed: Installed) -> None:
    installed.real.replay_options("--backend=auto")
    try:
        profile = installed.apply("no-torch", target={"nodeNames": [GPU_NODE]}, rollout={"retry": {"limit": 0}})
        profile.completes()
    finally:
        installed.real.replay_options()
    attempt = profile.report()["status"]["attempt"]
    assert attempt["reason"] == "BackendUnavailable"
    assert "agent.image" in attempt["message"]
    profile.delete()


def test_the_log_of_a_running_agent_can_be_followed(installed: Installed) -> None:
    with installed.paced(0.05):
        profile = installed.apply("followed", target={"nodeNames": [GPU_NODE]})
        pod = profile.running_agent()
        lines = log_of(installed.lab, pod).splitlines()
        assert lines
        assert not any(line.startswith("PPR1") for line in lines), "the result comes last"
        profile.completes()
    profile.delete()
