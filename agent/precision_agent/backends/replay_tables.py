"""The published figures of a product, and what is assumed where nothing is published: the tables behind the replay."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from precision_agent.cases import GemmCase
from precision_api.exchange.request import MeasurementRequest, Mode
from precision_api.exchange.result import Simulated
from precision_api.facts.products import PARTS, Part
from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.shapes import PASSES, Gemm, Pass, passes

MODES: tuple[Mode, ...] = get_args(Mode)
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
POWER_SHARE = {"bf16": 0.97, "fp8": 0.94, "fp4": 0.90}
IDLE_SHARE = 0.14
"""Of the power limit: a GB200's GPU idles at 156 to 174 W of 1,200 W."""
MEASURED_LAYERS = 4
"""Layers of the short model that a replay says it ran."""
ATTENTION_SHARE, OTHER_SHARE, OPTIMIZER_SHARE = 0.46, 0.06, 0.01
"""The rest of a step beside the head's GEMMs, over the time of bf16's GEMMs in the layers: attention's products at that
share of the time of as many FLOPs in these GEMMs; norms, activations; the optimizer. Published steps of Llama 3.1 8B
give the sum, 0.141; that attention is half of it is assumed."""
FORWARD_SHARE = 1 / 3
"""Of the layers' rest without recomputation: a backward pass costs two forward ones."""
SLOW_GPU, THROTTLED_SHARE = 0.8, 0.1

GEMM_SECONDS_LIKE: Mapping[Recipe, tuple[tuple[Recipe, float], ...]] = {
    "fp8_block": (("mxfp8", 1.03), ("fp8_current", 1.14)),
    "nvfp4_no_rht": (("nvfp4", 0.97),),
}
"""Recipes that an unpublished one is taken from, the first published one of them, each with a factor. Other variants
are taken to be as fast as what they are a variant of."""


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
class Law:
    """Seconds of one call of a recipe: c + b (mk + kn) + a mnk, with b for quantising the operands; none below 0.

    Experts of one call are one GEMM of all their rows: their weights' cast is that of one expert's, for those of all
    are cast together in the first micro batch of a step and kept for the others.
    """

    call: float
    element: float
    multiply_add: float

    def seconds(self, gemm: Gemm) -> float:
        """Of one of the `groups` multiplications of a call."""
        weights = gemm.k * gemm.n / (1 if gemm.pass_ == "wgrad" else gemm.groups)
        elements = gemm.k * gemm.m + weights
        return self.call / gemm.groups + self.element * elements + self.multiply_add * gemm.m * gemm.k * gemm.n


@dataclass(frozen=True, slots=True)
class Published:
    """The published figures that stand nearest to a part, and how far to stretch them."""

    gemm_part: str
    origin: str
    """The part or product whose GEMM times are stretched by BF16 peaks."""
    stretch: Mapping[str, float]
    """Seconds of the part's GEMMs over the published ones, by recipe; of all others under `other`."""
    laws: Mapping[Mode, Mapping[str, Law]]
    ratios: Mapping[tuple[Mode, Pass], tuple[tuple[Gemm, Mapping[str, float]], ...]]
    """By mode and pass: each published GEMM, and by recipe what was published over the law."""

    def seconds(self, case: GemmCase, recipe: Recipe) -> float | None:
        """Seconds of one GEMM on a node like the published one; None where nothing can be taken from anything."""
        of = RECIPES[recipe].variant_of
        choices = ((recipe, 1.0), *GEMM_SECONDS_LIKE.get(recipe, ((of, 1.0),) if of else ()))
        like = next(((name, factor) for name, factor in choices if name in self.laws[case.mode]), None)
        if like is None:
            return None
        name, factor = like
        ratios = [(_distance(gemm, case), by_recipe[name]) for gemm, by_recipe in self.ratios[case.mode, case.pass_]]
        near = [(1 / max(distance, 1e-9), math.log(ratio)) for distance, ratio in ratios]
        ratio = math.exp(sum(weight * log for weight, log in near) / sum(weight for weight, _ in near))
        stretch = self.stretch.get(name, self.stretch["other"])
        return self.laws[case.mode][name].seconds(case) * ratio * factor * stretch


def families() -> tuple[str, ...]:
    """Product classes that can be replayed."""
    return tuple(data()["families"])


def published_for(device: Part) -> Published:
    """The figures of the nearest published part, to be stretched in proportion to the dense BF16 peaks."""
    family = data()["families"][device.product]
    table = data()["gemm_tables"][family["gemm"]]
    origin = family["gemm"] if device.name == family["gemm"] else family.get("times", family["gemm"])
    like = next(row for row in PARTS if origin in (row.product, row.name))
    times = data()["gemm_times"].get(origin, {"other": 1.0})
    laws = {
        mode: {name: Law(c * 1e-6, b * 1e-12, a * 1e-15) for name, (c, b, a) in table[mode]["laws"].items()}
        for mode in MODES
    }
    return Published(
        gemm_part=family["gemm"],
        origin=origin,
        stretch={name: time * like.bf16_flops / device.bf16_flops for name, time in times.items()},
        laws=laws,
        ratios={
            (mode, pass_): tuple(_ratios(table[mode]["cells"][pass_], pass_, laws[mode]))
            for mode in MODES
            for pass_ in PASSES
        },
    )


def _ratios(
    cells: Mapping[str, Mapping[str, float]], pass_: Pass, laws: Mapping[str, Law]
) -> Iterator[tuple[Gemm, Mapping[str, float]]]:
    """Published over law; GEMMs that were published as one sum share it as the law says."""
    for names, milliseconds in cells.items():
        forward = [Gemm(name, "fprop", *data()["gemms"][name]) for name in names.split()]
        gemms = [passes(gemm)[PASSES.index(pass_)] for gemm in forward]
        whole = {name: sum(law.seconds(gemm) for gemm in gemms) for name, law in laws.items()}
        yield from ((gemm, {name: milliseconds[name] * 1e-3 / whole[name] for name in laws}) for gemm in gemms)


def _distance(published: Gemm, gemm: Gemm) -> float:
    """How far apart two shapes are: squares of the ratios' logarithms; experts of one call have their rows together."""
    (m, *widths), (published_m, *published_widths) = gemm.forward, published.forward
    pairs = zip((m * gemm.groups, *widths), (published_m, *published_widths), strict=True)
    return sum(math.log(size / other) ** 2 for size, other in pairs)


@cache
def data() -> dict[str, Any]:
    text = files("precision_agent.backends").joinpath("replay_data.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def assumptions(
    device: Part, figures: Published, options: ReplayOptions, asked: MeasurementRequest
) -> tuple[Simulated, ...]:
    """Every made-up field and what it was made from."""
    source = data()["gemm_times_from"].get(figures.origin, "by BF16 peaks")
    rows = {
        "gpus": "identities from the node's UID, sizes and limits from the table of products",
        "verification": "no kernel ran: the verdict is what the table of recipes expects of this hardware",
        "gemms.seconds": f"published for CodonFM 5B on {figures.gemm_part}, {device.name} at "
        f"{figures.stretch['other']:.3g} of its seconds, {source}; GEMMs of which only a sum is published share it, "
        "and others get seconds, as c a call + b (mk + kn) + a mnk, by recipe, times what published shapes are over "
        "that, weighted by nearness; experts of one call count as one GEMM of all their rows; "
        "fp8_block and nvfp4_no_rht, where not published, in a fixed proportion to mxfp8, fp8_current and nvfp4",
        "training.tokens_per_second": "the step's GEMMs as above and a rest that no recipe speeds up: the head, "
        f"attention at {ATTENTION_SHARE} of the time of bf16's GEMMs of as many FLOPs, and "
        f"{OTHER_SHARE + OPTIMIZER_SHARE:.2f} of these GEMMs' time for norms, activations and the optimizer, from "
        f"published steps of Llama 3.1 8B on GB200{_not_replayed(device)}",
        "training.regions": f"the layers that ran, with {FORWARD_SHARE:.0%} of their rest forward",
        "training.energy": "a fixed share of the power limit for each format: no training power is published; samples "
        "of a sensor are made up from it",
        "quantization_tax": "what the published prequantized times are below the autocast ones",
        "memory": "the formula of the full model's memory, applied to the short one: it can only agree with itself",
        "noise": f"{NODE_SPREAD:.1%} from node to node, {GPU_SPREAD:.1%} from GPU to GPU, {DRIFT:.1%} drift, "
        f"{SAMPLE_NOISE:.1%} a sample, from a seed",
    }
    if unpublished := [name for name in asked.recipes if RECIPES[name].variant_of and name not in GEMM_SECONDS_LIKE]:
        rows["variants"] = f"as fast as the recipe that they are a variant of: {', '.join(unpublished)}"
    if asked.loss is not None:
        rows["loss"] = "a smooth fall towards the entropy of the tokens: nothing was trained"
    if options.scale != 1:
        rows["scale"] = f"the node was made to run at {options.scale:.3g} of the published speed"
    if options.fault:
        rows["fault"] = FAULTS[options.fault]
    return tuple(Simulated(field=name, assumption=text) for name, text in rows.items())


def _not_replayed(device: Part) -> str:
    """The published steps whose recipes ran at different mappings."""
    rows = data()["different_mappings"].get(device.product, {})
    text = ", ".join(f"{recipe} {teraflops}" for recipe, teraflops in rows.items())
    return f"; published for Llama 3.1 405B at other mappings and not replayed: {text} TFLOP/s per GPU" if rows else ""
