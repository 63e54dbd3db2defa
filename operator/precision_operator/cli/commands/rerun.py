"""`kubectl precision rerun PROFILE|NODE`: asks for a new run, and releases a node from quarantine."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from precision_api.facts.names import ANNOTATION_RERUN
from precision_operator.cli.connection_options import ask_cluster, count_of, or_if_forbidden
from precision_operator.cli.object_ref import KINDS
from precision_operator.cli.options import FormOf, Namespace, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, as_columns, printed
from precision_operator.cli.results import node_name, reports_of, unserved
from precision_operator.cli.terminal import did_you_mean, fail, no_profile, say
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.observe.views import profile_view

HEADER = ("kind", "namespace", "name", "message")


@dataclass(frozen=True)
class RerunTargets:
    """What the name may mean: the profiles of the namespace, reports there, and whether there is such a node."""

    namespace: str
    profiles: tuple[ProfileView, ...]
    reports: tuple[ReportView, ...]
    nodes: tuple[str, ...]
    """Names of the cluster's nodes; those of the reports where the user may not list nodes."""


@dataclass(frozen=True)
class RerunMark:
    """One object that gets the annotation."""

    path: str
    uid: str
    message: str
    """What will happen."""
    kind: str = ""
    namespace: str = ""
    name: str = ""


@asks_cluster
def rerun(
    name: Annotated[str, typer.Argument(help="A profile or a node; pp/NAME or node/NAME where both exist.")],
    namespace: Namespace = None,
    profile: Annotated[str | None, typer.Option(help="With a node: only in this profile.")] = None,
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Measure a profile's nodes, or one node, again; a node that is quarantined is released."""

    async def work(cluster: Cluster) -> list[RerunMark]:
        marks = chosen(await _known(cluster, namespace or cluster.namespace), name, profile)
        for mark in marks:
            await cluster.patch(mark.path, patch(mark, datetime.now(UTC)))
        return marks

    marks = ask_cluster(reach, work)
    rows = [{key: getattr(mark, key) for key in HEADER} for mark in marks]
    said = "\n".join(mark.message for mark in marks)
    say(printed(rows, output, lambda wide: as_columns(rows) if wide else said, rows, HEADER))


def patch(mark: RerunMark, now: datetime) -> dict[str, Any]:
    """The merge patch: refused with a conflict if the object is another one by now.

    To the microsecond, so that two requests in one second are two.
    """
    moment = now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"metadata": {"uid": mark.uid, "annotations": {ANNOTATION_RERUN: moment}}}


async def _known(cluster: Cluster, namespace: str) -> RerunTargets:
    profiles = await cluster.list_views(paths.profiles(namespace), profile_view)
    views = tuple(await reports_of(cluster, namespace))
    listed = cluster.list_views(paths.NODES, node_name, progress=count_of("nodes"))
    nodes = await or_if_forbidden(listed, [*dict.fromkeys(view.node_name for view in views)])
    return RerunTargets(namespace, tuple(profiles), views, tuple(nodes))


def chosen(targets: RerunTargets, name: str, only: str | None) -> list[RerunMark]:
    """The objects to mark. Ends the command where the name is both, or neither, or has nothing to mark."""
    kind, slash, bare = name.rpartition("/")
    meant = KINDS.get(kind.lower())
    if slash and meant not in ("profile", "node"):
        fail(f"{name}: write pp/NAME for a profile or node/NAME for a node, not {kind}/")
    named = next((view for view in targets.profiles if view.name == bare), None)
    if (meant if slash else _meant(targets, bare, named, only)) == "node":
        return _of_node(targets, bare, only)
    if named is None:
        no_profile(bare, [view.name for view in targets.profiles], targets.namespace)
    if only is not None:
        fail(f"--profile goes with a node, and {bare} is a profile: leave --profile out")
    return [_mark("profile", paths.profiles(named.namespace), named, _said_of_profile(named))]


def _mark(kind: str, collection: str, view: ProfileView | ReportView, message: str) -> RerunMark:
    return RerunMark(paths.item(collection, view.name), view.uid, message, kind, view.namespace, view.name)


def _meant(targets: RerunTargets, name: str, named: ProfileView | None, only: str | None) -> Literal["profile", "node"]:
    is_node = name in targets.nodes
    if named is not None and is_node and only is None:
        fail(f"{name} is a profile and a node: write pp/{name} or node/{name}")
    if named is None and not is_node:
        see = "Name the profile's namespace with -n; see kubectl get pp -A and kubectl get nodes"
        near = did_you_mean(name, [*(view.name for view in targets.profiles), *targets.nodes], see)
        fail(f"{name} is neither a profile of namespace {targets.namespace} nor a node{near}")
    return "node" if is_node and (named is None or only is not None) else "profile"


def _of_node(targets: RerunTargets, node: str, only: str | None) -> list[RerunMark]:
    profiles = {view.uid: view for view in targets.profiles}
    if node not in targets.nodes:
        fail(f"there is no node {node}{did_you_mean(node, list(targets.nodes), 'See kubectl get nodes')}")
    if only is not None and only not in (view.name for view in targets.profiles):
        no_profile(only, [view.name for view in targets.profiles], targets.namespace)
    mine = [r for r in targets.reports if r.node_name == node and r.profile_uid in profiles]
    chosen_reports = [report for report in mine if only in (None, report.profile)]
    if not chosen_reports:
        whose = f"profile {only}" if only is not None else f"any profile of namespace {targets.namespace}"
        fail(
            f"{node} has no report of {whose} yet, so nothing runs again. Name another namespace with -n, "
            f"or see kubectl precision why {node}"
        )
    return [
        _mark("report", paths.reports(r.namespace), r, _said_of_node(profiles[r.profile_uid], r))
        for r in sorted(chosen_reports, key=lambda r: r.profile)
    ]


def _said_of_profile(profile: ProfileView) -> str:
    count = (profile.status.get("nodes") or {}).get("eligible")
    nodes = f"its {count} eligible nodes are" if isinstance(count, int) else "every eligible node is"
    said = (
        f"profile {profile.key}: {nodes} measured again, each when its turn comes; old results stay, marked stale, "
        "until they are replaced. Nodes in quarantine are released."
    )
    return said + _holds(profile)


def _said_of_node(profile: ProfileView, report: ReportView) -> str:
    held = report.status.quarantine if report.status is not None else None
    released = f" Its quarantine since {held.since} ({held.reason}) ends." if held is not None else ""
    said = f"node {report.node_name}, profile {profile.key}: it is measured again when its turn comes"
    old = "; its old result stays, marked stale, until then." if report.status and report.status.run else "."
    return said + old + released + _holds(profile)


def _holds(profile: ProfileView) -> str:
    """What keeps the new run from beginning, as far as the profile itself tells."""
    if profile.spec is not None and profile.spec.suspend:
        return " The profile is suspended: set spec.suspend to false to let it begin."
    if profile.status.get("observedGeneration") != profile.generation:
        return f" {unserved(profile.namespace)}"
    return ""
