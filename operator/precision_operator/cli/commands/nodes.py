"""`kubectl precision nodes`: every node with a report, its figures, and how it compares with its peers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from precision_api.exchange.request import step_marks
from precision_api.facts.plain_text import number_of
from precision_api.facts.recipes import names_of, notes_of, recipe_text
from precision_api.kinds.report import ReportStatus
from precision_operator.cli.columns import Column, Columns, OutputRow, as_cells, as_row, figure, keys
from precision_operator.cli.connection_options import ask_cluster, count_of
from precision_operator.cli.gathering import Seen, gathered_fleet
from precision_operator.cli.options import AllNamespaces, FormOf, Namespace, Reach, Selector, asks_cluster, place_of
from precision_operator.cli.output import OutputFormat, as_columns, printed, wrapped
from precision_operator.cli.results import (
    Results,
    finished,
    node_name,
    of_profile,
    pool_of,
    profile_named,
    reading_of,
    results,
)
from precision_operator.cli.terminal import NO_ANSWER, end, note, say
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.clock import short_time
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.results.intervals import bounds_text
from precision_operator.core.results.outliers import Judged
from precision_operator.core.results.reading import Reading, RecipeRow
from precision_operator.core.status.decisions import WOULD_START
from precision_operator.core.status.decisions import rows as planned_rows

Only = StrEnum("Only", "SLOW THROTTLED FALLBACK STALE FAILED POWERLESS SIMULATED")
"""What --only takes."""
Sort = Literal["node", "relative", "speedup", "rate", "energy", "finished"]
"""What --sort-by takes."""
_KEYS: Mapping[Sort, str] = {
    "node": "node",
    "relative": "ofMedian",
    "speedup": "speedup",
    "rate": "tokensPerSecond",
    "energy": "tokensPerJoule",
    "finished": "finishedAt",
}
_ONLY: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "slow": lambda row: bool(row["slow"]),
    "throttled": lambda row: "throttled" in row["flags"],
    "fallback": lambda row: "fallback" in row["flags"],
    "stale": lambda row: row["stale"] is not None,
    "failed": lambda row: row["state"] in ("Failed", "Quarantined", "Disrupted"),
    "powerless": lambda row: "no power" in row["flags"],
    "simulated": lambda row: row["data"] in ("simulated", "replayed"),
}
_STATES: Mapping[str, str] = {
    "run": "Queued",
    "queue": "Queued",
    "wait": "Waiting",
    "skip": "Skipped",
    "done": "Measured",
    "failed": "Failed",
    "ignore": "NotMatched",
    "gone": "Gone",
}
"""The state of a node without a report, by what `dry-run` calls the decision."""
_WHERE_SEVERAL = ("namespace", "profile", "pool")
"""Columns that a table has only where they tell rows apart; -o wide has them always."""
_FOLDS = (("notes", "best", "pool", "namespace", "profile"), ("node",), ("pool",))
"""Columns that go on in the next line where a table is too wide, that of last resort, and what few characters drop."""


@asks_cluster
def nodes(
    profile: Annotated[str | None, typer.Argument(help="Only nodes of this profile.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    only: Annotated[list[Only] | None, typer.Option(help="Only such nodes; may be repeated, each must hold.")] = None,
    every_node: Annotated[
        bool, typer.Option("--all", help="Every node of the cluster, also those without a report, with the reason.")
    ] = False,
    sort_by: Annotated[Sort, typer.Option(help="Order; figures ascending, so the worst come first.")] = "node",
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Print every node with a report: its best recipe, how it compares with its peers, and what is odd about it.

    With --all every node of the cluster, and why it was not measured, or not yet.
    """

    async def work(cluster: Cluster) -> tuple[Results, Seen | None, set[str] | None]:
        place = place_of(namespace, all_namespaces, cluster.namespace)
        seen = await gathered_fleet(cluster, place) if every_node else None
        fleet = await results(cluster, place) if seen is None else _results_in(seen, place)
        return fleet, seen, await labelled(cluster, selector)

    fleet, seen, wanted = ask_cluster(reach, work)
    note(*(seen.notes if seen is not None else ()))
    every = rows(fleet, profile)
    if seen is not None:
        every = with_every_node(every, seen, _chosen(fleet, profile))
    chosen = [row for row in every if wanted is None or row["node"] in wanted]
    chosen = [row for row in chosen if all(_ONLY[kind](row) for kind in only or ())]
    key = _KEYS[sort_by]
    chosen.sort(key=lambda row: (row[key] is None, row[key], row["node"]))
    header = keys(COLUMNS if seen is None else WITH_REASONS)
    say(printed(chosen, output, lambda wide: _table(chosen, len(every), fleet, wide), chosen, header))


def _results_in(seen: Seen, place: str | None) -> Results:
    """What `results` would read, of a world that was read already."""
    profiles = tuple(p for p in seen.observed.profiles if place in (None, p.namespace) and p.uid not in seen.unread)
    reports = tuple(r for r in seen.observed.reports if place in (None, r.namespace))
    return Results(place, profiles, reports)


def _chosen(fleet: Results, only: str | None) -> list[ProfileView]:
    """The profiles that are shown, one or all; ends the command where there is none."""
    profiles = [profile_named(fleet, only)] if only is not None else sorted(fleet.profiles, key=lambda view: view.key)
    if not profiles:
        end(NO_ANSWER, f"there is no profile{fleet.where}, so no node is measured. Create one: kubectl explain pp.spec")
    return profiles


def with_every_node(
    measured: Sequence[dict[str, Any]], seen: Seen, profiles: Sequence[ProfileView]
) -> list[dict[str, Any]]:
    """Rows of every node of the cluster in each of these profiles, with `reason` and `message`: the operator's own for
    where the node stands now."""
    by_place = {(row["namespace"], row["profile"], row["node"]): row for row in measured}
    listed = []
    for profile in profiles:
        planned = next(item for item in seen.plan.profiles if item.profile.uid == profile.uid)
        states = {item.facts.name: item for item in planned.node_states}
        for decided in planned_rows(planned, seen.plan, seen.observed):
            key = (profile.namespace, profile.name, decided["node"])
            now = states.get(decided["node"]) if decided["reason"] == WOULD_START else None
            base = by_place.get(key) or _unreported(profile, decided)
            reason, message = (now.reason, now.message) if now else (decided["reason"], decided["message"])
            until = states[decided["node"]].said.facts.get("at") if reason == "NotDueYet" else None
            listed.append(base | {"reason": reason, "until": until, "message": message})
    return listed


def _unreported(profile: ProfileView, decided: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a node without a report: only names, pool and where it stands are known."""
    row = dict.fromkeys(keys(COLUMNS)) | {"namespace": profile.namespace, "profile": profile.name, "flags": []}
    return row | {"node": decided["node"], "pool": decided["pool"] or None, "state": _STATES[decided["decision"]]}


async def labelled(cluster: Cluster, selector: str | None) -> set[str] | None:
    """Names of the nodes with such labels; None where none are asked for."""
    if selector is None:
        return None
    return set(await cluster.list_views(paths.NODES, node_name, selector, count_of("nodes")))


def rows(fleet: Results, only: str | None) -> list[dict[str, Any]]:
    """A row for each node of each profile, or of one. A node is held against all of its peers, whatever is shown."""
    profiles = [profile_named(fleet, only)] if only is not None else list(fleet.profiles)
    listed = []
    for profile in sorted(profiles, key=lambda view: view.key):
        mine = of_profile(fleet.reports, profile)
        like = fleet.compared_with_peers(profile)
        listed += [row(report, like.get(report.node_name)) for report in mine]
    return listed


def row(report: ReportView, judged: Judged | None) -> dict[str, Any]:
    """A node for programs: numbers are numbers, absent is null."""
    reading = reading_of(report)
    best = reading.rows[reading.marks.best] if reading.marks.best else None
    return as_row(COLUMNS, _NodeResult(report, report.status or ReportStatus(), reading, judged, best))


def _flags(node: "_NodeResult") -> list[str]:
    reading, run = node.reading, node.status.run
    losses = sorted({row.loss_verdict.replace("_", " ") for row in reading.rows.values() if not row.learns})
    flags = (
        ("slow", node.judged is not None and node.judged.slow),
        ("throttled", reading.marks.throttled),
        ("fallback", reading.marks.fallen_back),
        *((loss, True) for loss in losses),
        ("no power", reading.marks.power_invalid),
        ("partial", run is not None and run.partial),
        ("no detail", run is not None and run.detail_problem),
    )
    return [flag for flag, holds in flags if holds]


def _table(chosen: Sequence[dict[str, Any]], every: int, fleet: Results, wide: bool) -> str:
    if not every:
        elsewhere = " Other namespaces: -n NAME, or -A for all." if fleet.place else ""
        return (
            f"No node has a report{fleet.where} yet.{elsewhere} "
            "See kubectl precision status, and why NODE for one node."
        )
    if not chosen:
        return f"No node matches (0 of {every}{fleet.where})."
    hidden = {name for name in _WHERE_SEVERAL if not wide and len({row[name] for row in chosen} - {None}) < 2}
    hidden |= {name for name in ("reason", "message") if name not in chosen[0]}
    hidden |= set() if any(row["verdict"] for row in chosen) else {"verdict"}
    columns = [column for column in COLUMNS if column.header not in hidden]
    names = names_of(row["best"] or "" for row in chosen)
    shown = [{**row, "parts": names[row["best"] or ""].partition(".")[2]} for row in chosen]
    body = as_columns([as_cells(columns, row, wide) for row in shown], *(() if wide else _FOLDS))
    states = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in chosen).most_common())
    among = (f"{len(chosen)} of " if len(chosen) < every else "") + number_of(every, "node")
    risks = notes_of((row["best"], row["lastLayersBF16"]) for row in chosen if row["best"])
    return "\n".join((f"{body}\n\n{among}: {states}", *map(wrapped, risks)))


@dataclass(frozen=True)
class _NodeResult:
    """A node with a report, and how it compares with its peers."""

    report: ReportView
    status: ReportStatus
    reading: Reading
    judged: Judged | None
    best: RecipeRow | None


def _of_best(read: Callable[[RecipeRow], Any]) -> Callable[[_NodeResult], Any]:
    return lambda node: read(node.best) if node.best else None


def _best(row: OutputRow) -> str:
    figures = row["best"], row["speedup"], row["lastLayersBF16"], row["baseline"]
    return recipe_text(*figures, row.get("parts"), row["step"]) if row["best"] else ""


def _interval(row: OutputRow) -> str:
    bounds = (row["speedupLower"], row["speedupUpper"])
    return "-" if None in bounds else bounds_text(*bounds) or f"{bounds[0]:.3f}"


COLUMNS: Columns[_NodeResult] = (
    Column("namespace", lambda node: node.report.namespace, "namespace"),
    Column("profile", lambda node: node.report.profile, "profile"),
    Column("node", lambda node: node.report.node_name, "node"),
    Column("pool", lambda node: pool_of(node.report) or None, "pool"),
    Column("state", lambda node: node.status.state or "Waiting", "state"),
    Column("verdict", lambda node: (it := node.reading.acceptance) and it.verdict, "verdict"),
    Column("verdictReason", lambda node: (it := node.reading.acceptance) and it.reason),
    Column("best", _of_best(lambda best: best.recipe), "best", _best),
    Column("speedup", _of_best(lambda best: best.speedup)),
    Column("step", lambda node: node.best and step_marks(node.best.recipe, node.reading.timing)),
    Column("baseline", lambda node: node.best and node.reading.group.baseline),
    Column("speedupLower", _of_best(lambda best: best.speedup_lower)),
    Column("speedupUpper", _of_best(lambda best: best.speedup_upper)),
    Column("lastLayersBF16", _of_best(lambda best: best.last_layers_bf16)),
    Column("teraflopsPerGPU", _of_best(lambda best: best.teraflops_per_gpu)),
    Column(header="TFLOP/s/GPU", cell=figure("teraflopsPerGPU", "#,.4g")),
    Column("tokensPerSecond", _of_best(lambda best: best.tokens_per_second)),
    Column("tokensPerJoule", _of_best(lambda best: best.tokens_per_joule)),
    Column("watts", _of_best(lambda best: best.watts)),
    Column("ofMedian", lambda node: round(node.judged.relative, 5) if node.judged else None),
    Column(header="of median", cell=figure("ofMedian", ".1%")),
    Column("slow", lambda node: node.judged.slow if node.judged else None),
    Column("flags", _flags),
    Column("stale", lambda node: node.reading.stale or None),
    Column("attempt", lambda node: node.status.attempt.reason if node.status.attempt else None),
    Column(header="notes", cell=lambda row: ", ".join(_notes(row))),
    Column(header="tokens/s", cell=figure("tokensPerSecond", ",.0f"), wide=True),
    Column(header="tokens/J", cell=figure("tokensPerJoule", ".1f"), wide=True),
    Column(header="95 % interval", cell=_interval, wide=True),
    Column(header="watts", cell=figure("watts", ",.0f"), wide=True),
    Column(header="reason", wide=True),
    Column(header="message", wide=True),
    Column("gpusBy", lambda node: (it := node.status.hardware) and (it.gpus_by or "plugin"), "GPUs by", wide=True),
    Column("driver", lambda node: node.reading.driver, "driver", wide=True),
    Column("data", lambda node: node.reading.data),
    Column("finishedAt", lambda node: finished(node.report) or None, "finished", wide=True),
    Column("report", lambda node: node.report.name, "report", wide=True),
)
WITH_REASONS: Columns[Any] = (*COLUMNS, *map(Column, ("reason", "until", "message")))
"""Those of --all."""


def _notes(row: Mapping[str, Any]) -> Iterator[str]:
    """Why it stands so, what is odd about it, and that nobody measured it."""
    why = row["stale"] or row["attempt"] or row.get("reason")
    until = f" until {short_time(row['until'])}" if row.get("until") else ""
    if row["state"] not in ("Measured", "Partial") and why and why != row["state"]:
        yield f"{why}{until}"
    if row["verdict"] in ("Fail", "Inconclusive"):
        yield row["verdictReason"]
    yield from row["flags"]
    if row["data"] in ("simulated", "replayed"):
        yield "SIMULATED"
