"""`kubectl precision report PROFILE|NODE|FILE -o report.html`: one page."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from precision_api.exchange.rebase import result_over
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.object_ref import resolve_name
from precision_operator.cli.options import AllNamespaces, Namespace, OfProfile, Over, Reach, asks_cluster, place_of
from precision_operator.cli.output import OutputFormat
from precision_operator.cli.pool_recipes import over_recipe
from precision_operator.cli.results import Results, finished, of_profile, profile_named, reading_of, results, status_of
from precision_operator.cli.saved import read
from precision_operator.cli.terminal import NO_ANSWER, end, fail, note, say
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.results.slowness import beside_peers
from precision_operator.report.detail import is_result, of_config_map, of_text
from precision_operator.report.facts import DEFAULT_SLOW_PERCENT, Given, pools, reading_of_result
from precision_operator.report.page import page

REASONS_TOLD = 6
PAGES = (".html", ".htm")


@asks_cluster
def report(
    name: Annotated[str, typer.Argument(help="A profile, a node, or a result.json that precision-agent saved.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Where the page goes; - is stdout.")] = "report.html",
    price: Annotated[float | None, typer.Option(help="Dollars of a GPU-hour, for dollars per million tokens.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    profile: OfProfile = None,
    over: Over = None,
    *,
    reach: Reach,
) -> None:
    """Write one self-contained HTML page: the verdict in words, then every figure with its source."""
    if price is not None and not 0 < price < 1e6:
        fail(f"--price: {price:g} is no price of a GPU-hour in dollars; write for example 2.5")
    _check_file(output)
    made_at = format_time(datetime.now(UTC))
    if Path(name).is_file():
        facts = _of_file(name, made_at, price)
    else:

        async def work(cluster: Cluster) -> Given:
            place = place_of(namespace, all_namespaces, cluster.namespace)
            return await _of_cluster(cluster, await results(cluster, place), name, profile, made_at, price)

        facts = ask_cluster(reach, work)
    if not facts.nodes:
        why = f" {facts.unmeasured[0]}" if facts.unmeasured else ""
        end(NO_ANSWER, f"{facts.subject}: no node has a result yet.{why} See kubectl precision status")
    _write(output, page(_over(facts, over)).encode())


def _over(facts: Given, over: str | None) -> Given:
    """With speedups over that recipe."""
    (nodes, said), result = over_recipe(facts.nodes, over), facts.result
    if result:
        result, _ = result_over(result, over or result.baseline)
    return replace(facts, nodes=nodes, result=result, unmeasured=(*facts.unmeasured, *said[:REASONS_TOLD]))


def _check_file(output: str) -> None:
    """Ends the command where the name asks for something else than a page: -o json would be a page in a file `json`."""
    suffix = Path(output).suffix.lower()
    if output in tuple(OutputFormat) or (suffix and suffix not in PAGES):
        fail(
            f"-o {output}: the report is one HTML page, and -o names its file, such as report.html. Figures "
            "for programs: kubectl precision nodes -o json"
        )


def _write(place: str, content: bytes) -> None:
    if place == "-":
        typer.get_binary_stream("stdout").write(content)
        return
    try:
        Path(place).write_bytes(content)
    except OSError as error:
        fail(f"writing {place}: {error.strerror}; name another file with -o")
    say(f"{place}: {len(content):,} bytes", err=True)


def _of_file(path: str, made_at: str, price: float | None) -> Given:
    try:
        text = read(path)
        if not is_result(text):
            fail(f"{path}: this is no result; save one with precision-agent run --output result.json")
        result = of_text(text)
    except ValueError as error:
        fail(f"{path}: {error}")
    return Given(f"Node {result.node}, {path}", made_at, (reading_of_result(result),), result, price=price)


async def _of_cluster(
    cluster: Cluster, fleet: Results, name: str, only: str | None, made_at: str, price: float | None
) -> Given:
    nodes = list(dict.fromkeys(report.node_name for report in fleet.reports))
    of_kind = {"profile": [view.name for view in fleet.profiles], "node": nodes}
    see = f"A node is found when it has a report; why it has none: kubectl precision why {name.rpartition('/')[2]}"
    kind, bare = resolve_name(name, of_kind, fleet.where, see)
    if kind == "profile":
        owner = profile_named(fleet, bare)
        chosen = of_profile(fleet.reports, owner)
        subject, unmeasured = f"Profile {owner.key}", _unmeasured(owner)
    else:
        owner = _profile_of(fleet, bare, only)
        chosen = tuple(r for r in of_profile(fleet.reports, owner) if r.node_name == bare)
        subject, unmeasured = f"Node {bare}, profile {owner.key}", _failed(chosen)
    percent = float(owner.spec.thresholds.slow_node_percent) if owner.spec else DEFAULT_SLOW_PERCENT
    mine = tuple(map(reading_of, chosen if kind == "node" else ()))
    standing, alone = beside_peers(fleet.peers, mine, percent, owner.namespace, owner.name)
    facts = Given(
        subject,
        made_at,
        tuple(map(reading_of, filter(finished, chosen))),
        slow_node_percent=percent,
        peers=fleet.peers,
        standing=standing,
        no_peers=alone,
        unmeasured=unmeasured,
        price=price,
    )
    return await _with_detail(cluster, facts, chosen)


def _profile_of(fleet: Results, node: str, only: str | None) -> ProfileView:
    """The profile that has measured the node; ends the command where there are several and none is named."""
    if only is not None:
        return profile_named(fleet, only)
    every = [report for report in fleet.reports if report.node_name == node]
    mine = sorted({report.profile for report in every if finished(report)} or {report.profile for report in every})
    if len(mine) > 1:
        what = "results" if any(map(finished, every)) else "reports, none with a result yet,"
        fail(f"{node} has {what} of the profiles {', '.join(mine)}: name one with --profile")
    return profile_named(fleet, mine[0])


def _unmeasured(profile: ProfileView) -> tuple[str, ...]:
    """Why nodes of a profile have no result, as its status tells."""
    reasons = [row for row in status_of(profile).reasons if row.reason != "NoPeers"][:REASONS_TOLD]
    return tuple(
        f"{reason.count} {'node' if reason.count == 1 else 'nodes'}: "
        f"{reason.reason}, for example {reason.example}. {reason.message}"
        for reason in reasons
    )


def _failed(chosen: Sequence[ReportView]) -> tuple[str, ...]:
    attempts = [report.status.attempt for report in chosen if report.status and report.status.attempt]
    failed = [attempt for attempt in attempts if attempt.outcome != "succeeded"]
    return tuple(f"Its newest attempt {last.outcome} at {last.finished_at}: {last.message}" for last in failed)


async def _with_detail(cluster: Cluster, facts: Given, chosen: Sequence[ReportView]) -> Given:
    """The page with the full result of one node: of a pool, the node that stands for it best."""
    typical = _typical(facts)
    report = next((r for r in chosen if r.node_name == typical), None)
    if report is None or report.status is None or report.status.run is None:
        return facts
    run = report.status.run
    if run.detail is None:
        why = run.detail_problem or "the report names no detail"
        return replace(facts, result_problem=f"Figures of single multiplications are missing: {why}")
    try:
        result = of_config_map(await cluster.get(paths.item(paths.config_maps(report.namespace), run.detail)))
    except (ApiError, ValueError) as error:
        problem = f"the full result of {typical} can't be read: {error}"
        note(problem)
        return replace(facts, result_problem=f"Figures of single multiplications are missing, since {problem}.")
    return replace(facts, result=result)


def _typical(facts: Given) -> str:
    """The node in the middle of the largest pool by its rate, with a full result; the first where none is compared."""
    drawn = pools(facts)
    if not drawn:
        return ""
    whole = {node.node for node in drawn[0].nodes if node.run and node.run.detail} or {drawn[0].nodes[0].node}
    ranked = [node.node for node in facts.judged if node.node in whole]
    return ranked[len(ranked) // 2] if ranked else sorted(whole)[0]
