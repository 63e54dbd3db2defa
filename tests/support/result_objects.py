"""Requests and results with defaults: a test says only what matters to it."""

from typing import Any

from precision_api.exchange import result as results
from precision_api.exchange.request import MeasurementRequest, RequestNode, Timing, request_hash, request_json
from precision_api.facts.recipes import MOST_LISTED, RECIPE_NAMES, Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.workload import Workload

HASH = "ab" * 32
TINY = ModelSpec(
    hidden_size=128, intermediate_size=256, num_attention_heads=4, num_hidden_layers=2, vocab_size=512, gated_mlp=True
)
TINY_WORKLOAD = Workload(name="tiny", model=TINY, micro_batch_size=1, sequence_length=64)


def request(**changes: Any) -> MeasurementRequest:
    node = RequestNode(name="node-1", uid="8f0c", product=changes.pop("product", "GB200"), gpus=changes.pop("gpus", 4))
    defaults: dict[str, Any] = {
        "namespace": "team", "profile": "demo", "run": "r1", "attempt": 1, "node": node, "workload": TINY_WORKLOAD,
        "recipes": ("bf16", "fp8_current", "mxfp8", "nvfp4"), "deadline_seconds": 600,
        "timing": Timing(passes=3, segment_seconds=3.0, discard_seconds=1.0, seed=7),
    }  # fmt: skip
    return MeasurementRequest(**(defaults | changes))


def request_text(**changes: Any) -> str:
    return request_json(request(**changes))


def hash_of(**changes: Any) -> str:
    """The hash that answers to the same request."""
    return request_hash(request(**changes))


def of(found: Any, recipe: str) -> results.RecipeResult:
    """The recipe's row of a result, or of an outcome that has one."""
    result = getattr(found, "result", found)
    assert result, found.message
    return next(row for row in result.recipes if row.recipe == recipe)


def interval(value: float, half: float = 0.01, n: int = 3) -> results.Interval:
    """`value` give or take a share of `half`."""
    return results.Interval(value=value, lower=value * (1 - half), upper=value * (1 + half), n=n)


def recipe_result(recipe: Recipe, speed: float = 1.0, **changes: Any) -> results.RecipeResult:
    """One verified recipe at `speed` times the baseline."""
    speedup = None if recipe == "bf16" else interval(speed)
    defaults: dict[str, Any] = {
        "recipe": recipe,
        "availability": "ok",
        "verification": results.Verification(verdict="verified", share=1.0),
        "gemms": (
            results.GemmResult(
                name="qkv", pass_="fprop", m=64, k=128, n=384, count=2, mode="autocast", seconds=interval(1e-4 / speed)
            ),
        ),
        "sums": (results.GemmSum(mode="autocast", seconds=interval(2e-4 / speed), speedup=speedup),),
        "training": results.Training(
            tokens_per_second=interval(123456.789 * speed),
            step_seconds=interval(0.0123456789 / speed),
            model_flops_per_second=1.23e15 * speed,
            teraflops_per_gpu=307.5 * speed,
            speedup=speedup,
            energy=results.Energy(
                valid=True, watts=4321.98765, tokens_per_joule=28.5648 * speed, tokens_per_joule_ratio=speedup
            ),
        ),
        "memory": results.Memory(allocated_peak_bytes=123456789012),
    }
    return results.RecipeResult(**(defaults | changes))


def assumed(row: results.RecipeResult) -> results.RecipeResult:
    """The recipe as a replay tells it: nothing of it was seen."""
    if row.verification.verdict != "verified":
        return row
    return row.model_copy(update={"verification": results.Verification(verdict="assumed")})


def result(**changes: Any) -> results.MeasurementResult:
    """A result of eight recipes."""
    defaults: dict[str, Any] = {
        "run": "r1", "request_hash": HASH, "node": "node-1", "attempt": 1, "backend": "replay",
        "provenance": "replayed", "product": "GB200", "gpus": (), "started_at": "2026-11-21T09:00:00Z",
        "finished_at": "2026-11-21T09:10:00Z", "duration_seconds": 600.0, "workload_name": "tiny",
        "workload_hash": "0123456789abcdef", "formula": "active_parameters_and_attention/1",
        "training_flops_per_token": 1e9,
        "software": results.Software(agent="0.1.0", driver="580.95.05", stack_hash="0123456789abcdef"),
        "recipes": tuple(recipe_result(recipe, 1 + i / 8) for i, recipe in enumerate(RECIPE_NAMES[: MOST_LISTED + 2])),
    }  # fmt: skip
    made = defaults | changes
    if made["provenance"] in ("replayed", "simulated"):
        made["recipes"] = tuple(assumed(results.RecipeResult.model_validate(row)) for row in made["recipes"])
    return results.MeasurementResult(**made)
