"""The published figures of a product, and what is assumed where nothing is published: the tables behind the replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from precision_agent.cases import Case, TrainingCase
from precision_api.exchange.result import Simulated
from precision_api.facts.products import PARTS, Part
from precision_api.facts.recipes import Recipe

FAULTS: Mapping[str, str] = {
    "power_invalid": "the energy counter disagrees with the integral of the power reading",
    "silent_fallback": "the narrowest recipe runs in BF16 without saying so",
    "probe_failed": "the narrowest recipe fails its probe",
    "gemm_failed": "one GEMM of the narrowest recipe fails",
    "throttled": "heat holds the clocks of the first GPU back for a tenth of the time",
    "slow_gpu": "the last GPU of the node runs at 0.8 of the speed of the others",
    "diverged": "the loss of the narrowest recipe rises",
}
"""What a replayed node can have wrong with it, on purpose."""

NODE_SPREAD = 0.006
GPU_SPREAD = 0.002
DRIFT, DRIFT_MEMORY_SECONDS = 0.003, 60.0
SAMPLE_NOISE = 0.002
LAUNCH_SECONDS = 4e-6
BF16_TRAINING_SHARE = 0.62
POWER_SHARE = {"bf16": 0.97, "fp8": 0.94, "fp4": 0.90}
IDLE_SHARE = 0.14
"""Of the power limit: a GB200's GPU idles at 156 to 174 W of 1,200 W."""
MEASURED_LAYERS = 4
"""Layers of the short model that a replay says it ran."""
HEAD_MOST_SHARE = 0.5
OPTIMIZER_SHARE = 0.01
"""Of the full-depth step."""
FORWARD_SHARE = 1 / 3
"""Of the layers' time without recomputation: a backward pass costs two forward ones."""
SLOW_GPU, THROTTLED_SHARE = 0.8, 0.1

Like = tuple[tuple[Recipe, float], ...]
"""Recipes that an unpublished one is taken from, first found first used, each with a factor."""
GEMM_SECONDS_LIKE: Mapping[Recipe, Like] = {
    "fp8_block": (("mxfp8", 1.03), ("fp8_current", 1.14)),
    "nvfp4_no_rht": (("nvfp4", 0.97),),
}
TRAINING_FLOPS_LIKE: Mapping[Recipe, Like] = {
    "fp8_delayed": (("fp8_current", 1.03),),
    "fp8_block": (("mxfp8", 0.97), ("fp8_current", 0.93)),
    "nvfp4_no_rht": (("nvfp4", 1.03),),
}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`scale` is the node's speed against the published one (0.8: 20 % slow); `fault` is one of FAULTS or None.

    `pace` is the seconds that pass for each replayed second: 0 does not wait, 1 takes as long as a GPU would.
    """

    scale: float = 1.0
    seed: int = 0
    fault: str | None = None
    pace: float = 0.0


@dataclass(frozen=True, slots=True)
class Published:
    """The published figures that stand nearest to a part, and how far to stretch them."""

    gemm_part: str
    gemm_scale: float
    milliseconds: Mapping[str, Mapping[str, Mapping[str, float]]]
    flops_per_pass: float
    training_product: str
    training_scale: float
    training_tflops: Mapping[str, float]
    bf16_peak: float

    def seconds(self, case: Case, recipe: Recipe) -> float | None:
        """Seconds of one call on a node like the published one; None where nothing can be taken from anything."""
        if isinstance(case, TrainingCase):
            flops = self.training_flops(recipe)
            return None if flops is None else case.tokens * case.flops_per_token / flops
        milliseconds = _like(recipe, self.milliseconds[case.mode][case.pass_], GEMM_SECONDS_LIKE)
        if milliseconds is None:
            return None
        return case.flops * milliseconds * 1e-3 / self.flops_per_pass / self.gemm_scale + LAUNCH_SECONDS / case.groups

    def training_flops(self, recipe: Recipe) -> float | None:
        """FLOP/s of one GPU in training."""
        if recipe == "bf16":
            return BF16_TRAINING_SHARE * self.bf16_peak
        teraflops = _like(recipe, self.training_tflops, TRAINING_FLOPS_LIKE)
        return None if teraflops is None else teraflops * 1e12 * self.training_scale


def families() -> tuple[str, ...]:
    """Product classes that can be replayed."""
    return tuple(data()["families"])


def published_for(device: Part) -> Published:
    """The figures of the nearest published part, to be stretched in proportion to the dense BF16 peaks."""
    tables = data()
    family = tables["families"][device.product]
    table = tables["gemm_tables"][family["gemm"]]
    gemm_part = next(row for row in PARTS if row.name == family["gemm"])
    training_part = next(row for row in PARTS if row.product == family["training"])
    return Published(
        gemm_part=gemm_part.name,
        gemm_scale=device.bf16_flops / gemm_part.bf16_flops,
        milliseconds=table["milliseconds"],
        flops_per_pass=table["flops_per_pass"],
        training_product=training_part.product,
        training_scale=device.bf16_flops / training_part.bf16_flops,
        training_tflops=tables["training_tflops"][family["training"]]["recipes"],
        bf16_peak=device.bf16_flops,
    )


def _like(recipe: Recipe, published: Mapping[str, float], substitutes: Mapping[Recipe, Like]) -> float | None:
    """The published figure of `recipe`, or that of a recipe it is taken to be like, times the assumed factor."""
    choices = ((recipe, 1.0), *substitutes.get(recipe, ()))
    return next((published[name] * factor for name, factor in choices if name in published), None)


@cache
def data() -> dict[str, Any]:
    """The published tables."""
    text = files("precision_agent.backends").joinpath("replay_data.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def assumptions(device: Part, figures: Published, options: ReplayOptions, loss: bool) -> tuple[Simulated, ...]:
    """Every made-up field and what it was made from; `loss`: loss runs were asked for."""
    rows = {
        "gpus": "identities from the node's UID, sizes and limits from the table of products",
        "verification": "no kernel ran: the verdict is what the table of recipes expects of this hardware",
        "gemms.seconds": f"published for CodonFM 5B on {figures.gemm_part}; other shapes at the same FLOP/s and "
        f"{LAUNCH_SECONDS * 1e6:.0f} us a launch, {device.name} at {figures.gemm_scale:.3g} of its speed (BF16 peaks); "
        "fp8_block and nvfp4_no_rht, where not published, in a fixed proportion to mxfp8, fp8_current and nvfp4",
        "training.tokens_per_second": f"published for Llama 3.1 405B on {figures.training_product}; other workloads at "
        f"the same model FLOP/s, {device.name} at {figures.training_scale:.3g} of its speed (BF16 peaks); bf16 at "
        f"{BF16_TRAINING_SHARE:.0%} of peak; recipes not published in a fixed proportion to those that are",
        "training.regions": f"the layers that ran, the head at bf16's speed, {OPTIMIZER_SHARE:.0%} for the optimizer: "
        "parts of that figure",
        "training.energy": "a fixed share of the power limit for each format: no training power is published; samples "
        "of a sensor are made up from it",
        "quantization_tax": "what the published prequantized times are below the autocast ones",
        "memory": "the formula of the full model's memory, applied to the short one: it can only agree with itself",
        "noise": f"{NODE_SPREAD:.1%} from node to node, {GPU_SPREAD:.1%} from GPU to GPU, {DRIFT:.1%} drift, "
        f"{SAMPLE_NOISE:.1%} a sample, from a seed",
    }
    if loss:
        rows["loss"] = "a smooth fall towards the entropy of the tokens: nothing was trained"
    if options.scale != 1:
        rows["scale"] = f"the node was made to run at {options.scale:.3g} of the published speed"
    if options.fault:
        rows["fault"] = FAULTS[options.fault]
    return tuple(Simulated(field=name, assumption=text) for name, text in rows.items())
