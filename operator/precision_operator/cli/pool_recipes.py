"""Every recipe on each pool of one profile: the table that a choice of precision is made from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from precision_api.names import LABEL_MANAGED_BY, MANAGED_BY
from precision_api.recipes import Recipe
from precision_operator.cli.connection_options import count_of
from precision_operator.cli.failure import note
from precision_operator.cli.output import as_columns
from precision_operator.cli.results import of_profile, pool_of, reading_of
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.observe.views import report_view
from precision_operator.core.results.pool import Pool

FORBIDDEN = 403
PoolRecipes = Mapping[str, Sequence[Mapping[str, Any]]]
"""Pool -> a row for each recipe, the fastest first."""


async def read_pool_recipes(cluster: Cluster, profile: ProfileView) -> PoolRecipes:
    """The recipes of the profile's pools; none, with a note, without the right to list reports. Raises ApiError."""
    mine = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    try:
        reports = await cluster.list_views(paths.reports(profile.namespace), report_view, mine, count_of("reports"))
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        note(f"the recipes of each pool are left out: {error.words}")
        return {}
    return pool_recipes(of_profile(reports, profile))


def pool_recipes(reports: Iterable[ReportView]) -> PoolRecipes:
    """Medians over the nodes of each pool, chosen as for the profile's status; pools by name."""
    pools: dict[str, list[ReportView]] = defaultdict(list)
    for report in reports:
        if pool_of(report):
            pools[pool_of(report)].append(report)
    return {name: _recipes(Pool(tuple(map(reading_of, pools[name])))) for name in sorted(pools)}


def _recipes(pool: Pool) -> list[dict[str, Any]]:
    names = dict.fromkeys(recipe for reading in pool.population for recipe in reading.rows)
    rows = [_row(pool, recipe) for recipe in names]
    return sorted(rows, key=lambda row: (-(row["tokensPerSecond"] or 0.0), row["recipe"]))


def _row(pool: Pool, recipe: Recipe) -> dict[str, Any]:
    """One recipe for programs: a figure that no node has is null; `verdicts` and `losses` count nodes."""
    losses = Counter(row.loss_verdict for row in pool.usable(recipe) if row.loss_verdict)
    verdicts = Counter(reading.rows[recipe].verdict for reading in pool.population if recipe in reading.rows)
    return {
        "recipe": recipe,
        "nodes": len(pool.usable(recipe)),
        "tokensPerSecond": pool.median("tokens_per_second", recipe),
        "speedup": pool.median("speedup", recipe),
        "tokensPerJoule": pool.median("tokens_per_joule", recipe),
        "verdicts": dict(verdicts.most_common()),
        "losses": dict(losses.most_common()),
    }


def recipes_table(found: PoolRecipes) -> str:
    """The same for people; empty where nothing was measured."""
    told = [(pool, row) for pool, rows in found.items() for row in rows]
    doubted = any(row["losses"].keys() - {"healthy"} for _, row in told)
    return as_columns([_cells(pool, row) | (_loss(row) if doubted else {}) for pool, row in told], ("pool",))


def _loss(row: Mapping[str, Any]) -> dict[str, Any]:
    """The column on loss runs, which is there where one of them was not healthy."""
    words = {name.replace("_", " "): many for name, many in row["losses"].items()}
    return {"loss": ", ".join(f"{many} {name}" if len(words) > 1 else name for name, many in words.items())}


def _cells(pool: str, row: Mapping[str, Any]) -> dict[str, Any]:
    several = len(row["verdicts"]) > 1
    verdicts = ", ".join(f"{many} {name}" if several else name for name, many in row["verdicts"].items())
    return {
        "pool": pool,
        "recipe": row["recipe"],
        "nodes": row["nodes"],
        "speedup": _shown(row["speedup"], ".2f", "x"),
        "tokens/s": _shown(row["tokensPerSecond"], ",.0f"),
        "tokens/J": _shown(row["tokensPerJoule"], ".1f"),
        "verdict": verdicts,
    }


def _shown(value: float | None, form: str, unit: str = "") -> str | None:
    return None if value is None else f"{value:{form}}{unit}"
