"""What a profiled step and a look inside say of a variant: verdict, quantisation tax, was the CPU too slow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from precision_agent.precision.kernels import classify, emulation_seen, share_by_class
from precision_agent.precision.verification import verdict
from precision_agent.protocol import Inspection, Probe, Profile, ProfiledKernel
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import KernelSeen, Verification
from precision_api.facts.recipes import RECIPES, Recipe

KERNELS_TOLD = 24
CPU_BOUND = 0.95
"""docs/development/method.md, "Evidence": where kernels ran in less of the timed step than this, what sets its pace is
what launches them, or the gaps between them."""
CORE = "core_attention"
"""The module whose products of queries, keys and values stay in BF16 in every recipe, as the head does."""
ROUTER = "router"
"""The module that chooses experts: its scores are FP32 in every recipe."""
UNQUANTIZED_MODULES = frozenset({"head", CORE, ROUTER})


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many times the full model has the layers that were profiled; `dense`: of dense ones beside others.

    `forwards`: how often a step runs their forward pass, of which the profiled one ran a single one.
    """

    layers: float = 1.0
    dense: float = 1.0
    forwards: int = 1

    def of(self, kernel: ProfiledKernel) -> float:
        """How often a step has the kernel; the head is there once."""
        if kernel.module == "head":
            return 1.0
        return (self.dense if kernel.dense else self.layers) * (self.forwards if kernel.pass_ == "forward" else 1)


ONCE = Repeats()
Seen = tuple[Profile, Repeats]
"""A profile, and how often the full model's step has what it saw."""


@dataclass(frozen=True, slots=True)
class Tax:
    """What a recipe spends on casts, as a share of that and the GEMMs; `most`: if what no rule knows casts too."""

    least: float
    most: float


def quantization_tax(recipe: Recipe, seen: Seen, baseline: Seen) -> Tax | None:
    """Time of kernels that are no GEMMs beyond the baseline's, as a share of it and the GEMMs; None without GEMMs and
    for bf16.

    By difference: names tell nothing of a kernel that casts and does something else too, nor of one that only could.
    Head, attention's core and router, BF16 or FP32 in every recipe, add nothing but noise.
    """
    if RECIPES[recipe].format == "bf16":
        return None
    placed = not seen[0].unplaced and not baseline[0].unplaced
    gemms, other, unknown = _seconds(*seen, placed)
    _, plain, unknown_there = _seconds(*baseline, placed)
    tax, unsplit = max(0.0, other - plain), max(0.0, unknown - unknown_there)
    return Tax(tax / (gemms + tax), (tax + unsplit) / (gemms + tax)) if gemms > 0 else None


def _seconds(profile: Profile, repeats: Repeats, placed: bool) -> tuple[float, float, float]:
    """Of the full step: GEMMs, what no rule knows among them; the layers' other kernels; what no rule knows."""
    gemms = other = unknown = 0.0
    for kernel in profile.kernels:
        kind, spent = classify(kernel.name).kernel_class, kernel.seconds * repeats.of(kernel)
        if placed and kernel.module in (CORE, ROUTER):
            continue
        if kind != "not_a_gemm":
            gemms += spent
            unknown += spent if kind == "unknown" else 0.0
        elif kernel.module != "head":
            other += spent
    return gemms, other, unknown


UNFUSED = (
    "attention is not fused: its products of queries, keys and values run apart, in BF16 in every recipe; "
    "with cuDNN's or flash-attn's attention the step is shorter and a recipe's gain larger"
)


def unfused_attention(profile: Profile) -> bool:
    """Whether attention's core ran as products of its own; False where it is fused, or not seen apart."""
    core = [classify(kernel.name).kernel_class for kernel in profile.kernels if kernel.module == CORE]
    return "unknown" not in core and any(kind != "not_a_gemm" for kind in core)


def verification_of(
    recipe: Recipe,
    request: MeasurementRequest,
    probe: Probe,
    profile: Profile | None,
    inside: Inspection,
) -> Verification:
    """The verdict on the recipe with all its evidence; without a profiled step the probe's, never `verified`."""
    verification = _by_kernels(recipe, request, profile, inside) if profile else _by_probe(probe.verification)
    return verification.model_copy(
        update={
            "kernels": _told(profile.kernels) if profile else verification.kernels,
            "flags": dict(inside.flags) or verification.flags,
            "errors": inside.errors or verification.errors,
            "saved_bytes_ratio": inside.saved_bytes_ratio or verification.saved_bytes_ratio,
        }
    )


def _by_probe(verification: Verification) -> Verification:
    """A tiny probe may get other kernels than the model's shapes do: it verifies nothing."""
    if verification.verdict != "verified":
        return verification
    return verification.model_copy(update={"verdict": "unknown", "message": "no measured step was profiled"})


def _by_kernels(recipe: Recipe, request: MeasurementRequest, profile: Profile, inside: Inspection) -> Verification:
    """From the kernels of the modules that the recipe claims: never head and attention's core, nor what scope keeps."""
    scoped = request.recipe_scope == "mlp" and recipe != request.baseline
    kept = UNQUANTIZED_MODULES | ({"attention"} if scoped else set())
    claimed = [kernel for kernel in profile.kernels if kernel.module not in kept]
    names = [kernel.name for kernel in profile.kernels]
    errors = [error for error in (inside.errors.model_dump().values() if inside.errors else ()) if error is not None]
    shares = share_by_class((kernel.name, kernel.seconds) for kernel in claimed)
    longest = sorted(claimed, key=lambda kernel: -kernel.seconds)
    unknown = [kernel.name for kernel in longest if classify(kernel.name).kernel_class == "unknown"]
    verification = verdict(recipe, shares, emulation_seen(names), errors, unknown=unknown)
    if profile.unplaced and verification.verdict in ("partial", "fallback"):
        message = f"{verification.message}; which of it is the head's or attention's is unknown: {profile.unplaced}"
        return verification.model_copy(update={"verdict": "unknown", "message": message[:1024]})
    return verification


def _told(kernels: Sequence[ProfiledKernel]) -> tuple[KernelSeen, ...]:
    """The longest kernels, equal names together, with the rule that classed each."""
    seconds: dict[str, float] = {}
    for kernel in kernels:
        seconds[kernel.name] = seconds.get(kernel.name, 0.0) + kernel.seconds
    longest = sorted(seconds, key=lambda name: -seconds[name])[:KERNELS_TOLD]
    read = {name: classify(name) for name in longest}
    return tuple(
        KernelSeen(name=name[:1024], class_=read[name].kernel_class, rule=read[name].rule, seconds=seconds[name])
        for name in longest
    )
