"""Whether an installation works, check by check: what `kubectl precision doctor` and `helm test` print.

What nobody could see is Unseen: a check that needs it is not made, and is never ok for want of a right.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import signature
from typing import Any

from precision_api.facts.names import API_VERSION, DEFAULT_POOL_LABEL, PROFILE_KIND
from precision_api.facts.plain_text import first_of, number_of, one_line
from precision_api.kinds.crdgen import KINDS, definition
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.observe.clock import time_or_none
from precision_operator.core.observe.images import image_names
from precision_operator.core.observe.observed import Observed, Raw, Settings
from precision_operator.core.observe.raw_object import condition_of, entries, section
from precision_operator.core.plan import Plan
from precision_operator.core.rbac import ANYWHERE, GRANTS, OWN_DEPLOYMENT, OWN_STOP, Grant
from precision_operator.core.reasons import Said
from precision_operator.core.status.decisions import DECISIONS, WOULD_START, rows

_named = partial(first_of, most=5)
INSTANCE, MARK = "app.kubernetes.io/instance", "app.kubernetes.io/name=precision-profiler"


class Unseen(str):
    """What it takes to see what could not be seen."""


@dataclass(frozen=True)
class Release:
    """An operator as its Deployment says; its release's Deployments by component; the operators of other releases."""

    deployment: Raw
    programs: Mapping[str, Raw]
    others: Sequence[tuple[str, str]]
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
    def images(self) -> list[str]:
        """Of its pods."""
        return [str(row.get("image")) for row in self.pod["containers"]]

    def option(self, name: str) -> str:
        """The value of an option on its command line; empty where it is not there."""
        words = (str(arg).partition("=") for row in entries(self.pod, "containers") for arg in row.get("args") or ())
        return next((value for option, _, value in words if option == name), "")


def again(deployment: Raw) -> str:
    """The command that installs the operator of this Deployment as it should be; a new one of an empty one."""
    meta = section(deployment, "metadata")
    name, home = section(meta, "labels").get(INSTANCE, "precision-profiler"), meta.get("namespace", "precision-system")
    return f"helm upgrade --install {name} CHART -n {home} --create-namespace --reset-then-reuse-values"


UNSEEN = Unseen("an operator that is seen")
World = tuple[ProfilePlan, Plan, Observed]
Facts = Mapping[str, Any]
"""All that is looked at, by the parameters of the checks; empty where it is not there, Unseen where none could look."""
Result = tuple[str, str] | Unseen
"""Message and fix, which is empty where all is well."""
KEYS = ("check", "state", "message", "fix")
"""Of a check's row: state is ok, wrong or not checked; fix is a command, where something is wrong."""


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of all fields below spec and status of a kind's OpenAPI schema, begun with the kind; `=value` of enums."""
    yield from (f"{path}={value}" for value in schema.get("enum") or ())
    for name, inner in section(schema, "properties").items():
        if "." in path or name in ("spec", "status"):
            yield f"{path}.{name}"
            yield from _fields(inner, f"{path}.{name}")
    for inner in filter(None, (section(schema, "items"), section(schema, "additionalProperties"))):
        yield from _fields(inner, path)


def definitions_fit(definitions: Raw, install: str) -> Result:
    """Whether the API server has fields and values that this program has; `install` installs the release."""
    if not definitions:
        return f"the API server does not serve {API_VERSION}", install
    roots = {kind.kind: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
    wanted = {path for kind, root in roots.items() for path in _fields(root, kind)}
    schemas = section(section(definitions, "components"), "schemas").values()
    kinds = ((row["kind"], root) for root in schemas for row in entries(root, "x-kubernetes-group-version-kind"))
    there = {path for kind, root in kinds if kind in roots for path in _fields(root, kind)}
    if older := sorted(wanted - there):
        return f"they are older than this program: they lack {_named(older)}", install
    if newer := sorted(there - wanted):
        return f"they are newer than this program, which does not know {_named(newer)}", "kubectl precision --version"
    return f"{', '.join(roots)} of {API_VERSION}, as this program knows them", ""


def _operator(operator: Release | Result) -> Result:
    if not isinstance(operator, Release):
        return operator
    version = section(operator.deployment["metadata"], "labels").get("app.kubernetes.io/version", "unknown")
    also = f"; other releases, not checked: {_named([*map('/'.join, operator.others)])}" if operator.others else ""
    return f"{'/'.join(operator.key)}, version {version}, serves {', '.join(operator.namespaces)}{also}", ""


def term(lease: Raw, now: datetime) -> tuple[float, int]:
    """For how many seconds it has not been renewed, as its holder's clock may have it, and how many it lasts."""
    spec = section(lease, "spec")
    renewed = time_or_none(spec.get("renewTime"))
    silent = (now - renewed).total_seconds() if spec.get("holderIdentity") and renewed else math.inf
    return silent, int(spec.get("leaseDurationSeconds") or 15)


def _leader(release: Release, pods: Sequence[Raw], leases: Sequence[Raw], now: datetime) -> Result:
    """`leases` is one Lease as it was read first and last: a leader's changes, whatever its clock says."""
    if not (pods := _ready("operator", pods)):
        return Unseen("a pod of the operator that is ready")
    holder = str(section(leases[-1], "spec").get("holderIdentity") or "")
    (silent, lasts), fix = term(leases[-1], now), "kubectl -n {} logs deployment/{} --tail=50".format(*release.key)
    renews = abs(silent) <= lasts or leases[0] != leases[-1]
    hosts = {pod["metadata"]["name"][:63].rstrip("-.") for pod in pods}  # as the kubelet names them
    leads = holder.partition("_")[0] in hosts
    ready = [time_or_none(condition_of(section(pod, "status"), "Ready").get("lastTransitionTime")) for pod in pods]
    if not (renews and leads) and all(since and (now - since).total_seconds() < 2 * lasts for since in ready):
        return Unseen(f"a replica that leads: all are ready since seconds, and wait for the Lease ({lasts} s)")
    if silent == math.inf or not leads:
        return f"{holder} holds the Lease, and is no ready pod" if holder else "no replica leads", fix
    return f"{holder}, renewed {silent:.0f} s ago by its clock (lease of {lasts} s)", "" if renews else fix


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
    return _named(lacking) or f"{who}: all of the chart's rbac.yaml", again(release.deployment) if lacking else ""


def _examples(images: Sequence[str]) -> list[str]:
    return [image or "''" for image in images if "example" in image.split("/")[0].split(".") or not image]


def _image_names(release: Release) -> Result:
    images = [*release.images, release.settings.agent_image]
    if bad := _examples(images):
        fix = f"{again(release.deployment)} --set operator.image.repository=IMAGE,agent.image.repository=IMAGE"
        return f"nothing can be pulled as {' and '.join(bad)}", fix
    return ", ".join(images), ""


def _pods(release: Release, pods: Sequence[Raw]) -> Result:
    problems = [f"{pod['metadata']['name']}: {why}" for pod in pods if (why := _not_ready(pod))]
    ready = Counter(component_of(pod) for pod in pods if not _not_ready(pod))
    wanted = {component: max(section(raw, "spec").get("replicas", 1), 1) for component, raw in release.programs.items()}
    problems += [f"{name}: {ready[name]} of {most} ready" for name, most in wanted.items() if ready[name] < most]
    problems += [f"{name}: {why}" for name, most in wanted.items() if (why := _behind(release.programs[name], most))]
    if problems and _examples(release.images):
        return Unseen("image names that can be pulled")
    fix = f"kubectl -n {release.key[0]} describe deployments,replicasets,pods -l {MARK}"
    return _named(problems) or ", ".join(f"{name} {n} ready" for name, n in ready.items()), fix if problems else ""


def _behind(deployment: Raw, wanted: int) -> str:
    """How far a Deployment is from its spec, by its controller's words; empty where it is there, or can't be read."""
    status, meta = section(deployment, "status"), section(deployment, "metadata")
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        return "the Deployment's last change is not observed yet"
    if not deployment or (updated := status.get("updatedReplicas", 0)) >= wanted:
        return ""
    rows = ((condition_of(status, kind), good) for kind, good in (("ReplicaFailure", "False"), ("Progressing", "True")))
    said = [f": {row.get('reason')} {row.get('message')}" for row, good in rows if row.get("status", good) != good]
    return f"{updated} of {wanted} updated{''.join(said[:1])}"[:300]


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


def _ready(component: str, pods: Sequence[Raw]) -> list[Raw]:
    return [pod for pod in pods if component_of(pod) == component and not _not_ready(pod)]


def _secrets(release: Release, secrets: Mapping[str, bool]) -> Result:
    if absent := [name for name, there in secrets.items() if not there]:
        kind, place, name = absent[0].replace("/", " ").rsplit(" ", 2)
        fix = f"kubectl -n {place} create secret docker-registry {name} --docker-server=REGISTRY"
        return f"there is no {_named(absent)}", again(release.deployment) if kind == "ServiceAccount" else fix
    return _named([name for name in secrets if not name.startswith("ServiceAccount ")]) or "none is named", ""


def _nodes(world: World) -> Result:
    asked, _, seen = world
    listed = [row for row in rows(*world) if row["gpus"] or row["reason"] != "NotMatched"]
    if isinstance(asked.asked, Said):
        return f"{asked.asked.reason}: {asked.asked.message}", "kubectl precision status -A"
    if not listed:
        return Unseen("a GPU node, with nvidia.com/gpu allocatable or a label of its GPU")
    counts = Counter(row["reason"] for row in listed)
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    summary, node = f"{number_of(len(listed), 'GPU node')}: {reasons}", listed[0]["node"]
    if {row["decision"] for row in listed} <= {DECISIONS["skipped"], DECISIONS["unmatched"]}:
        return f"{summary}. {node}: {listed[0]['message']}", f"kubectl describe node {node}"
    names, image = {row["node"] for row in listed}, image_names(seen.settings.agent_image)
    nodes = seen.facts_of(DEFAULT_POOL_LABEL).values()
    with_image = sum(node.name in names and not image.isdisjoint(node.images) for node in nodes)
    return f"{summary}; free: {_named(_free(world)) or 'none'}; {with_image} have the agent's image", ""


def _free(world: World) -> list[str]:
    return [row["node"] for row in rows(*world) if row["reason"] == WOULD_START]


def _exporter(release: Release, pods: Sequence[Raw], scrapes: Mapping[str, Raw | str]) -> Result:
    if not _ready("exporter", pods):
        return Unseen("a pod of the exporter that is ready")
    silent = [f"{pod}: {answer}" for pod, answer in scrapes.items() if isinstance(answer, str)]
    if silent:
        fix = f"kubectl -n {release.key[0]} logs -l app.kubernetes.io/component=exporter --tail=50"
        return f"no answer: {_named(silent)}", fix
    at, by = max((str(row.get("at") or ""), str(row.get("by"))) for row in scrapes.values() if not isinstance(row, str))
    return f"answers; last scraped at {at} by {by}" if at else "answers; nobody has scraped it yet", ""


CHECKS: Mapping[str, Callable[..., Result]] = {
    "definitions": definitions_fit,
    "operator": _operator,
    "image names": _image_names,
    "pull Secrets": _secrets,
    "pods": _pods,
    "leader": _leader,
    "rights": _rights,
    "GPU nodes": _nodes,
    "exporter": _exporter,
}
"""What makes each check of the facts that its parameters name; in the order in which they are to be fixed."""


def checked(facts: Facts) -> dict[str, Any]:
    """All checks, and the next command."""
    made = [_check(name, make, facts) for name, make in CHECKS.items()]
    return {"checks": made, "next": next((row["fix"] for row in made if row["fix"]), "") or _next_command(facts)}


def _check(name: str, make: Callable[..., Result], facts: Facts) -> dict[str, str]:
    needed = [facts.get(key, UNSEEN) for key in signature(make).parameters]
    result = next((fact for fact in needed if isinstance(fact, Unseen)), None) or make(*needed)
    state, made = ("wrong" if result[1] else "ok"), result
    if isinstance(result, Unseen):
        state, made = "not checked", (f"needs {result}", "")
    return dict(zip(KEYS, (name, state, *made), strict=True))


def _next_command(facts: Facts) -> str:
    """What to type where nothing is wrong: it lists rights, measures a free node, or shows figures."""
    world, release = facts.get("world", UNSEEN), facts.get("release", UNSEEN)
    if isinstance(world, Unseen) or isinstance(release, Unseen):
        return "kubectl auth can-i --list"
    if not any(row["gpus"] for row in rows(*world)):
        return "kubectl get nodes --show-labels"
    namespace, free = release.namespaces[0], _free(world)
    if not free or len(world[2].profiles) > 1:
        return f"kubectl precision -n {namespace} status"
    spec = f'"spec":{{"target":{{"nodeNames":["{free[0]}"]}},"workload":{{"preset":"llama3-8b"}}}}'
    head = f'"apiVersion":"{API_VERSION}","kind":"{PROFILE_KIND}","metadata":{{"name":"first"}}'
    return f"echo '{{{head},{spec}}}' | kubectl -n {namespace} apply -f -"


def text(made: Mapping[str, Any]) -> str:
    """What `checked` gives for people: a line each, what is wrong with its fix, and the next command last."""
    lines: list[str] = []
    for row in made["checks"]:
        lines.append(f"{row['state']:11}  {row['check']:12}  {one_line(row['message'])}")
        lines += [f"{'':27}fix: {row['fix']}"] if row["fix"] else []
    return "\n".join([*lines, "", f"next: {made['next']}"])
