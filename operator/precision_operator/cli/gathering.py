"""The world as the operator sees it, as far as the user may look, and what the operator would plan now.

What a user may not read is left out and said so, where an answer is possible without it; else it is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from precision_api.names import AGENT_APP, DEFAULT_PRIORITY_CLASS, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY
from precision_operator.cli.reads import (
    get_or_none,
    has_queue,
    looks,
    slices,
    texts,
    views,
    wanted_queues,
    wanted_texts,
)
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observed import Observed, Occupancy, ProfileView, Raw, Settings
from precision_operator.core.plan import Plan, plan
from precision_operator.core.views import job_view, pod_view, profile_view, report_view

EVERYWHERE = ""
"""As a namespace: all of them."""
LOOKS_PER_ANSWER = 256
"""How many nodes are looked at for one answer: a bound, for a fleet that is busy throughout."""
OPERATOR = "app.kubernetes.io/name=precision-profiler,app.kubernetes.io/component=operator"
UNKNOWN_IMAGE = "the-operators-own"
AGENTS = f"{LABEL_APP}={AGENT_APP}"
REPORTS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"


@dataclass(frozen=True)
class Seen:
    """The world, what the operator would plan now, and what could not be seen (one sentence each)."""

    observed: Observed
    plan: Plan
    notes: tuple[str, ...]


async def gathered(cluster: Cluster, namespace: str | None, node: str) -> Seen:
    """The world and the plan, good enough to answer for `node`. Raises ApiError.

    All namespaces are read, since agents of other profiles count; who may not, sees `namespace` (or the context's).
    """
    notes: list[str] = []
    place = await _place(cluster, namespace, notes)
    profiles = tuple(p for p in await views(cluster, paths.profiles(place), profile_view) if not p.deleting)
    settings, profiles = await _judged(cluster, profiles, notes)
    nodes, _ = await cluster.list_all(paths.NODES)
    seen = Observed(
        now=datetime.now(UTC),
        settings=settings,
        profiles=profiles,
        nodes={str(raw["metadata"]["uid"]): raw for raw in nodes},
        jobs=tuple(await views(cluster, paths.jobs(place), job_view, AGENTS)),
        pods=tuple(await views(cluster, paths.pods(place), pod_view, AGENTS)),
        reports=tuple(await views(cluster, paths.reports(place), report_view, REPORTS)),
        config_maps={key: await texts(cluster, *key) for key in wanted_texts(profiles)},
        priority_class_exists=await _has_priority_class(cluster, settings.priority_class),
        queues={key: await has_queue(cluster, *key) for key in wanted_queues(profiles)},
        slices=await slices(cluster),
    )
    wanted = [node] if any(raw["metadata"]["name"] == node for raw in nodes) else []
    return await looked(cluster, seen, wanted, notes)


async def looked(
    cluster: Cluster, seen: Observed, wanted: Sequence[str], notes: list[str], taken_for_idle: bool = False
) -> Seen:
    """Plans, looks at the nodes that the plan asks about, and plans again, as the operator does.

    Where the user may not look, all nodes are `taken_for_idle`, or else nothing is known of them; either is noted.
    """
    while True:
        try:
            found = await looks(cluster, wanted)
        except ApiError as error:
            if error.status != 403:
                raise
            if not taken_for_idle:
                notes.append(f"whether GPUs are free is not known, since you may not list all pods: {error}")
                return Seen(seen, plan(seen), tuple(notes))
            notes.append(f"nodes are taken for idle, since you may not see all pods: {error}")
            found = {str(raw["metadata"]["name"]): Occupancy(None) for raw in seen.nodes.values()}
        seen = replace(seen, occupancy={**found, **seen.occupancy})
        decided = plan(seen)
        wanted = decided.look_at
        if not wanted:
            return Seen(seen, decided, tuple(notes))
        if len(seen.occupancy) >= LOOKS_PER_ANSWER:
            notes.append(f"{LOOKS_PER_ANSWER} nodes were looked at; whether the GPUs of others are free is not known")
            return Seen(seen, decided, tuple(notes))


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


async def _has_priority_class(cluster: Cluster, name: str) -> bool:
    """Whether agents have their PriorityClass; the operator has said so where its name is not known."""
    path = paths.item(paths.collection("scheduling.k8s.io/v1", "priorityclasses"), name)
    return not name or await get_or_none(cluster, path, forbidden={}) is not None
