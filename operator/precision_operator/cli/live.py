"""What the plugin reads of a cluster for a dry run: nodes, what a profile has got already, who holds GPUs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from precision_api.names import AGENT_APP, LABEL_APP
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.asking import Ask, ask
from precision_operator.core.observed import Observed, Occupancy, ProfileView, ReportView, Settings
from precision_operator.core.plan import Plan, plan
from precision_operator.core.views import job_view, occupancy, pod_view, profile_view, report_view

T = TypeVar("T")
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
    config_maps = {**await _texts(cluster, question.profile), **question.config_maps}
    seen = Observed(
        now=datetime.now(UTC),
        settings=question.settings,
        profiles=(question.profile, *(_mute(other) for other in others if other is not there)),
        nodes={str(node["metadata"].get("uid")): node for node in nodes},
        jobs=tuple(jobs),
        pods=tuple(pods),
        reports=tuple(reports),
        config_maps=config_maps,
    )
    return seen if there is None else _as_applied(seen, question.profile, there)


def _mute(other: ProfileView) -> ProfileView:
    """Another profile: known by name where it holds a node, without a turn of its own in this plan."""
    return replace(other, spec=None, problem="not asked about")


def _as_applied(seen: Observed, asked: ProfileView, there: ProfileView) -> Observed:
    """The profile with the identity of the one that exists; what that one has measured counts if it asks the same.

    The run's identity holds the agent's image, and the operator's default image is not known here: so a run of the
    same question is recognised by comparing both specs, and takes the name that it would get here.
    """
    profile = replace(asked, uid=there.uid, created=there.created, status=there.status)
    mine, theirs = (ask(each, seen.settings, seen.config_maps) for each in (asked, there))
    run = there.status.get("run")
    if isinstance(mine, Ask) and isinstance(theirs, Ask) and mine.run == theirs.run and run:
        own_reports = tuple(_renamed(report, str(run), mine.run, there.uid) for report in seen.reports)
        own_jobs = tuple(
            replace(j, run=mine.run) if j.profile_uid == there.uid and j.run == run else j for j in seen.jobs
        )
        seen = replace(seen, reports=own_reports, jobs=own_jobs)
    return replace(seen, profiles=(profile, *seen.profiles[1:]))


def _renamed(report: ReportView, run: str, name: str, profile_uid: str) -> ReportView:
    status = report.status
    if status is None or status.attempt is None or (report.profile_uid, status.attempt.run) != (profile_uid, run):
        return report
    attempt = status.attempt.model_copy(update={"run": name})
    return replace(report, status=status.model_copy(update={"attempt": attempt}))


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
