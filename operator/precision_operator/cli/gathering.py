"""What the plugin reads of a cluster: the world as the operator sees it, as far as its user may look.

What a user may not read is left out and said so, where an answer is possible without it; else it is an error.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from precision_api.names import AGENT_APP, API_VERSION, DEFAULT_PRIORITY_CLASS, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY
from precision_operator.cli.failure import fail
from precision_operator.cluster import ApiError, Cluster, ConnectionProblem, paths
from precision_operator.core.clock import duration
from precision_operator.core.observed import Observed, Occupancy, ProfileView, Raw, Settings
from precision_operator.core.plan import Plan, plan
from precision_operator.core.views import job_view, occupancy, pod_view, profile_view, report_view

T = TypeVar("T")
CLUSTER_TROUBLE = 1
"""Exit code where the cluster, not the input, is what is wrong."""
EVERYWHERE = ""
"""As a namespace: all of them."""
LOOKS_PER_ANSWER = 256
"""How many nodes are looked at for one answer: a bound, for a fleet that is busy throughout."""
LOOKS_AT_ONCE = 8
OPERATOR = "app.kubernetes.io/name=precision-profiler,app.kubernetes.io/component=operator"
UNKNOWN_IMAGE = "the-operators-own"
_AGENTS = f"{LABEL_APP}={AGENT_APP}"
_REPORTS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the profiles.")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Path of the kubeconfig.")]
RequestTimeout = Annotated[str, typer.Option(help="How long to wait for an answer, for example 30s.")]


@dataclass(frozen=True)
class Reach:
    """How to get to the cluster, as the command line says."""

    kubeconfig: str | None
    context: str | None
    request_timeout: str = "30s"


@dataclass(frozen=True)
class Seen:
    """The world, what the operator would plan now, and what could not be seen (one sentence each)."""

    observed: Observed
    plan: Plan
    notes: tuple[str, ...]


def asked(reach: Reach, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `work` gives for the cluster; ends the command with a sentence where the cluster doesn't let it."""
    try:
        return asyncio.run(_connected(reach, _seconds(reach.request_timeout), work))
    except (ApiError, ConnectionProblem) as error:
        stop(explained(error))


async def _connected(reach: Reach, seconds: float, work: Callable[[Cluster], Awaitable[T]]) -> T:
    async with Cluster.connect(reach.kubeconfig, reach.context, seconds) as cluster:
        return await work(cluster)


def stop(message: str) -> NoReturn:
    """Ends the command: the cluster is what is wrong."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(CLUSTER_TROUBLE)


def explained(error: ApiError | ConnectionProblem) -> str:
    """What is wrong between the user and the cluster, and what to do."""
    if isinstance(error, ConnectionProblem):
        return str(error)
    if error.status == 0:
        return f"{error}. Is the cluster up, and is the kubeconfig's server the right one? Try kubectl version."
    if error.status == 401:
        return f"{error}. The credentials of the kubeconfig are not accepted: log in again, or choose another --context"
    if error.status == 403:
        return f"{error}. Ask for this right, or name a namespace of yours with -n; kubectl auth can-i --list shows all"
    if error.status == 404 and f"/apis/{API_VERSION}/" in error.message:
        return "this cluster has no PrecisionProfiles: install the chart, or choose another cluster with --context"
    return f"{error}. Try again; if it repeats, look at the API server"


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if text[-1:].isdigit() else duration(text).total_seconds()
    except (ValueError, KeyError, IndexError):
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        fail(f"--request-timeout: {text!r} is no duration; write for example 30s or 2m")
    return seconds


async def gathered(cluster: Cluster, namespace: str | None, node: str) -> Seen:
    """The world and the plan, good enough to answer for `node`. Raises ApiError.

    All namespaces are read, since agents of other profiles count; who may not, sees `namespace` (or the context's).
    """
    notes: list[str] = []
    place = await _place(cluster, namespace, notes)
    profiles = tuple(p for p in await _views(cluster, paths.profiles(place), profile_view) if not p.deleting)
    settings, profiles = await _judged(cluster, profiles, notes)
    nodes, _ = await cluster.list_all(paths.NODES)
    seen = Observed(
        now=datetime.now(UTC),
        settings=settings,
        profiles=profiles,
        nodes={str(raw["metadata"]["uid"]): raw for raw in nodes},
        jobs=tuple(await _views(cluster, paths.jobs(place), job_view, _AGENTS)),
        pods=tuple(await _views(cluster, paths.pods(place), pod_view, _AGENTS)),
        reports=tuple(await _views(cluster, paths.reports(place), report_view, _REPORTS)),
        config_maps={key: await _texts(cluster, *key) for key in _wanted_texts(profiles)},
        priority_class_exists=await _has_priority_class(cluster, settings.priority_class),
        queues={key: await _has_queue(cluster, *key) for key in _wanted_queues(profiles)},
        slices=await _slices(cluster),
    )
    wanted = [node] if any(raw["metadata"]["name"] == node for raw in nodes) else []
    return await _looked(cluster, seen, wanted, notes)


async def _looked(cluster: Cluster, seen: Observed, wanted: Sequence[str], notes: list[str]) -> Seen:
    """Plans, looks at the nodes that the plan asks about, and plans again, as the operator does."""
    while True:
        try:
            looks = await _looks(cluster, wanted)
        except ApiError as error:
            if error.status != 403:
                raise
            notes.append(f"whether GPUs are free is not known, since you may not list all pods: {error}")
            return Seen(seen, plan(seen), tuple(notes))
        seen = replace(seen, occupancy={**seen.occupancy, **looks})
        decided = plan(seen)
        wanted = decided.look_at
        if not wanted:
            return Seen(seen, decided, tuple(notes))
        if len(seen.occupancy) >= LOOKS_PER_ANSWER:
            notes.append(f"{LOOKS_PER_ANSWER} nodes were looked at; whether the GPUs of others are free is not known")
            return Seen(seen, decided, tuple(notes))


async def _looks(cluster: Cluster, wanted: Sequence[str]) -> dict[str, Occupancy]:
    limit = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def one(name: str) -> Occupancy:
        async with limit:
            return await _look(cluster, name)

    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


async def _look(cluster: Cluster, node: str) -> Occupancy:
    chosen = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    pods, _ = await cluster.list_all(paths.pods(), field_selector=chosen)
    return occupancy(list(pods))


async def _place(cluster: Cluster, namespace: str | None, notes: list[str]) -> str:
    """All namespaces, or the one that the user may read."""
    try:
        await cluster.get(paths.profiles(), {"limit": "1"})
    except ApiError as error:
        if error.status != 403:
            raise
        own = namespace or cluster.namespace
        notes.append(f"only profiles of namespace {own} are known, since you may not list those of others")
        return own
    return EVERYWHERE


async def _judged(
    cluster: Cluster, profiles: tuple[ProfileView, ...], notes: list[str]
) -> tuple[Settings, tuple[ProfileView, ...]]:
    """The operator's settings, and the profiles as far as they can be judged with them."""
    try:
        found, _ = await cluster.list_all(paths.collection("apps/v1", "deployments"), OPERATOR)
    except ApiError as error:
        if error.status != 403:
            raise
        found = []
    if found:
        return settings_of_deployment(found[0]), profiles
    if any(profile.spec is not None and profile.spec.agent.image is None for profile in profiles):
        notes.append("the operator's Deployment is not to be seen: whether its agent image has changed is not judged")
    return settings_told_by(profiles), tuple(map(without_agent_change, profiles))


def settings_of_deployment(deployment: Raw) -> Settings:
    """The operator's settings from its command line; what it doesn't name is as the operator has it by default."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    args = [str(arg) for container in containers for arg in container.get("args") or []]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent-image", default="")
    parser.add_argument("--allowed-images", default="")
    parser.add_argument("--priority-class", default=DEFAULT_PRIORITY_CLASS)
    told, _ = parser.parse_known_args(args)
    allowed = tuple(part.strip() for part in told.allowed_images.split(",") if part.strip())
    return Settings(told.agent_image, allowed, told.priority_class, agent_service_account="")


def settings_told_by(profiles: Iterable[ProfileView]) -> Settings:
    """Settings that fit what the operator has said of its profiles: an image counts as allowed unless it was refused.

    The image that the operator takes by default stays unknown; that it has none, a refusal tells.
    """
    refusals = {profile.uid: _refused_for(profile) for profile in profiles}
    images = [
        profile.spec.agent.image
        for profile in profiles
        if profile.spec is not None and profile.spec.agent.image and refusals[profile.uid] != "ImageNotAllowed"
    ]
    default = "" if "ImageMissing" in refusals.values() else UNKNOWN_IMAGE
    priority_class = DEFAULT_PRIORITY_CLASS if "PriorityClassMissing" in refusals.values() else ""
    return Settings(default, (UNKNOWN_IMAGE, *images), priority_class, agent_service_account="")


def _refused_for(profile: ProfileView) -> str:
    conditions = profile.status.get("conditions") or []
    return next((str(c.get("reason")) for c in conditions if c.get("type") == "Accepted"), "")


def without_agent_change(profile: ProfileView) -> ProfileView:
    """The same profile, in which an unknown image is not taken for another one."""
    if profile.spec is None or profile.spec.agent.image is not None:
        return profile
    causes = tuple(cause for cause in profile.spec.rerun_on if cause != "AgentChange")
    return replace(profile, spec=profile.spec.model_copy(update={"rerun_on": causes}))


async def _views(
    cluster: Cluster, path: str, view: Callable[[Any], T | None], selector: str | None = None
) -> Sequence[T]:
    items, _ = await cluster.list_all(path, selector)
    return [seen for item in items if (seen := view(item)) is not None]


def _wanted_texts(profiles: Iterable[ProfileView]) -> set[tuple[str, str]]:
    sources = ((p.namespace, p.spec.workload.hugging_face_config) for p in profiles if p.spec is not None)
    return {(ns, s.config_map_key_ref.name) for ns, s in sources if s is not None and s.config_map_key_ref is not None}


def _wanted_queues(profiles: Iterable[ProfileView]) -> set[tuple[str, str]]:
    named = ((p.namespace, p.spec.agent.queue_name) for p in profiles if p.spec is not None)
    return {(namespace, queue) for namespace, queue in named if queue is not None}


async def _texts(cluster: Cluster, namespace: str, name: str) -> Mapping[str, str] | None:
    found = await _get_or_none(cluster, paths.item(paths.config_maps(namespace), name))
    return None if found is None else {key: str(text) for key, text in (found.get("data") or {}).items()}


async def _has_priority_class(cluster: Cluster, name: str) -> bool:
    """Whether agents have their PriorityClass; the operator has said so where its name is not known."""
    path = paths.item(paths.collection("scheduling.k8s.io/v1", "priorityclasses"), name)
    return not name or await _get_or_none(cluster, path, forbidden={}) is not None


async def _has_queue(cluster: Cluster, namespace: str, name: str) -> bool:
    path = paths.item(paths.collection("kueue.x-k8s.io/v1beta1", "localqueues", namespace), name)
    return await _get_or_none(cluster, path, forbidden={}) is not None


async def _slices(cluster: Cluster) -> tuple[Raw, ...]:
    """ResourceSlices, which name GPUs where labels don't; none where there is no DRA, or no right to read them."""
    try:
        found, _ = await cluster.list_all(paths.collection("resource.k8s.io/v1", "resourceslices"))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        found = []
    return tuple(found)


async def _get_or_none(cluster: Cluster, path: str, forbidden: Raw | None = None) -> Raw | None:
    """The object, or None where there is none. With `forbidden`, that stands for one that the user may not read."""
    try:
        return await cluster.get(path)
    except ApiError as error:
        if error.status == 404:
            return None
        if error.status == 403 and forbidden is not None:
            return forbidden
        raise
