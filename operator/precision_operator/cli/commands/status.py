"""`kubectl precision status`: how far each profile has come, what it found, and what it waits for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from precision_api.plain_text import plain as without_controls
from precision_api.profile import NodeCounts, PoolStatus, ProfileStatus
from precision_operator.cli.commands.why import unserved
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.failure import did_you_mean, fail
from precision_operator.cli.options import (
    AllNamespaces,
    Context,
    FormOf,
    Kubeconfig,
    Namespace,
    Reach,
    RequestTimeout,
    place_of,
    seconds_of,
)
from precision_operator.cli.output import Output, OutputFormat, as_columns, printed
from precision_operator.cli.pool_recipes import PoolRecipes, read_pool_recipes, recipes_table
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.observe.views import profile_view

COLUMNS = ("namespace", "profile", "phase", "progress", "nodes", "eta", "waitsFor", "best", "data", "conditions")
_FIGURES = ("speedup", "tokensPerSecond", "tokensPerJouleP10", "tokensPerJoule", "tokensPerJouleP90", "watts")
_FOLDS = (("waits for", "namespace"), ("profile",))
"""Columns that go on in the next line where a table is too wide, in this order, and that of last resort."""
UNSEEN = "Unseen"
"""The phase of a profile that no operator has judged yet."""
CLEAR = "\033[H\033[2J"


def status(
    profile: Annotated[str | None, typer.Argument(help="Only this one, in detail, with each pool's recipes.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Annotated[str | None, typer.Option("--selector", "-l", help="Only profiles with these labels.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and print what changes, until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(help="With --watch: how often to look.")] = "2s",
    output: FormOf = OutputFormat.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Print how far each profile has come, what it found, and what it waits for."""
    pause = seconds_of(interval, "--interval")
    if watch and output in (OutputFormat.YAML, OutputFormat.CSV, OutputFormat.NAME):
        fail("--watch prints a table, or with -o json one document a change: leave -o yaml, csv or name out")

    async def work(cluster: Cluster) -> None:
        place = place_of(namespace, all_namespaces, cluster.namespace)

        async def look() -> str:
            found = await cluster.list_views(paths.profiles(place), profile_view, selector)
            chosen = found if profile is None else named(found, profile, place)
            recipes = {view.uid: await read_pool_recipes(cluster, view) for view in chosen if profile is not None}
            return shown(chosen, recipes, place, output)

        typer.echo(_cleared(watch) + (before := without_controls(await look())))
        while watch:
            await asyncio.sleep(pause)
            now = without_controls(await look())
            if now != before:
                typer.echo(_cleared(watch) + (before := now))

    ask_cluster(Reach(kubeconfig, context, request_timeout), work)


def _cleared(watch: bool) -> str:
    """What makes a terminal's screen empty; nothing for a pipe, which gets one table after the other."""
    return CLEAR if watch and sys.stdout.isatty() else ""


def named(found: Sequence[ProfileView], name: str, place: str | None) -> list[ProfileView]:
    """The profiles of this name; ends the command where there is none."""
    mine = [view for view in found if view.name == name]
    if not mine:
        where = f" in namespace {place}" if place else ""
        near = did_you_mean(name, [view.name for view in found], "See kubectl get pp -A")
        fail(f"there is no profile {name}{where}{near}")
    return mine


def shown(found: Sequence[ProfileView], recipes: Mapping[str, PoolRecipes], place: str | None, form: Output) -> str:
    """Profiles as a table; in all detail where `recipes` has their pools, by the profile's UID."""
    rows = [row(view, recipes.get(view.uid, {})) for view in sorted(found, key=lambda view: view.key)]
    details = (_detail(view, recipes[view.uid]) for view in found if view.uid in recipes)
    people = (lambda wide: "\n\n".join(details)) if recipes else _table(rows, place)
    return printed(rows, form, people, rows, COLUMNS)


def read(view: ProfileView) -> ProfileStatus:
    """Its status; an unreadable one counts as none (a newer operator may have written it)."""
    try:
        return ProfileStatus.model_validate(dict(view.status))
    except ValidationError:
        return ProfileStatus()


def row(view: ProfileView, recipes: PoolRecipes) -> dict[str, Any]:
    """A profile for programs; its pools have their `recipes` where these were read."""
    told = read(view)
    plain = told.model_dump(mode="json", by_alias=True, exclude_none=True)
    pools = [{key: _number(key, value) for key, value in pool.items()} for pool in plain.get("pools", [])]
    pools = [pool | {"recipes": recipes[pool["name"]]} if pool["name"] in recipes else pool for pool in pools]
    return {
        "namespace": view.namespace,
        "profile": view.name,
        "phase": told.phase or UNSEEN,
        "progress": told.progress,
        "nodes": plain.get("nodes") or {},
        "eta": told.eta,
        "waitsFor": told.waits_for,
        "lastRun": told.last_run,
        "nextRun": told.next_run,
        "best": told.best,
        "tokensPerJoule": None if told.tokens_per_joule is None else float(told.tokens_per_joule),
        "data": told.data,
        "judged": told.observed_generation == view.generation,
        "conditions": plain.get("conditions", []),
        "reasons": plain.get("reasons", []),
        "pools": pools,
    }


def _number(key: str, value: Any) -> Any:
    """A pool's figure as a number: a custom resource holds fractions as text."""
    return float(value) if key in _FIGURES else value


def _table(rows: Sequence[dict[str, Any]], place: str | None) -> Callable[[bool], str]:
    def people(wide: bool) -> str:
        if not rows:
            where = f"namespace {place}" if place else "any namespace"
            return f"There is no profile in {where}. Create one: kubectl explain pp.spec; all namespaces: -A"
        return as_columns([_columns(each, wide, place is None) for each in rows], *(() if wide else _FOLDS))

    return people


def _columns(each: dict[str, Any], wide: bool, all_namespaces: bool) -> dict[str, Any]:
    counts = each["nodes"]
    cells = {"namespace": each["namespace"]} if wide or all_namespaces else {}
    cells |= {
        "profile": each["profile"],
        "phase": each["phase"] if each["judged"] or each["phase"] == UNSEEN else f"{each['phase']}?",
        "nodes": each["progress"],
        "failed": counts.get("failed", 0),
        "slow": counts.get("slow", 0),
        "eta": each["eta"],
        "waits for": each["waitsFor"],
        "best": each["best"],
        "data": each["data"] if wide else (each["data"] or "").partition(" ")[0],
    }
    if wide:
        more = ("skipped", "waiting", "queued", "running", "stale", "fallback", "throttled", "quarantined")
        cells |= {name: counts.get(name, 0) for name in more}
        cells |= {"tokens/J": None if each["tokensPerJoule"] is None else f"{each['tokensPerJoule']:.1f}"}
        cells |= {"last run": each["lastRun"], "next run": each["nextRun"]}
    return cells


def _detail(view: ProfileView, recipes: PoolRecipes) -> str:
    told = read(view)
    lines = [f"{view.key}: {told.phase or 'not seen by the operator yet'}"]
    lines += [f"  {title:<13}{words}" for title, words in _lines(view, told)]
    table = recipes_table(recipes)
    return "\n".join([*lines, *(["", table] if table else [])])


def _lines(view: ProfileView, told: ProfileStatus) -> Iterator[tuple[str, str]]:
    if told.nodes is not None:
        yield "nodes", _counts(told.nodes)
    for title, words in (
        ("progress", told.progress),
        ("eta", told.eta),
        ("waits for", told.waits_for),
        ("last run", told.last_run),
        ("next run", told.next_run),
        ("data", told.data),
    ):
        if words:
            yield title, words
    for condition in told.conditions:
        yield condition.type.lower(), f"{condition.status}, {condition.reason}: {condition.message}"
    for each in told.reasons:
        many = f"{each.count} nodes" if each.count != 1 else "1 node"
        yield "because", f"{many} {each.reason}, for example {each.example}: {each.message}"
    for pool in told.pools:
        yield "pool", _pool(pool)
    if told.phase is None and told.observed_generation is None:
        yield "note", unserved(view.namespace)
    elif told.observed_generation != view.generation:
        yield "note", "The operator has not judged the profile as it is now; this is of an older spec."


def _counts(counts: NodeCounts) -> str:
    """All counts that are not zero, matched and eligible always."""
    told = counts.model_dump()
    always = ("matched", "eligible")
    return ", ".join(f"{number} {name}" for name, number in told.items() if number or name in always)


def _pool(pool: PoolStatus) -> str:
    parts = [f"{pool.name}: {pool.nodes} nodes"]
    if pool.best_recipe:
        speed = f" {float(pool.speedup):.2f}x" if pool.speedup else ""
        rate = f", {float(pool.tokens_per_second):,.0f} tokens/s a node" if pool.tokens_per_second else ""
        parts.append(f"{pool.best_recipe}{speed}{rate}")
    if pool.tokens_per_joule:
        parts.append(f"{float(pool.tokens_per_joule):.1f} tokens/J with {pool.best_recipe}")
    if pool.slow_nodes:
        parts.append(f"slow: {', '.join(pool.slow_nodes)}")
    if pool.simulated:
        parts.append("SIMULATED")
    return "; ".join(parts)
