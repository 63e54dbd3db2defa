"""`support-bundle` on a real API server, where a tenant's pod looks like the operator's and sends on to the Secrets."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urljoin

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from precision_lab.lab import Lab
from precision_operator.cli.commands.support_bundle import Bundle, gathered_bundle
from precision_operator.cli.kubectl import through_kubectl
from precision_operator.cli.options import Reach
from precision_operator.cluster import ApiError, Cluster, paths
from tests.support.eventually import eventually

pytestmark = pytest.mark.cluster

SECRETS = "../../../../../secrets"
"""From a pod's proxy to the Secrets of all namespaces."""
LABELS = {"app.kubernetes.io/name": "precision-profiler", "app.kubernetes.io/component": "operator"}
PLANTED = "cGxhbnRlZA=="


@asynccontextmanager
async def served_pod(answer: Handler) -> AsyncIterator[tuple[str, int, list[str]]]:
    """Address and port of what stands in for a pod, and the paths that it was asked for."""
    asked: list[str] = []

    async def say(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await answer(request)

    app = web.Application()
    app.router.add_get("/{path:.*}", say)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: the API server takes no loopback address for a pod's
        address = probe.getsockname()[0]
    await web.TCPSite(runner, address, 0).start()
    try:
        yield address, runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


@asynccontextmanager
async def reached(lab: Lab, kubeconfig: Path) -> AsyncIterator[Cluster]:
    """The cluster as the plugin reaches it: by kubectl."""
    path = f"{lab.binaries['kubectl'].parent}{os.pathsep}{os.environ['PATH']}"
    with patch.dict(os.environ, PATH=path), through_kubectl(Reach(kubeconfig=str(kubeconfig)), 30.0) as api:
        yield api


async def sent_on(_: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": SECRETS})


async def metrics(_: web.Request) -> web.StreamResponse:
    return web.Response(text="precision_up 1\n")


def template(port: int) -> dict[str, Any]:
    container = {"name": "operator", "image": "x", "ports": [{"containerPort": port}]}
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}


async def give_address(api: Cluster, namespace: str, pod: str, address: str) -> None:
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await api.patch(paths.item(paths.pods(namespace), pod, "status"), {"status": status})


async def test_the_bundle_holds_what_the_releases_pods_say_and_no_secret(cluster: Lab, namespace: str) -> None:
    tenant = cluster.create_namespace(f"{namespace}-tenant")
    async with (
        served_pod(sent_on) as (address, port, asked),
        served_pod(metrics) as (own_address, own_port, _),
        reached(cluster, cluster.kubeconfig) as api,
    ):
        await api.create(paths.collection("v1", "secrets", tenant), {"metadata": {"name": "s"}, "data": {"k": PLANTED}})
        lookalike = template(port) | {"metadata": {"name": "lookalike", "labels": LABELS}}
        await api.create(paths.pods(tenant), lookalike)
        await give_address(api, tenant, "lookalike", address)
        await install(api, namespace, own_port)
        listed = partial(cluster.kubectl, "-n", namespace, "get", "pods", "-o", "name")
        own = (await asyncio.to_thread(eventually, listed)).strip().removeprefix("pod/")
        await give_address(api, namespace, own, own_address)

        for place in (namespace, tenant, None):
            bundle = await gathered_bundle(api, place)
            assert PLANTED not in json.dumps(bundle.files)
            assert bundle.files[f"metrics/{own}-operator.txt"] == "precision_up 1\n"
            assert not any("lookalike" in name for name in bundle.files)
        assert asked == []
        limited = await bundle_of_editor(cluster, tenant)
        assert {"pods.json", "jobs.json", "events.json", "version.json"} <= set(limited.files)
        problems = limited.files["problems.txt"]
        assert "releases.json is left out: GET /apis/rbac.authorization.k8s.io/v1/clusterrolebindings: " in problems
        assert f"logs and metrics are left out: no pod of the operator was seen in {tenant}: " in problems

        proxied = f"{paths.item(paths.pods(tenant), 'lookalike')}:{port}/proxy/metrics"
        with pytest.raises(ApiError, match=r"a redirect to .*secrets.*, which is not followed"):
            await api.get_text(proxied)
        assert PLANTED in await api.get_text(urljoin(proxied, SECRETS)), "for control: where it would lead"
    cluster.kubectl("delete", "namespace", tenant, "--wait=false")


async def bundle_of_editor(cluster: Lab, tenant: str) -> Bundle:
    """That of who may edit this namespace, and nothing else."""
    granted = ("rolebinding", "dev", "--clusterrole=edit", f"--serviceaccount={tenant}:default")
    cluster.kubectl("-n", tenant, "create", *granted)
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, tenant, "default")
    async with reached(cluster, kubeconfig) as api, asyncio.timeout(30):
        bundle = await gathered_bundle(api, tenant)
        while "jobs.json" not in bundle.files:  # the API server has not seen the binding yet
            bundle = await gathered_bundle(api, tenant)
    return bundle


async def install(api: Cluster, namespace: str, port: int) -> None:
    """What a bundle looks for of a release: its operator's Deployment and ClusterRoleBinding."""
    name = f"{namespace}-operator"
    spec = {"selector": {"matchLabels": LABELS}, "template": template(port)}
    await api.create(
        paths.collection("apps/v1", "deployments", namespace),
        {"metadata": {"name": name, "labels": LABELS}, "spec": spec},
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    await api.create(
        paths.collection("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        {"metadata": {"name": name, "labels": LABELS}, "roleRef": role, "subjects": [subject]},
    )
