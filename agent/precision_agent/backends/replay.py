"""Plays published figures of a product back, with seeded noise: the whole way of the data without a GPU.

What was published is few GEMM times and few training rates. Everything else here is assumed, each assumption is named
in the result, and a result with one of them says that it is simulated. Needs no torch and never waits: its clock is the
sum of the seconds that it was asked to measure.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from precision_agent import __version__
from precision_agent.backends.protocol import Machine, Origin, Power, Probe, Refusal
from precision_agent.cases import Arm, Case, GemmCase, TrainingCase
from precision_api.exits import INVALID_REQUEST, UNKNOWN_PRODUCT
from precision_api.products import PARTS, Part, part
from precision_api.recipes import RECIPES, Recipe, support
from precision_api.request import MeasurementRequest, digest
from precision_api.result import Backend as BackendName
from precision_api.result import Failure, Gpu, Memory, Simulated, Software, Verification

FAULTS: Mapping[str, str] = {
    "power_invalid": "the energy counter disagrees with the integral of the power reading",
    "silent_fallback": "the narrowest recipe runs in BF16 without saying so",
    "probe_failed": "the narrowest recipe fails its probe",
    "gemm_failed": "one GEMM of the narrowest recipe fails",
}
"""What a replayed node can have wrong with it, on purpose."""

NODE_SPREAD = 0.006
DRIFT, DRIFT_MEMORY_SECONDS = 0.003, 60.0
SAMPLE_NOISE = 0.002
LAUNCH_SECONDS = 4e-6
BF16_TRAINING_SHARE = 0.62
POWER_SHARE = {"bf16": 0.97, "fp8": 0.94, "fp4": 0.90}
MEMORY_SHARE = {"bf16": 0.62, "fp8": 0.60, "fp4": 0.57}

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
    """`scale` is the node's speed against the published one (0.8: 20 % slow); `fault` is one of FAULTS or None."""

    scale: float = 1.0
    seed: int = 0
    fault: str | None = None


class Replay:
    """The backend: seconds, watts and bytes from tables, noise from the node's UID and the run."""

    name: BackendName = "replay"

    def __init__(self, request: MeasurementRequest, options: ReplayOptions) -> None:
        found = part(request.node.product)
        if found is None:
            raise Refusal(UNKNOWN_PRODUCT, f"no replay of {request.node.product!r}: known are {', '.join(families())}")
        if not 0 < options.scale < math.inf or options.fault not in (None, *FAULTS):
            raise Refusal(INVALID_REQUEST, f"replay: scale must be above 0 and fault one of {', '.join(FAULTS)}")
        node = request.node
        self._part: Part = found
        self._options = options
        self._devices = node.gpus
        self._uid = node.uid
        self._published = published_for(found)
        self._node = Random(f"node/{node.uid}/{options.seed}")
        speed = options.scale * (1 + NODE_SPREAD * max(-3.0, min(3.0, self._node.gauss())))
        self._slowness = 1 / speed
        self._power_factor = 1 + 0.01 * self._node.gauss()
        self._noise = Random(f"run/{node.uid}/{request.run}/{request.attempt}/{options.seed}")
        self._drift = 0.0
        self._faulty: Recipe = "nvfp4" if support("nvfp4", found.compute) else "fp8_current"

    def machine(self) -> Machine:
        """The promised GPUs, with identities that are made from the node's UID."""
        gpus = tuple(
            Gpu(
                uuid=_uuid(self._uid, index),
                name=f"NVIDIA {self._part.name}",
                memory_bytes=self._part.memory_gb * 10**9,
                enforced_limit_watts=float(self._part.power_limit_watts),
            )
            for index in range(self._devices)
        )
        software = Software(agent=__version__, stack_hash=digest({"agent": __version__, "replay": _data()}, 16))
        return Machine(self._part.product, self._devices, gpus, software)

    def origin(self) -> Origin:
        """Simulated, as long as anything here is assumed; with the sources of what was published."""
        sources = tuple(_data()["sources"].values())
        return Origin("simulated", sources, _assumptions(self._part, self._published, self._options))

    def probe(self, arm: Arm) -> Probe:
        """What the table of recipes says of this hardware: no kernel runs."""
        how = support(arm.recipe, self._part.compute)
        if how is None:
            return Probe("unsupported", f"{self._part.product} has no {arm.recipe}")
        if self._hits(arm, "probe_failed"):
            return Probe("probe_failed", f"replayed fault: {FAULTS['probe_failed']}")
        if self._hits(arm, "silent_fallback"):
            verdict = Verification(verdict="fallback", share=0.0, message=f"replayed: {FAULTS['silent_fallback']}")
            return Probe("ok", verification=verdict)
        if how == "emulated":
            reason = f"{self._part.product} runs {arm.recipe} through the kernels of mxfp8"
            return Probe("emulated", reason, Verification(verdict="emulated", share=1.0, message="replayed: assumed"))
        return Probe("ok", verification=Verification(verdict="verified", share=1.0, message="replayed: assumed"))

    def settle(self, arm: Arm, seconds: float) -> None:
        """Lets the drift go on."""
        self._advance(seconds)

    def measure(self, case: Case, arm: Arm, seconds: float) -> float | Failure:
        """The table's seconds for this node, with drift and noise."""
        self._advance(seconds)
        arm_recipe = case.recipe_of(arm) if isinstance(case, GemmCase) else arm.recipe
        recipe = "bf16" if self._hits(arm, "silent_fallback") else arm_recipe
        if self._hits(arm, "gemm_failed") and isinstance(case, GemmCase) and case.pass_ == "fprop":
            return Failure(reason="cuda_error", message=f"replayed: {FAULTS['gemm_failed']}")
        ideal = self._published.seconds(case, recipe)
        if ideal is None:
            return Failure(reason="not_published", message=f"no figure of {arm.recipe} to replay")
        return ideal * self._slowness * (1 + self._drift) * math.exp(SAMPLE_NOISE * self._noise.gauss())

    def power(self, arm: Arm) -> Power:
        """A share of the power limit; a slow node draws as much as a quick one."""
        if self._options.fault == "power_invalid":
            return Power(None, ("counter_disagrees",))
        share = POWER_SHARE[RECIPES[arm.recipe].format]
        return Power(self._devices * self._part.power_limit_watts * share * self._power_factor)

    def memory(self, arm: Arm) -> Memory:
        """A share of the device's memory."""
        used = int(self._part.memory_gb * 1e9 * MEMORY_SHARE[RECIPES[arm.recipe].format])
        return Memory(allocated_peak_bytes=used, reserved_peak_bytes=int(used * 1.05))

    def _hits(self, arm: Arm, fault: str) -> bool:
        return self._options.fault == fault and arm.recipe == self._faulty

    def _advance(self, seconds: float) -> None:
        """An Ornstein-Uhlenbeck drift of the given size and memory."""
        keep = math.exp(-seconds / DRIFT_MEMORY_SECONDS)
        self._drift = self._drift * keep + DRIFT * math.sqrt(1 - keep * keep) * self._noise.gauss()


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
            flops = self._training_flops(recipe)
            return None if flops is None else case.tokens * case.flops_per_token / flops
        found = _like(recipe, self.milliseconds[case.mode][case.pass_], GEMM_SECONDS_LIKE)
        if found is None:
            return None
        return case.flops * found * 1e-3 / self.flops_per_pass / self.gemm_scale + LAUNCH_SECONDS / case.groups

    def _training_flops(self, recipe: Recipe) -> float | None:
        if recipe == "bf16":
            return BF16_TRAINING_SHARE * self.bf16_peak
        found = _like(recipe, self.training_tflops, TRAINING_FLOPS_LIKE)
        return None if found is None else found * 1e12 * self.training_scale


def families() -> tuple[str, ...]:
    """Product classes that can be replayed."""
    return tuple(_data()["families"])


def published_for(device: Part) -> Published:
    """The figures of the nearest published part, to be stretched in proportion to the dense BF16 peaks."""
    data = _data()
    family = data["families"][device.product]
    table = data["gemm_tables"][family["gemm"]]
    gemm_part = next(row for row in PARTS if row.name == family["gemm"])
    training_part = next(row for row in PARTS if row.product == family["training"])
    return Published(
        gemm_part=gemm_part.name,
        gemm_scale=device.bf16_flops / gemm_part.bf16_flops,
        milliseconds=table["milliseconds"],
        flops_per_pass=table["flops_per_pass"],
        training_product=training_part.product,
        training_scale=device.bf16_flops / training_part.bf16_flops,
        training_tflops=data["training_tflops"][family["training"]]["recipes"],
        bf16_peak=device.bf16_flops,
    )


def _like(recipe: Recipe, published: Mapping[str, float], substitutes: Mapping[Recipe, Like]) -> float | None:
    """The published figure of `recipe`, or that of a recipe it is taken to be like, times the assumed factor."""
    choices = ((recipe, 1.0), *substitutes.get(recipe, ()))
    return next((published[name] * factor for name, factor in choices if name in published), None)


@cache
def _data() -> dict[str, Any]:
    text = files("precision_agent.backends").joinpath("replay_data.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _uuid(node_uid: str, index: int) -> str:
    text = hashlib.sha256(f"{node_uid}/{index}".encode()).hexdigest()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _assumptions(device: Part, figures: Published, options: ReplayOptions) -> tuple[Simulated, ...]:
    """Every made-up field and what it was made from."""
    rows = {
        "gpus": "identities from the node's UID, sizes and limits from the table of products",
        "verification": "no kernel ran: the verdict is what the table of recipes expects of this hardware",
        "gemms.seconds": f"published for CodonFM 5B on {figures.gemm_part}; other shapes at the same FLOP/s and "
        f"{LAUNCH_SECONDS * 1e6:.0f} us a launch, {device.name} at {figures.gemm_scale:.3g} of its speed (BF16 peaks); "
        "fp8_block and nvfp4_no_rht, where not published, in a fixed proportion to mxfp8, fp8_current and nvfp4",
        "training.tokens_per_second": f"published for Llama 3.1 405B on {figures.training_product}; other workloads at "
        f"the same model FLOP/s, {device.name} at {figures.training_scale:.3g} of its speed (BF16 peaks); bf16 at "
        f"{BF16_TRAINING_SHARE:.0%} of peak; recipes not published in a fixed proportion to those that are",
        "training.energy": "a fixed share of the power limit for each format: no training power is published",
        "memory": "a fixed share of the device's memory for each format",
        "noise": f"{NODE_SPREAD:.1%} from node to node, {DRIFT:.1%} drift, {SAMPLE_NOISE:.1%} a sample, from a seed",
    }
    if options.scale != 1:
        rows["scale"] = f"the node was made to run at {options.scale:.3g} of the published speed"
    if options.fault:
        rows["fault"] = FAULTS[options.fault]
    return tuple(Simulated(field=name, assumption=text) for name, text in rows.items())
