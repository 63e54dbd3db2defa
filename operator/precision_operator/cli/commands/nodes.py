"""`kubectl precision nodes`: every node with a report, its figures, and how it compares with its peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from precision_api.report import ReportStatus
from precision_operator.cli.codes import NO_ANSWER
from precision_operator.cli.commands.dry_run import WOULD_START
from precision_operator.cli.commands.dry_run import rows as planned_rows
from precision_operator.cli.connection_options import ask_cluster, count_of
from precision_operator.cli.failure import end, note
from precision_operator.cli.gathering import Seen, gathered_fleet
from precision_operator.cli.options import (
    AllNamespaces,
    Context,
    FormOf,
    Kubeconfig,
    Namespace,
    Reach,
    RequestTimeout,
    Selector,
    place_of,
)
from precision_operator.cli.output import OutputFormat, as_columns, printed, say
from precision_operator.cli.results import (
    Results,
    compared_with_peers,
    finished,
    node_name,
    of_profile,
    pool_of,
    profile_named,
    reading_of,
    results,
)
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.results.outliers import Judged
from precision_operator.core.results.reading import Reading, driver_of


class Only(StrEnum):
    """What --only takes."""

    SLOW = "slow"
    THROTTLED = "throttled"
    FALLBACK = "fallback"
    STALE = "stale"
    FAILED = "failed"
    POWERLESS = "powerless"
    SIMULATED = "simulated"


class Sort(StrEnum):
    """What --sort-by takes."""

    NODE = "node"
    RELATIVE = "relative"
    SPEEDUP = "speedup"
    RATE = "rate"
    ENERGY = "energy"
    FINISHED = "finished"


_KEYS: Mapping[Sort, str] = {
    Sort.NODE: "node",
    Sort.RELATIVE: "ofMedian",
    Sort.SPEEDUP: "speedup",
    Sort.RATE: "tokensPerSecond",
    Sort.ENERGY: "tokensPerJoule",
    Sort.FINISHED: "finishedAt",
}
_ONLY: Mapping[Only, Callable[[Mapping[str, Any]], bool]] = {
    Only.SLOW: lambda row: bool(row["slow"]),
    Only.THROTTLED: lambda row: "throttled" in row["flags"],
    Only.FALLBACK: lambda row: "fallback" in row["flags"],
    Only.STALE: lambda row: row["stale"] is not None,
    Only.FAILED: lambda row: row["state"] in ("Failed", "Quarantined", "Disrupted"),
    Only.POWERLESS: lambda row: "no power" in row["flags"],
    Only.SIMULATED: lambda row: row["data"] in ("simulated", "replayed"),
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
COLUMNS = (
    "namespace",
    "profile",
    "node",
    "pool",
    "state",
    "best",
    "speedup",
    "speedupLower",
    "speedupUpper",
    "tokensPerSecond",
    "tokensPerJoule",
    "watts",
    "ofMedian",
    "slow",
    "flags",
    "stale",
    "attempt",
    "gpusBy",
    "driver",
    "data",
    "finishedAt",
    "report",
)
_WHERE_SEVERAL = ("namespace", "profile", "pool")
"""Columns that a table has only where they tell rows apart; -o wide has them always."""
_FOLDS = (("notes", "pool", "namespace", "profile"), ("node",))
"""Columns that go on in the next line where a table is too wide, in this order, and that of last resort."""


def nodes(
    profile: Annotated[str | None, typer.Argument(help="Only nodes of this profile.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    only: Annotated[list[Only] | None, typer.Option(help="Only such nodes; may be repeated, each must hold.")] = None,
    every_node: Annotated[
        bool, typer.Option("--all", help="Every node of the cluster, also those without a report, with the reason.")
    ] = False,
    sort_by: Annotated[Sort, typer.Option(help="Order; figures ascending, so the worst come first.")] = Sort.NODE,
    output: FormOf = OutputFormat.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Print every node with a report: its best recipe, how it compares with its peers, and what is odd about it.

    With --all every node of the cluster, and why it was not measured, or not yet.
    """

    async def work(cluster: Cluster) -> tuple[Results, Seen | None, set[str] | None]:
        place = place_of(namespace, all_namespaces, cluster.namespace)
        seen = await gathered_fleet(cluster, place) if every_node else None
        found = await results(cluster, place) if seen is None else _results_in(seen, place)
        return found, seen, await labelled(cluster, selector)

    found, seen, wanted = ask_cluster(Reach(kubeconfig, context, request_timeout), work)
    for told in seen.notes if seen is not None else ():
        note(told)
    every = rows(found, profile)
    if seen is not None:
        every = with_every_node(every, seen, _chosen(found, profile))
    chosen = [row for row in every if wanted is None or row["node"] in wanted]
    chosen = [row for row in chosen if all(_ONLY[each](row) for each in only or ())]
    key = _KEYS[sort_by]
    chosen.sort(key=lambda row: (row[key] is None, row[key], row["node"]))
    say(printed(chosen, output, lambda wide: _table(chosen, len(every), found, wide), chosen, COLUMNS))


def _results_in(seen: Seen, place: str | None) -> Results:
    """What `results` would read, of a world that was read already."""
    profiles = tuple(p for p in seen.observed.profiles if place in (None, p.namespace) and p.uid not in seen.unread)
    reports = tuple(r for r in seen.observed.reports if place in (None, r.namespace))
    return Results(place, profiles, reports)


def _chosen(found: Results, only: str | None) -> list[ProfileView]:
    """The profiles that are shown, one or all; ends the command where there is none."""
    profiles = [profile_named(found, only)] if only is not None else sorted(found.profiles, key=lambda view: view.key)
    if not profiles:
        end(NO_ANSWER, f"there is no profile{found.where}, so no node is measured. Create one: kubectl explain pp.spec")
    return profiles


def with_every_node(
    measured: Sequence[dict[str, Any]], seen: Seen, profiles: Sequence[ProfileView]
) -> list[dict[str, Any]]:
    """Rows of every node of the cluster in each of these profiles, with `reason` and `message`: the operator's own for
    where the node stands now."""
    known = {(row["namespace"], row["profile"], row["node"]): row for row in measured}
    told = []
    for profile in profiles:
        own = next(each for each in seen.plan.profiles if each.profile.uid == profile.uid)
        states = {each.facts.name: each for each in own.node_states}
        for decided in planned_rows(own, seen.plan, seen.observed):
            key = (profile.namespace, profile.name, decided["node"])
            now = states.get(decided["node"]) if decided["reason"] == WOULD_START else None
            base = known.get(key) or _unreported(profile, decided)
            reason, message = (now.reason, now.message) if now else (decided["reason"], decided["message"])
            told.append(base | {"reason": reason, "message": message})
    return told


def _unreported(profile: ProfileView, decided: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a node without a report: only names, pool and where it stands are known."""
    row = dict.fromkeys(COLUMNS) | {"namespace": profile.namespace, "profile": profile.name, "flags": []}
    return row | {"node": decided["node"], "pool": decided["pool"] or None, "state": _STATES[decided["decision"]]}


async def labelled(cluster: Cluster, selector: str | None) -> set[str] | None:
    """Names of the nodes with such labels; None where none are asked for."""
    if selector is None:
        return None
    return set(await cluster.list_views(paths.NODES, node_name, selector, count_of("nodes")))


def rows(found: Results, only: str | None) -> list[dict[str, Any]]:
    """A row for each node of each profile, or of one. A node is held against all of its peers, whatever is shown."""
    profiles = [profile_named(found, only)] if only is not None else list(found.profiles)
    told = []
    for profile in sorted(profiles, key=lambda view: view.key):
        mine = of_profile(found.reports, profile)
        like = compared_with_peers(mine, profile)
        told += [row(report, like.get(report.node_name)) for report in mine]
    return told


def row(report: ReportView, like: Judged | None) -> dict[str, Any]:
    """A node for programs: numbers are numbers, absent is null."""
    status, reading = report.status or ReportStatus(), reading_of(report)
    best = reading.best
    return {
        "namespace": report.namespace,
        "profile": report.profile,
        "node": report.node_name,
        "pool": pool_of(report) or None,
        "state": status.state or "Waiting",
        "best": best.recipe if best else None,
        "speedup": best.speedup if best else None,
        "speedupLower": best.speedup_lower if best else None,
        "speedupUpper": best.speedup_upper if best else None,
        "tokensPerSecond": best.tokens_per_second if best else None,
        "tokensPerJoule": best.tokens_per_joule if best else None,
        "watts": best.watts if best else None,
        "ofMedian": round(like.relative, 5) if like else None,
        "slow": like.slow if like else None,
        "flags": list(_flags(status, reading, like)),
        "stale": reading.stale or None,
        "attempt": status.attempt.reason if status.attempt else None,
        "gpusBy": (status.hardware.gpus_by or "plugin") if status.hardware else None,
        "driver": driver_of(report.status),
        "data": reading.data,
        "finishedAt": finished(report) or None,
        "report": report.name,
    }


def _flags(status: ReportStatus, reading: Reading, like: Judged | None) -> Iterator[str]:
    if like is not None and like.slow:
        yield "slow"
    if reading.throttled:
        yield "throttled"
    if reading.fallen_back:
        yield "fallback"
    yield from sorted({row.loss_verdict.replace("_", " ") for row in reading.rows.values() if not row.learns})
    if reading.power_invalid:
        yield "no power"
    if status.run is not None and status.run.partial:
        yield "partial"
    if status.run is not None and status.run.detail_problem:
        yield "no detail"


def _table(chosen: Sequence[dict[str, Any]], every: int, found: Results, wide: bool) -> str:
    if not every:
        elsewhere = " Other namespaces: -n NAME, or -A for all." if found.place else ""
        return (
            f"No node has a report{found.where} yet.{elsewhere} "
            "See kubectl precision status, and why NODE for one node."
        )
    if not chosen:
        return f"No node matches (0 of {every}{found.where})."
    more = {name for name in _WHERE_SEVERAL if wide or len({row[name] for row in chosen} - {None}) > 1}
    body = as_columns([_columns(row, wide, more) for row in chosen], *(() if wide else _FOLDS))
    states = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in chosen).most_common())
    shown = f"{len(chosen)} of {every} nodes" if len(chosen) < every else f"{every} nodes"
    return f"{body}\n\n{shown}: {states}"


def _columns(each: Mapping[str, Any], wide: bool, more: Container[str]) -> dict[str, Any]:
    """A node's cells; of namespace, profile and pool those in `more`."""
    cells = {
        "namespace": each["namespace"],
        "profile": each["profile"],
        "node": each["node"],
        "pool": each["pool"],
        "state": each["state"],
        "best": " ".join(filter(None, (each["best"], _told(each["speedup"], ".2f", "x")))),
        "tokens/s": _told(each["tokensPerSecond"], ",.0f"),
        "of median": _told(each["ofMedian"], ".1%"),
        "notes": ", ".join(_notes(each)),
    }
    cells = {name: cell for name, cell in cells.items() if name not in _WHERE_SEVERAL or name in more}
    if wide:
        cells |= {"tokens/J": _told(each["tokensPerJoule"], ".1f")}
        bounds = (each["speedupLower"], each["speedupUpper"])
        interval = "-" if None in bounds else f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"
        cells |= {"95 % interval": interval, "watts": _told(each["watts"], ",.0f")}
        cells |= {"reason": each["reason"], "message": each["message"]} if "reason" in each else {}
        cells |= {
            "GPUs by": each["gpusBy"],
            "driver": each["driver"],
            "finished": each["finishedAt"],
            "report": each["report"],
        }
    return cells


def _notes(each: Mapping[str, Any]) -> Iterator[str]:
    """Why it stands so, what is odd about it, and that nobody measured it."""
    why = each["stale"] or each["attempt"] or each.get("reason")
    if each["state"] not in ("Measured", "Partial") and why and why != each["state"]:
        yield why
    yield from each["flags"]
    if each["data"] in ("simulated", "replayed"):
        yield "SIMULATED"


def _told(value: float | None, form: str, unit: str = "") -> str | None:
    return None if value is None else f"{value:{form}}{unit}"
