"""Every recipe on each pool of one profile: the table that a choice of precision is made from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from precision_api.facts.names import grouped
from precision_api.facts.plain_text import digits
from precision_api.facts.recipes import Recipe, recipe_text
from precision_operator.cli.columns import Column, Columns, as_cells, figure
from precision_operator.cli.output import as_columns, wrapped
from precision_operator.cli.results import figures_view, of_profile, pool_of, reading_of, reports_of
from precision_operator.cli.terminal import note
from precision_operator.cluster import ApiError, Cluster
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.results.pool import Pool

FORBIDDEN, MOST_REPORTS = 403, 2_000
"""Medians of so many (their names are hashes) stand for all; in a status they were 100 KB, made at each pass."""
_FOLDS = ("pool", "recipe", "verdict", "TFLOP/s/GPU")
PoolRecipes = Mapping[str, Sequence[Mapping[str, Any]]]
"""Pool -> a row for each recipe, the fastest first."""


async def read_pool_recipes(cluster: Cluster, profile: ProfileView) -> PoolRecipes:
    """The recipes of the profile's pools; none, with a note, without the right to list reports. Raises ApiError."""
    where, chosen = profile.namespace, f"spec.profile={profile.name}"
    try:
        reports = await reports_of(cluster, where, figures_view, chosen, MOST_REPORTS)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        note(f"the recipes of each pool are left out: {error.words}")
        return {}
    if len(reports) >= MOST_REPORTS:
        note(f"the recipes of each pool are those of {len(reports)} nodes")
    return pool_recipes(of_profile(reports, profile))


def pool_recipes(reports: Iterable[ReportView]) -> PoolRecipes:
    """Medians over the nodes of each pool, chosen as for the profile's status; pools by name."""
    pools = grouped((pool_of(report), report) for report in reports if pool_of(report))
    return {name: _recipes(Pool(tuple(map(reading_of, pools[name])))) for name in sorted(pools)}


def _recipes(pool: Pool) -> list[dict[str, Any]]:
    recipes = dict.fromkeys(recipe for reading in pool.population for recipe in reading.rows)
    rows = [_row(pool, recipe) for recipe in recipes]
    return sorted(rows, key=lambda row: (-(row["tokensPerSecond"] or 0.0), row["recipe"]))


def _row(pool: Pool, recipe: Recipe) -> dict[str, Any]:
    """One recipe for programs: a figure that no node has is null; `verdicts` and `losses` count nodes."""
    losses = Counter(row.loss_verdict for row in pool.usable(recipe) if row.loss_verdict)
    verdicts = Counter(reading.rows[recipe].verdict for reading in pool.population if recipe in reading.rows)
    return {
        "recipe": recipe,
        "lastLayersBF16": pool.layers_bf16(recipe),
        "nodes": len(pool.usable(recipe)),
        "teraflopsPerGPU": pool.median("teraflops_per_gpu", recipe),
        "tokensPerSecond": pool.median("tokens_per_second", recipe),
        "speedup": pool.median("speedup", recipe),
        "tokensPerJoule": pool.median("tokens_per_joule", recipe),
        "barred": any(row.barred for row in pool.usable(recipe)),
        "emulated": any(row.emulated for row in pool.usable(recipe)),
        "failure": next(filter(None, (row.failure for row in pool.usable(recipe))), None),
        "verdicts": dict(verdicts.most_common()),
        "losses": dict(losses.most_common()),
    }


def recipes_table(pools: PoolRecipes) -> str:
    """The same for people, with why rates are absent; empty where nothing was measured."""
    rows = [(pool, row) for pool, of_pool in pools.items() for row in of_pool]
    doubted = any(row["losses"].keys() - {"healthy"} for _, row in rows)
    columns = COLUMNS if doubted else COLUMNS[:-1]
    table = as_columns([as_cells(columns, {**row, "pool": pool}) for pool, row in rows], _FOLDS, (), ("nodes",))
    without = ((row["failure"], row["recipe"]) for _, row in rows if row["failure"] and not row["tokensPerSecond"])
    reasons = (
        f"No training figures of {', '.join(dict.fromkeys(names))}: {why}." for why, names in grouped(without).items()
    )
    return "\n".join([table, *map(wrapped, reasons)])


def _counted(names: Mapping[str, int]) -> str:
    """Names, with how many nodes have each where they are several."""
    return ", ".join(f"{many} {name}" if len(names) > 1 else name for name, many in names.items())


COLUMNS: Columns[Any] = (
    Column(header="pool"),
    Column(header="recipe", cell=lambda row: recipe_text(row["recipe"], None, row["lastLayersBF16"])),
    Column(header="nodes"),
    Column(header="TFLOP/s/GPU", cell=figure("teraflopsPerGPU", "#,.4g")),
    Column(header="speedup", cell=figure("speedup", ".2f", "x")),
    Column(header="tokens/s", cell=figure("tokensPerSecond", ",.0f")),
    Column(header="tokens/J", cell=lambda row: digits(row["tokensPerJoule"], 3) if row["tokensPerJoule"] else None),
    Column(
        header="verdict",
        cell=lambda row: (
            _counted(row["verdicts"])
            + ("; emulated" if row["emulated"] and "emulated" not in row["verdicts"] else "")
            + ("; not BEST: not listed" if row["barred"] else "")
        ),
    ),
    Column(header="loss", cell=lambda row: _counted(row["losses"]).replace("_", " ")),
)
"""The last one is there where a loss run was not healthy."""
