"""What `doctor` looks at: an installation and its nodes, as far as whoever asks may look. Nothing is changed."""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from pydantic_core import from_json

from precision_api.facts.names import API_VERSION, GROUP, PROFILE_PLURAL
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.client import get_or_none
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import Raw
from precision_operator.core.observe.stop import strictest
from precision_operator.core.observe.views import profile_view, with_operator_defaults
from precision_operator.core.plan import plan
from precision_operator.core.rbac import ANYWHERE, COMPONENTS
from precision_operator.core.status import doctor
from precision_operator.core.status.doctor import INSTANCE, Facts, Release, Result, Unseen, World, again, component_of
from precision_operator.shell.observing.cache import KINDS, OF_CLUSTER, Cache
from precision_operator.shell.observing.gather import Gatherer, list_into
from precision_operator.shell.settings import BINDINGS, OURS, configured_in, operator_of
from precision_operator.shell.switch import stop_said

T = TypeVar("T")
LOOKS = 256
"""How many nodes are looked at: a bound, for a fleet that is busy throughout."""
_DEFINITION = paths.collection("apiextensions.k8s.io/v1", "customresourcedefinitions") + f"/{PROFILE_PLURAL}.{GROUP}"
_REVIEWS = paths.collection("authorization.k8s.io/v1", "selfsubjectrulesreviews")
_TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
"""What is asked for of a Secret: a row with its name and type, never what it holds."""
_LOGINS = {"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"}
_NOWHERE = "there is no Deployment of the operator that the chart's bindings name (with -n: its labels)", again({})
_SPEC = {"workload": {"preset": "llama3-8b"}, "rollout": {"maxConcurrent": "100%", "maxImagePulls": "100%"}}
"""A first profile that limits nothing: an agent would start on each node that is free."""
Scrape = Callable[[Raw, int], Awaitable[str]]
"""What an exporter's pod answers to /scraped at a port. Raises ApiError."""


async def looked_at(
    cluster: Cluster, scrape: Scrape, place: str | None = None, asker: str = "", exports: bool = True
) -> Facts:
    """All facts of the operator in `place` (None: in any); by `scrape` its exporters are asked for their last one.

    `asker` is the Deployment of the operator that asks itself, which may read no other; it knows whether there is an
    exporter. Raises ApiError where the API server does not answer, or does not know who asks.
    """
    operator = await _or(_release(cluster, place, asker, exports), _NOWHERE)
    facts: dict[str, Any] = {"now": cluster.server_time.now(), "operator": operator}
    facts["definitions"] = there = await _or(cluster.get(f"/openapi/v3/apis/{API_VERSION}"), {})
    facts["install"] = again(operator.deployment if isinstance(operator, Release) else {})
    if there and not isinstance(there, Unseen) and doctor.definitions_fit(there, "x")[1]:
        crd = await _or(cluster.get(_DEFINITION), {})
        if not isinstance(crd, Unseen) and INSTANCE not in (crd["metadata"].get("labels") or {}):
            facts["install"] = "kubectl apply --server-side -f crds.yaml"
    if not isinstance(operator, Release):
        return facts
    home, lease = operator.key[0], operator.option("--lease-name")
    ours = f"{OURS},{INSTANCE}={(operator.deployment['metadata'].get('labels') or {}).get(INSTANCE, '')}"
    pods = await _or(cluster.list_views(paths.pods(home), _of_program, ours), [])
    return facts | {
        "release": operator,
        "leases": await _or(_leases(cluster, paths.item(paths.leases(home), lease)), [{}]),
        "rules": await _or(_rules(cluster, operator, bool(asker)), {}),
        "pods": pods,
        "secrets": await _or(_secrets(cluster, operator), {}),
        "world": await _or(_world(cluster, operator), Unseen("the definitions")),
        "scrapes": pods if isinstance(pods, Unseen) else await _or(_scrapes(scrape, operator, pods), {}),
    }


async def _leases(cluster: Cluster, path: str) -> list[Raw]:
    """The Lease; where our clock says nothing of its holder, again: as it changes, or when it has run out."""
    first = last = await cluster.get(path)
    silent, lasts = doctor.term(first, cluster.server_time.now())
    for _ in range(0, min(lasts, 60) if abs(silent) > lasts else 0, 2):
        await sleep(2.0)
        if (last := await cluster.get(path)) != first:
            break
    return [first, last]


def _of_program(raw: Raw) -> Raw | None:
    """A pod of operator or exporter that has not ended, as evicted ones have, and is not ending."""
    has_ended = raw["status"].get("phase") in ("Failed", "Succeeded") or "deletionTimestamp" in raw["metadata"]
    return raw if component_of(raw) in COMPONENTS and not has_ended else None


async def _or(reading: Awaitable[T], absent: T | Unseen) -> T | Unseen:
    """What was read, or `absent` for 404; for 403 the right that lacks. Raises ApiError for all else."""
    try:
        return await reading
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return absent if error.status == 404 else Unseen(f"a right: {error.words}")


async def _release(cluster: Cluster, namespace: str | None, asker: str, exports: bool) -> Release | Result:
    """The first that a binding of the chart names, as anybody may make others; or, in a `namespace`, labels."""
    bound = [(cluster.namespace, asker)] if asker else await _or(cluster.list_views(BINDINGS, operator_of, OURS), [])
    everywhere, nobody = [] if isinstance(bound, Unseen) else bound, _NOWHERE
    names = [key for key in everywhere if namespace in (None, key[0])]
    if namespace and not names:
        labels = f"{OURS},app.kubernetes.io/component=operator"
        listed = cluster.list_views(paths.deployments(namespace), lambda raw: str(raw["metadata"]["name"]), labels)
        bound = [(namespace, name) for name in await listed] or bound
        names = everywhere if isinstance(bound, Unseen) else bound
    for place, name in names:
        path = paths.item(paths.deployments(place), name.removesuffix("operator"))
        raws = {c: await get_or_none(cluster, f"{path}{c}") for c in (COMPONENTS[:1] if asker else COMPONENTS)}
        if operator := raws["operator"]:
            programs: dict[str, Raw] = {component: raw for component, raw in raws.items() if raw}
            programs |= {"exporter": {}} if asker and exports else {}
            others = [key for key in names if key != (place, name)]
            try:
                configured = configured_in(operator)
            except ValueError as error:
                return f"its Deployment is of another version than this program: {error}", again(operator)
            served = sorted(configured.namespaces, key=lambda served: served != namespace)
            if namespace in (None, place, *served):
                return Release(operator, programs, others, configured.settings, tuple(served))
            fix = f"{again(operator)} --set 'watchNamespaces={{{','.join(served)},{namespace}}}'"
            nobody = f"{place}/{name} does not serve {namespace}, but {', '.join(served)}", fix
    return bound if isinstance(bound, Unseen) else nobody


async def _rules(cluster: Cluster, operator: Release, asks_itself: bool) -> dict[tuple[str, str], Raw]:
    """Of the operator, where it asks itself; else of both programs, impersonated."""
    rules, there = dict[tuple[str, str], Raw](), [component for component, raw in operator.programs.items() if raw]
    for component, place in product(there, {ANYWHERE, operator.key[0], *operator.namespaces}):
        account = operator.programs[component]["spec"]["template"]["spec"].get("serviceAccountName", "default")
        user = f"system:serviceaccount:{operator.key[0]}:{account}"
        who, asked = {} if asks_itself else {"Impersonate-User": user}, {"spec": {"namespace": place}}
        rules[component, place] = (await cluster.create(_REVIEWS, asked, headers=who))["status"]
    return rules


async def _secrets(cluster: Cluster, operator: Release) -> Mapping[str, bool]:
    home, there, naming = operator.key[0], dict[str, bool](), [(operator.key[0], operator.pod)]
    accounts = [(place, operator.settings.agent_service_account) for place in operator.namespaces]
    pods = [raw["spec"]["template"]["spec"] for raw in operator.programs.values() if raw]
    for place, name in [*accounts, *((home, pod.get("serviceAccountName", "default")) for pod in pods)]:
        account = await get_or_none(cluster, paths.item(paths.collection("v1", "serviceaccounts", place), name))
        there[f"ServiceAccount {place}/{name}"] = account is not None
        naming.append((place, account or {}))
    for place, raw in naming:
        for row in raw.get("imagePullSecrets") or ():
            path = paths.item(paths.collection("v1", "secrets", place), row["name"])
            table = await get_or_none(cluster, path, headers=_TABLE) or {"rows": ()}
            there[f"docker-registry Secret {place}/{row['name']}"] = any(_LOGINS & {*r["cells"]} for r in table["rows"])
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


async def _scrapes(scrape: Scrape, operator: Release, pods: Sequence[Raw]) -> dict[str, Raw | str] | Unseen:
    if "exporter" not in operator.programs:
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
