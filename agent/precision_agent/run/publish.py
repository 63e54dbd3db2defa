"""Writes what a run left: the file for a person, the message for the operator, the lines of the log last.

A local run ends with what a person wants to read: a table, a sentence on each recipe, what to doubt. Nothing is
computed for it: it is the result's own figures, rounded. A figure that is absent has its reason.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import BinaryIO

from precision_agent.method.learning import in_words
from precision_agent.run.run import Outcome
from precision_api.exchange.request import attention_recipe, step_words
from precision_api.exchange.result import Interval, MeasurementResult, RecipeResult
from precision_api.facts.names import grouped
from precision_api.facts.plain_text import digits, three_digits
from precision_api.facts.recipes import recipe_name, recipe_text, risks_of

TERMINATION_LOG_ENV = "PRECISION_TERMINATION_LOG"
TERMINATION_LOG = Path("/dev/termination-log")
"""Where a kubelet looks by default; it makes the file before the container starts."""
WIDTH = 110
NOT_ASKED = frozenset({"not_requested", "no_model"})
"""Reasons that a reader knows of, since it was asked so."""
SLOW_GPU = 0.97
"""Assumed, not tried on a GPU: a GPU below this share of the node's mean is named, for those of one node usually differ
by 1 or 2 %."""
WIDE = 0.1
"""From here on an interval, which is as far from its figure on a scale of ratios, is told by both of its ends."""
MEASURED = frozenset({"ok", "emulated"})
DOUBTED = frozenset({"partial", "fallback", "unknown"})
"""Verdicts by which another precision may have run: what ran is named then."""
Cell = Callable[[RecipeResult], str]


@dataclass(frozen=True, slots=True)
class Places:
    """Where to write; an absent place is left out (a run on a laptop has no termination log)."""

    message: Path | None
    output: Path | None


def places(environment: Mapping[str, str], output: Path | None) -> Places:
    """The termination log that the environment names, else the kubelet's own where it exists."""
    named = environment.get(TERMINATION_LOG_ENV)
    if named:
        return Places(Path(named), output)
    return Places(TERMINATION_LOG if TERMINATION_LOG.exists() else None, output)


def checkpoint(outcome: Outcome, where: Places) -> None:
    """Writes file and message but no lines: those belong to the end of the log. OSError as it comes."""
    if where.output and outcome.result:
        text = outcome.result.model_dump_json(by_alias=True, exclude_none=True, indent=2)
        replace_file(where.output, text.encode() + b"\n")
    if where.message:
        # In place: a kubelet mounts this very file, so it can't be renamed over. One write of less than a page.
        where.message.write_bytes(outcome.message)


def publish(outcome: Outcome, where: Places, stdout: BinaryIO, lines: bool = True) -> None:
    """Writes all: the message before the lines, for the summary must get through even if the log does not."""
    checkpoint(outcome, where)
    if lines:
        stdout.write(outcome.log)
        stdout.flush()


def replace_file(path: Path, content: bytes) -> None:
    """Puts `content` under `path` at once: a reader sees the old file or the new, never half of one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def verdict_text(result: MeasurementResult) -> str:
    """The result in words, the verdict last."""
    return "\n".join([*_head(result), "", *_table(result), "", *_phrases(result), *_doubts(result), "", *_end(result)])


def _head(result: MeasurementResult) -> list[str]:
    gpus = f"{len(result.gpus)} x {result.gpus[0].name}" if result.gpus else result.product
    method = "" if result.method == "agent" else ", by NVIDIA's method (forward only, for comparison)"
    recipe = attention_recipe(result.baseline, result.timing)
    kept = f", attention's projections in {recipe}" if result.recipe_scope == "mlp" else ""
    kept += "".join(f", {words}" for words in step_words(result.timing))
    return [f"{result.workload_name} on {gpus}: {result.backend}, {result.provenance}{kept}{method}"]


def _percent(interval: Interval) -> str:
    if interval.n == 1 or not interval.value:
        return ""
    below, above = interval.lower / interval.value - 1, interval.upper / interval.value - 1
    narrow = f" ±{(above - below) / 2:.1%}".replace(" ±0.0%", "")
    return narrow if above < WIDE else f" {below:+.0%}/{above:+.0%}"


def _rate(row: RecipeResult) -> str:
    rate = row.training.tokens_per_second if row.training else None
    return f"{rate.value:,.0f}{_percent(rate)}" if rate else "-"


def _speedup(row: RecipeResult) -> str:
    speedup = row.training.speedup if row.training else None
    return f"{speedup.value:.3f}x{_percent(speedup)}" if speedup else "-"


def _gemms(mode: str) -> Cell:
    def cell(row: RecipeResult) -> str:
        part = next((part for part in row.sums if part.mode == mode), None)
        if part is None or part.seconds is None:
            return "-"
        ratio = f" {part.speedup.value:.2f}x" if part.speedup else ""
        return f"{digits(part.seconds.value * 1e3)} ms{ratio}"

    return cell


def _energy(row: RecipeResult) -> str:
    energy = row.training.energy if row.training else None
    if energy is None or energy.tokens_per_joule is None:
        return "-"
    ratio = energy.tokens_per_joule_ratio
    return digits(energy.tokens_per_joule) + (f" {ratio.value:.2f}x{_percent(ratio)}" if ratio else "")


def _loss(row: RecipeResult) -> str:
    if row.loss is None:
        return "-"
    return row.loss.verdict or (row.loss.failure.reason if row.loss.failure else "-")


COLUMNS: Mapping[str, Cell] = {
    "RECIPE": lambda row: recipe_text(row.recipe, None, row.last_layers_bf16),
    "TFLOP/S/GPU": lambda row: digits(rate) if row.training and (rate := row.training.teraflops_per_gpu) else "-",
    "TOKENS/S": _rate,
    "SPEEDUP": _speedup,
    "GEMMS+CAST": _gemms("autocast"),
    "GEMMS ALONE": _gemms("prequantized"),
    "TOKENS/J": _energy,
    "LOSS": _loss,
    "RAN": lambda row: row.verification.verdict if row.availability in MEASURED else row.availability,
}


def _table(result: MeasurementResult) -> list[str]:
    cells = [[cell(row) for cell in COLUMNS.values()] for row in result.recipes]
    kept = [at for at, name in enumerate(COLUMNS) if any(row[at] != "-" for row in cells)]
    lines = [[list(COLUMNS)[at] for at in kept], *[[row[at] for at in kept] for row in cells]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(kept))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _phrases(result: MeasurementResult) -> list[str]:
    said = {recipe_name(row.recipe): _said(row) for row in result.recipes}
    ran = [said[recipe_name(row.recipe)] for row in result.recipes if row.availability in MEASURED]
    shared = [text for text in ran[0] if all(text in others for others in ran)] if len(ran) > 1 else []
    risks = risks_of((row.recipe, row.last_layers_bf16) for row in result.recipes)
    texts = [*shared, *(risk for risk in risks if risk not in result.recommendation.sentence)]
    for recipe, lines in said.items():
        named = (f"{recipe} ", f"{recipe}:")
        rest = (text for text in lines if text not in shared)
        texts += (text if text.startswith(named) else f"{recipe}: {text}" for text in rest)
    return [line for text in texts for line in wrap(text, WIDTH, subsequent_indent="    ")]


def _said(row: RecipeResult) -> list[str]:
    """What there is to say of one recipe, beside its line of the table."""
    failures = [part.failure for part in row.sums if part.failure]
    failures += [row.training.failure] if row.training and row.training.failure else []
    failures += [row.loss.failure] if row.loss and row.loss.failure else []
    failures = [failure for failure in failures if failure.reason not in NOT_ASKED]
    said = [row.meaning.sentence] if row.meaning and row.meaning.kind != "baseline" else []
    said += [f"{row.availability}: {row.availability_reason}"] if row.availability_reason else []
    if row.availability in MEASURED and row.verification.verdict in DOUBTED and row.verification.message:
        said.append(f"{row.verification.verdict}: {row.verification.message}")
    said += [f"{failure.reason}: {failure.message}" for failure in dict.fromkeys(failures)]
    said += row.notes
    said += [in_words(row.loss)] if in_words(row.loss) else []
    return said


def _doubts(result: MeasurementResult) -> list[str]:
    """What a reader must know before believing the figures."""
    doubts = []
    if result.partial:
        doubts.append(f"PARTIAL: {result.partial.message} ({result.partial.reason}); what is there is good.")
    if result.simulated:
        fields = ", ".join(row.field for row in result.simulated)
        doubts.append(f"SIMULATED, nothing of it was measured here: {fields}.")
    if result.product == "CPU":
        doubts.append("A trial on the CPU: these figures say nothing of a GPU.")
    if result.steadiness and result.steadiness.state == "not_steady":
        doubts.append(f"The machine was not steady: {result.steadiness.message}")
    for row in result.recipes:
        name = recipe_name(row.recipe)
        if row.throttled:
            doubts.append(f"{name} was throttled: {row.throttled.reason}, {row.throttled.share:.1%} of the time.")
        if row.training and row.training.missing:
            doubts.append(f"{name}: without {', '.join(row.training.missing)}, which did not fit.")
        if row.cpu_bound and result.product != "CPU":
            doubts.append(f"{name} was CPU-bound: the GPU was busy less than 95 % of the time.")
    ratios = [part.speedup for row in result.recipes for part in (row.training, *row.sums) if part and part.speedup]
    if result.method == "agent" and result.control_ratio is None and ratios:
        doubts.append("The control has no figure: how much noise there was is not known, 0.5 % is assumed.")
    energies = ((row.recipe, row.training.energy) for row in result.recipes if row.training)
    recipes = grouped(
        (energy.reasons, recipe_name(recipe)) for recipe, energy in energies if energy and not energy.valid
    )
    doubts += _slow_gpus(result)
    doubts += [f"No energy figure of {', '.join(names)}: {', '.join(why)}." for why, names in recipes.items()]
    return ["", *(line for text in doubts for line in wrap(text, WIDTH))] if doubts else []


def _slow_gpus(result: MeasurementResult) -> list[str]:
    """Each GPU that is slow, with the recipe in which it is slowest and what a job in step gets there."""
    slowest: dict[str, tuple[float, str]] = {}
    for row in result.recipes:
        training, name = row.training, recipe_name(row.recipe)
        if not (training and training.slowest_gpu and training.gpu_spread) or training.gpu_spread >= SLOW_GPU:
            continue
        rate = training.synchronous_tokens_per_second
        where = f", and a job that waits for all GPUs gets {three_digits(rate.value)} tokens/s" if rate else ""
        said = f"{training.slowest_gpu} is slow: {training.gpu_spread:.1%} of the GPUs' mean with {name}{where}."
        slowest[training.slowest_gpu] = min(slowest.get(training.slowest_gpu, (1.0, "")), (training.gpu_spread, said))
    return [said for _, said in slowest.values()]


def _end(result: MeasurementResult) -> list[str]:
    is_noise_known = result.noise_floor is not None and result.control_ratio is not None
    noise = f"Ratios nearer to 1 than {result.noise_floor:.1%} are no difference." if is_noise_known else ""
    return wrap(" ".join(filter(None, [result.recommendation.sentence, noise])), WIDTH)
