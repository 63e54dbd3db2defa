"""A result as a person wants to read it at the end of a local run: a table, a sentence on each recipe, what to doubt.

Pure. Nothing here is computed: it is the result's own figures, rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import wrap

from precision_api.result import Interval, MeasurementResult, RecipeResult

WIDTH = 110
NOT_ASKED = frozenset({"not_requested", "no_model"})
"""Reasons that a reader knows of, since it was asked so."""
Cell = Callable[[RecipeResult], str]


def verdict_text(result: MeasurementResult) -> str:
    """The result in words, the verdict last."""
    return "\n".join(
        [*_head(result), "", *_table(result), "", *_sentences(result), *_doubts(result), "", *_end(result)]
    )


def _head(result: MeasurementResult) -> list[str]:
    gpus = f"{len(result.gpus)} x {result.gpus[0].name}" if result.gpus else result.product
    method = "" if result.method == "agent" else ", by NVIDIA's method (forward only, for comparison)"
    return [f"{result.workload_name} on {gpus}: {result.backend}, {result.provenance}{method}"]


def _percent(interval: Interval) -> str:
    half = (interval.upper - interval.lower) / 2
    return f"±{half / interval.value:.1%}" if interval.n > 1 and interval.value else ""


def _rate(row: RecipeResult) -> str:
    found = row.training.tokens_per_second if row.training else None
    return f"{found.value:,.0f} {_percent(found)}" if found else "-"


def _speedup(row: RecipeResult) -> str:
    found = row.training.speedup if row.training else None
    return f"{found.value:.3f}x {_percent(found)}" if found else "-"


def _gemms(mode: str) -> Cell:
    def cell(row: RecipeResult) -> str:
        part = next((part for part in row.sums if part.mode == mode), None)
        if part is None or part.seconds is None:
            return "-"
        ratio = f" {part.speedup.value:.2f}x" if part.speedup else ""
        return f"{part.seconds.value * 1e3:.4g} ms{ratio}"

    return cell


def _energy(row: RecipeResult) -> str:
    energy = row.training.energy if row.training else None
    return f"{energy.tokens_per_joule:.4g}" if energy and energy.tokens_per_joule is not None else "-"


def _ran(row: RecipeResult) -> str:
    return row.verification.verdict if row.availability in ("ok", "emulated") else row.availability


COLUMNS: Mapping[str, Cell] = {
    "RECIPE": lambda row: row.recipe,
    "TOKENS/S": _rate,
    "SPEEDUP": _speedup,
    "GEMMS+CAST": _gemms("autocast"),
    "GEMMS ALONE": _gemms("prequantized"),
    "TOKENS/J": _energy,
    "RAN": _ran,
}


def _table(result: MeasurementResult) -> list[str]:
    cells = [[cell(row) for cell in COLUMNS.values()] for row in result.recipes]
    kept = [at for at, name in enumerate(COLUMNS) if any(row[at] != "-" for row in cells)]
    lines = [[list(COLUMNS)[at] for at in kept], *[[row[at] for at in kept] for row in cells]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(kept))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _sentences(result: MeasurementResult) -> list[str]:
    found: list[str] = []
    for row in result.recipes:
        failures = [part.failure for part in row.sums if part.failure]
        failures += [row.training.failure] if row.training and row.training.failure else []
        failures = [failure for failure in failures if failure.reason not in NOT_ASKED]
        said = [row.meaning.sentence] if row.meaning and row.meaning.kind != "baseline" else []
        said += [f"{row.availability}: {row.availability_reason}"] if row.availability_reason else []
        said += [f"{failure.reason}: {failure.message}" for failure in dict.fromkeys(failures)]
        said += list(row.notes)
        if row.loss and row.loss.verdict == "diverged":
            said.append("its loss diverged in the smoke test")
        for text in said:
            named = text if text.startswith(f"{row.recipe} ") else f"{row.recipe}: {text}"
            found += wrap(named, WIDTH, subsequent_indent="    ")
    return found


def _doubts(result: MeasurementResult) -> list[str]:
    """What a reader must know before believing the figures."""
    found = []
    if result.partial:
        found.append(f"PARTIAL: {result.partial.message} ({result.partial.reason}); what is there is good.")
    if result.simulated:
        fields = ", ".join(row.field for row in result.simulated)
        found.append(f"SIMULATED, nothing of it was measured here: {fields}.")
    if result.product == "CPU":
        found.append("A trial on the CPU: these figures say nothing of a GPU.")
    if result.steadiness and result.steadiness.state == "not_steady":
        found.append(f"The machine was not steady: {result.steadiness.message}")
    for row in result.recipes:
        if row.throttled:
            found.append(f"{row.recipe} was throttled: {row.throttled.reason}, {row.throttled.share:.1%} of the time.")
        if row.training and row.training.missing:
            found.append(f"{row.recipe}: without {', '.join(row.training.missing)}, which did not fit.")
    return ["", *(line for text in found for line in wrap(text, WIDTH))] if found else []


def _end(result: MeasurementResult) -> list[str]:
    noise = f"Ratios nearer to 1 than {result.noise_floor:.1%} are no difference." if result.noise_floor else ""
    return wrap(" ".join(filter(None, [result.recommendation.sentence, noise])), WIDTH)
