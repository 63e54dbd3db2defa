"""`kubectl precision report PROFILE|NODE|FILE -o report.html`: one page, and its main figure as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from precision_api.profile import Thresholds
from precision_operator.cli.codes import NO_ANSWER, NO_PROGRAM
from precision_operator.cli.commands.status import read as read_status
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.failure import end, fail, note
from precision_operator.cli.object_ref import resolve_name
from precision_operator.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    OfProfile,
    Reach,
    RequestTimeout,
    place_of,
)
from precision_operator.cli.output import OutputFormat, say
from precision_operator.cli.results import (
    Results,
    compared_with_peers,
    finished,
    of_profile,
    pool_of,
    profile_named,
    results,
)
from precision_operator.cli.saved import read
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.drawing.raster import NoMatplotlib
from precision_operator.report.detail import is_result, of_config_map, of_text
from precision_operator.report.facts import DEFAULT_SLOW_PERCENT, Given, Node, node_of_result, pools
from precision_operator.report.page import page
from precision_operator.report.png import png

REASONS_TOLD = 6
PAGES = (".html", ".htm")


def report(
    name: Annotated[str, typer.Argument(help="A profile, a node, or a result.json that precision-agent saved.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Where the page goes; - is stdout.")] = "report.html",
    png_file: Annotated[str | None, typer.Option("--png", help="Also the main figure, as a PNG.")] = None,
    price: Annotated[float | None, typer.Option(help="Dollars of a GPU-hour, for dollars per million tokens.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    profile: OfProfile = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Write one self-contained HTML page: the verdict in words, then every figure with its source."""
    if price is not None and not 0 < price < 1e6:
        fail(f"--price: {price:g} is no price of a GPU-hour in dollars; write for example 2.5")
    _check_file(output)
    made_at = format_time(datetime.now(UTC))
    if Path(name).is_file():
        given = _of_file(name, made_at, price)
    else:

        async def work(cluster: Cluster) -> Given:
            place = place_of(namespace, all_namespaces, cluster.namespace)
            return await _of_cluster(cluster, await results(cluster, place), name, profile, made_at, price)

        given = ask_cluster(Reach(kubeconfig, context, request_timeout), work)
    if not given.nodes:
        why = f" {given.unmeasured[0]}" if given.unmeasured else ""
        end(NO_ANSWER, f"{given.subject}: no node has a result yet.{why} See kubectl precision status")
    _write(output, page(given).encode())
    if png_file is not None:
        _write(png_file, _png(given))


def _check_file(output: str) -> None:
    """Ends the command where the name asks for something else than a page: -o json would be a page in a file `json`."""
    suffix = Path(output).suffix.lower()
    if output in tuple(OutputFormat) or (suffix and suffix not in PAGES):
        fail(
            f"-o {output}: the report is one HTML page, and -o names its file, such as report.html. Its main figure as "
            "a picture: --png figure.png; figures for programs: kubectl precision nodes -o json"
        )


def _png(given: Given) -> bytes:
    try:
        return png(given)
    except NoMatplotlib as error:
        end(NO_PROGRAM, str(error))
    except ValueError as error:
        end(NO_ANSWER, f"--png: {error}")


def _write(place: str, content: bytes) -> None:
    if place == "-":
        typer.get_binary_stream("stdout").write(content)
        return
    try:
        Path(place).write_bytes(content)
    except OSError as error:
        fail(f"writing {place}: {error.strerror}; name another file with -o or --png")
    say(f"{place}: {len(content):,} bytes", err=True)


def _of_file(path: str, made_at: str, price: float | None) -> Given:
    try:
        text = read(path)
        if not is_result(text):
            fail(f"{path}: this is no result; save one with precision-agent run --output result.json")
        found = of_text(text)
    except ValueError as error:
        fail(f"{path}: {error}")
    return Given(f"Node {found.node}, {path}", made_at, (node_of_result(found),), found, price=price)


async def _of_cluster(
    cluster: Cluster, found: Results, name: str, only: str | None, made_at: str, price: float | None
) -> Given:
    nodes = list(dict.fromkeys(report.node_name for report in found.reports))
    known = {"profile": [view.name for view in found.profiles], "node": nodes}
    see = f"A node is found when it has a report; why it has none: kubectl precision why {name.rpartition('/')[2]}"
    kind, bare = resolve_name(name, known, found.where, see)
    if kind == "profile":
        own = profile_named(found, bare)
        chosen = of_profile(found.reports, own)
        subject, unmeasured, standing = f"Profile {own.key}", _unmeasured(own), None
    else:
        own = _profile_of(found, bare, only)
        every = of_profile(found.reports, own)
        chosen = tuple(r for r in every if r.node_name == bare)
        standing = compared_with_peers(every, own).get(bare)
        subject, unmeasured = f"Node {bare}, profile {own.key}", _failed(chosen)
    given = Given(
        subject,
        made_at,
        tuple(map(_node, filter(finished, chosen))),
        slow_node_percent=_percent(own),
        standing=standing,
        unmeasured=unmeasured,
        price=price,
    )
    return await _with_detail(cluster, given, chosen)


def _profile_of(found: Results, node: str, only: str | None) -> ProfileView:
    """The profile that has measured the node; ends the command where there are several and none is named."""
    if only is not None:
        return profile_named(found, only)
    every = [report for report in found.reports if report.node_name == node]
    mine = sorted({report.profile for report in every if finished(report)} or {report.profile for report in every})
    if len(mine) > 1:
        what = "results" if any(map(finished, every)) else "reports, none with a result yet,"
        fail(f"{node} has {what} of the profiles {', '.join(mine)}: name one with --profile")
    return profile_named(found, mine[0])


def _percent(own: ProfileView) -> float:
    thresholds = own.spec.thresholds if own.spec else Thresholds()
    return float(thresholds.slow_node_percent) if own.spec else DEFAULT_SLOW_PERCENT


def _unmeasured(own: ProfileView) -> tuple[str, ...]:
    """Why nodes of a profile have no result, as its status tells."""
    reasons = read_status(own).reasons[:REASONS_TOLD]
    return tuple(
        f"{each.count} {'node' if each.count == 1 else 'nodes'}: "
        f"{each.reason}, for example {each.example}. {each.message}"
        for each in reasons
    )


def _failed(chosen: Sequence[ReportView]) -> tuple[str, ...]:
    attempts = [report.status.attempt for report in chosen if report.status and report.status.attempt]
    failed = [attempt for attempt in attempts if attempt.outcome != "succeeded"]
    return tuple(f"Its newest attempt {each.outcome} at {each.finished_at}: {each.message}" for each in failed)


def _node(report: ReportView) -> Node:
    assert report.status is not None
    return Node(report.node_name, pool_of(report), report.status)


async def _with_detail(cluster: Cluster, given: Given, chosen: Sequence[ReportView]) -> Given:
    """The page with the full result of one node: of a pool, the node that stands for it best."""
    from dataclasses import replace

    typical = _typical(given)
    report = next((r for r in chosen if r.node_name == typical), None)
    if report is None or report.status is None or report.status.run is None:
        return given
    run = report.status.run
    if run.detail is None:
        why = run.detail_problem or "the report names no detail"
        return replace(given, result_problem=f"Figures of single multiplications are missing: {why}")
    try:
        found = of_config_map(await cluster.get(paths.item(paths.config_maps(report.namespace), run.detail)))
    except (ApiError, ValueError) as error:
        told = f"the full result of {typical} can't be read: {error}"
        note(told)
        return replace(given, result_problem=f"Figures of single multiplications are missing, since {told}.")
    return replace(given, result=found)


def _typical(given: Given) -> str:
    """The node in the middle of the largest pool by its rate, with a full result; the first where none is compared."""
    drawn = pools(given)
    if not drawn:
        return ""
    whole = {n.name for n in drawn[0].nodes if n.status.run and n.status.run.detail} or {drawn[0].nodes[0].name}
    ranked = [one.node for one in given.judged if one.node in whole]
    return ranked[len(ranked) // 2] if ranked else sorted(whole)[0]
