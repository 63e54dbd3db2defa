"""A profile over the real node and twenty simulated ones: report, metrics through the Service, `kubectl precision`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.nodes.cluster import REPLAYED_GPU
from precision_lab.processes.ports import free_ports
from tests.support import fake_backend
from tests.support.fake_nvml import compile_nvml
from tests.support.installed import (
    AGENT_RESOURCES,
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
MEASURE = """
import ctypes, os, sys
from pathlib import Path
here = Path(sys.modules["sitecustomize"].__file__).parent
os.environ.update(LD_LIBRARY_PATH=str(here), FAKE_NVML_SCRIPT=str(here / "gpus.txt"))
ctypes.CDLL(str(here / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
from precision_agent.backends import factory
from precision_agent.run.cli import main
factory.CLASSES["torch"] = ("tests.support.worker_backend", "Brief")
sys.argv = [word for word in sys.argv if not word.startswith("--backend")] + ["--backend=torch", "--device=cuda"]
ended = 0
try:
    main()
except SystemExit as end:
    ended = end.code or 0
sys.stdout.flush()
os._exit(ended)
"""
"""The agent as it is, on GPUs of the fake NVML: sampled by its own sampler, measured by tests/support's backend."""


@pytest.fixture(scope="module")
def fleet(installed: Installed) -> Iterator[Profile]:
    """It goes with its tests: whenever the real node's GPUs change, it would measure that node again."""
    profile = installed.apply("fleet")
    profile.completes(240)
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
    assert [row["type"] for row in status["conditions"] if row["status"] == "True"][-1] == "Succeeded"
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


def test_a_real_container_reports_nvmls_memory_of_the_run_and_the_allocators_by_recipe(
    installed: Installed, prometheus: Prometheus, tmp_path: Path
) -> None:
    folder = installed.real.lab.run_dir / REPLAYED_GPU.name
    shutil.copy(compile_nvml(tmp_path), folder)
    (folder / "gpus.txt").write_text("gpu GPU-a\nname NVIDIA H200\npower 0 500\nmemory 150000000000 500000000\n")
    support = folder / "tests" / "support"
    support.mkdir(parents=True)
    for name in ("fake_backend.py", "worker_backend.py"):
        shutil.copy(Path(fake_backend.__file__).with_name(name), support)
    with installed.real.agents_run(MEASURE):
        recipes, agent = ["bf16", "fp8_current"], {"resources": AGENT_RESOURCES, "gpus": "One"}
        benchmarks = {"preset": "quick"}
        profile = installed.apply(
            "on-nvml", target={"nodeNames": [GPU_NODE]}, agent=agent, recipes=recipes, benchmarks=benchmarks
        )
        profile.measured()
    status: Object = profile.report()["status"]
    assert status["data"] == "measured"
    assert status["run"]["deviceMemory"] == {"usedBytes": 500_000_000, "totalBytes": 150_000_000_000}
    by_recipe = {row["recipe"]: row["allocatedPeakBytes"] for row in status["results"]}
    assert by_recipe == {"bf16": 4 * 10**9, "fp8_current": 11 * 10**9}
    (sample,) = prometheus.wait_for(
        f'precision_node_gpu_memory_bytes{{profile="{profile.name}",state="used",counted="nvml"}}'
    )
    assert sample.value == 500_000_000
    profile.delete()


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
