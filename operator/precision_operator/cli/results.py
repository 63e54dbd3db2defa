"""Profiles and the results of their nodes, as commands need them: read page by page, found by name."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import ValidationError

from precision_api.facts.names import LABEL_MANAGED_BY, MANAGED_BY
from precision_api.kinds.profile import ProfileStatus, Thresholds
from precision_api.kinds.report import ReportStatus
from precision_operator.cli.connection_options import count_of
from precision_operator.cli.terminal import fail, no_profile
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import ProfileView, Raw, ReportView
from precision_operator.core.observe.views import profile_view, report_view
from precision_operator.core.results.outliers import Judged, Peers
from precision_operator.core.results.reading import Reading, read

View = Callable[[Raw], ReportView | None]


@dataclass(frozen=True)
class Results:
    """Profiles of one namespace or of all, and what they have found on the nodes that were asked for."""

    place: str | None
    """The namespace; None: all of them."""
    profiles: tuple[ProfileView, ...]
    reports: tuple[ReportView, ...]

    @property
    def where(self) -> str:
        """` in namespace ml`, or nothing where all are read."""
        return f" in namespace {self.place}" if self.place else ""

    @cached_property
    def peers(self) -> Peers:
        """All results of these profiles, by who may be compared with whom."""
        uids = {"", *(profile.uid for profile in self.profiles)}
        return Peers(reading_of(report) for report in self.reports if report.profile_uid in uids)

    def compared_with_peers(self, profile: ProfileView) -> dict[str, Judged]:
        """The profile's nodes by name, each against its peers: the same judgement as the operator's and the alerts'."""
        thresholds = profile.spec.thresholds if profile.spec else Thresholds()
        results_of_profile = map(reading_of, of_profile(self.reports, profile))
        return {node.node: node for node in self.peers.judged(results_of_profile, thresholds.slow_node_percent)}


def figures_view(raw: Raw) -> ReportView | None:
    """A report with its reading, without the rows and older runs that its status holds: half as large."""
    view = report_view(raw)
    if view is None or view.status is None:
        return view
    reading, status = reading_of(view), view.status.model_copy(update={"results": (), "history": ()})
    slim = replace(view, status=status)
    vars(slim)["reading"] = reading  # as a cached property keeps what was worked out
    return slim


async def results(cluster: Cluster, place: str | None, view: View = figures_view) -> Results:
    """All profiles and reports of `place`. Raises ApiError."""
    profiles = await cluster.list_views(paths.profiles(place), profile_view)
    return Results(place, tuple(profiles), tuple(await reports_of(cluster, place, view)))


async def reports_of(
    cluster: Cluster, place: str | None, view: View = report_view, fields: str | None = None, most: float = math.inf
) -> Sequence[ReportView]:
    """The reports of `place`; pages are read until there are so many. Raises ApiError."""
    wanted = f"{LABEL_MANAGED_BY}={MANAGED_BY}", fields
    progress = count_of("reports")
    return (await cluster.list_trimmed(paths.reports(place), view, *wanted, progress=progress, most=most))[0]


def status_of(view: ProfileView) -> ProfileStatus:
    """Its status; an unreadable one counts as none (a newer operator may have written it)."""
    try:
        return ProfileStatus.model_validate(dict(view.status))
    except ValidationError:
        return ProfileStatus()


def unserved(namespace: str) -> str:
    """What to look at when a profile's status is not of its present spec."""
    return (
        f"The operator has not judged the profile as it is now. If that stays so, see whether it runs and watches "
        f"namespace {namespace} (chart value watchNamespaces)."
    )


def node_name(raw: Raw) -> str:
    """A node's name, of the whole object."""
    return str(raw["metadata"]["name"])


def profile_named(fleet: Results, name: str) -> ProfileView:
    """The profile of this name; ends the command where there is none, or one in several namespaces."""
    mine = [profile for profile in fleet.profiles if profile.name == name]
    if not mine:
        no_profile(name, [profile.name for profile in fleet.profiles], fleet.place)
    if len(mine) > 1:
        fail(f"profile {name} is in the namespaces {', '.join(p.namespace for p in mine)}: name one with -n")
    return mine[0]


def of_profile(reports: Iterable[ReportView], profile: ProfileView) -> tuple[ReportView, ...]:
    """The reports of one profile, the newest of each node.

    Not those of a deleted one of its name, which stay until the cluster's garbage collector comes: they have that one's
    UID as their owner. Those that nobody owns are the profile's: the operator makes it their owner.
    """
    named_so = [report for report in reports if (report.namespace, report.profile) == (profile.namespace, profile.name)]
    mine = [report for report in named_so if report.profile_uid in ("", profile.uid)]
    newest = {report.node_name: report for report in sorted(mine, key=finished)}
    return tuple(newest[node] for node in sorted(newest))


def finished(report: ReportView) -> str:
    """When its newest result came in; empty where it has none."""
    return report.status.run.finished_at if report.status and report.status.run else ""


def reading_of(report: ReportView) -> Reading:
    """Its figures, in the pool that the node was in when it was measured; without a status there are none."""
    kept: Reading | None = vars(report).get("reading")
    status = report.status or ReportStatus()
    return kept or read(report.node_name, pool_of(report), status, report.namespace, report.profile)


def pool_of(report: ReportView) -> str:
    """The node's pool when it was measured; empty before."""
    return report.status.hardware.pool if report.status and report.status.hardware else ""
