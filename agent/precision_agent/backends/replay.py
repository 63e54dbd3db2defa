"""Plays published figures of a product back, with seeded noise: the whole way of the data without a GPU.

What was published is few GEMM times and few training steps. Everything else here is assumed, each assumption is named
in the result, and a result with one of them says that it is simulated. Needs no torch, and waits only at the pace that
it is given: its clock is the sum of the seconds that it was asked to measure.
"""

import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from precision_agent import __version__, protocol
from precision_agent.backends import replay_tables as tables
from precision_agent.backends.replay_tables import FAULTS, Published, ReplayOptions, families, published_for
from precision_agent.cases import BF16, UNQUANTIZED, Case, GemmCase, Variant, cases_of
from precision_agent.method.full_depth import depth_of
from precision_agent.method.loss import source
from precision_agent.method.model_memory import short_memory
from precision_api.exchange.exits import INVALID_REQUEST, UNKNOWN_PRODUCT
from precision_api.exchange.request import MeasurementRequest, digest
from precision_api.exchange.result import Backend as BackendName
from precision_api.exchange.result import Failure, Gpu, Memory, Software, Verification
from precision_api.facts import products
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, Recipe, support
from precision_api.models.flop_shares import ATTENTION, flop_shares
from precision_api.models.memory import FP32_GRADIENT_BYTES, ModelPart
from precision_api.models.shapes import HEAD
from precision_api.models.workload import resolve

NOT_REPLAYED = Failure(reason="not_available", message="a replay has no kernels to look at")


@dataclass(frozen=True, slots=True)
class PowerInterval:
    """What one GPU drew from `start` to `end` of the replay's clock, in watts."""

    start: float
    end: float
    watts: float


class Replay:
    """The backend of one GPU: seconds, watts and bytes from tables, noise from the node's UID, the GPU and the run."""

    name: BackendName = "replay"

    def __init__(self, request: MeasurementRequest, options: ReplayOptions, index: int = 0) -> None:
        part = products.part(request.node.product)
        if part is None:
            raise protocol.Refusal(
                UNKNOWN_PRODUCT, f"no replay of {request.node.product!r}: known are {', '.join(families())}"
            )
        if not (0 < options.scale < math.inf and 0 <= options.pace <= 1) or options.fault not in (None, *FAULTS):
            faults = ", ".join(FAULTS)
            raise protocol.Refusal(
                INVALID_REQUEST, f"replay: scale must be above 0, pace between 0 and 1, and fault one of {faults}"
            )
        self.part, self.options, self.index = part, options, index
        self._request = request
        self._uid = request.node.uid
        self._published: Published = published_for(part)
        node = Random(f"node/{self._uid}/{options.seed}")
        speed = options.scale * (1 + tables.NODE_SPREAD * max(-3.0, min(3.0, node.gauss())))
        self._power_factor = 1 + 0.01 * node.gauss()
        deviate = Random(f"gpu/{self._uid}/{index}/{options.seed}").gauss()
        speed *= 1 + tables.GPU_SPREAD * max(-3.0, min(3.0, deviate))
        if options.fault == "slow_gpu" and index == request.node.gpus - 1:
            speed *= tables.SLOW_GPU
        if options.fault == "throttled" and index == 0:
            speed *= 1 - tables.THROTTLED_SHARE / 2
        self._slowness = 1 / speed
        self._noise = Random(f"run/{self._uid}/{index}/{request.run}/{request.attempt}/{options.seed}")
        self._drift = 0.0
        self._faulty: Recipe = "nvfp4" if support("nvfp4", part.compute) else "fp8_current"
        """The recipe that a fault hits: the narrowest that this hardware has."""
        self._split: dict[Recipe, Mapping[protocol.RegionName, float]] = {}
        self._power_shares: dict[Recipe, float] = {}
        self.now = 0.0
        self.power_intervals: list[PowerInterval] = []

    @property
    def uuid(self) -> str:
        """The GPU's identity, made from the node's UID."""
        text = hashlib.sha256(f"{self._uid}/{self.index}".encode()).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

    def device(self) -> protocol.Device:
        """The promised GPU, with an identity that is made from the node's UID."""
        gpu = Gpu(
            uuid=self.uuid,
            name=f"NVIDIA {self.part.name}",
            memory_bytes=self.part.memory_gb * 10**9,
            enforced_limit_watts=float(self.part.power_limit_watts),
        )
        stack = digest({"replay": tables.data()}, 16)
        return protocol.Device(self.part.product, Software(agent=__version__, stack_hash=stack), gpu)

    def provenance(self) -> protocol.ResultProvenance:
        """Simulated, as long as anything here is assumed; with the sources of what was published."""
        sources = tuple(tables.data()["sources"].values())
        made_up = tables.assumptions(self.part, self._published, self.options, self._request)
        return protocol.ResultProvenance("simulated", sources, made_up)

    def probe(self, variant: Variant) -> protocol.Probe:
        """What the table of recipes says of this hardware: no kernel runs."""
        hows = {recipe: support(recipe, self.part.compute) for recipe in variant.parts.recipes}
        if None in hows.values():
            absent = ", ".join(recipe for recipe, how in hows.items() if how is None)
            return protocol.Probe("unsupported", f"{self.part.product} has no {absent}")
        if self._hits(variant, "probe_failed"):
            return protocol.Probe("probe_failed", f"replayed fault: {FAULTS['probe_failed']}")
        if self._hits(variant, "silent_fallback"):
            verdict = Verification(verdict="fallback", share=0.0, message=f"replayed: {FAULTS['silent_fallback']}")
            return protocol.Probe("ok", verification=verdict)
        message = "replayed: no kernel ran"
        if "emulated" in hows.values():
            emulated = ", ".join(recipe for recipe, how in hows.items() if how == "emulated")
            reason = f"{self.part.product} runs {emulated} through the kernels of mxfp8"
            would = Verification(verdict="assumed", message=f"{message}; it would be emulated")
            return protocol.Probe("emulated", reason, would)
        return protocol.Probe("ok", verification=Verification(verdict="assumed", message=message))

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        """Nothing is to be prepared."""
        return None

    def settle(self, variant: Variant, seconds: float, load: protocol.Load | None = None) -> protocol.Sample | Failure:
        """Lets the drift go on."""
        return protocol.Sample(seconds, 1, *self._advance(seconds))

    def measure(self, case: Case, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """The table's seconds for this GPU, with drift and noise."""
        start, end = self._advance(seconds)
        ran = self._ran(variant)
        if self._hits(variant, "gemm_failed") and isinstance(case, GemmCase) and case.pass_ == "fprop":
            return Failure(reason="cuda_error", message=f"replayed: {FAULTS['gemm_failed']}")
        factor = self._slowness * (1 + self._drift) * math.exp(tables.SAMPLE_NOISE * self._noise.gauss())
        if isinstance(case, GemmCase):
            ideal = self._published.seconds(case, case.recipe_of(ran))
            if ideal is None:
                return Failure(reason="not_published", message=f"no figure of {variant.recipe} to replay")
            return protocol.Sample(ideal * factor, max(1, int(seconds / ideal)), start, end)
        if ran != BF16 and (self._request.attention_core or self._request.primary_weights):
            message = "no step with attention in FP8 or low-precision primary weights to replay"
            return Failure(reason="not_published", message=message)
        self._log(start, end, variant)
        if ran.recipe not in self._split:
            self._split[ran.recipe] = regions_of(self._published, self._request, ran)
        regions = {name: value * factor for name, value in self._split[ran.recipe].items()}
        step = sum(value for name, value in regions.items() if name != "optimizer")
        measured = min(tables.MEASURED_LAYERS, case.layers)
        return protocol.Sample(step, max(1, int(seconds / step)), start, end, regions, measured)

    def power_window(
        self,
        variant: Variant,
        part: protocol.Part,
        seconds: float,
        longest_pause_seconds: float,
        seed: int,
        calls: int = 1,
    ) -> protocol.Sample | Failure:
        """A share of the power limit, whatever the part, without pauses; a slow GPU draws as much as a quick one."""
        recipe = self._ran(variant).recipe
        assert recipe in self._split, "power windows come after a timed step"
        start, end = self._advance(seconds)
        self._log(start, end, variant)
        period = protocol.parts_of(self._split[recipe])[part] * self._slowness
        return protocol.Sample(period, max(1, int(seconds / period)), start, end)

    def second_depth(self, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        """None: at any depth it would be the same arithmetic again."""
        return NOT_REPLAYED

    def own_gemm_calls(
        self, variant: Variant, lead_seconds: float, seconds: float, repeats: int
    ) -> tuple[Mapping[protocol.GemmName, float], ...] | Failure:
        """None: no kernel-only time is made of shares here."""
        return NOT_REPLAYED

    def profile(
        self, variant: Variant, load: protocol.Load, lead_seconds: float, trace: Path | None = None
    ) -> protocol.Profile | Failure:
        """None: no kernel runs."""
        return NOT_REPLAYED

    def inspect(self, variant: Variant) -> protocol.Inspection:
        """Nothing to look into."""
        return protocol.Inspection()

    def loss_run(self, variant: Variant, plan: protocol.LossPlan) -> protocol.LossTrack | Failure:
        """A fall towards the tokens' entropy; with the fault `diverged` the narrowest recipe turns round."""
        model = resolve(self._request.workload).model
        if model is None or not model.vocab_size:
            return Failure(reason="no_vocabulary", message="without a vocabulary there is no loss")
        floor, top = source(model.vocab_size, plan.seed).entropy, math.log(model.vocab_size)
        chance = Random(f"loss/{plan.seed}/{variant.recipe}/{self.options.seed}")
        wild = self._hits(variant, "diverged") or plan.learning_rate_factor > 30
        turns = plan.steps // 2
        loss = [
            floor + (top - floor) * math.exp(-3.0 * step / plan.steps) + 0.01 * chance.gauss()
            + (0.3 * (step - turns) if wild and step > turns else 0.0)
            for step in range(plan.steps)
        ]  # fmt: skip
        return protocol.LossTrack(tuple(loss), tuple(1 + 0.1 * abs(chance.gauss()) for _ in loss))

    def memory(self, variant: Variant) -> Memory:
        """What the formula says of the short model."""
        workload = resolve(self._request.workload)
        if workload.model is None:
            return Memory()
        layers = min(tables.MEASURED_LAYERS, workload.model.num_hidden_layers)
        part = ModelPart(layers, head=bool(workload.model.vocab_size), embedding=False)
        short = short_memory(workload, variant.parts, part, FP32_GRADIENT_BYTES)
        return Memory(
            allocated_peak_bytes=short.peak,
            reserved_peak_bytes=int(short.peak * 1.05),
            state_bytes=short.state,
            activation_bytes=short.activations,
            gradient_bytes=FP32_GRADIENT_BYTES,
        )

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        """The same published figures: they were made by that method."""
        ideal = self._published.seconds(case, recipe)
        return ideal if ideal is not None else Failure(reason="not_published")

    def _ran(self, variant: Variant) -> Variant:
        return BF16 if self._hits(variant, "silent_fallback") else variant

    def _hits(self, variant: Variant, fault: str) -> bool:
        return self.options.fault == fault and variant.recipe == self._faulty

    def _log(self, start: float, end: float, variant: Variant) -> None:
        if variant.recipe not in self._power_shares:
            self._power_shares[variant.recipe] = power_share_of(self._published, self._request, variant)
        share = self._power_shares[variant.recipe]
        self.power_intervals.append(PowerInterval(start, end, self.part.power_limit_watts * share * self._power_factor))

    def _advance(self, seconds: float) -> tuple[float, float]:
        """An Ornstein-Uhlenbeck drift of the given size and memory; the window on the replay's clock."""
        keep = math.exp(-seconds / tables.DRIFT_MEMORY_SECONDS)
        self._drift = self._drift * keep + tables.DRIFT * math.sqrt(1 - keep * keep) * self._noise.gauss()
        start, self.now = self.now, self.now + seconds
        if self.options.pace and self.index == 0:  # GPUs measure side by side: one of them waits for all
            time.sleep(seconds * self.options.pace)
        return start, self.now


def power_share_of(published: Published, request: MeasurementRequest, variant: Variant) -> float:
    """Of the power limit, by the recipe's format; of a mixture the mean of its layers' GEMMs by their seconds."""
    if variant.recipe in RECIPE_NAMES:
        return tables.POWER_SHARE[RECIPES[variant.recipe].format]
    cases = cases_of(request.model_copy(update={"gemm_modes": ("autocast",)}), resolve(request.workload))
    recipes = [(gemm, gemm.recipe_of(variant)) for gemm in cases.gemms if gemm.quantized and gemm.name != HEAD]
    times = [(gemm.count * (published.seconds(gemm, recipe) or 0.0), recipe) for gemm, recipe in recipes]
    drawn = math.fsum(seconds * tables.POWER_SHARE[RECIPES[recipe].format] for seconds, recipe in times)
    return drawn / math.fsum(seconds for seconds, _ in times)


def regions_of(published: Published, request: MeasurementRequest, variant: Variant) -> dict[protocol.RegionName, float]:
    """Seconds of the regions of a short step: its GEMMs as they are replayed, and a rest that is every recipe's.

    So two recipes' steps never differ by more than their GEMMs do.
    """
    workload = resolve(request.workload)
    cases = cases_of(request.model_copy(update={"gemm_modes": ("autocast",)}), workload)
    model, asked = workload.model, workload.workload
    assert model is not None
    assert cases.training is not None, "bare shapes have no step"
    depth = depth_of(workload, min(tables.MEASURED_LAYERS, model.num_hidden_layers))
    layers = [gemm for gemm in cases.gemms if gemm.name != HEAD]

    def seconds(gemms: Iterable[GemmCase], recipe: Recipe | None = None) -> float:
        times = [(gemm.count, published.seconds(gemm, recipe or gemm.recipe_of(variant))) for gemm in gemms]
        assert all(call for _, call in times), "a probe refuses what has no figure"
        return math.fsum(count * (call or 0.0) for count, call in times)

    unquantized, share = seconds(layers, UNQUANTIZED), depth.measured / depth.layers
    attention = next(part for part in flop_shares(model, asked.sequence_length or 1) if part.name == ATTENTION)
    flops = attention.flops_per_token * cases.training.tokens / asked.tensor_parallel
    attending = tables.ATTENTION_SHARE * flops / sum(gemm.count * gemm.flops for gemm in layers)
    rest = unquantized * (attending + tables.OTHER_SHARE)
    forward = seconds(gemm for gemm in layers if gemm.pass_ == "fprop") + tables.FORWARD_SHARE * rest
    regions: dict[protocol.RegionName, float] = {"layers_forward": share * forward}
    if len(layers) < len(cases.gemms):
        regions["head"] = seconds(gemm for gemm in cases.gemms if gemm.name == HEAD)
    regions["layers_backward"] = share * (seconds(layers) + rest - forward)
    regions["optimizer"] = unquantized * tables.OPTIMIZER_SHARE * depth.gradient_accumulation / depth.optimizer_scale
    return regions
