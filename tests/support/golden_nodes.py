"""Results of a small fleet for references and verdicts: speeds drawn from a seed, deficits planted in per cent."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.run.run import run_request
from precision_api.acceptance.create import create
from precision_api.acceptance.reference import Reference
from precision_api.exchange import result as wire
from precision_api.facts.recipes import Recipe
from tests.support.result_objects import interval, recipe_result, request, request_text, result

GPUS = 8
RECIPES: tuple[Recipe, ...] = ("bf16",)
MADE_AT = "2099-11-20T10:00:00Z"


def gpu_names(node: str, gpus: int = GPUS) -> tuple[str, ...]:
    return tuple(f"GPU-{node}-{index}" for index in range(gpus))


def measured_node(
    node: str, seed: int, off: float = 0.0, gpu_off: float = 0.0, gpus: int = GPUS, day: int = 1, **changes: Any
) -> wire.MeasurementResult:
    """What was measured on a node that is `off` per cent from the others, its first GPU `gpu_off` from its own."""
    own, run = Random(f"{seed} {node}"), Random(f"{seed} {node} {day}")
    names = gpu_names(node, gpus)
    logs = {name: own.gauss(0, 0.3) + run.gauss(0, 0.2) + off for name in names}
    logs[names[0]] += gpu_off
    shared = own.gauss(0, 0.3) + run.gauss(0, 0.3)
    rates = {name: 1000 * math.exp((log + shared) / 100) for name, log in logs.items()}
    recipes = changes.pop("recipes", None) or (verified("bf16", rates),)
    made: dict[str, Any] = {
        "node": node, "provenance": "measured", "backend": "transformer-engine", "recipes": recipes,
        "gpus": tuple(wire.Gpu(uuid=name, name="NVIDIA H100 80GB HBM3", enforced_limit_watts=700) for name in names),
        "product": "H100", "timing": "1/quick", "finished_at": f"2099-11-{day:02}T10:00:00Z",
    }  # fmt: skip
    return result(**(made | changes))


def verified(recipe: Recipe, rates: Mapping[str, float], **changes: Any) -> wire.RecipeResult:
    rate = interval(sum(rates.values()))
    training = wire.Training(tokens_per_second=rate, tokens_per_second_by_gpu=dict(rates), layers_measured=4)
    return recipe_result(recipe, **({"training": training, "gemms": (), "sums": ()} | changes))


def with_rows(base: wire.MeasurementResult, **changes: Any) -> wire.MeasurementResult:
    """The same result with something else in each row."""
    return base.model_copy(update={"recipes": tuple(row.model_copy(update=changes) for row in base.recipes)})


def many(base: wire.MeasurementResult, *recipes: Recipe, **changes: Any) -> wire.MeasurementResult:
    """The first row for each recipe."""
    rows = (base.recipes[0].model_copy(update={"recipe": recipe} | changes) for recipe in recipes)
    return base.model_copy(update={"recipes": tuple(rows)})


def with_training(base: wire.MeasurementResult, **changes: Any) -> wire.MeasurementResult:
    """The same result with something else in the first row's training figures, for all rows."""
    return with_rows(base, training=(base.recipes[0].training or WRONG).model_copy(update=changes))


def changed(base: wire.MeasurementResult, old: str, new: str) -> wire.MeasurementResult:
    """The same result with another text in its JSON."""
    return wire.MeasurementResult.model_validate_json(base.model_dump_json().replace(old, new))


def hot(base: wire.MeasurementResult, share_of_time: float = 0.2) -> wire.MeasurementResult:
    return with_rows(base, throttled=wire.ThrottleShare(reason="hardware_thermal", share=share_of_time))


def capped(base: wire.MeasurementResult) -> wire.MeasurementResult:
    """The same result, with a power limit of its first GPU that was moved to its second one."""
    limits = zip(base.gpus, (600, 800, *[700] * len(base.gpus)), strict=False)
    gpus = tuple(gpu.model_copy(update={"enforced_limit_watts": watts}) for gpu, watts in limits)
    return base.model_copy(update={"gpus": gpus})


def with_verdict(base: wire.MeasurementResult, verdict: str) -> wire.MeasurementResult:
    """The same result, whose kernels say something else of the precision."""
    return with_rows(base, verification=base.recipes[0].verification.model_copy(update={"verdict": verdict}))


WRONG = wire.Training(failure=wire.Failure(reason="numerical_error"))
_SHAPE: dict[str, Any] = {"name": "mlp_up", "m": 64, "k": 64, "n": 64, "count": 1, "mode": "autocast"}
CRASHED = {"gemms": (wire.GemmResult(pass_="fprop", failure=wire.Failure(reason="hung"), **_SHAPE),)}
NONE_FAILS: Mapping[str, Callable[[wire.MeasurementResult], wire.MeasurementResult]] = {
    "Fallback": lambda base: with_verdict(base, "fallback"),
    "Unverified": lambda base: with_verdict(base, "emulated"),
    "Partial": lambda base: base.model_copy(update={"partial": wire.Failure(reason="terminated")}),
    "OtherKey": lambda it: it.model_copy(update={"software": it.software.model_copy(update={"driver": "590.10"})}),
    "Simulated": lambda base: with_verdict(base.model_copy(update={"provenance": "replayed"}), "assumed"),
    "NotMeasured": lambda base: base.model_copy(update={"recipes": ()}),
    "Crashed": lambda base: base.model_copy(update={"recipes": (base.recipes[0].model_copy(update=CRASHED),)}),
    "HostBound": lambda base: with_rows(base, cpu_bound=True, kernel_time_share=0.86),
    "OtherDepth": lambda base: with_training(base, layers_measured=2),
    "NumericalError": lambda base: base.model_copy(update={"recipes": (verified("bf16", {}, training=WRONG),)}),
}  # fmt: skip
"""What is no measurement of the GPUs, by the reason that a verdict has for it."""


ASKED = request(recipes=RECIPES, gpus=GPUS)
made = partial(create, request=ASKED, made_by="somebody", made_at=MADE_AT)


def golden_draft(seed: int = 1, nodes: int = 8, gpus: int = GPUS, **changes: Any) -> Reference:
    return made({f"n{at}": measured_node(f"n{at}", seed, gpus=gpus) for at in range(nodes)}, {}, **changes)[0]


def replayed_draft(**asked: Any) -> Reference:
    """A reference of nine replayed nodes."""
    outcomes = (run_request(request_text(**asked), "replay", ReplayOptions(seed=at)) for at in range(9))
    of = {f"n{at}": it.result for at, it in enumerate(outcomes) if it.result}
    return create(of, {}, request(**asked), "a test", max(it.finished_at for it in of.values()), simulated=True)[0]
