"""All matrix multiplications of one layer, stacked, autocast beside prequantized: NVIDIA's picture, with intervals.

A recipe of which one multiplication failed has no sum; what did work is drawn pale, the failure after it: a bar that
ends there must not look faster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from precision_api.exchange import stats
from precision_api.exchange.request import Mode
from precision_api.exchange.result import Failure, GemmResult, Interval, MeasurementResult, RecipeResult
from precision_api.exchange.summary import BY_NATURE, USABLE
from precision_api.facts.recipes import Recipe
from precision_operator.drawing import svg
from precision_operator.drawing.figure import PARTS, Figure
from precision_operator.report.facts import Given
from precision_operator.report.figures.figure import of_result, spread_text

LEFT, RIGHT, BAR = 84, 14, 15
MODES: tuple[Mode, ...] = ("autocast", "prequantized")
CUT = 36


@dataclass(frozen=True)
class Stack:
    """One bar: the seconds of its parts, and the sum with its interval or why there is none."""

    recipe: Recipe
    mode: Mode
    parts: tuple[tuple[str, float], ...]
    total: Interval | None
    failure: Failure | None


def gemms(facts: Given, result: MeasurementResult) -> Iterator[Figure]:
    """The figure of the one node whose full result is known."""
    stacks = [stack for recipe in result.recipes for mode in MODES if (stack := _stack(recipe, mode, result))]
    if not any(stack.parts for stack in stacks):
        return
    layers = layers_of(result)
    names = list(dict.fromkeys(name for stack in stacks for name, _ in stack.parts))
    unit = "one layer" if layers else "one step"
    yield Figure(
        key="gemms",
        title=f"Matrix multiplications of {unit}",
        svg=_drawing(stacks, names, unit, _trouble(result, stacks), facts.watermark),
        caption=_caption(result, layers),
        source=of_result(result),
        head=("recipe", "mode", *names, f"sum of {unit}, ms", "whole model, speedup", "failure"),
        rows=tuple(_table_row(stack, names, result) for stack in stacks),
    )


def shapes(result: MeasurementResult) -> Iterator[Figure]:
    """How much faster than in the baseline each multiplication is, and all of a layer together."""
    times = {row.recipe: _times(row, result) for row in result.recipes if row.verification.verdict in USABLE}
    base = times.pop(result.baseline, {})

    def speedup(mine: Interval | None, theirs: Interval) -> str:
        return spread_text(stats.ratio(theirs, mine) if mine else None, 2, "x")

    if base and times:
        yield Figure(
            key="shapes",
            title=f"Speedup of each multiplication over {result.baseline}",
            svg="",
            caption="95 % intervals, worked out from those of both times: they are never narrower than by pairs.",
            source=of_result(result),
            head=("multiplication", "pass", "mode", *times),
            rows=tuple((*key, *(speedup(of.get(key), time) for of in times.values())) for key, time in base.items()),
        )


def _times(row: RecipeResult, result: MeasurementResult) -> dict[tuple[str, str, Mode], Interval]:
    """By multiplication, pass and mode; those of a layer, of bare shapes of a step, together last."""
    stacks = [(mode, stack) for mode in MODES if (stack := _stack(row, mode, result))]
    whole = {("together", "all", mode): stack.total for mode, stack in stacks}
    alone = {(gemm.name, gemm.pass_, gemm.mode): gemm.seconds for gemm in row.gemms}
    return {key: time for key, time in (alone | whole).items() if time}


def layers_of(result: MeasurementResult) -> int | None:
    """Layers of the model; None with bare shapes, which have none, and of a hybrid, whose layers differ."""
    layers = [recipe.training.layers for recipe in result.recipes if recipe.training and recipe.training.layers]
    counts = {gemm.name: gemm.count for recipe in result.recipes for gemm in recipe.gemms}
    return layers[0] if layers else None if "mamba_in" in counts else counts.get("qkv")


def _stack(recipe: RecipeResult, mode: Mode, result: MeasurementResult) -> Stack | None:
    layers = layers_of(result)
    mine = [g for g in recipe.gemms if g.mode == mode and _in_layer(g, layers)]
    sums = next((total_of_mode for total_of_mode in recipe.sums if total_of_mode.mode == mode), None)
    failures = [gemm for gemm in mine if gemm.failure]
    if any(gemm.failure and gemm.failure.reason in BY_NATURE for gemm in mine):
        return None
    if not mine:
        return _absent(recipe, mode)
    share = 1.0 / (layers or 1)
    names = dict.fromkeys(gemm.name for gemm in mine)
    parts = tuple((name, _seconds(mine, name) * share) for name in names if _seconds(mine, name) > 0)
    if failures:
        first = failures[0].failure
        assert first is not None
        where = Failure(reason=first.reason, message=f"{failures[0].name} {failures[0].pass_}")
        return Stack(recipe.recipe, mode, parts, None, where)
    total = sum(seconds for _, seconds in parts)
    interval = sums.seconds if sums else None
    half = (interval.upper - interval.lower) / 2 / interval.value if interval and interval.value else 0.0
    whole = Interval(value=total, lower=total * (1 - half), upper=total * (1 + half), n=mine[0].seconds.n)  # type: ignore[union-attr]
    return Stack(recipe.recipe, mode, parts, whole, sums.failure if sums else None)


def _absent(recipe: RecipeResult, mode: Mode) -> Stack | None:
    """A recipe that never got to its multiplications; nothing for a mode that was not asked for."""
    if mode != "autocast" or recipe.availability == "ok":
        return None
    return Stack(recipe.recipe, mode, (), None, Failure(reason=recipe.availability, message=recipe.availability_reason))


def _in_layer(gemm: GemmResult, layers: int | None) -> bool:
    return layers is None or gemm.count >= layers


def _seconds(gemms: Sequence[GemmResult], name: str) -> float:
    return sum(gemm.seconds.value * gemm.count for gemm in gemms if gemm.name == name and gemm.seconds)


def _drawing(stacks: Sequence[Stack], names: Sequence[str], unit: str, trouble: Mapping[Recipe, str], mark: str) -> str:
    legend, top = _legend(names)
    longest = max(sum(seconds for _, seconds in stack.parts) for stack in stacks)
    scale = svg.Scale(0, longest * 1000 * 1.2, LEFT, svg.WIDTH - RIGHT)
    body, y, before = [], top + 2.0, None
    for stack in stacks:
        if stack.recipe != before:
            y += 15
            body.append(_name(stack.recipe, y, trouble.get(stack.recipe, "")))
            y += 4
        before = stack.recipe
        body.append(_bar(stack, y, scale, names))
        y += BAR + 4
    axis = svg.bottom_axis(scale, top, y, f"ms for {unit}, forward and backward")
    return svg.drawing(y + 32, legend + axis + "".join(body), "GEMM time by recipe and mode", mark)


def _trouble(result: MeasurementResult, stacks: Sequence[Stack]) -> dict[Recipe, str]:
    """What is wrong with a recipe's bars, in a few words."""
    tried = [recipe for recipe in result.recipes if recipe.availability in ("ok", "emulated")]
    verdicts = {r.recipe: r.verification.verdict for r in tried if r.verification.verdict not in USABLE}
    said = {r.recipe: "emulated" for r in tried if r.availability == "emulated"}
    said |= {recipe: f"{verdict}: these bars are not {recipe}'s" for recipe, verdict in verdicts.items()}
    failed = ((stack.recipe, stack.failure) for stack in stacks if stack.failure)
    return said | {recipe: f"{why.reason}: {why.message}".rstrip(": ") for recipe, why in failed}


def _name(recipe: Recipe, y: float, trouble: str) -> str:
    """The recipe's name, and what is wrong with its bars."""
    text = trouble if len(trouble) <= CUT else f"{trouble[: CUT - 3]}..."
    return svg.words(2, y, recipe) + svg.words(svg.WIDTH - 2, y, text, "end", svg.SMALL, svg.FAIL)


def _legend(names: Sequence[str]) -> tuple[str, float]:
    """The parts by colour, in the order of the stack; and where the drawing may begin."""
    places = svg.in_lines([20 + 6.4 * len(name) for name in names], 10.0, 14)
    parts = [
        svg.box(x, y - 8, 9, 9, PARTS[at % len(PARTS)]) + svg.words(x + 12, y, name, size=svg.SMALL)
        for at, (name, (x, y)) in enumerate(zip(names, places, strict=True))
    ]
    return "".join(parts), places[-1][1] + 4


def _bar(stack: Stack, y: float, scale: svg.Scale, names: Sequence[str]) -> str:
    mode = svg.words(LEFT - 6, y + BAR - 4, stack.mode, "end", svg.SMALL, svg.FAINT)
    pale = 1.0 if stack.total else 0.25
    parts, x = [mode], scale(0)
    for name, seconds in stack.parts:
        width = scale(seconds * 1000) - scale(0)
        title = f"{stack.recipe} {stack.mode}, {name}: {seconds * 1000:.3f} ms"
        parts.append(
            svg.box(x, y, width, BAR, PARTS[names.index(name) % len(PARTS)], title, stroke=svg.PAPER, fill_opacity=pale)
        )
        x += width
    if stack.total is None:
        return "".join(parts) + _failed(stack, x, y)
    middle, upper = y + BAR / 2, scale(stack.total.upper * 1000)
    parts += [
        svg.whisker(scale(stack.total.lower * 1000), upper, middle),
        svg.words(upper + 5, middle + 4, f"{stack.total.value * 1000:.2f}", size=svg.SMALL),
    ]
    return "".join(parts)


def _failed(stack: Stack, x: float, y: float) -> str:
    """The hatched end of a bar that has no sum."""
    reason = "" if stack.failure is None else f"{stack.failure.reason} {stack.failure.message}"
    return svg.box(x, y, 16, BAR, svg.FAILED, reason.strip(), stroke=svg.FAIL) + svg.cross(x + 26, y + BAR / 2)


def _caption(result: MeasurementResult, layers: int | None) -> str:
    if result.method == "nvidia":
        how = "Forward shapes, twelve of them, as NVIDIA's tool times them."
    else:
        how = "Forward, input gradient and weight gradient of each multiplication."
    outside = sorted({g.name for r in result.recipes for g in r.gemms if not _in_layer(g, layers)})
    apart = f" Outside of the layers, and not in the bars: {', '.join(outside)}." if outside else ""
    return (
        f"{how} autocast includes quantisation, prequantized does not: the gap between a recipe's two bars is what "
        "quantising costs; bf16 casts nothing: its bars are two timings of the same, and speedups take the first. "
        "Bars are without layers that stay in BF16, the whole model's speedup is with them. Whiskers: 95 % interval of "
        f"its sum, as a share. A hatched end is a multiplication that failed: such a bar has no sum.{apart}"
    )


def _table_row(stack: Stack, names: Sequence[str], result: MeasurementResult) -> tuple[str, ...]:
    parts = dict(stack.parts)
    recipe = next(measured for measured in result.recipes if measured.recipe == stack.recipe)
    sums = next((total_of_mode for total_of_mode in recipe.sums if total_of_mode.mode == stack.mode), None)
    total = stack.total
    scaled = total and Interval(value=total.value * 1e3, lower=total.lower * 1e3, upper=total.upper * 1e3, n=total.n)
    failure = stack.failure
    return (
        stack.recipe,
        stack.mode,
        *(f"{parts[name] * 1000:.3f}" if name in parts else "–" for name in names),
        spread_text(scaled, 3),
        spread_text(sums.speedup if sums else None, 3, "x"),
        f"{failure.reason}: {failure.message}".rstrip(": ") if failure else "",
    )
