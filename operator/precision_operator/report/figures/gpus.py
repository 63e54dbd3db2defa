"""The GPUs of a slow node, each beside its peers: what a vendor asks for first."""

from __future__ import annotations

from collections.abc import Iterator

from precision_api.exchange.result import Clocks, MeasurementResult, RecipeResult
from precision_operator.core.results.slowness import PeerComparison
from precision_operator.drawing.figure import Figure
from precision_operator.report.figures.figure import cell, of_result

HEAD = ("GPU", "UUID", "tokens/s", "of peers", "limit, W", "ECC")


def gpus(result: MeasurementResult, slow: PeerComparison) -> Figure:
    """A row for each GPU with the recipe that the node was compared in; a dash for what was not measured."""
    recipe = next((row for row in result.recipes if row.recipe == slow.judged.recipe), None)
    product = result.gpus[0].name if result.gpus else result.product
    return Figure(
        key="gpus",
        title=f"GPUs of {result.node}",
        svg="",
        caption=f"{len(result.gpus)} x {product}, numbered as the agent saw them, with {slow.judged.recipe}. Of peers: "
        f"over one GPU's share of their median rate. ECC: uncorrected errors of its memory so far. {_state(recipe)}",
        source=of_result(result),
        head=HEAD,
        rows=tuple(_rows(result, recipe, slow.peers_rate)),
    )


def _rows(result: MeasurementResult, recipe: RecipeResult | None, peers_rate: float) -> Iterator[tuple[str, ...]]:
    rates = recipe.training.tokens_per_second_by_gpu if recipe and recipe.training else {}
    errors = {gpu.uuid: gpu.ecc_aggregate_uncorrectable for gpu in result.health}
    for index, gpu in enumerate(result.gpus):
        rate = rates.get(gpu.uuid)
        share = rate / peers_rate * len(result.gpus) if rate else None
        yield (
            str(index),
            gpu.uuid,
            cell(rate),
            cell(share, ".1%"),
            cell(gpu.enforced_limit_watts),
            cell(errors.get(gpu.uuid)),
        )


def _state(recipe: RecipeResult | None) -> str:
    """Clock, heat, power and throttling of all GPUs while the recipe was timed."""
    clocks = (recipe and recipe.clocks) or Clocks()
    energy = recipe.training.energy if recipe and recipe.training else None
    throttled = [f"{held.reason} {held.share:.1%} of the time" for held in (recipe.throttle if recipe else ())]
    return (
        f"While it was timed: mean SM clock {cell(clocks.sm_mhz)} MHz, hottest GPU {cell(clocks.celsius)} °C, all GPUs "
        f"{cell(energy.watts if energy else None)} W, throttled: {', '.join(throttled) or '–'}."
    )
