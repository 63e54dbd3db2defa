"""`kubectl precision support-bundle`: one archive of what helps to find a fault, without secrets."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from precision_api.facts import names
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.failure import fail, note
from precision_operator.cli.options import AllNamespaces, Namespace, Reach, asks_cluster, place_of
from precision_operator.cli.redaction import node_facts, plain_object, without_secrets
from precision_operator.cli.terminal import say
from precision_operator.cluster import ApiError, Cluster, paths

FOLDER = "precision-support-bundle"
LOG_LINES = 5_000
OURS = f"{names.LABEL_APP}=precision-profiler"
"""Label of the operator's and the exporter's Deployments and pods."""
_EVENT_KINDS = ("PrecisionProfile", "NodePrecisionReport", "CapacityPlan")
_CRDS = paths.collection("apiextensions.k8s.io/v1", "customresourcedefinitions")
README = """\
Made by kubectl precision support-bundle. Look through it before you share it.

version.json       versions of the plugin and the cluster
profiles.json, reports.json, plans.json, jobs.json, pods.json (agents), events.json
nodes.json         labels of Kubernetes, NVIDIA and ours, taints, resources, conditions; no addresses
crds.json, deployments.json, operator-pods.json
logs/, metrics/    of operator and exporter: the newest log lines, and their metrics
problems.txt       what could not be read, and why

No Secret and no ConfigMap was read. Values of environment variables, and what is written as passwords, tokens and keys
are, stand as (removed).
"""


@asks_cluster
def support_bundle(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="The archive, such as bundle.tar.gz. Default: named by the time."),
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    *,
    reach: Reach,
) -> None:
    """Write what helps to find a fault into one archive, without secrets: attach it to an issue.

    Profiles, reports, plans, agents, events, nodes, and logs and metrics of the operator and the exporter. What you may
    not read is left out, and named in problems.txt.
    """
    now = datetime.now(UTC)
    path = Path(output or f"{FOLDER}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if not path.name.endswith((".tar.gz", ".tgz")):
        fail(f"-o {path}: the bundle is an archive; name it for example bundle.tar.gz")

    async def work(cluster: Cluster) -> Bundle:
        return await gathered_bundle(cluster, place_of(namespace, all_namespaces, cluster.namespace))

    bundle = ask_cluster(reach, work)
    note(*bundle.problems)
    content = archive(bundle, now)
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"writing {path}: {error.strerror}; name another file with -o")
    say(f"{path}: {len(bundle.files)} files, {len(content):,} bytes. Look through it before you share it.")


@dataclass
class Bundle:
    """Texts by file name, and what could not be read."""

    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, content: Any) -> None:
        """A file of this name: text as it is, anything else as JSON; without secrets."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        self.files[name] = without_secrets(text)

    async def take(self, name: str, reading: Awaitable[Any]) -> Any:
        """What was read, put into the file; None where it could not be read, with a problem.

        Raises ApiError where the cluster gives no answer at all, or does not know the user.
        """
        try:
            content = await reading
        except ApiError as error:
            if error.status in (0, 401):
                raise
            self.problems.append(without_secrets(f"{name} is left out: {error}"))
            return None
        self.add(name, content)
        return content


async def gathered_bundle(cluster: Cluster, place: str | None) -> Bundle:
    """The bundle of a namespace (None: of all), with the operator wherever it runs. Raises ApiError."""
    bundle, agents = Bundle(), f"{names.LABEL_APP}={names.AGENT_APP}"
    await bundle.take("version.json", _versions(cluster))
    for name, path, selector, view in (
        ("profiles.json", paths.profiles(place), None, plain_object),
        ("reports.json", paths.reports(place), f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}", plain_object),
        ("plans.json", paths.collection(names.API_VERSION, names.PLAN_PLURAL, place), None, plain_object),
        ("jobs.json", paths.jobs(place), agents, plain_object),
        ("pods.json", paths.pods(place), agents, plain_object),
        ("events.json", paths.collection("v1", "events", place), None, _own_event),
        ("nodes.json", paths.NODES, None, node_facts),
        ("crds.json", _CRDS, None, _own_crd),
        ("deployments.json", paths.collection("apps/v1", "deployments"), OURS, plain_object),
    ):
        await bundle.take(name, cluster.list_views(path, view, selector))
    pods = await bundle.take("operator-pods.json", cluster.list_views(paths.pods(), plain_object, OURS))
    for pod in pods or ():
        await _of_pod(cluster, bundle, pod)
    if not pods:
        bundle.problems.append("logs and metrics are left out: no pod of the operator was seen")
    bundle.add("problems.txt", "\n".join(bundle.problems) + "\n")
    bundle.add("README.txt", README)
    return bundle


async def _versions(cluster: Cluster) -> dict[str, Any]:
    return {"plugin": metadata.version("precision-profiler"), "cluster": await cluster.get("/version")}


async def _of_pod(cluster: Cluster, bundle: Bundle, pod: dict[str, Any]) -> None:
    """Log and metrics of each container of one of our pods."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for container in pod.get("spec", {}).get("containers", ()):
        label = f"{name}-{container['name']}"
        await bundle.take(f"logs/{label}.log", _log(cluster, namespace, name, container["name"]))
        ports = [port["containerPort"] for port in container.get("ports") or () if "containerPort" in port]
        for port in ports[:1]:
            proxied = f"{paths.item(paths.pods(namespace), name)}:{port}/proxy/metrics"
            await bundle.take(f"metrics/{label}.txt", cluster.get_text(proxied))


async def _log(cluster: Cluster, namespace: str, pod: str, container: str) -> str:
    content = await cluster.read_log(namespace, pod, container, LOG_LINES)
    return content.decode(errors="replace")


def _own_event(raw: dict[str, Any]) -> dict[str, Any] | None:
    """An event of our objects, or of an agent's Job or pod; None for others."""
    about = raw.get("involvedObject") or {}
    ours = about.get("kind") in _EVENT_KINDS or str(about.get("name", "")).startswith(("pp-", "precision-profiler"))
    return plain_object(raw) if ours else None


def _own_crd(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Name, versions and conditions of one of our kinds; None for others."""
    spec = raw.get("spec") or {}
    if spec.get("group") != names.GROUP:
        return None
    versions = [
        {key: version.get(key) for key in ("name", "served", "storage")} for version in spec.get("versions") or ()
    ]
    conditions = (raw.get("status") or {}).get("conditions")
    return {"name": raw["metadata"]["name"], "versions": versions, "conditions": conditions}


def archive(bundle: Bundle, now: datetime) -> bytes:
    """The files in one gzipped tar, below one folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, text in sorted(bundle.files.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mtime, member.mode = len(data), int(now.timestamp()), 0o644
            packed.addfile(member, io.BytesIO(data))
    return content.getvalue()
