"""What the operator would see and plan now if a profile that stands in a file were applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from precision_operator.cli.gathering import AGENTS, Seen, looked, without_agent_change
from precision_operator.cli.reads import has_queue, slices, texts, views, wanted_queues, wanted_texts
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observed import Observed, ProfileView, Settings
from precision_operator.core.views import job_view, pod_view, profile_view, report_view

Data = Mapping[tuple[str, str], Mapping[str, str] | None]


@dataclass(frozen=True)
class Question:
    """A profile as it stands in a file, and the operator's settings as far as they can be known outside of it."""

    profile: ProfileView
    settings: Settings
    config_maps: Data


async def planned(cluster: Cluster, question: Question) -> Seen:
    """The world and the plan with the profile in it. Raises ApiError.

    Who may not list pods everywhere is told so, and sees idle nodes: a plan is what was asked for.
    """
    return await looked(cluster, await _observed(cluster, question), (), [], taken_for_idle=True)


async def _observed(cluster: Cluster, question: Question) -> Observed:
    namespace = question.profile.namespace
    nodes, _ = await cluster.list_all(paths.NODES)
    others = await views(cluster, paths.profiles(namespace), profile_view)
    there = next((other for other in others if other.name == question.profile.name), None)
    asked = question.profile if there is None else _as_applied(question.profile, there)
    wanted = {key: await texts(cluster, *key) for key in wanted_texts([asked]) if key not in question.config_maps}
    return Observed(
        now=datetime.now(UTC),
        settings=question.settings,
        profiles=(asked, *(_mute(other) for other in others if other is not there)),
        nodes={str(node["metadata"].get("uid")): node for node in nodes},
        jobs=tuple(await views(cluster, paths.jobs(namespace), job_view, AGENTS)),
        pods=tuple(await views(cluster, paths.pods(namespace), pod_view, AGENTS)),
        reports=tuple(await views(cluster, paths.reports(namespace), report_view)),
        config_maps={**wanted, **question.config_maps},
        slices=await slices(cluster),
        queues={key: await has_queue(cluster, *key) for key in wanted_queues([asked])},
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
