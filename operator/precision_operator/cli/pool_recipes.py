"""Every recipe on each pool of one profile: the table that a choice of precision is made from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from precision_api.exchange.request import step_marks
from precision_api.facts.names import grouped
from precision_api.facts.plain_text import digits
from precision_api.facts.recipes import Recipe, in_order, names_of, recipe_name, recipe_text
from precision_operator.cli.columns import Column, Columns, OutputRow, as_cells, figure
from precision_operator.cli.output import as_columns, wrapped
from precision_operator.cli.results import figures_view, of_profile, pool_of, reading_of, reports_of
from precision_operator.cli.terminal import fail, note
from precision_operator.cluster import ApiError, Cluster
from precision_operator.core.observe.observed import ProfileView, ReportView
from precision_operator.core.results.intervals import Spread
from precision_operator.core.results.pool import Pool
from precision_operator.core.results.reading import Reading
from precision_operator.core.results.rebase import rebased

FORBIDDEN, MOST_REPORTS, SENTENCES = 403, 2_000, 3
"""Medians of so many (their names are hashes) stand for all; in a status they were 100 KB, made at each pass."""
_FOLDS = ("pool", "recipe", "verdict", "TFLOP/s/GPU")
PoolRecipes = Mapping[str, Sequence[Mapping[str, Any]]]
"""Pool -> a row for each recipe, the fastest first."""


async def read_pool_recipes(cluster: Cluster, profile: ProfileView, over: str | None = None) -> PoolRecipes:
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
    return pool_recipes(of_profile(reports, profile), over)


def pool_recipes(reports: Iterable[ReportView], over: str | None = None) -> PoolRecipes:
    """Medians over the nodes of each pool, chosen as for the profile's status; pools by name."""
    placed = [report for report in reports if pool_of(report)]
    readings, said = over_recipe(map(reading_of, placed), over)
    for sentence in said:
        note(sentence)
    pools = grouped((pool_of(report), reading) for report, reading in zip(placed, readings, strict=True))
    return {name: _recipes(Pool(tuple(pools[name]))) for name in sorted(pools)}


def over_recipe(readings: Iterable[Reading], over: str | None) -> tuple[tuple[Reading, ...], tuple[str, ...]]:
    """With speedups over that recipe, and what is to be said of them; ends the command where it is no recipe."""
    before = tuple(readings)
    if over is None:
        return before, ()
    names = names_of(in_order(recipe for reading in before for recipe in reading.rows))
    alike = [recipe for recipe in names if over in (recipe, recipe_name(recipe))]
    if before and len(alike) != 1:
        why = "mixtures of several kinds have this name" if alike else "no node has figures of it"
        fail(f"--baseline {over}: {why}; take one of {', '.join(alike or names.values())}")
    chosen = alike[0] if alike else over
    made = [rebased(reading, chosen) for reading in before]
    words = (said.replace(recipe_name(over), names.get(chosen, over)) for _, said in made if said)
    return tuple(reading for reading, _ in made), tuple(dict.fromkeys(words))[:SENTENCES]


def _recipes(pool: Pool) -> list[dict[str, Any]]:
    recipes = dict.fromkeys(recipe for reading in pool.population for recipe in reading.rows)
    rows = [_row(pool, recipe) for recipe in recipes]
    return sorted(rows, key=lambda row: (-(row["tokensPerSecond"] or 0.0), row["recipe"]))


def _row(pool: Pool, recipe: Recipe) -> dict[str, Any]:
    """One recipe for programs: a figure that no node has is null; `verdicts` and `losses` count nodes."""
    speedups = {"speedup": pool.spread("speedup", recipe), "gemmSpeedup": pool.spread("gemm_autocast", recipe)}
    losses = Counter(row.loss_verdict for row in pool.usable(recipe) if row.loss_verdict)
    verdicts = Counter(reading.rows[recipe].verdict for reading in pool.population if recipe in reading.rows)
    return {
        "recipe": recipe,
        "step": step_marks(recipe, pool.population[0].timing),
        "lastLayersBF16": pool.layers_bf16(recipe),
        "nodes": len(pool.usable(recipe)),
        "teraflopsPerGPU": pool.median("teraflops_per_gpu", recipe),
        "tokensPerSecond": pool.median("tokens_per_second", recipe),
        "baseline": pool.population[0].group.baseline,
        "rebased": pool.population[0].group.baseline != (pool.population[0].run or pool.population[0].group).baseline,
        "speedup": pool.median("speedup", recipe),
        "intervals": {key: asdict(spread) for key, spread in speedups.items() if spread},
        "tokensPerJoule": pool.median("tokens_per_joule", recipe),
        "barred": any(row.barred for row in pool.usable(recipe)),
        "emulated": any(row.emulated for row in pool.usable(recipe)),
        "failure": next(filter(None, (row.failure for row in pool.usable(recipe))), None),
        "verdicts": dict(verdicts.most_common()),
        "losses": dict(losses.most_common()),
    }


def _speedup(row: OutputRow, key: str = "speedup") -> str | None:
    """`1.39x ±0.5%`; of two to five nodes without the range."""
    if key not in row["intervals"]:
        return None
    spread = Spread(**row["intervals"][key])
    error = (spread.upper - spread.lower) / 2 / spread.value if spread.kind == "interval" else 0.0
    return f"{spread.value:.2f}x" + (f" ±{error:.1%}" if error >= 0.0005 else "")


def recipes_table(pools: PoolRecipes) -> str:
    """The same for people, with why rates are absent; empty where nothing was measured."""
    rows = [(pool, row) for pool, of_pool in pools.items() for row in of_pool]
    doubted = any(row["losses"].keys() - {"healthy"} for _, row in rows)
    names = names_of(recipe for _, row in rows for recipe in (row["recipe"], row["baseline"]))
    over = grouped((names[row["baseline"]], pool) for pool, row in rows if row["intervals"])
    named = over.keys() - {"bf16"} or any(row["rebased"] for _, row in rows)
    hidden = {*(() if doubted else ("loss",)), *(() if named else ("GEMMs",))}
    columns = [column for column in COLUMNS if column.header not in hidden]
    shown = [{**row, "pool": pool, "parts": names[row["recipe"]].partition(".")[2]} for pool, row in rows]
    table = as_columns([as_cells(columns, row) for row in shown], _FOLDS, (), ("nodes",))
    failed = (row for _, row in rows if row["failure"] and not row["tokensPerSecond"])
    without = ((row["failure"], recipe_name(row["recipe"])) for row in failed)
    reasons = (
        f"No training figures of {', '.join(dict.fromkeys(names))}: {why}." for why, names in grouped(without).items()
    )
    where = (name + f" in {', '.join(dict.fromkeys(of))}" * (len(over) > 1) for name, of in over.items())
    said = [f"Speedups are over {', '.join(where)}."] if named and over else []
    return "\n".join([table, *map(wrapped, [*said, *reasons])])


def _counted(names: Mapping[str, int]) -> str:
    """Names, with how many nodes have each where they are several."""
    return ", ".join(f"{many} {name}" if len(names) > 1 else name for name, many in names.items())


COLUMNS: Columns[Any] = (
    Column(header="pool"),
    Column(
        header="recipe",
        cell=lambda row: recipe_text(row["recipe"], None, row["lastLayersBF16"], "bf16", row["parts"], row["step"]),
    ),
    Column(header="nodes"),
    Column(header="TFLOP/s/GPU", cell=figure("teraflopsPerGPU", "#,.4g")),
    Column(header="speedup", cell=_speedup),
    Column(header="GEMMs", cell=partial(_speedup, key="gemmSpeedup")),
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
"""Losses are there where a run was not healthy, GEMMs where they are compared with others than BF16's."""
