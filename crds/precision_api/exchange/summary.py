"""The summary of a result that fits into a termination message, whatever the result holds.

A kubelet keeps 4,096 bytes. A summary that would be longer is cut by a fixed list of steps, least useful part first,
and names in `dropped` what was cut: the full result, in the log, still has it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from precision_api.exchange.message import Detail, RecipeSummary, Summary
from precision_api.exchange.request import canonical
from precision_api.exchange.result import (
    THROTTLES,
    Energy,
    Failure,
    Interval,
    MeasurementResult,
    RecipeResult,
    Software,
    Training,
    Verdict,
)
from precision_api.exchange.stats import relative_error

MESSAGE_MAX_BYTES = 3_500
"""Room for a summary: below the kubelet's 4,096 bytes, with a reserve for what a runtime may add."""

USABLE: frozenset[Verdict] = frozenset({"verified", "emulated", "assumed"})
"""Verdicts whose figures may be shown, compared and recommended: docs/development/method.md, "Verdicts"."""


def summarize(result: MeasurementResult, detail: Detail) -> Summary:
    """The figures that reports, metrics and plans use, rounded to six digits; not yet cut to size."""
    same_name = Summary.model_fields.keys() & MeasurementResult.model_fields.keys()
    speedups = [part.speedup for row in result.recipes for part in row.sums if part.mode == "autocast" and part.speedup]
    figures: dict[str, Any] = {name: getattr(result, name) for name in same_name} | {
        "simulated": tuple(made_up.field for made_up in result.simulated),
        "partial": _told(result.partial),
        "gpus": len(result.gpus),
        "duration_seconds": _round(result.duration_seconds),
        "slowest_gpu": _slowest_gpu(result),
        "noise_floor": result.noise_floor and _round(result.noise_floor, 3),
        "gemm_error": _round(max(map(relative_error, speedups)), 3) if speedups else None,
        "sensor_accuracy": result.sensor.accuracy if result.sensor else None,
        "recipes": recipe_summaries(result),
        "detail": detail,
    }
    return Summary(**figures)


def recipe_summaries(result: MeasurementResult) -> tuple[RecipeSummary, ...]:
    """Each recipe's figures, rounded to six digits."""
    return tuple(_summary_of(recipe) for recipe in result.recipes)


def fitted(summary: Summary, limit: int = MESSAGE_MAX_BYTES) -> Summary:
    """`summary`, cut until its compact JSON has at most `limit` bytes; `dropped` names the steps that cut something."""
    for name, cut in STEPS:
        if len(compact(summary)) <= limit:
            return summary
        shorter = summary.model_copy(update=cut(summary))
        if shorter != summary:
            dropped = (*summary.dropped, *(() if name in summary.dropped else (name,)))
            summary = shorter.model_copy(update={"dropped": dropped})
    return summary


def restored(summary: Summary, result: MeasurementResult) -> Summary:
    """`summary` with the recipes' figures that were left out of the message, from the full result of the same run."""
    whole = summarize(result, summary.detail)
    names = ("recipes", "device_memory", "noise_floor", "gemm_error")
    return summary.model_copy(update={name: getattr(whole, name) for name in names}) if summary.dropped else summary


def compact(summary: Summary) -> bytes:
    """The summary as it travels: canonical ASCII JSON, intervals packed into four numbers, defaults left out."""
    document = summary.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return canonical({"v": summary.v, **_packed(document)}).encode()


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"value", "lower", "upper", "n"}:
            return [value["value"], value["lower"], value["upper"], value["n"]]
        return {key: _packed(part) for key, part in value.items()}
    return [_packed(part) for part in value] if isinstance(value, list) else value


def _slowest_gpu(result: MeasurementResult) -> str | None:
    """UUID of the GPU that falls behind the most in any recipe."""
    trainings = [recipe.training for recipe in result.recipes if recipe.training]
    behind = [(training.gpu_spread, training.slowest_gpu) for training in trainings if training.gpu_spread is not None]
    return min(behind, key=lambda row: row[0])[1] if behind else None


def _summary_of(recipe: RecipeResult) -> RecipeSummary:
    training, throttled = complete(recipe.training), recipe.throttled
    energy = (training.energy if training else None) or Energy(valid=False, reasons=("not_measured",))
    loss_runs = recipe.loss.runs if recipe.loss else ()
    figures: dict[str, Any] = {
        "verdict": recipe.verification.verdict,
        "gemm_speedup": {part.mode: _round(part.speedup.value) for part in recipe.sums if part.speedup},
        "power_scope": energy.scope if energy.valid else None,
        "power_invalid": () if energy.valid else energy.reasons,
        "model_memory_bytes": recipe.model_memory.bytes if recipe.model_memory else None,
        "throttled": _shortened(throttled.share if throttled else None),
        "throttle_reason": throttled.reason if throttled and throttled.reason in THROTTLES else None,
        "diverged_step": min((run.diverged_step for run in loss_runs if run.diverged_step is not None), default=None),
        "loss_verdict": recipe.loss.verdict if recipe.loss else None,
        "failure": _told(first_failure(recipe)),
    }
    records = (recipe, *((training,) if training else ()), energy, recipe.memory)
    same_name = [name for name in RecipeSummary.model_fields if name not in figures]
    for name in same_name:  # of the first record that has it: a figure of a result needs no line here
        figure = next((getattr(record, name) for record in records if name in type(record).model_fields), None)
        figures[name] = _shortened(figure)
    return RecipeSummary(**figures)


def _shortened(value: Any) -> Any:
    """A figure or an interval rounded to six digits; anything else as it is."""
    if isinstance(value, Interval):
        return Interval(value=_round(value.value), lower=_round(value.lower), upper=_round(value.upper), n=value.n)
    return _round(value) if isinstance(value, float) else value


def complete(training: Training | None) -> Training | None:
    """The training figure, unless the step was measured without its head or optimizer: that is no full-depth rate."""
    return None if training is None or training.missing else training


BY_NATURE = frozenset({"no_prequantized_mode"})
"""Reasons for an absent figure that are no failure: the recipe has no such thing."""


def first_failure(recipe: RecipeResult) -> Failure | None:
    """What failed first for this recipe: its probe, a GEMM or a sum, a training figure, or what it lacks; else None."""
    if recipe.availability in ("unsupported", "probe_failed"):
        return Failure(reason=recipe.availability, message=recipe.availability_reason)
    parts = (*recipe.gemms, *recipe.sums, *((recipe.training,) if recipe.training else ()))
    failures = (part.failure for part in parts if part.failure)
    lacking = ", ".join(recipe.training.missing) if recipe.training else ""
    incomplete = Failure(reason="incomplete", message=f"without {lacking}") if lacking else None
    return next((failure for failure in failures if failure.reason not in BY_NATURE), incomplete)


def _told(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    return _cut(f"{failure.reason}: {failure.message}" if failure.message else failure.reason, 200)


def _round(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


def _cut(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of ASCII JSON (a character outside ASCII takes six): cut between words."""
    if len(canonical(text)) - 2 <= limit:
        return text
    while text and len(canonical(text)) + 1 > limit:
        text = text[: max(0, min(len(text) - 1, limit))]
    return (text.rpartition(" ")[0] or text) + "..."


Cut = Callable[[Summary], Mapping[str, Any]]
"""The fields of a summary that a step changes."""


def _each(change: Callable[[RecipeSummary], Mapping[str, Any]]) -> Cut:
    """A step that changes fields of every recipe."""
    return lambda summary: {"recipes": tuple(recipe.model_copy(update=change(recipe)) for recipe in summary.recipes)}


def _with(**fields: Any) -> Cut:
    """A step that sets the same fields of every recipe."""
    return _each(lambda _: fields)


def _expected_loss(recipe: RecipeSummary) -> dict[str, None]:
    """Only a loss verdict that says more than the other fields stays."""
    return {"loss_verdict": None} if recipe.loss_verdict == "healthy" or recipe.diverged_step is not None else {}


def _shorter_failures(limit: int) -> Cut:
    shorter = _each(lambda recipe: {"failure": recipe.failure and _cut(recipe.failure, limit)})
    return lambda summary: {**shorter(summary), "partial": summary.partial and _cut(summary.partial, limit)}


def _shorter_sentence(limit: int) -> Cut:
    def cut(summary: Summary) -> dict[str, Any]:
        sentence = _cut(summary.recommendation.sentence, limit)
        return {"recommendation": summary.recommendation.model_copy(update={"sentence": sentence})}

    return cut


def _fewer_simulated(summary: Summary, keep: int = 3) -> dict[str, Any]:
    """Keeps the first names of simulated fields and counts the rest: that there are some is never cut."""
    names = tuple(_cut(name, 40) for name in summary.simulated[:keep])
    rest = len(summary.simulated) - keep
    return {"simulated": (*names, f"{rest} more") if rest > 0 else names}


def _bare_software(summary: Summary) -> dict[str, Software]:
    return {"software": Software(agent=summary.software.agent, stack_hash=summary.software.stack_hash)}


KEPT = frozenset(
    {
        *("recipe", "availability", "verdict", "tokens_per_second", "gpu_spread", "speedup", "difference"),
        *("watts", "tokens_per_joule", "power_scope", "power_invalid"),
        *("throttled", "throttle_reason", "diverged_step", "loss_verdict", "failure"),
    }
)
"""Fields of a recipe that no step of their own cuts as a whole: what reports and plans can't do without."""


_OTHERS = {name: row for name, row in reversed(RecipeSummary.model_fields.items()) if name not in KEPT}
"""The other fields, the last one first: a new figure is the first to go."""

STEPS: tuple[tuple[str, Cut], ...] = (
    ("sentence", _shorter_sentence(160)),
    ("simulated", _fewer_simulated),
    ("failure", _shorter_failures(60)),
    ("power_invalid", _each(lambda recipe: {"power_invalid": recipe.power_invalid[:1]})),
    ("failure", _shorter_failures(24)),
    *((name, _with(**{name: row.get_default(call_default_factory=True)})) for name, row in _OTHERS.items()),
    ("noise", lambda _: {"noise_floor": None, "gemm_error": None}),
    ("loss_verdict", _each(_expected_loss)),
    ("sentence", _shorter_sentence(0)),
    ("gpu_spread", _with(gpu_spread=None)),
    ("energy", _with(watts=None, tokens_per_joule=None, power_scope=None, power_invalid=("cut_to_fit",))),
    ("device_memory", lambda _: {"device_memory": None}),
    ("software", _bare_software),
    ("failure", _with(failure=None)),
)
"""What is cut, in this order: words before figures. After the last step a summary fits for every result that the
schema admits."""
