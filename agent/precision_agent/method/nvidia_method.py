"""The method of NVIDIA's benchmark_gemm.py (Transformer Engine), repeated and read: to compare with, never exported.

Every shape of a step, those of the gradients too, runs as a forward GEMM; BF16 is a bare matmul, all other recipes a
linear layer's forward pass (autocast) or one with operands that were quantised before (prequantized). A step's
quantisation then counts forward casts twelve times and no backward ones, which is 1.5 to 1.75 times the real one.
Unlike the tool, a failed shape makes its sum null with a reason, and repeated runs show the spread.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from precision_agent.cases import GemmCase, cases_of
from precision_api.exchange import stats
from precision_api.exchange.request import MeasurementRequest, Mode
from precision_api.exchange.result import (
    Failure,
    GemmResult,
    GemmSum,
    Interval,
    MeasurementResult,
    RecipeResult,
    Recommendation,
    Verification,
)
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.workload import ResolvedWorkload, resolve

WARMUPS, CALLS = 10, 100
"""As benchmark_gemm.py has them: ten calls untimed, one pair of events around a hundred."""
BASELINE: Recipe = "bf16"
LABEL = "NVIDIA's method, forward only"
OVERCOUNTS = "it counts 1.5 to 1.75 times the quantisation of a real step"
ONLY_COMPARISON = Recommendation(sentence=f"No recommendation: {LABEL}, for comparison with the agent's own figures.")
Plain = Callable[[GemmCase, Recipe, int, int], float | Failure]
"""Mean seconds of a forward call of this case in this recipe, after so many warm-ups, over so many calls."""


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """One shape (or the published sum of a pass) in one recipe and mode: seconds of each repeated run, or a reason."""

    case: GemmCase
    recipe: Recipe
    seconds: tuple[float, ...] | Failure


def measure(
    request: MeasurementRequest, plain: Plain, repeats: int = 5, report: Callable[[float], None] = lambda done: None
) -> tuple[ShapeRow, ...]:
    """Times every GEMM of the request's workload by NVIDIA's method, `repeats` whole runs one after the other.

    `told` hears the share that is done. The head stays in BF16 with every recipe and is left out, as it is there.
    """
    cases = [case for case in cases_of(request, resolve(request.workload)).gemms if case.quantized]
    recipes = tuple(dict.fromkeys((BASELINE, *request.recipes)))
    wanted = [(recipe, case) for recipe in recipes for case in cases]
    taken: dict[tuple[Recipe, GemmCase], list[float] | Failure] = {}
    for index in range(repeats * len(wanted)):
        key = wanted[index % len(wanted)]
        so_far = taken.setdefault(key, [])
        if not isinstance(so_far, Failure):
            seconds = plain(key[1], key[0], WARMUPS, CALLS)
            taken[key] = seconds if isinstance(seconds, Failure) else [*so_far, seconds]
        report((index + 1) / (repeats * len(wanted)))
    return tuple(
        ShapeRow(case, recipe, seconds if isinstance(seconds, Failure) else tuple(seconds))
        for (recipe, case), seconds in taken.items()
    )


Totals = Mapping[tuple[Recipe, Mode], tuple[float, ...] | Failure]
"""Seconds of all GEMMs of a step in each repeated run, or why there are none."""


def totals_of(rows: Sequence[ShapeRow]) -> Totals:
    """The sums of the rows: one failed part makes a sum a failure."""
    keys = dict.fromkeys((row.recipe, row.case.mode) for row in rows)
    return {key: _total([row for row in rows if (row.recipe, row.case.mode) == key]) for key in keys}


def recipe_results(rows: Sequence[ShapeRow], totals: Totals | None = None) -> tuple[RecipeResult, ...]:
    """The rows in the result's form: sums of each mode (null with a reason where a part failed), speedups, notes.

    `totals` stand for the sums where somebody published them.
    """
    recipes = sorted({row.recipe for row in rows}, key=RECIPE_NAMES.index)
    summed = totals_of(rows) if totals is None else totals
    return tuple(_recipe(recipe, rows, summed) for recipe in recipes)


def _recipe(recipe: Recipe, rows: Sequence[ShapeRow], totals: Totals) -> RecipeResult:
    recipe_rows = [row for row in rows if row.recipe == recipe]
    modes: tuple[Mode, ...] = tuple(dict.fromkeys(row.case.mode for row in recipe_rows))
    result = RecipeResult(
        recipe=recipe,
        availability="ok",
        verification=Verification(verdict="unknown", message=f"{LABEL}: kernels are not looked at"),
        gemms=tuple(_gemm(row) for row in recipe_rows),
        sums=tuple(_sum(recipe, mode, totals) for mode in modes),
    )
    said = [reading.sentence for reading in readings(rows) if reading.recipe == recipe]
    if recipe != BASELINE and tax_seconds(result) is not None:
        said.append(_tax_note(result))
    return result.model_copy(update={"notes": tuple(note[:1024] for note in said[-8:])})


def _gemm(row: ShapeRow) -> GemmResult:
    case = row.case
    figure: dict[str, Any] = (
        {"failure": row.seconds} if isinstance(row.seconds, Failure) else {"seconds": _interval(row.seconds)}
    )
    return GemmResult(
        name=case.name, pass_=case.pass_, m=case.m, k=case.k, n=case.n, count=case.count, mode=case.mode, **figure
    )


def _interval(seconds: Sequence[float]) -> Interval:
    """With one run nothing is known of the spread: n is 1 and the bounds are the value itself."""
    if len(seconds) == 1:
        return Interval(value=seconds[0], lower=seconds[0], upper=seconds[0], n=1)
    return stats.mean_interval(seconds)


def _total(parts: Sequence[ShapeRow]) -> tuple[float, ...] | Failure:
    for row in parts:
        if isinstance(row.seconds, Failure):
            named = row.seconds.reason == "no_prequantized_mode"
            message = f"{row.case.name} {row.case.pass_}: {row.seconds.reason}: {row.seconds.message}"[:1024]
            return row.seconds if named else Failure(reason="part_failed", message=message)
    taken = [row.seconds for row in parts if not isinstance(row.seconds, Failure)]
    return stats.sums(taken, [row.case.count for row in parts])


def _sum(recipe: Recipe, mode: Mode, totals: Totals) -> GemmSum:
    totals_here, baseline = totals[recipe, mode], totals.get((BASELINE, mode), Failure(reason="not_measured"))
    if isinstance(totals_here, Failure):
        return GemmSum(mode=mode, failure=totals_here)
    speedup = None if recipe == BASELINE or isinstance(baseline, Failure) else _ratio(baseline, totals_here)
    return GemmSum(mode=mode, seconds=_interval(totals_here), speedup=speedup)


def _ratio(baseline: Sequence[float], totals: Sequence[float]) -> Interval:
    return _interval([baseline[0] / totals[0]]) if len(totals) == 1 else stats.paired_ratio(baseline, totals)


def tax_seconds(result: RecipeResult) -> float | None:
    """Autocast's sum minus the prequantized one, seconds of all GEMMs of a step; None where one of them is absent.

    NVIDIA's reading of the quantisation's cost, forward only; the agent's own is the share of quantisation kernels.
    """
    sums = {part.mode: part.seconds for part in result.sums if part.seconds}
    if set(sums) != set(get_args(Mode)):
        return None
    return sums["autocast"].value - sums["prequantized"].value


def _tax_note(result: RecipeResult) -> str:
    """The tax in words, of one layer where all GEMMs are as many as there are layers."""
    counts = {gemm.count for gemm in result.gemms}
    parts, of = (counts.pop(), "a layer") if len(counts) == 1 and min(counts) > 1 else (1, "of all GEMMs")
    both = {part.mode: part.seconds.value / parts * 1e3 for part in result.sums if part.seconds}
    autocast, alone = both["autocast"], both["prequantized"]
    return f"quantisation tax {autocast:.3g} - {alone:.3g} = {autocast - alone:.3g} ms {of} ({LABEL}: {OVERCOUNTS})"


@dataclass(frozen=True, slots=True)
class ShapeReading:
    """What one shape's figures in one recipe mean: speedups over other recipes, and whether it is worth it.

    The rules are in docs/development/method.md, "What figures mean".
    """

    name: str
    pass_: str
    recipe: Recipe
    over: Mapping[Recipe, float]
    kind: Literal["faster", "not_beneficial"]
    sentence: str


def readings(rows: Sequence[ShapeRow]) -> tuple[ShapeReading, ...]:
    """One for each forward shape and recipe of the autocast mode, the slowest ratio first.

    Without a speedup over the baseline of more than half a per cent a recipe is not beneficial at that shape.
    """
    means = {
        (row.recipe, row.case.name): math.fsum(row.seconds) / len(row.seconds)
        for row in rows
        if row.case.mode == "autocast" and row.case.pass_ == "fprop" and not isinstance(row.seconds, Failure)
    }
    compared = [key for key in means if key[0] != BASELINE and (BASELINE, key[1]) in means]
    return tuple(sorted((_reading(*key, means) for key in compared), key=lambda reading: reading.over[BASELINE]))


def _reading(recipe: Recipe, name: str, means: Mapping[tuple[Recipe, str], float]) -> ShapeReading:
    seconds = means[recipe, name]
    over: dict[Recipe, float] = {
        other: means[other, name] / seconds for other in RECIPE_NAMES if other != recipe and (other, name) in means
    }
    gained = over[BASELINE] - 1 > stats.LEAST_DIFFERENCE
    others = [f"{ratio:.2f}x over {other}" for other, ratio in over.items() if other in (BASELINE, "mxfp8")]
    said = f"{name} fprop: {recipe} {', '.join(others)}" + ("" if gained else ": not beneficial at this shape")
    return ShapeReading(name, "fprop", recipe, over, "faster" if gained else "not_beneficial", said)


def result_of(
    rows: Sequence[ShapeRow], workload: ResolvedWorkload, basis: Mapping[str, Any], totals: Totals | None = None
) -> MeasurementResult:
    """The result of the method `nvidia`; `basis` has the fields that tell who measured what, where and when."""
    return MeasurementResult.model_validate(
        {
            "method": "nvidia",
            "attempt": 1,
            "gpus": (),
            "workload_name": workload.name,
            "workload_hash": workload.hash,
            "recipes": recipe_results(rows, totals),
            "recommendation": ONLY_COMPARISON,
            **basis,
        }
    )
