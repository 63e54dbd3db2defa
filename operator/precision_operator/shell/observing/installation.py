"""What `doctor` looks at: an installation and its nodes, as far as whoever asks may look. Nothing is changed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from pydantic_core import from_json

from precision_api.facts.names import API_VERSION
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import get_or_none
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import Raw
from precision_operator.core.observe.stop import strictest
from precision_operator.core.observe.views import profile_view, with_operator_defaults
from precision_operator.core.plan import plan
from precision_operator.core.rbac import COMPONENTS
from precision_operator.core.status.doctor import ANYWHERE, INSTANCE, Facts, Release, Unseen, World, again, component_of
from precision_operator.shell.observing.cache import KINDS, OF_CLUSTER, Cache
from precision_operator.shell.observing.gather import Gatherer, list_into
from precision_operator.shell.settings import BINDINGS, OURS, configured_in, operator_of
from precision_operator.shell.switch import stop_said

T = TypeVar("T")
Programs = Mapping[str, Raw]
"""Deployments by component."""
LOOKS = 256
"""How many nodes are looked at: a bound, for a fleet that is busy throughout."""
_REVIEWS = paths.collection("authorization.k8s.io/v1", "selfsubjectrulesreviews")
_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
"""What is asked for of a Secret: that it is there, never what it holds."""
_SPEC = {"workload": {"preset": "llama3-8b"}, "rollout": {"maxConcurrent": "100%", "maxImagePulls": "100%"}}
"""A first profile that limits nothing: an agent would start on each node that is free."""
Scrape = Callable[[Raw, int], Awaitable[str]]
"""What an exporter's pod answers to /scraped at a port. Raises ApiError."""


async def looked_at(
    cluster: Cluster, scrape: Scrape, place: str | None = None, own: str = "", exports: bool = True
) -> Facts:
    """All facts of the operator in `place` (None: in any); by `scrape` its exporters are asked for their last one.

    `own` is the Deployment of the operator that asks itself, which may read no other; it knows whether there is an
    exporter. Raises ApiError where the API server does not answer, or does not know who asks.
    """
    programs = await _or(_programs(cluster, place, own, exports), {})
    operator = programs if isinstance(programs, Unseen) else _release(programs)
    there = {} if isinstance(programs, Unseen) else programs.get("operator", {})
    facts: dict[str, Any] = {"now": cluster.server_time.now(), "operator": operator, "install": again(there)}
    facts["definitions"] = await _or(cluster.get(f"/openapi/v3/apis/{API_VERSION}"), {})
    if isinstance(programs, Unseen) or not isinstance(operator, Release):
        return facts
    home, lease = operator.key[0], operator.option("--lease-name")
    labels = operator.deployment["metadata"].get("labels") or {}
    ours = f"{OURS},{INSTANCE}={labels[INSTANCE]}" if INSTANCE in labels else OURS
    pods = await _or(cluster.list_views(paths.pods(home), _of_program, ours), [])
    return facts | {
        "release": operator,
        "programs": programs,
        "lease": await _or(cluster.get(paths.item(paths.leases(home), lease)), {}),
        "rules": await _or(_rules(cluster, operator, programs, bool(own)), {}),
        "pods": pods,
        "secrets": await _or(_secrets(cluster, operator, programs), {}),
        "world": await _or(_world(cluster, operator), Unseen("the definitions")),
        "scrapes": pods if isinstance(pods, Unseen) else await _or(_scrapes(scrape, programs, pods), {}),
    }


def _of_program(raw: Raw) -> Raw | None:
    """A pod of operator or exporter that has not ended, as evicted ones have."""
    has_ended = raw["status"].get("phase") in ("Failed", "Succeeded")
    return raw if component_of(raw) in COMPONENTS and not has_ended else None


async def _or(reading: Awaitable[T], absent: T | Unseen) -> T | Unseen:
    """What was read, or `absent`. Raises ApiError where nothing answers, or not to who asks."""
    try:
        return await reading
    except ApiError as error:
        if error.status in (0, 401):
            raise
        needs = f"a right: {error.words}" if error.status == 403 else f"an answer: {error}"
        return absent if error.status == 404 else Unseen(needs)


async def _programs(cluster: Cluster, namespace: str | None, own: str, exporter: bool) -> Programs:
    """Of the first release that a binding of the chart names, as anybody may make other Deployments; or one's own."""
    if own:
        there = await cluster.get(paths.item(paths.deployments(cluster.namespace), own))
        return {"operator": there} | ({"exporter": {}} if exporter else {})
    for place, name in await cluster.list_views(BINDINGS, operator_of, OURS):
        wanted = {c: f"{name.removesuffix('operator')}{c}" for c in COMPONENTS if namespace in (None, place)}
        raws = {c: await get_or_none(cluster, paths.item(paths.deployments(place), n)) for c, n in wanted.items()}
        if raws.get("operator"):
            return {component: raw for component, raw in raws.items() if raw}
    return {}


def _release(programs: Programs) -> Release | str:
    if "operator" not in programs:
        return "there is no Deployment of the operator that a ClusterRoleBinding of the chart names"
    try:
        configured = configured_in(programs["operator"])
    except ValueError as error:
        return f"its Deployment is of another version than this program: {error}"
    return Release(programs["operator"], configured.settings, configured.namespaces)


async def _rules(cluster: Cluster, operator: Release, programs: Programs, own: bool) -> dict[tuple[str, str], Raw]:
    """Of the operator, where it asks itself; else of both programs, impersonated."""
    rules, there = dict[tuple[str, str], Raw](), [component for component in COMPONENTS if programs.get(component)]
    for component, place in product(there, {ANYWHERE, operator.key[0], *operator.namespaces}):
        account = programs[component]["spec"]["template"]["spec"].get("serviceAccountName", "default")
        user = f"system:serviceaccount:{operator.key[0]}:{account}"
        who, asked = {} if own else {"Impersonate-User": user}, {"spec": {"namespace": place}}
        rules[component, place] = (await cluster.create(_REVIEWS, asked, headers=who))["status"]
    return rules


async def _secrets(cluster: Cluster, operator: Release, programs: Programs) -> Mapping[str, bool]:
    home, there, naming = operator.key[0], dict[str, bool](), [(operator.key[0], operator.pod)]
    accounts = [(place, operator.settings.agent_service_account) for place in operator.namespaces]
    pods = [raw["spec"]["template"]["spec"] for raw in programs.values() if raw]
    for place, name in [*accounts, *((home, pod.get("serviceAccountName", "default")) for pod in pods)]:
        account = await get_or_none(cluster, paths.item(paths.collection("v1", "serviceaccounts", place), name))
        there[f"ServiceAccount {place}/{name}"] = account is not None
        naming.append((place, account or {}))
    for place, raw in naming:
        for row in raw.get("imagePullSecrets") or ():
            path = paths.item(paths.collection("v1", "secrets", place), row["name"])
            there[f"{place}/{row['name']}"] = await get_or_none(cluster, path, headers=_METADATA) is not None
    return there


async def _world(cluster: Cluster, operator: Release) -> World:
    """The world with a first profile in it, its nodes looked at as the plan asks."""
    stop = await stop_said(cluster, operator.key[0], operator.option("--stop-config-map"))
    settings = replace(operator.settings, stop=strictest(operator.settings.stop, stop))
    cache, clock = Cache(settings.allowed_images), cluster.server_time.now
    for kind in (kind for kind in KINDS if kind != "slices" or settings.resource_claims):
        for place in (None,) if kind in OF_CLUSTER else operator.namespaces:
            try:
                await list_into(cache, cluster, kind, place)
            except ApiError as error:
                if (kind, error.status) != ("slices", 404):  # before Kubernetes 1.34
                    raise
    gatherer = Gatherer(cluster, cache, settings, operator.namespaces, patience=None, clock=clock)
    made = {"name": "doctor", "namespace": operator.namespaces[0], "creationTimestamp": format_time(clock())}
    raws = [*cache.all("profiles").values(), {"metadata": made, "spec": _SPEC}]
    profiles = [profile for profile in map(profile_view, raws) if not profile.deleting]
    seen = await gatherer.observe_with(tuple(with_operator_defaults(profile, settings) for profile in profiles))
    while (decided := plan(seen)).nodes_to_probe and len(seen.occupancy) < LOOKS:
        looked = await gatherer.probe(decided.nodes_to_probe[: LOOKS - len(seen.occupancy)])
        seen = replace(seen, occupancy={**seen.occupancy, **looked})
    return next(item for item in decided.profiles if item.profile.uid == "doctor"), decided, seen


async def _scrapes(scrape: Scrape, programs: Programs, pods: Sequence[Raw]) -> dict[str, Raw | str] | Unseen:
    if "exporter" not in programs:
        return Unseen("an exporter (exporter.enabled of the chart)")
    answers: dict[str, Raw | str] = {}
    for pod in (pod for pod in pods if component_of(pod) == "exporter"):
        ports = [port for row in pod["spec"]["containers"] for port in row.get("ports") or ()]
        try:
            (port,) = (port["containerPort"] for port in ports if port.get("name") == "metrics")
            answers[pod["metadata"]["name"]] = dict(from_json(await scrape(pod, port)))
        except (ApiError, ValueError, TypeError) as error:
            if isinstance(error, ApiError) and error.status == 403:
                raise
            answers[pod["metadata"]["name"]] = str(error)
    return answers
