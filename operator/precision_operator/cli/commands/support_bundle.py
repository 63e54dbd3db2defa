"""`kubectl precision support-bundle`: one archive of what helps to find a fault, without secrets.

Secrets are left out wherever they stand. Objects lose what only the API server needs, values of environment variables,
and annotations of nodes that are not ours; then patterns that secrets are written in are removed from every text.
"""

import io
import json
import re
import tarfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from precision_api.facts import names
from precision_api.facts.names import GROUP
from precision_operator.cli import plugin_version
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import AllNamespaces, Namespace, Reach, asks_cluster, place_of
from precision_operator.cli.terminal import fail, note, say
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import Raw
from precision_operator.shell.settings import BINDINGS, OURS, operator_of

FOLDER = "precision-support-bundle"
LOG_LINES = 5_000
_EVENT_KINDS = ("PrecisionProfile", "NodePrecisionReport", "CapacityPlan")
README = """\
Made by kubectl precision support-bundle. Look through it before you share it.

version.json       versions of the plugin and the cluster
profiles.json, reports.json, plans.json, jobs.json, pods.json (agents), events.json
nodes.json         labels of Kubernetes, NVIDIA and ours, taints, resources, conditions; no addresses
crds.json, releases.json, deployments.json, operator-replicasets.json, operator-pods.json
logs/, metrics/    of operator and exporter: the newest log lines, and their metrics
problems.txt       what could not be read, and why

No Secret and no ConfigMap was read. Values of environment variables, and what is written as passwords, tokens and keys
are, stand as (removed).
"""
REMOVED = "(removed)"
_KEYS = r"(?:password|passwd|passphrase|secret|(?<!per)token|credentials?|api[-_]?key|access[-_]?key|private[-_]?key)"
_NAMED = rf"(?<![\w-])[\w-]{{0,200}}?{_KEYS}(?:\\*[\"'])?"
"""A name that ends so, and the quote behind it, escaped as often as JSON was put into JSON.

It is tried at the beginning of words alone: at each letter, a megabyte of metrics would take ten seconds.
`trainingFlopsPerToken` is a figure.
"""
_BEGINS, _ENDS = (re.compile(rf"-----{of} [A-Z ]*PRIVATE KEY(?: BLOCK)?-----") for of in ("BEGIN", "END"))
_KEY, _END = _BEGINS.pattern, _ENDS.pattern
_KEY_LINE = r".*[\w+/=-]{40}.*|[^\S\n]*(?:(?:Proc-Type|DEK-Info|-----END).*|[\w+/=-]*[^\S\n]*)"
"""What may stand in a line of a key, whatever is before and behind it: what somebody else begins in a file and does not
end must not take the rest of it."""
_KEY_OF_VALUE = re.compile(rf"{_KEY}(?:[\s\S]*?{_END}|[\s\S]*)")
"""In one value, which is of one author: to its end."""
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"{_KEY}(?:(?!{_KEY})[\s\S]){{0,16384}}?{_END}"), REMOVED),
    (re.compile(rf"{_KEY}.*(?:\n(?:{_KEY_LINE})\r?$){{0,200}}", re.M), REMOVED),
    (re.compile(r"\beyJ[\w-]{5,1000}\.[\w-]{5,}\.[\w-]*"), REMOVED),  # a JSON web token, as service accounts have
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), rf"\1\2{REMOVED}"),
    (re.compile(r"(?i)(\w://)[^/\s:@\"']*:[^/\s@\"']+@"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REMOVED),
    (re.compile(r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|nvapi-|xox[abps]-)[\w-]{10,}"), REMOVED),
    (re.compile(rf"(?i)({_NAMED}\s*[=:]\s*(\\*[\"']))(?:(?!\2).)+"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)({_NAMED}\s*[=:]\s*)(?!true\b|false\b|null\b)[^\s\"',;{{}}\[\]\\]+"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)(--[\w-]{{0,40}}{_KEYS}\s+)\S+"), rf"\1{REMOVED}"),
)
_OURS = (GROUP, "nvidia.com", "topology.kubernetes.io", "kubernetes.io", "node.kubernetes.io", "cluster.x-k8s.io")


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
    place = partial(place_of, namespace, all_namespaces)
    bundle = ask_cluster(reach, lambda cluster: gathered_bundle(cluster, place(cluster.namespace)))
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
        content = content.decode(errors="replace") if isinstance(content, bytes) else content
        text = without_secrets(content) if isinstance(content, str) else _redacted(content)
        self.files[name] = text if isinstance(text, str) else json.dumps(text, indent=1, ensure_ascii=False) + "\n"

    async def take(self, name: str, reading: Awaitable[Any]) -> Any:
        """What was read, put into the file; None where it could not be read, with a problem.

        Raises ApiError where the first is not answered, or the cluster does not know the user.
        """
        try:
            content = await reading
        except ApiError as error:
            if not self.files and error.status in (0, 401):
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
        ("crds.json", paths.collection("apiextensions.k8s.io/v1", "customresourcedefinitions"), None, _own_crd),
    ):
        await bundle.take(name, cluster.list_views(path, view, selector))
    for pod in await _pods_of_release(cluster, bundle, place):
        await _of_pod(cluster, bundle, pod)
    bundle.add("problems.txt", "\n".join(bundle.problems) + "\n")
    bundle.add("README.txt", README)
    return bundle


async def _versions(cluster: Cluster) -> dict[str, Any]:
    return {"plugin": plugin_version(), "cluster": await cluster.get("/version")}


async def _pods_of_release(cluster: Cluster, bundle: Bundle, place: str | None) -> list[Raw]:
    """Pods of the operator's and the exporter's Deployments, by owner: any pod may bear their label.

    The release is in `place`, else where ClusterRoleBindings of the chart say; where these can't be read, in `place`.
    """
    programs: list[tuple[str, str]]
    programs = await bundle.take("releases.json", cluster.list_views(BINDINGS, operator_of, OURS)) or []
    bound = {namespace for namespace, _ in programs}
    namespaces = sorted(bound) if bound and place not in bound else [place] if place else []
    programs += [(namespace, name.removesuffix("-operator") + "-exporter") for namespace, name in programs]

    async def read(api_version: str, plural: str, wanted: Callable[[Raw], bool]) -> list[Raw]:
        places = [paths.collection(api_version, plural, namespace) for namespace in namespaces]
        return [raw for path in places for raw in await cluster.list_views(path, plain_object, OURS) if wanted(raw)]

    def is_program(raw: Raw) -> bool:
        return not programs or (raw["metadata"]["namespace"], raw["metadata"]["name"]) in programs

    owned = await bundle.take("deployments.json", read("apps/v1", "deployments", is_program)) or []
    for api_version, plural in (("apps/v1", "replicasets"), ("v1", "pods")):
        by = partial(_is_owned, frozenset(raw["metadata"]["uid"] for raw in owned))
        owned = await bundle.take(f"operator-{plural}.json", read(api_version, plural, by)) or []
    where = ", ".join(namespaces) or "any namespace"
    if not owned:
        bundle.problems.append(
            f"logs and metrics are left out: no pod of the operator was seen in {where}: name its -n"
        )
    elif not programs:
        bundle.problems.append(f"logs and metrics are of what calls itself the operator in {where}: no binding is read")
    return owned


def _is_owned(uids: frozenset[str], raw: Raw) -> bool:
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") in uids for owner in owners)


async def _of_pod(cluster: Cluster, bundle: Bundle, pod: Raw) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for container in pod.get("spec", {}).get("containers", ()):
        label = f"{name}-{container['name']}"
        await bundle.take(f"logs/{label}.log", cluster.read_log(namespace, name, container["name"], LOG_LINES))
        ports = [port["containerPort"] for port in container.get("ports") or () if "containerPort" in port]
        for port in ports[:1]:
            proxied = f"{paths.item(paths.pods(namespace), name)}:{port}/proxy/metrics"
            await bundle.take(f"metrics/{label}.txt", cluster.get_text(proxied))


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
    versions = [{key: row.get(key) for key in ("name", "served", "storage")} for row in spec.get("versions") or ()]
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


def without_secrets(text: str) -> str:
    """`text` with `(removed)` in place of what is written as secrets are."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _redacted(value: Any, key: str = "") -> Any:
    """Each string without secrets by itself: none takes what follows it."""
    if isinstance(value, Mapping):
        return {without_secrets(name): _redacted(of, name) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [*_redacted_list(value)]
    is_secret = re.fullmatch(rf"(?i).*{_KEYS}", key) and value not in ("", None, True, False)
    if is_secret or not isinstance(value, str):
        return REMOVED if is_secret else value
    return without_secrets(_KEY_OF_VALUE.sub(REMOVED, value))


def _redacted_list(values: Iterable[Any]) -> Iterator[Any]:
    """Each; of a key that stands there a line each, none."""
    begun = 0
    for value in values:
        text = value if isinstance(value, str) else ""
        before, begun = begun, max(0, begun + len(_BEGINS.findall(text)) - len(_ENDS.findall(text)))
        yield REMOVED if before and text else _redacted(value)


def plain_object(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A Kubernetes object without managed fields, the copy that kubectl apply keeps, and values of the environment."""
    cleaned = _cleaned(dict(raw))
    assert isinstance(cleaned, dict)
    return cleaned


def _cleaned(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        dropped = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
        return {k: _cleaned(v, k) for k, v in value.items() if k not in dropped}
    if isinstance(value, list):
        return [_without_value(variable) if key == "env" else _cleaned(variable) for variable in value]
    return value


def _without_value(variable: Any) -> Any:
    """`{name: X, value: (removed)}`; where it comes from another object, that stays: it is a name."""
    if isinstance(variable, Mapping) and "value" in variable:
        return {**variable, "value": REMOVED}
    return variable


def node_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Of a node what decides about measuring: labels of Kubernetes, NVIDIA and ours, taints, resources, conditions."""
    meta, status, spec = raw["metadata"], raw.get("status") or {}, raw.get("spec") or {}
    return {
        "metadata": {
            "name": meta["name"],
            "uid": meta.get("uid"),
            "creationTimestamp": meta.get("creationTimestamp"),
            "labels": {k: v for k, v in (meta.get("labels") or {}).items() if k.rpartition("/")[0].endswith(_OURS)},
            "annotations": {key: text for key, text in (meta.get("annotations") or {}).items() if GROUP in key},
        },
        "spec": {"taints": spec.get("taints"), "unschedulable": spec.get("unschedulable")},
        "status": {key: status[key] for key in ("allocatable", "capacity", "conditions", "nodeInfo") if key in status},
    }
