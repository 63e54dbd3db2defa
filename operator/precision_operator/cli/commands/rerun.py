"""`kubectl precision rerun PROFILE|NODE`: asks for a new run, and releases a node from quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from precision_api.names import ANNOTATION_RERUN, LABEL_MANAGED_BY, MANAGED_BY
from precision_operator.cli.commands.why import unserved
from precision_operator.cli.connection_options import ask_cluster, count_of
from precision_operator.cli.failure import did_you_mean, fail
from precision_operator.cli.options import Context, FormOf, Kubeconfig, Namespace, Reach, RequestTimeout
from precision_operator.cli.output import OutputFormat, as_columns, printed, say
from precision_operator.cli.results import node_name
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.observe.views import profile_view, report_view

KINDS: dict[str, Literal["profile", "node"]] = {
    "pp": "profile",
    "precisionprofile": "profile",
    "profile": "profile",
    "node": "node",
    "no": "node",
}
"""What may stand before a slash in the argument."""


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
    said: str
    """What will happen."""
    kind: str = ""
    namespace: str = ""
    name: str = ""


def rerun(
    name: Annotated[str, typer.Argument(help="A profile or a node; pp/NAME or node/NAME where both exist.")],
    namespace: Namespace = None,
    profile: Annotated[str | None, typer.Option(help="With a node: only in this profile.")] = None,
    output: FormOf = OutputFormat.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Measure a profile's nodes, or one node, again; a node that is quarantined is released."""

    async def work(cluster: Cluster) -> list[RerunMark]:
        known = await _known(cluster, namespace or cluster.namespace)
        marks = chosen(known, name, profile)
        for mark in marks:
            await cluster.patch(mark.path, patch(mark, datetime.now(UTC)))
        return marks

    marks = ask_cluster(Reach(kubeconfig, context, request_timeout), work)
    rows = [{"kind": mark.kind, "namespace": mark.namespace, "name": mark.name, "message": mark.said} for mark in marks]
    said = "\n".join(mark.said for mark in marks)
    say(printed(rows, output, lambda wide: as_columns(rows) if wide else said, rows))


def patch(mark: RerunMark, now: datetime) -> dict[str, Any]:
    """The merge patch: refused with a conflict if the object is another one by now.

    To the microsecond, so that two requests in one second are two.
    """
    told = now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"metadata": {"uid": mark.uid, "annotations": {ANNOTATION_RERUN: told}}}


async def _known(cluster: Cluster, namespace: str) -> RerunTargets:
    profiles = await cluster.list_views(paths.profiles(namespace), profile_view)
    selector = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    views = tuple(await cluster.list_views(paths.reports(namespace), report_view, selector, count_of("reports")))
    try:
        nodes = tuple(await cluster.list_views(paths.NODES, node_name, progress=count_of("nodes")))
    except ApiError as error:
        if error.status != 403:
            raise
        nodes = tuple(dict.fromkeys(view.node_name for view in views))
    return RerunTargets(namespace, tuple(profiles), views, nodes)


def chosen(known: RerunTargets, name: str, only: str | None) -> list[RerunMark]:
    """The objects to mark. Ends the command where the name is both, or neither, or has nothing to mark."""
    kind, slash, bare = name.rpartition("/")
    if slash and kind.lower() not in KINDS:
        fail(f"{name}: write pp/NAME for a profile or node/NAME for a node, not {kind}/")
    own = next((view for view in known.profiles if view.name == bare), None)
    meant = KINDS[kind.lower()] if slash else _meant(known, bare, own, only)
    if meant == "node":
        return _of_node(known, bare, only)
    if own is None:
        near = did_you_mean(bare, [view.name for view in known.profiles], "See kubectl get pp -A")
        fail(f"there is no profile {bare} in namespace {known.namespace}{near}")
    if only is not None:
        fail(f"--profile goes with a node, and {bare} is a profile: leave --profile out")
    return [
        RerunMark(
            paths.item(paths.profiles(own.namespace), own.name),
            own.uid,
            _said_of_profile(own),
            "profile",
            own.namespace,
            own.name,
        )
    ]


def _meant(known: RerunTargets, name: str, own: ProfileView | None, only: str | None) -> Literal["profile", "node"]:
    is_node = name in known.nodes
    if own is not None and is_node and only is None:
        fail(f"{name} is a profile and a node: write pp/{name} or node/{name}")
    if own is None and not is_node:
        see = "Name the profile's namespace with -n; see kubectl get pp -A and kubectl get nodes"
        near = did_you_mean(name, [*(view.name for view in known.profiles), *known.nodes], see)
        fail(f"{name} is neither a profile of namespace {known.namespace} nor a node{near}")
    return "node" if is_node and (own is None or only is not None) else "profile"


def _of_node(known: RerunTargets, node: str, only: str | None) -> list[RerunMark]:
    profiles = {view.uid: view for view in known.profiles}
    if node not in known.nodes:
        fail(f"there is no node {node}{did_you_mean(node, list(known.nodes), 'See kubectl get nodes')}")
    if only is not None and only not in (view.name for view in known.profiles):
        near = did_you_mean(only, [view.name for view in known.profiles], "See kubectl get pp -A")
        fail(f"there is no profile {only} in namespace {known.namespace}{near}")
    mine = [r for r in known.reports if r.node_name == node and r.profile_uid in profiles]
    found = [report for report in mine if only in (None, report.profile)]
    if not found:
        whose = f"profile {only}" if only is not None else f"any profile of namespace {known.namespace}"
        fail(
            f"{node} has no report of {whose} yet, so nothing runs again. Name another namespace with -n, "
            f"or see kubectl precision why {node}"
        )
    return [
        RerunMark(
            paths.item(paths.reports(r.namespace), r.name),
            r.uid,
            _said_of_node(profiles[r.profile_uid], r),
            "report",
            r.namespace,
            r.name,
        )
        for r in sorted(found, key=lambda r: r.profile)
    ]


def _said_of_profile(own: ProfileView) -> str:
    count = (own.status.get("nodes") or {}).get("eligible")
    nodes = f"its {count} eligible nodes are" if isinstance(count, int) else "every eligible node is"
    said = (
        f"profile {own.key}: {nodes} measured again, each when its turn comes; old results stay, marked stale, until "
        "they are replaced. Nodes in quarantine are released."
    )
    return said + _holds(own)


def _said_of_node(own: ProfileView, report: ReportView) -> str:
    held = report.status.quarantine if report.status is not None else None
    released = f" Its quarantine since {held.since} ({held.reason}) ends." if held is not None else ""
    said = f"node {report.node_name}, profile {own.key}: it is measured again when its turn comes"
    old = "; its old result stays, marked stale, until then." if report.status and report.status.run else "."
    return said + old + released + _holds(own)


def _holds(own: ProfileView) -> str:
    """What keeps the new run from beginning, as far as the profile itself tells."""
    if own.spec is not None and own.spec.suspend:
        return " The profile is suspended: set spec.suspend to false to let it begin."
    if own.status.get("observedGeneration") != own.generation:
        return f" {unserved(own.namespace)}"
    return ""
