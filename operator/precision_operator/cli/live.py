"""What the plugin reads of a cluster for a dry run: nodes, what a profile has got already, who holds GPUs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from precision_api.names import AGENT_APP, LABEL_APP
from precision_operator.cli.gathering import without_agent_change
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observed import Observed, Occupancy, ProfileView, Raw, Settings
from precision_operator.core.plan import Plan, plan
from precision_operator.core.views import job_view, occupancy, pod_view, profile_view, report_view

T = TypeVar("T")
KUEUE = "kueue.x-k8s.io/v1beta1"
Data = Mapping[tuple[str, str], Mapping[str, str] | None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """A profile as it stands in a file, and the operator's settings as far as they can be known outside of it."""

    profile: ProfileView
    settings: Settings
    config_maps: Data


async def planned(cluster: Cluster, question: Question, tell: Tell) -> tuple[Observed, Plan]:
    """What the operator would see and plan now, if the profile were applied. Raises ApiError."""
    seen = await _observed(cluster, question)
    while True:
        decided = plan(seen)
        if not decided.look_at:
            return seen, decided
        looks = await _looks(cluster, decided.look_at, tell)
        seen = replace(seen, occupancy={**seen.occupancy, **looks})


async def _observed(cluster: Cluster, question: Question) -> Observed:
    namespace = question.profile.namespace
    agents = f"{LABEL_APP}={AGENT_APP}"
    nodes, _ = await cluster.list_all(paths.NODES)
    others = await _views(cluster, paths.profiles(namespace), profile_view)
    reports = await _views(cluster, paths.reports(namespace), report_view)
    jobs = await _views(cluster, paths.jobs(namespace), job_view, agents)
    pods = await _views(cluster, paths.pods(namespace), pod_view, agents)
    there = next((other for other in others if other.name == question.profile.name), None)
    asked = question.profile if there is None else _as_applied(question.profile, there)
    return Observed(
        now=datetime.now(UTC),
        settings=question.settings,
        profiles=(asked, *(_mute(other) for other in others if other is not there)),
        nodes={str(node["metadata"].get("uid")): node for node in nodes},
        jobs=tuple(jobs),
        pods=tuple(pods),
        reports=tuple(reports),
        config_maps={**await _texts(cluster, question.profile), **question.config_maps},
        slices=await _slices(cluster),
        queues=await _queues(cluster, question.profile),
    )


def _mute(other: ProfileView) -> ProfileView:
    """Another profile: known by name where it holds a node, without a turn of its own in this plan."""
    return replace(other, spec=None, problem="not asked about")


def _as_applied(asked: ProfileView, there: ProfileView) -> ProfileView:
    """The profile with the identity of the one that exists, so that what that one has measured counts.

    An image that neither names is the operator's own, which is not known here: it is not taken for another one.
    """
    return without_agent_change(
        replace(asked, uid=there.uid, created=there.created, status=there.status, rerun=there.rerun)
    )


async def _views(
    cluster: Cluster, path: str, view: Callable[[Any], T | None], selector: str | None = None
) -> Sequence[T]:
    items, _ = await cluster.list_all(path, selector)
    return [seen for item in items if (seen := view(item)) is not None]


async def _texts(cluster: Cluster, profile: ProfileView) -> dict[tuple[str, str], dict[str, str] | None]:
    source = profile.spec.workload.hugging_face_config if profile.spec else None
    ref = source.config_map_key_ref if source else None
    if ref is None:
        return {}
    try:
        found = await cluster.get(paths.item(paths.config_maps(profile.namespace), ref.name))
    except ApiError as error:
        if error.status != 404:
            raise
        return {(profile.namespace, ref.name): None}
    return {(profile.namespace, ref.name): {key: str(text) for key, text in (found.get("data") or {}).items()}}


async def _slices(cluster: Cluster) -> tuple[Raw, ...]:
    """ResourceSlices, which name GPUs where labels don't; none where there is no DRA, or no right to read them."""
    try:
        found, _ = await cluster.list_all(paths.collection("resource.k8s.io/v1", "resourceslices"))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        found = []
    return tuple(found)


async def _queues(cluster: Cluster, profile: ProfileView) -> dict[tuple[str, str], bool]:
    """Whether the profile's Kueue queue is there; nothing where it names none, or who asks may not know."""
    queue = profile.spec.agent.queue_name if profile.spec else None
    if queue is None:
        return {}
    try:
        await cluster.get(paths.item(paths.collection(KUEUE, "localqueues", profile.namespace), queue))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return {(profile.namespace, queue): False} if error.status == 404 else {}
    return {(profile.namespace, queue): True}


async def _looks(cluster: Cluster, nodes: Iterable[str], tell: Tell) -> dict[str, Occupancy]:
    """Who holds the GPUs of `nodes`. Who may not list pods everywhere is told so, and sees idle nodes."""
    names = list(nodes)
    try:
        return {name: await _look(cluster, name) for name in names}
    except ApiError as error:
        if error.status != 403:
            raise
        tell(f"nodes are taken for idle, since you may not see all pods: {error}")
        return {name: Occupancy(None) for name in names}


async def _look(cluster: Cluster, node: str) -> Occupancy:
    chosen = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    pods, _ = await cluster.list_all(paths.pods(), field_selector=chosen)
    return occupancy(list(pods))


Read = Callable[[Cluster], Awaitable[T]]


async def connected(kubeconfig: str | None, context: str | None, seconds: float, read: Read[T]) -> T:
    """What `read` gives for the cluster that kubectl would use. Raises ConnectionProblem or ApiError."""
    async with Cluster.connect(kubeconfig, context, seconds) as cluster:
        return await read(cluster)
