"""How far apart short runs of the agent on one GPU lie: what a verdict from one run has to allow for.

Every run is a process of its own with its own warm-up, one after the other. Told are each run's tokens/s of every
recipe with the half-width that the run itself gives, and over all runs the standard deviation from run to run.
"""

import time
from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean, stdev
from typing import Any

from benchmarks.first_day.agent_runs import agent
from benchmarks.first_day.checks import Check, between, holds
from benchmarks.first_day.steps import Context
from precision_api.exchange.result import MeasurementResult

ASSUMED_SPREAD = 0.003
"""Of a node's rate from run to run, as the verdict's error rates were simulated with."""


def run(context: Context) -> None:
    """As many runs as the time allows, at most `context.turns`."""
    arguments = ["--local", "--preset", str(context.arguments["preset"]), *context.arguments["options"]]
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    for number in range(context.first_turn, context.turns):
        spent = time.monotonic() - began
        if rows and spent + 1.1 * max(row["seconds"] for row in rows) > context.seconds:
            break
        started = time.monotonic()
        output = context.results / f"{context.name}-{number}.json"
        result = agent(arguments, output, context.seconds - spent)
        rows.append({"run": number, "began": spent, "seconds": time.monotonic() - started, **rates_of(result)})
        context.book.fact("runs", rows)
    wanted = context.turns - context.first_turn
    context.book.check(holds("runs within the time", str(wanted), len(rows) == wanted, str(len(rows))))
    context.book.fact("spreads", spreads(rows))
    context.book.check(*checks_of(spreads(rows)))


def rates_of(result: MeasurementResult) -> dict[str, Any]:
    """Tokens/s by recipe with the relative half-width within the run; how warm the GPU was; seconds of warm-up."""
    rates = {
        row.recipe: {
            "tokens_per_second": rate.value,
            "half_width": (rate.upper - rate.lower) / 2 / rate.value,
            "sm_mhz": row.clocks.sm_mhz if row.clocks else None,
        }
        for row in result.recipes
        if row.training and (rate := row.training.tokens_per_second)
    }
    return {"rates": rates, "steadiness": result.steadiness and result.steadiness.model_dump()}


def spreads(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """By recipe: runs with a rate, mean tokens/s, standard deviation of its logarithm (from two runs on), and the mean
    half-width within a run."""
    by_recipe: dict[str, dict[str, float | int | None]] = {}
    for recipe in dict.fromkeys(recipe for row in rows for recipe in row["rates"]):
        rates = [row["rates"][recipe] for row in rows if recipe in row["rates"]]
        values = [rate["tokens_per_second"] for rate in rates]
        by_recipe[recipe] = {
            "runs": len(values),
            "mean": fmean(values),
            "relative_spread": stdev(log(value) for value in values) if len(values) > 1 else None,
            "mean_half_width": fmean(rate["half_width"] for rate in rates),
        }
    return by_recipe


def checks_of(by_recipe: Mapping[str, Mapping[str, float | int | None]]) -> list[Check]:
    """The spread between runs is at most what the verdict was simulated with."""
    why = "a run's own deviation in the simulations behind the verdict"
    return [
        between(f"{recipe}: spread from run to run", row["relative_spread"], 0.0, ASSUMED_SPREAD, "", why)
        for recipe, row in by_recipe.items()
    ]
