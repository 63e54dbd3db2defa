"""`kubectl precision status`: how far each profile has come, what it found, and what it waits for."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from precision_api.facts.plain_text import number_of, three_digits
from precision_api.facts.plain_text import plain as without_controls
from precision_api.facts.recipes import Recipe, notes_of, recipe_text, risk_of
from precision_api.kinds.profile import PoolStatus, ProfileStatus
from precision_operator.cli.columns import Column, Columns, OutputRow, as_cells, as_row, figure, keys
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import (
    AllNamespaces,
    FormOf,
    Namespace,
    Over,
    Reach,
    asks_cluster,
    place_of,
    seconds_of,
)
from precision_operator.cli.output import OutputFormat, as_columns, printed, wrapped
from precision_operator.cli.pool_recipes import PoolRecipes, read_pool_recipes, recipes_table
from precision_operator.cli.results import status_of, unserved
from precision_operator.cli.terminal import fail, no_profile
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.clock import short_time
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.observe.views import profile_view
from precision_operator.core.results.reading import number

_PER_JOULE = ("tokensPerJouleP10", "tokensPerJoule", "tokensPerJouleP90")
_FIGURES = ("teraflopsPerGPU", "speedup", "tokensPerSecond", *_PER_JOULE, "watts")
_FOLDS = (("waits for", "namespace", "best"), ("profile",))
"""Columns that go on in the next line where a table is too wide, and that of last resort."""
UNSEEN = "Unseen"
"""The phase of a profile that no operator has judged yet."""
CLEAR = "\033[H\033[2J"


@asks_cluster
def status(
    profile: Annotated[str | None, typer.Argument(help="Only this one, in detail, with each pool's recipes.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Annotated[str | None, typer.Option("--selector", "-l", help="Only profiles with these labels.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and print what changes, until Ctrl-C.")] = False,
    over: Over = None,
    interval: Annotated[str, typer.Option(help="With --watch: how often to look.")] = "2s",
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Print how far each profile has come, what it found, and what it waits for."""
    pause = seconds_of(interval, "--interval")
    if watch and output in (OutputFormat.YAML, OutputFormat.CSV, OutputFormat.NAME):
        fail("--watch prints a table, or with -o json one document a change: leave -o yaml, csv or name out")

    if over and profile is None:
        fail(f"--baseline compares the recipes of one profile: kubectl precision status PROFILE --baseline {over}")

    async def work(cluster: Cluster) -> None:
        place = place_of(namespace, all_namespaces, cluster.namespace)

        async def look() -> str:
            views = await cluster.list_views(paths.profiles(place), profile_view, selector)
            chosen = views if profile is None else named(views, profile, place)
            recipes = {view.uid: await read_pool_recipes(cluster, view, over) for view in chosen if profile is not None}
            return shown([_without_speedups(view) if over else view for view in chosen], recipes, place, output)

        clear = CLEAR if watch and sys.stdout.isatty() else ""  # a pipe gets one table after the other
        typer.echo(clear + (before := without_controls(await look())))
        while watch:
            await asyncio.sleep(pause)
            now = without_controls(await look())
            if now != before:
                typer.echo(clear + (before := now))

    ask_cluster(reach, work)


def named(views: Sequence[ProfileView], name: str, place: str | None) -> list[ProfileView]:
    """The profiles of this name; ends the command where there is none."""
    mine = [view for view in views if view.name == name]
    if not mine:
        no_profile(name, [view.name for view in views], place)
    return mine


def _without_speedups(view: ProfileView) -> ProfileView:
    """Of its pools: the operator's are over the profile's own baseline."""
    pools = [{**pool, "speedup": None, "baseline": None} for pool in view.status.get("pools", [])]
    return replace(view, status={**view.status, "pools": pools})


def shown(
    views: Sequence[ProfileView], recipes: Mapping[str, PoolRecipes], place: str | None, form: OutputFormat
) -> str:
    """Profiles as a table; in all detail where `recipes` has their pools, by the profile's UID."""
    rows = [row(view, recipes.get(view.uid, {})) for view in sorted(views, key=lambda view: view.key)]
    details = (_detail(view, recipes[view.uid]) for view in views if view.uid in recipes)
    return printed(
        rows, form, lambda wide: "\n\n".join(details) if recipes else _table(rows, place, wide), rows, keys(COLUMNS)
    )


def row(view: ProfileView, recipes: PoolRecipes) -> dict[str, Any]:
    """A profile for programs, absent is null; its pools have their `recipes` where these were read."""
    status = status_of(view)
    document = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    pools: list[dict[str, Any]] = [
        {key: float(value) if key in _FIGURES else value for key, value in pool.items()}
        for pool in document.get("pools", [])
    ]
    facts = {
        "namespace": view.namespace,
        "profile": view.name,
        "phase": status.phase or UNSEEN,
        "tokensPerJoule": None if status.tokens_per_joule is None else float(status.tokens_per_joule),
        "judged": status.observed_generation == view.generation,
        "pools": [pool | {"recipes": recipes[pool["name"]]} if pool["name"] in recipes else pool for pool in pools],
    }
    return as_row(COLUMNS, {**_ABSENT, **document, **facts})


def _table(rows: Sequence[dict[str, Any]], place: str | None, wide: bool) -> str:
    if not rows:
        where = f"namespace {place}" if place else "any namespace"
        return f"There is no profile in {where}. Create one: kubectl explain pp.spec; all namespaces: -A"
    judged = any(row["nodes"].get(name) for row in rows for name in ("accepted", "notAccepted"))
    shown = [field for field in COLUMNS if judged or "accepted" not in field.header][not wide and place is not None :]
    pools = (pool for row in rows for pool in row["pools"] or () if pool.get("bestRecipe"))
    risks = notes_of((pool["bestRecipe"], pool.get("lastLayersBF16")) for pool in pools)
    table = as_columns([as_cells(shown, row, wide) for row in rows], *(() if wide else _FOLDS))
    return "\n".join((table, *(["", *map(wrapped, risks)] if risks else [])))


_WIDE_COUNTS = ("skipped", "waiting", "queued", "running", "stale", "fallback", "throttled", "quarantined")


def _count(name: str, wide: bool = False) -> Column[OutputRow]:
    """How many nodes are so, for people: programs have all counts in one field."""
    return Column(header=name, cell=lambda row: row["nodes"].get(name, 0), wide=wide)


COLUMNS: Columns[OutputRow] = (
    *(Column(name, header=name) for name in ("namespace", "profile")),
    Column(
        "phase",
        header="phase",
        cell=lambda row: f"{row['phase']}{'' if row['judged'] or row['phase'] == UNSEEN else '?'}",
    ),
    Column("progress", header="nodes"),
    Column("nodes"),
    *(_count(name) for name in ("failed", "slow", "accepted")),
    Column(header="not accepted", cell=lambda row: row["nodes"].get("notAccepted", 0)),
    Column(
        "eta", header="eta", cell=lambda row: row["eta"] or (row["nextRun"] and f"next {short_time(row['nextRun'])}")
    ),
    Column("waitsFor", header="waits for"),
    *map(Column, ("lastRun", "nextRun")),
    Column("best", header="best"),
    Column("tokensPerJoule"),
    Column("data", header="data", cell=lambda row: (row["data"] or "").partition(" ")[0]),
    *map(Column, ("judged", "conditions", "reasons", "pools")),
    Column(header="data", cell=lambda row: row["data"], wide=True),
    *(_count(name, wide=True) for name in _WIDE_COUNTS),
    Column(header="tokens/J", cell=figure("tokensPerJoule", ".1f"), wide=True),
    Column(header="last run", cell=lambda row: row["lastRun"], wide=True),
    Column(header="next run", cell=lambda row: row["nextRun"], wide=True),
)
_ABSENT = dict.fromkeys(keys(COLUMNS)) | {"nodes": {}, "conditions": [], "reasons": []}


def _detail(view: ProfileView, recipes: PoolRecipes) -> str:
    profile_status = status_of(view)
    lines = [f"{view.key}: {profile_status.phase or 'not seen by the operator yet'}"]
    lines += [wrapped(f"  {title:<13}{words}", 15) for title, words in _lines(view, profile_status)]
    table = recipes_table(recipes)
    named = [(pool.best_recipe, pool.last_layers_bf16) for pool in profile_status.pools if pool.best_recipe]
    named += [(row["recipe"], row["lastLayersBF16"]) for rows in recipes.values() for row in rows]
    return "\n".join([*lines, *(["", table] if table else []), *map(wrapped, notes_of(named))])


def _lines(view: ProfileView, profile_status: ProfileStatus) -> Iterator[tuple[str, str]]:
    numbers = profile_status.nodes.model_dump() if profile_status.nodes is not None else {}
    always = ("matched", "eligible")
    schedule = view.spec.schedule if view.spec else None
    never = "none: the profile has no schedule" if schedule and not (schedule.cron or schedule.max_age) else None
    counts = (f"{number} {name.replace('_', ' ')}" for name, number in numbers.items() if number or name in always)
    for title, words in (
        ("nodes", ", ".join(counts)),
        ("progress", profile_status.progress),
        ("eta", profile_status.eta),
        ("waits for", profile_status.waits_for),
        ("last run", profile_status.last_run),
        ("next run", profile_status.next_run or never),
        ("data", profile_status.data),
    ):
        if words:
            yield title, words
    for pool in profile_status.pools:
        yield "pool", _pool(pool)
    for condition in profile_status.conditions:
        yield condition.type.lower(), f"{condition.status}, {condition.reason}: {condition.message}"
    for reason in profile_status.reasons:
        yield (
            "because",
            f"{number_of(reason.count, 'node')} {reason.reason}, for example {reason.example}: {reason.message}",
        )
    if profile_status.phase is None and profile_status.observed_generation is None:
        yield "note", unserved(view.namespace)
    elif profile_status.observed_generation != view.generation:
        yield "note", "The operator has not judged the profile as it is now; this is of an older spec."


def _pool(pool: PoolStatus) -> str:
    recipe: Recipe = pool.best_recipe or "bf16"
    best, title = (
        recipe_text(recipe, speedup, pool.last_layers_bf16, pool.baseline or "bf16", pool.step)
        for speedup in (number(pool.speedup), None)
    )
    safe = "" if risk_of(recipe, pool.last_layers_bf16) else ", no known risk"
    rates = ((pool.teraflops_per_gpu, "TFLOP/s per GPU"), (pool.tokens_per_second, "tokens/s a node (sum of its GPUs)"))
    rate = "".join(f", {three_digits(float(text))} {unit}" for text, unit in rates if text)
    joules = three_digits(float(pool.tokens_per_joule or 0))
    parts = (
        (f"{pool.name}: {number_of(pool.nodes, 'node')}", True),
        (f"{best}{safe}{rate}", pool.best_recipe),
        (f"{joules} tokens/J with {title}", pool.tokens_per_joule),
        (f"slow: {', '.join(pool.slow_nodes)}", pool.slow_nodes),
        ("SIMULATED", pool.simulated),
    )
    return "; ".join(part for part, is_there in parts if is_there)
