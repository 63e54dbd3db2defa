"""The scrape configuration of docs/install.md: Prometheus accepts it, and it asks for what the chart serves."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from tests.support.helm import Helm, Manifest, of_kind

PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
[SHOWN] = re.findall(r"```yaml\n(scrape_configs:\n.*?)```", PAGE, re.DOTALL)
JOBS: list[dict[str, Any]] = yaml.safe_load(SHOWN)["scrape_configs"]


def address(job: dict[str, Any]) -> str:
    """HOST:PORT that a job of the page scrapes."""
    if "dns_sd_configs" in job:
        [looked_up] = job["dns_sd_configs"]
        return f"{looked_up['names'][0]}:{looked_up['port']}"
    return str(job["static_configs"][0]["targets"][0])


def label(job: dict[str, Any]) -> str:
    """What `job` says in the series of a job of the page."""
    replacements = [rule["replacement"] for rule in job.get("relabel_configs", []) if rule["target_label"] == "job"]
    return str(replacements[0] if replacements else job["job_name"])


@pytest.fixture
def rendered() -> list[Manifest]:
    """The chart as the page installs it, with its ServiceMonitors."""
    return Helm(binaries(["helm"])["helm"]).manifests(serviceMonitor={"enabled": True})


def without_discovery(job: dict[str, Any]) -> dict[str, Any]:
    """The job with its address fixed: the lab's Prometheus is built without service discovery."""
    rest = {key: value for key, value in job.items() if key != "dns_sd_configs"}
    return rest | {"static_configs": [{"targets": [address(job)]}]} if "dns_sd_configs" in job else job


def test_prometheus_accepts_it(promtool: Path, tmp_path: Path) -> None:
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump({"scrape_configs": [without_discovery(job) for job in JOBS]}))
    done = subprocess.run([promtool, "check", "config", path], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_it_finds_each_replica_of_the_operator_by_dns() -> None:
    """A records have no port: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#dns_sd_config"""
    [job] = [job for job in JOBS if label(job) == "precision-operator"]
    [looked_up] = job["dns_sd_configs"]
    assert looked_up.keys() == {"names", "type", "port"}
    assert (looked_up["type"], isinstance(looked_up["port"], int)) == ("A", True)


def test_it_scrapes_what_the_service_monitors_do_under_the_same_jobs(rendered: list[Manifest]) -> None:
    component = re.compile(r"precision-profiler-(\w+)\.")
    shown = {(component.findall(address(job))[0], job.get("metrics_path", "/metrics"), label(job)) for job in JOBS}
    assert shown == {
        (monitor["metadata"]["name"].rpartition("-")[2], endpoint["path"], rule["replacement"])
        for monitor in of_kind(rendered, "ServiceMonitor")
        for endpoint in monitor["spec"]["endpoints"]
        for rule in endpoint["relabelings"]
        if rule["targetLabel"] == "job"
    }
    assert all(job["honor_labels"] for job in JOBS)


def test_it_asks_the_services_by_their_names_and_ports(rendered: list[Manifest]) -> None:
    served = {
        f"{service['metadata']['name'].replace('fleet', 'precision-profiler')}.precision-system.svc:{port['port']}"
        for service in of_kind(rendered, "Service")
        for port in service["spec"]["ports"]
    }
    assert {address(job) for job in JOBS} == served
