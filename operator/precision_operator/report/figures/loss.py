"""Loss and gradient norm of the short loss runs: a smoke test, never a proof of parity."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from precision_api.exchange.result import LossRun, MeasurementResult
from precision_api.facts.recipes import Recipe
from precision_operator.drawing import svg
from precision_operator.drawing.figure import RECIPE_COLOURS, RECIPE_DASHES, Figure
from precision_operator.report.facts import Given
from precision_operator.report.figures.figure import EMULATED, of_result

LEFT, RIGHT, TOP, TALL, BETWEEN = 44, 12, 24, 120, 62
Runs = Sequence[tuple[Recipe, LossRun]]
Series = Callable[[LossRun], Sequence[float | None]]


def loss(facts: Given, result: MeasurementResult) -> Iterator[Figure]:
    """Both curves of every recipe and seed; a recipe whose loss run failed stands in the table with its reason."""
    runs = [(recipe.recipe, run) for recipe in result.recipes if recipe.loss for run in recipe.loss.runs]
    failed = [(r.recipe, r.loss.failure) for r in result.recipes if r.loss and r.loss.failure]
    if not runs and not failed:
        return
    entropies = (recipe.loss.entropy for recipe in result.recipes if recipe.loss and recipe.loss.entropy is not None)
    emulated = {recipe.recipe for recipe in result.recipes if recipe.availability == EMULATED}
    yield Figure(
        key="loss",
        title="Loss and gradient norm of the loss runs",
        svg=_drawing(facts, runs, next(entropies, None), emulated) if runs else "",
        caption=f"{_steps(runs)} steps on tokens of known entropy (dotted), every seed a line. A smoke test: it shows "
        "a recipe that breaks at once, and proves no parity, which takes thousands of steps.",
        source=of_result(result),
        head=("recipe", "seed", "first loss", "last loss", "verdict"),
        rows=(
            *(_table_row(recipe, run) for recipe, run in runs),
            *((recipe, "–", "–", "–", f"{why.reason}: {why.message}") for recipe, why in failed),
        ),
    )


def _steps(runs: Runs) -> int:
    return max((len(run.loss) for _, run in runs), default=0)


def _table_row(recipe: Recipe, run: LossRun) -> tuple[str, ...]:
    losses = [value for value in run.loss if value is not None]
    first, last = (f"{losses[0]:.3f}", f"{losses[-1]:.3f}") if losses else ("–", "–")
    ended: str = run.verdict or "did not diverge"
    if run.diverged_step is not None:
        ended = f"diverged at step {run.diverged_step}"
    ended += f": {run.reason}" if run.reason else ""
    return recipe, str(run.seed), first, last, ended


def _drawing(facts: Given, runs: Runs, entropy: float | None, emulated: Set[Recipe]) -> str:
    low = TOP + TALL + BETWEEN
    inside = _panel(runs, lambda run: run.loss, TOP, "loss, nats", entropy)
    inside += _panel(runs, lambda run: run.gradient_norm, low, "gradient norm", None)
    recipes = dict.fromkeys(recipe for recipe, _ in runs)
    legend, bottom = _legend(recipes, emulated, low + TALL + 44)
    return svg.drawing(bottom, inside + legend, "Loss and gradient norm by step", facts.watermark)


def _panel(runs: Runs, series: Series, top: float, title: str, floor: float | None) -> str:
    values = [value for _, run in runs for value in series(run) if value is not None and math.isfinite(value)]
    bottom = top + TALL
    across = svg.Scale(0, max(_steps(runs) - 1, 1), LEFT, svg.WIDTH - RIGHT)
    upward = svg.Scale(*svg.around([*values, *([floor] if floor is not None else [])], 0.05), bottom, top)
    inside = svg.bottom_axis(across, top, bottom, "step") + svg.left_axis(upward, LEFT, svg.WIDTH - RIGHT, title)
    if floor is not None:
        inside += svg.line(LEFT, upward(floor), svg.WIDTH - RIGHT, upward(floor), svg.FAINT, stroke_dasharray="1 3")
        inside += svg.words(LEFT + 3, upward(floor) - 3, "entropy of the tokens", size=svg.SMALL, fill=svg.FAINT)
    for recipe, run in runs:
        points = [None if value is None else (across(step), upward(value)) for step, value in enumerate(series(run))]
        inside += svg.polyline(points, RECIPE_COLOURS[recipe], RECIPE_DASHES[recipe])
        last = next((point for point in reversed(points) if point is not None), None)
        if run.diverged_step is not None and last is not None:
            beside, anchor = (9, "start") if last[0] < svg.WIDTH / 2 else (-9, "end")
            text = svg.words(last[0] + beside, last[1] + 4, f"{recipe} diverged", anchor, svg.SMALL, svg.FAIL)
            inside += svg.cross(*last, 5) + text
    return inside


def _legend(recipes: Iterable[Recipe], emulated: Set[Recipe], top: float) -> tuple[str, float]:
    names = {recipe: f"{recipe} ({EMULATED})" if recipe in emulated else recipe for recipe in recipes}
    places = svg.in_lines([40 + 6.6 * len(name) for name in names.values()], top)
    parts = []
    for (recipe, name), (x, y) in zip(names.items(), places, strict=True):
        dashes = RECIPE_DASHES[recipe] or None
        parts += [
            svg.line(x, y - 4, x + 26, y - 4, RECIPE_COLOURS[recipe], stroke_width=2, stroke_dasharray=dashes),
            svg.words(x + 30, y, name, size=svg.SMALL),
        ]
    return "".join(parts), places[-1][1] + 10
