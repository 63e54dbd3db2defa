"""Whether an installation works, check by check: what `kubectl precision doctor` and `helm test` print.

What nobody could see is Unseen: a check that needs it is not made, and is never ok for want of a right.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from precision_api.facts.names import API_VERSION, DEFAULT_POOL_LABEL, PROFILE_KIND
from precision_api.facts.plain_text import number_of, one_line
from precision_api.kinds.crdgen import KINDS, definition
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.observe.clock import time_or_none
from precision_operator.core.observe.images import image_names
from precision_operator.core.observe.observed import Observed, Raw, Settings
from precision_operator.core.observe.raw_object import condition_of, entries, section
from precision_operator.core.plan import Plan
from precision_operator.core.rbac import GRANTS, OWN_DEPLOYMENT, OWN_STOP, Grant
from precision_operator.core.reasons import Said
from precision_operator.core.status.decisions import DECISIONS, WOULD_START, rows

ANYWHERE = "kube-public"
"""A namespace where no right of ours is bound: what may be done there may be done everywhere."""
SHOWN = 5
"""Names in one line."""
INSTALL = "helm upgrade --install precision-profiler oci://REGISTRY/precision-profiler"
NEW = f"{INSTALL} -n precision-system --create-namespace --reuse-values"


@dataclass(frozen=True)
class Unseen:
    """What could not be seen; `needs` is what it takes to see it."""

    needs: str


@dataclass(frozen=True)
class Release:
    """An operator as its Deployment says."""

    deployment: Raw
    settings: Settings
    namespaces: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of its Deployment."""
        return self.deployment["metadata"]["namespace"], self.deployment["metadata"]["name"]

    @property
    def pod(self) -> Raw:
        """The spec of its pods."""
        return dict(self.deployment["spec"]["template"]["spec"])

    @property
    def again(self) -> str:
        """The command that installs it as it should be."""
        return f"{INSTALL} -n {self.key[0]} --reuse-values"

    def option(self, name: str) -> str:
        """The value of an option on its command line; empty where it is not there."""
        words = (str(arg).partition("=") for row in entries(self.pod, "containers") for arg in row.get("args") or ())
        return next((value for option, _, value in words if option == name), "")


UNSEEN = Unseen("an operator that is seen")
World = tuple[ProfilePlan, Plan, Observed]


@dataclass(frozen=True)
class Facts:
    """All that is looked at; what is not there is empty."""

    now: datetime
    definitions: Raw | Unseen
    """The OpenAPI document of our group."""
    operator: Release | str | Unseen
    """Text: why there is none, or its Deployment can't be read."""
    lease: Raw | Unseen = UNSEEN
    rules: Mapping[tuple[str, str], Raw] | Unseen = UNSEEN
    """Status of a SelfSubjectRulesReview by component and namespace."""
    pods: Sequence[Raw] | Unseen = UNSEEN
    """Of operator and exporter."""
    secrets: Mapping[str, bool] | Unseen = UNSEEN
    """Whether each pull Secret is there, by namespace/name."""
    world: World | Unseen = UNSEEN
    """What would happen to a first profile over all nodes."""
    scrapes: Mapping[str, Raw | str] | Unseen = UNSEEN
    """What each exporter says of its last scrape, by pod; text: why it says nothing."""

    @property
    def release(self) -> Release | Unseen:
        return self.operator if isinstance(self.operator, Release) else UNSEEN


@dataclass(frozen=True)
class Check:
    """One line. `fix` is a command, where something is wrong."""

    check: str
    state: Literal["ok", "wrong", "not checked"]
    message: str
    fix: str = ""


Result = tuple[str, str] | Unseen
"""Message and fix, which is empty where all is well."""


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of all fields below spec and status of an OpenAPI schema."""
    for name, inner in section(schema, "properties").items():
        if path or name in ("spec", "status"):
            yield f"{path}.{name}"
            yield from _fields(inner, f"{path}.{name}")
    for inner in filter(None, (section(schema, "items"), section(schema, "additionalProperties"))):
        yield from _fields(inner, path)


def _definitions(document: Raw) -> Result:
    if not document:
        return f"the API server does not serve {API_VERSION}", NEW
    roots = {kind.kind: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
    wanted = {f"{kind}{path}" for kind, root in roots.items() for path in _fields(root)}
    schemas = section(section(document, "components"), "schemas").values()
    kinds = ((row["kind"], root) for root in schemas for row in entries(root, "x-kubernetes-group-version-kind"))
    there = {f"{kind}{path}" for kind, root in kinds if kind in roots for path in _fields(root)}
    if older := sorted(wanted - there):
        return f"they are older than this program: they lack {_named(older)}", NEW
    if newer := sorted(there - wanted):
        return f"they are newer than this program, which does not know {_named(newer)}", "kubectl precision --version"
    return f"{', '.join(roots)} of {API_VERSION}, as this program knows them", ""


def _operator(release: Release | str) -> Result:
    if isinstance(release, str):
        return release, NEW
    version = section(release.deployment["metadata"], "labels").get("app.kubernetes.io/version", "unknown")
    return f"{'/'.join(release.key)}, version {version}, serves {', '.join(release.namespaces)}", ""


def _leader(release: Release, pods: Sequence[Raw], lease: Raw, now: datetime) -> Result:
    if not _is_ready("operator", pods):
        return Unseen("a pod of the operator that is ready")
    spec, fix = section(lease, "spec"), "kubectl -n {} logs deployment/{} --tail=50".format(*release.key)
    holder, renewed = spec.get("holderIdentity"), time_or_none(spec.get("renewTime"))
    if not holder or renewed is None:
        return "no replica leads", fix
    silent, lasts = (now - renewed).total_seconds(), int(spec.get("leaseDurationSeconds") or 0)
    return f"{holder}, renewed {max(silent, 0):.0f} s ago (lease of {lasts} s)", fix if silent > lasts else ""


def _lacking(grant: Grant, name: str, rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Verbs and resource of the row that no rule grants for the object `name`."""
    for resource in grant.resources:
        verbs = set(grant.verbs)
        for rule in rules:
            fits = {grant.group, "*"} & set(rule["apiGroups"]) and {resource, "*"} & set(rule["resources"])
            if fits and name in (rule.get("resourceNames") or [name]):
                verbs -= verbs if "*" in rule["verbs"] else set(rule["verbs"])
        if verbs:
            yield f"{'/'.join(sorted(verbs))} {resource}"


def _rights(release: Release, rules: Mapping[tuple[str, str], Raw]) -> Result:
    (namespace, name), claims, stop = release.key, release.settings.resource_claims, release.option("--stop-config-map")
    places = {"cluster": (ANYWHERE,), "namespace": release.namespaces, "own": (namespace,)}
    lacking, incomplete = [], False
    for row in (row for row in GRANTS if claims or row.group != "resource.k8s.io"):
        only = {OWN_DEPLOYMENT: name.removesuffix("operator") + row.component, OWN_STOP: stop}.get(row.only, "")
        for place, review in [(p, rules[row.component, p]) for p in places[row.scope] if (row.component, p) in rules]:
            without = [*_lacking(row, only, entries(review, "resourceRules"))]
            where = "" if place == ANYWHERE else f" in {place}"
            lacking += [f"the {row.component} may not {right}{where}" for right in without]
            incomplete |= bool(without and review.get("incomplete"))
    if incomplete:
        return Unseen(f"an authorizer that lists its rules; by RBAC {_named(lacking)}")
    who = " and ".join(dict.fromkeys(component for component, _ in rules))
    return _named(lacking) or f"{who}: all of the chart's rbac.yaml", release.again if lacking else ""


def _image_names(release: Release) -> Result:
    images = [*(str(row.get("image")) for row in release.pod["containers"]), release.settings.agent_image]
    if bad := [image or "''" for image in images if "example" in image.split("/")[0].split(".") or not image]:
        fix = f"{release.again} --set operator.image.repository=IMAGE,agent.image.repository=IMAGE"
        return f"nothing can be pulled as {' and '.join(bad)}", fix
    return ", ".join(images), ""


def _pods(release: Release, pods: Sequence[Raw]) -> Result:
    problems = [f"{pod['metadata']['name']}: {why}" for pod in pods if (why := _not_ready(pod))]
    fix = f"kubectl -n {release.key[0]} describe pods -l app.kubernetes.io/name=precision-profiler"
    if problems or not pods:
        return _named(problems) or "there is none", fix
    counts = Counter(map(component_of, pods))
    return ", ".join(f"{component} {count} ready" for component, count in counts.items()), ""


def component_of(raw: Raw) -> str:
    """operator or exporter; empty or another word for what is neither."""
    return str(section(section(raw, "metadata"), "labels").get("app.kubernetes.io/component", ""))


def _not_ready(pod: Raw) -> str:
    """What the kubelet or the scheduler says of a pod that is not ready; empty for one that is."""
    status = section(pod, "status")
    if condition_of(status, "Ready").get("status") == "True":
        return ""
    waits = [section(section(row, "state"), "waiting") for row in entries(status, "containerStatuses")]
    said = next((row for row in (*waits, condition_of(status, "PodScheduled")) if row.get("reason")), {})
    return f"{said.get('reason', 'not ready')} {said.get('message', '')}".strip()[:200]


def _is_ready(component: str, pods: Sequence[Raw]) -> bool:
    return any(component_of(pod) == component and not _not_ready(pod) for pod in pods)


def _secrets(release: Release, secrets: Mapping[str, bool]) -> Result:
    if absent := [name for name, there in secrets.items() if not there]:
        fix = "kubectl -n {} create secret docker-registry {} --docker-server=REGISTRY".format(*absent[0].split("/"))
        return f"there is no {_named(absent)}", fix
    return _named([*secrets]) or "none is named", ""


def _nodes(world: World) -> Result:
    asked, _, seen = world
    listed = [row for row in rows(*world) if row["gpus"] or row["reason"] != "NotMatched"]
    if isinstance(asked.asked, Said):
        return f"{asked.asked.reason}: {asked.asked.message}", "kubectl precision status -A"
    if not listed:
        return "no node has nvidia.com/gpu allocatable, or a label of a GPU", "kubectl get nodes --show-labels"
    counts = Counter(row["reason"] for row in listed)
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    summary = f"{number_of(len(listed), 'GPU node')}: {reasons}"
    if {row["decision"] for row in listed} <= {DECISIONS["skipped"], DECISIONS["unmatched"]}:
        node = listed[0]["node"]
        return f"{summary}. {node}: {listed[0]['message']}", f"kubectl describe node {node}"
    names, image = {row["node"] for row in listed}, image_names(seen.settings.agent_image)
    nodes = seen.facts_of(DEFAULT_POOL_LABEL).values()
    with_image = sum(node.name in names and not image.isdisjoint(node.images) for node in nodes)
    return f"{summary}; free: {_named(_free(world)) or 'none'}; {with_image} have the agent's image", ""


def _free(world: World) -> list[str]:
    return [row["node"] for row in rows(*world) if row["reason"] == WOULD_START]


def _exporter(release: Release, pods: Sequence[Raw], scrapes: Mapping[str, Raw | str]) -> Result:
    if scrapes and not _is_ready("exporter", pods):
        return Unseen("a pod of the exporter that is ready")
    silent = [f"{pod}: {answer}" for pod, answer in scrapes.items() if isinstance(answer, str)]
    if silent or not scrapes:
        fix = f"kubectl -n {release.key[0]} logs -l app.kubernetes.io/component=exporter --tail=50"
        return f"no answer: {_named(silent) or 'it has no pod'}", fix
    at, by = max((str(row.get("at") or ""), str(row.get("by"))) for row in scrapes.values() if not isinstance(row, str))
    return f"answers; last scraped at {at} by {by}" if at else "answers; nobody has scraped it yet", ""


CHECKS: Mapping[str, tuple[Callable[..., Result], tuple[str, ...]]] = {
    "definitions": (_definitions, ("definitions",)),
    "operator": (_operator, ("operator",)),
    "image names": (_image_names, ("release",)),
    "pull Secrets": (_secrets, ("release", "secrets")),
    "pods": (_pods, ("release", "pods")),
    "leader": (_leader, ("release", "pods", "lease", "now")),
    "rights": (_rights, ("release", "rules")),
    "GPU nodes": (_nodes, ("world",)),
    "exporter": (_exporter, ("release", "pods", "scrapes")),
}
"""What makes each check, and the facts that it needs; in the order in which they are to be fixed."""


def checks(facts: Facts) -> list[Check]:
    """All checks."""
    return [_check(name, make, [getattr(facts, key) for key in keys]) for name, (make, keys) in CHECKS.items()]


def _check(name: str, make: Callable[..., Result], needed: Sequence[Any]) -> Check:
    result = next((fact for fact in needed if isinstance(fact, Unseen)), None) or make(*needed)
    if isinstance(result, Unseen):
        return Check(name, "not checked", f"needs {result.needs}")
    return Check(name, "wrong" if result[1] else "ok", *result)


def next_command(facts: Facts, made: Sequence[Check]) -> str:
    """What to type now: what fixes the first wrong check, lists rights, measures a free node, or shows figures."""
    if wrong := [row.fix for row in made if row.fix]:
        return wrong[0]
    if isinstance(facts.world, Unseen) or isinstance(facts.release, Unseen):
        return "kubectl auth can-i --list"
    namespace, free = facts.release.namespaces[0], _free(facts.world)
    if not free or len(facts.world[2].profiles) > 1:
        return f"kubectl precision -n {namespace} status"
    spec = f'"spec":{{"target":{{"nodeNames":["{free[0]}"]}},"workload":{{"preset":"llama3-8b"}}}}'
    head = f'"apiVersion":"{API_VERSION}","kind":"{PROFILE_KIND}","metadata":{{"name":"first"}}'
    return f"echo '{{{head},{spec}}}' | kubectl -n {namespace} apply -f -"


def text(facts: Facts, made: Sequence[Check]) -> str:
    """The checks for people, a line each, and the next command last."""
    lines: list[str] = []
    for row in made:
        lines.append(f"{row.state:11}  {row.check:12}  {one_line(row.message)}")
        lines += [f"{'':27}fix: {row.fix}"] if row.fix else []
    return "\n".join([*lines, "", f"next: {next_command(facts, made)}"])


def _named(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
