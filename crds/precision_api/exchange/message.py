"""What an agent's termination message holds: the summary of its result, or why there is none.

`precision_api.exchange.summary` makes the summary of a result and cuts it to size.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from precision_api.exchange import result
from precision_api.exchange.request import PLAIN, Mode
from precision_api.facts.recipes import MOST_RECIPES, Recipe
from precision_api.facts.schema import Record


class RecipeSummary(Record):
    """The figures of one recipe that reports, metrics and plans use; rounded to six significant digits.

    A field is taken from the field of the same name of the recipe's result, its training figure or its energy. In a
    summary that is too long the figures at the end go first.
    """

    recipe: Recipe
    availability: result.Availability
    verdict: result.Verdict
    tokens_per_second: result.Interval | None = None
    gpu_spread: float | None = None
    speedup: result.Interval | None = None
    difference: result.Difference | None = None
    watts: float | None = None
    tokens_per_joule: float | None = None
    power_scope: result.PowerScope | None = None
    power_invalid: tuple[result.Word, ...] = Field((), max_length=8)
    throttled: float | None = Field(None, ge=0, le=1)
    throttle_reason: result.ThrottleReason | None = None
    diverged_step: result.Count | None = None
    loss_verdict: result.LossVerdict | None = Field(None, description="Of the loss runs; absent where none ran.")
    failure: result.Line | None = Field(None, description="reason: message of what failed first.")
    last_layers_bf16: result.Count | None = None
    listed: bool = False
    gemm_speedup: dict[Mode, float] = Field(default_factory=dict)
    tokens_per_joule_net: float | None = None
    quantization_tax: float | None = None
    quantization_tax_most: float | None = None
    model_memory_bytes: result.Count | None = None
    allocated_peak_bytes: result.Count | None = None
    teraflops_per_gpu: float | None = None


class Detail(Record):
    """Where the full result is: `lines` PPR1 lines in the log, `bytes` of gzip, their SHA-256."""

    lines: int = Field(ge=1, le=256)
    bytes: int = Field(ge=1, le=1 << 20)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Summary(Record):
    """What the termination message holds: at most 3.5 KiB, and enough for reports and metrics."""

    v: Literal["PPS1"] = "PPS1"
    run: Annotated[str, Field(max_length=63, pattern=PLAIN)]
    request_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    node: Annotated[str, Field(max_length=253, pattern=PLAIN)]
    backend: result.Backend
    provenance: result.Provenance
    simulated: tuple[result.Title, ...] = Field((), max_length=32)
    partial: result.Line | None = None
    product: result.Word
    gpus: Annotated[int, Field(ge=0, le=16)]
    software: result.Software
    finished_at: result.Word
    duration_seconds: float = Field(ge=0)
    workload_hash: result.Word
    timing: result.Word | None = None
    baseline: Recipe = "bf16"
    noise_floor: float | None = None
    gemm_error: float | None = Field(None, description="Largest relative error of a GEMM speedup in mode autocast.")
    recipe_scope: result.RecipeScope = "all"
    training_flops_per_token: float | None = None
    slowest_gpu: result.Uuid | None = None
    sensor_accuracy: result.SensorAccuracy | None = None
    device_memory: result.DeviceMemory | None = None
    recipes: tuple[RecipeSummary, ...] = Field(max_length=MOST_RECIPES)
    recommendation: result.Recommendation = result.Recommendation()
    dropped: tuple[result.Word, ...] = Field(
        (), max_length=24, description="What was cut or left out to make the message fit; the full result has it."
    )
    detail: Detail

    @model_validator(mode="after")
    def _honest(self) -> "Summary":
        result.once_each([recipe.recipe for recipe in self.recipes])
        result.assumed_where_made_up(self.provenance, [recipe.verdict for recipe in self.recipes])
        return self


class Refusal(Record):
    """What the termination message holds when there is no result: the reason of the exit code, told in words."""

    v: Literal["PPE1"] = "PPE1"
    reason: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=64)]
    message: result.Note = ""
