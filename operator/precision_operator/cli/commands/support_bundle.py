"""`kubectl precision support-bundle`: one archive of what helps to find a fault, without secrets.

Secrets are left out wherever they stand. Objects lose what only the API server needs, values of environment variables,
and annotations of nodes that are not ours; then patterns that secrets are written in are removed from every text.
"""

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
_KEYS = (
    r"(?:passwords?|passwd|pwd|[_-]pass|(?-i:(?<![A-Z])PASS)|passphrase|secret|(?<!per)(?<!per[_-])token|credentials?"
    r"|authorization|cookie|sig(?:nature)?"
    r"|(?:api|secret|access|account|private|encryption|signing)[-_]?(?:access[-_]?)?key(?:[-_]base)?)(?:_?\d{1,2})?"
)
_MANY = r"(?:passw(?:or)?ds|passphrases|tokens|api[-_]?keys)"
_NAMED = rf"(?<![\w-])[\w-]{{0,200}}?{_KEYS}(?:\\*[\"'])?"
"""A name that ends so, and the quote behind it, escaped as often as JSON was put into JSON: tried at the beginning of
words alone, or a megabyte of metrics would take ten seconds. `trainingFlopsPerToken` is a figure."""
_IS_NAMED, _ARE_NAMED = (re.compile(rf"(?is).*{of}").fullmatch for of in (rf"(?:{_KEYS}|\b_?auth)", _MANY))
_PLAIN = r"(?!(?:true|false|null)(?:[\s,;}\])\"']|$)|[\[{]|(?<=[a-z] token: )(?!bearer|basic|token)[a-z]+ \S)"
"""A switch, an object, or a message: `failed to fetch oauth token: unexpected status`."""
_OBJECT = r"\{[ \t]*\\*[\"'][^\"'\\]*\\*[\"'][ \t]*:"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"(?im)^([ \t]*)((?:- )?{_NAMED}:)[ \t]*[|>]?[+-]?\r?((?:\n\1[ \t]+\S.*)+)"), rf"\1\2 {REMOVED}"),
    (re.compile(rf"(?i)(\bname[\"']?:[ \t]*[\"']?{_NAMED},?[ \t]*\r?\n[ \t]*[\"']?value[\"']?:).*"), rf"\1 {REMOVED}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{5,1000}\.[\w-]{5,}\.[\w-]*"), REMOVED),  # a JSON web token
    (re.compile(r"(?i)\b(bearer|basic)([ \t]+)(?-i:(?![a-z]+(?:[\s,;:.]|$)))[\w.~+/=-]{8,}"), rf"\1\2{REMOVED}"),
    (re.compile(r"(?i)(\w://)[^/\s:@\"']*:[^/\s\"']+@"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REMOVED),
    (re.compile(r"\b(?:gh[opsur]_|github_pat_|gl[a-z]{2,4}-|hf_|nvapi-|npm_|dckr_pat_|xox[abps]-)[\w-]{10,}"), REMOVED),
    (re.compile(r"\b(?:AIza|GOCSPX-|[rs]k_live_|xapp-)[\w-]{10,}"), REMOVED),
    (re.compile(r"(?i)([\"']_?auth\\*[\"'][ \t]*:[ \t]*\\*[\"'])[\w+/=-]+"), rf"\1{REMOVED}"),  # of docker config
    (re.compile(r"(?i)(\blogin[ \t]+\S+[ \t]+password[ \t]+)\S+"), rf"\1{REMOVED}"),  # of netrc
    (re.compile(r"(?im)^([ \t]*password[ \t]+)\S+(?=[ \t\r]*$)"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)({_MANY}\\*[\"']?[ \t]*[=:]+[ \t]*)(?:\[|{_OBJECT})[ \t]*\\*[\"'].*"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)({_NAMED}(?:[\\\"', \t]+value[\\\"']*)?[ \t]*[=:]+[ \t]*){_PLAIN}\S.*"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)(?<![\w-])(--[\w-]{{0,40}}{_KEYS}[ \t]+)\S.*"), rf"\1{REMOVED}"),
)
"""Nothing in a line takes anything of another, but what YAML puts below such a name: a tenant may have written it."""
_OF_KEY = re.compile(r"[\w+/-]{40,}={0,2}|-----(?:BEGIN|END) [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----", re.A)
_is_base64 = re.compile(r"[ \t\r\\>#|\"',.]*[\w+/=-]+[ \t\r\\>#|\"',.]*", re.A).fullmatch
_WORD, _HEADER = re.compile(r"[A-Za-z0-9]{12,}"), re.compile(r"[A-Z][\w-]+: ")
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
    return "\n".join(_without_keys(text.split("\n")))


def _without_keys(lines: Iterable[str]) -> list[str]:
    """The lines without those of private keys, wherever one is cut. A line of another kind costs no other one."""
    shown, is_key = list[str](), False
    for line in lines:
        text = _OF_KEY.sub(_or_removed, line)
        if text == line and is_key and _is_base64(line):
            text = REMOVED
        elif text != line and shown and _is_base64(shown[-1]):
            shown[-1] = REMOVED  # its beginning is cut off
        is_key = text != line or (is_key and (not line.strip() or bool(_HEADER.match(line))))
        shown.append(text)
    return shown


def _or_removed(match: re.Match[str]) -> str:
    """What stands there, unless it is of a key: base64 mixes in a word what names, paths, digests and UUIDs do not."""
    mixed = (word.upper() != word != word.lower() and re.search(r"\d", word) for word in _WORD.findall(match[0]))
    return REMOVED if " " in match[0] or any(mixed) else match[0]


def _redacted(value: Any, key: str = "") -> Any:
    """Each string without secrets by itself: none takes what follows it."""
    inner = "password" if _ARE_NAMED(key) else ""
    if isinstance(value, Mapping):
        shown = [*map(without_secrets, value)]
        count = Counter(shown)
        shown = [name if count[name] == 1 else f"{name} {at}" for at, name in enumerate(shown)]
        named = [inner or (str(value.get("name")) if name == "value" else name) for name in value]
        return dict(zip(shown, map(_redacted, value.values(), named), strict=True))
    if isinstance(value, list | tuple):
        flags = (inner, *(text if isinstance(text, str) and text.startswith("-") else inner for text in value))
        return [_redacted(of, flag) for of, flag in zip(value, flags, strict=False)]
    is_secret = _IS_NAMED(key) and value not in ("", None, True, False)
    return REMOVED if is_secret else without_secrets(value) if isinstance(value, str) else value


def plain_object(value: Any, key: str = "") -> Any:
    """A Kubernetes object without managed fields, others' annotations, and values of the environment: of a variable its
    name stays, and where it comes from another object that one's."""
    if isinstance(value, list):
        return [plain_object(item, key) for item in value]
    if isinstance(value, str) and key == "env":
        return REMOVED
    if not isinstance(value, Mapping):
        return value
    kept = {k: v for k, v in value.items() if GROUP in k or (k != "managedFields" and key != "annotations")}
    return {
        k: plain_object(v, "env" if key == "env" and isinstance(v, str) and k != "name" else k) for k, v in kept.items()
    }


def node_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Of a node what decides about measuring: labels of Kubernetes, NVIDIA and ours, taints, resources, conditions."""
    meta, status, spec = raw["metadata"], raw.get("status") or {}, raw.get("spec") or {}
    return {
        "metadata": {
            "name": meta["name"],
            "uid": meta.get("uid"),
            "creationTimestamp": meta.get("creationTimestamp"),
            "labels": {k: v for k, v in (meta.get("labels") or {}).items() if k.rpartition("/")[0].endswith(_OURS)},
            "annotations": plain_object(meta.get("annotations"), "annotations"),
        },
        "spec": {"taints": spec.get("taints"), "unschedulable": spec.get("unschedulable")},
        "status": {key: status[key] for key in ("allocatable", "capacity", "conditions", "nodeInfo") if key in status},
    }
