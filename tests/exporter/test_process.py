"""The exporter's process on a real cluster: it follows changes with the chart's rights, and waits where nobody is."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import yaml

from precision_api.facts.names import API_VERSION, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL
from precision_api.kinds import crdgen
from precision_lab.builds.binaries import binaries
from precision_operator.cluster import Cluster
from precision_operator.cluster.paths import collection, item, profiles, reports
from precision_operator.core.rbac import rules
from tests.exporter.test_plans import plan_object
from tests.support.report_objects import profile_object, report_object

pytestmark = pytest.mark.cluster

CRDS = Path(crdgen.__file__).parent.parent


class Fleet:
    """Profiles, reports and plans in one namespace of a real API server."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.plans = collection(API_VERSION, PLAN_PLURAL, namespace)

    async def add_profile(self, **changes: Any) -> None:
        await self._add(profiles(self.namespace), profile_object(namespace=self.namespace, **changes))

    async def add_node(self, node: str) -> None:
        await self._add(reports(self.namespace), report_object(node, namespace=self.namespace))

    async def remove_node(self, node: str) -> None:
        name = report_object(node)["metadata"]["name"]
        await self.cluster.delete(item(reports(self.namespace), name))

    async def add_plan(self, name: str) -> None:
        job = {"name": "pretrain", "workload": {"preset": "llama3-8b"}, "tokens": "1T"}
        await self._add(self.plans, plan_object(name, namespace=self.namespace) | {"spec": {"jobs": [job]}})

    async def remove_plan(self, name: str) -> None:
        await self.cluster.delete(item(self.plans, name))

    async def rename_workload(self, name: str) -> None:
        path = item(profiles(self.namespace), "nightly")
        await self.cluster.patch(path, {"spec": {"workload": {"name": name}}})

    async def objects(self) -> list[dict[str, Any]]:
        kinds = (profiles(self.namespace), reports(self.namespace), self.plans)
        return [found for path in kinds for found in (await self.cluster.list_all(path))[0]]

    async def _add(self, path: str, raw: dict[str, Any]) -> None:
        name = raw["metadata"]["name"]
        status = raw.pop("status")
        await self.cluster.create(path, raw | {"metadata": {"name": name}})
        await self.cluster.patch(item(path, name, "status"), {"status": status})


@pytest.fixture
async def fleet(cluster: Any) -> AsyncIterator[Fleet]:
    namespace = f"exporter-{uuid4().hex[:8]}"
    async with Cluster.connect(str(cluster.kubeconfig)) as api:
        for file in sorted(CRDS.glob("*.yaml")):
            crd = yaml.safe_load(file.read_text())
            path = collection("apiextensions.k8s.io/v1", "customresourcedefinitions")
            await api.apply(item(path, crd["metadata"]["name"]), crd, "exporter-test")
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await _until_served(api, namespace)
        yield Fleet(api, namespace)
        await api.delete(f"/api/v1/namespaces/{namespace}")


async def _until_served(api: Cluster, namespace: str) -> None:
    async with asyncio.timeout(20):
        while True:
            found = await api.get("/apis/precisionprofiler.io/v1alpha1")
            if {PROFILE_PLURAL, REPORT_PLURAL, PLAN_PLURAL} <= {kind["name"] for kind in found["resources"]}:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
async def service_account(cluster: Any, fleet: Fleet, tmp_path: Path) -> Path:
    """A kubeconfig of a service account that has the exporter's rights of the chart in the fleet's namespace."""
    who = {"metadata": {"name": "exporter"}}
    rbac = "rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": "exporter", "namespace": fleet.namespace}
    role = {"kind": "Role", "name": "exporter", "apiGroup": "rbac.authorization.k8s.io"}
    accounts = collection("v1", "serviceaccounts", fleet.namespace)
    await fleet.cluster.create(accounts, who)
    await fleet.cluster.create(
        collection(rbac, "roles", fleet.namespace), who | {"rules": rules("exporter", "namespace")}
    )
    binding = who | {"subjects": [subject], "roleRef": role}
    await fleet.cluster.create(collection(rbac, "rolebindings", fleet.namespace), binding)
    token = await fleet.cluster.create(item(accounts, "exporter", "token"), {"spec": {"expirationSeconds": 600}})
    return changed_kubeconfig(cluster, tmp_path, user={"token": token["status"]["token"]})


def changed_kubeconfig(cluster: Any, folder: Path, user: dict[str, Any] | None = None, server: str = "") -> Path:
    """The administrator's kubeconfig with another user or another address."""
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    if user:
        config["users"][0]["user"] = user
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def exporter(kubeconfig: Path, namespace: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The real process; its address is read from the line that it logs."""
    command = ["-m", "precision_operator.exporter", "--watch-namespaces", namespace, "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--kubeconfig", str(kubeconfig), stderr=subprocess.PIPE
    )
    assert process.stderr
    try:
        line = ""
        while "serving " not in line:
            raw = await asyncio.wait_for(process.stderr.readline(), 20)
            assert raw, "the exporter ended before it served"
            line = raw.decode()
        yield process, line.partition("serving ")[2].strip().removesuffix("/metrics")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until(
    http: aiohttp.ClientSession, url: str, holds: Callable[[str], bool], path: str = "/metrics/shard/0"
) -> str:
    """The first scrape that `holds`, within 10 s."""
    async with asyncio.timeout(10):
        while True:
            async with http.get(f"{url}{path}") as response:
                text = await response.text()
                if response.status == 200 and holds(text):
                    return text
            await asyncio.sleep(0.05)


async def test_with_the_rights_of_the_chart_the_process_follows_a_cluster_and_leaves_nothing_on_its_objects(
    service_account: Path, fleet: Fleet
) -> None:
    await fleet.add_profile()
    await fleet.add_node("n1")
    await fleet.add_plan("q1")
    async with exporter(service_account, fleet.namespace) as (process, url), aiohttp.ClientSession() as http:
        await until(http, url, lambda text: 'node="n1"' in text)
        await fleet.add_node("n2")
        text = await until(http, url, lambda text: 'node="n2"' in text)
        assert _promtool(text) == (0, "")
        await fleet.remove_node("n1")
        await until(http, url, lambda text: 'node="n1"' not in text and 'node="n2"' in text)
        await fleet.rename_workload("ours")
        await until(http, url, lambda text: 'workload="ours"' in text)
        await fleet.add_plan("q2")
        text = await until(http, url, lambda text: 'plan="q1"' in text and 'plan="q2"' in text, "/metrics")
        assert _promtool(text) == (0, "")
        await fleet.remove_plan("q1")
        await until(http, url, lambda text: 'plan="q1"' not in text and 'plan="q2"' in text, "/metrics")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    for found in await fleet.objects():
        assert not {"finalizers", "annotations"} & set(found["metadata"]), found["metadata"]["name"]


@pytest.fixture
def nobody_home(cluster: Any, tmp_path: Path) -> Path:
    """A kubeconfig that is right in all but the address: nothing listens there."""
    return changed_kubeconfig(cluster, tmp_path, server="https://127.0.0.1:1")


async def test_without_an_api_server_the_process_lives_and_serves_its_own_metrics_alone(nobody_home: Path) -> None:
    async with exporter(nobody_home, "nowhere") as (_, url), aiohttp.ClientSession() as http:
        for path, expected in (("healthz", 200), ("readyz", 503), ("metrics", 200), ("metrics/shard/0", 503)):
            async with http.get(f"{url}/{path}") as response:
                assert response.status == expected, path


def _promtool(text: str) -> tuple[int, str]:
    promtool = binaries(["promtool"])["promtool"]
    found = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr
