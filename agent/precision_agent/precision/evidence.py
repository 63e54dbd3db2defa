"""What a profiled step and a look inside say of a variant: verdict, quantisation tax, was the CPU too slow. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from precision_agent.cases import UNQUANTIZED, Variant
from precision_agent.precision.kernels import classify, emulation_seen, share_by_class
from precision_agent.precision.verification import core_verdict, verdict
from precision_agent.protocol import Inspection, Probe, Profile, ProfiledKernel
from precision_api.exchange.request import AttentionCore
from precision_api.exchange.result import KernelSeen, Verdict, Verification
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPES, PlainRecipe, Recipe

KERNELS_TOLD = 24
CPU_BOUND = 0.95
"""Where kernels ran in less of the timed step, what launches them or the gaps between them set its pace."""
CORE = "core_attention"
"""The module whose products of queries, keys and values stay in BF16 in every recipe, as the head does."""
ROUTER = "router"
"""The module that chooses experts: its scores are FP32 in every recipe."""


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
    """What a recipe spends on casts, as a share of that and the GEMMs: between the two, where they differ."""

    least: float
    most: float


def quantization_tax(recipe: Recipe, seen: Seen, baseline: Seen, head: bool = False) -> Tax | None:
    """Time of kernels that are no GEMMs beyond the baseline's, as a share of it and the GEMMs; None without GEMMs and
    for bf16.

    By difference, for each pass and module: names tell nothing of a kernel that casts and does something else too, nor
    of one that only could. What no rule knows may be a GEMM, a cast or neither, but where the baseline has it too; and
    a kernel that is faster than the baseline's, or that it alone has, may hide casts: both make it a bound.
    Attention's core and router, BF16 or FP32 in every recipe, add nothing but noise; nor does the head, but where a
    mixture quantises it (`head`).
    """
    if RECIPES[recipe].format == "bf16":
        return None
    placed = not seen[0].unplaced and not baseline[0].unplaced
    gemms, mine = _seconds(*seen, placed, head)
    _, plain = _seconds(*baseline, placed, head)
    beyond = {work: mine[work] - plain[work] for work in mine | plain}
    least = max(0.0, sum(min(0.0, more) if unknown else more for (unknown, *_), more in beyond.items()))
    most = sum(max(0.0, more) for more in beyond.values())
    whole = gemms + sum(spent for (unknown, *_), spent in mine.items() if unknown)
    return Tax(least / (whole + least), most / ((gemms + most) or 1.0)) if whole > 0 else None


_Work = tuple[bool, str, str, str, bool]
"""Whether it is unknown what kernels do, what they do, and where: pass, module, a dense layer beside others."""
_FUSED = re.compile(r"(?P<norm>norm|\bln_(?:fwd|bwd))|(?P<activation>gated|glu|[gsr]elu|silu)", re.IGNORECASE)
"""What recipes fuse with casts, by other kernels than the baseline has."""


def _seconds(profile: Profile, repeats: Repeats, placed: bool, head: bool) -> tuple[float, defaultdict[_Work, float]]:
    """Of the full step: GEMMs; the layers' other kernels (and the `head`'s), norms and activations together, the others
    by name."""
    gemms, others = 0.0, defaultdict[_Work, float](float)
    for kernel in profile.kernels:
        read, spent = classify(kernel.name), kernel.seconds * repeats.of(kernel)
        unknown, fused = read.kernel_class == "unknown", _FUSED.search(kernel.name)
        if placed and kernel.module in (CORE, ROUTER):
            continue
        if (head or kernel.module != "head") and (unknown or not read.of_a_gemm):
            place = (kernel.pass_, kernel.module.removesuffix("_out"), kernel.dense) if placed else ("", "", False)
            others[unknown, str(fused.lastgroup) if fused and not unknown else kernel.name, *place] += spent
        elif read.of_a_gemm:
            gemms += spent
    return gemms, others


UNFUSED = (
    "attention is not fused: its products of queries, keys and values run apart, in BF16 in every recipe; "
    "with cuDNN's or flash-attn's attention the step is shorter and a recipe's gain larger"
)


def unfused_attention(profile: Profile) -> bool:
    """Whether attention's core ran as products of its own; False where it is fused, or not seen apart."""
    core = [classify(kernel.name).kernel_class for kernel in profile.kernels if kernel.module == CORE]
    return "unknown" not in core and any(kind != "not_a_gemm" for kind in core)


def verification_of(
    variant: Variant, core: AttentionCore | None, probe: Probe, profile: Profile | None, inside: Inspection
) -> Verification:
    """The verdict on the recipe with all its evidence; without a profiled step the probe's, never `verified`."""
    verification = _by_kernels(variant, core, profile, inside) if profile else probe.verification
    if not profile and verification.verdict == "verified":  # a tiny probe may get other kernels than the model's shapes
        verification = Verification(verdict="unknown", message="no measured step was profiled")
    return verification.model_copy(
        update={
            "kernels": _told(profile.kernels) if profile else verification.kernels,
            "flags": dict(inside.flags) or verification.flags,
            "errors": inside.errors or verification.errors,
            "message": "; ".join(filter(None, (verification.message, *_kept_wide(inside))))[:1024],
            "saved": inside.saved[:16],
            "attention": inside.attention,
        }
    )


MOST_KEPT = 1.1
"""Of the format's bytes: scales that are padded, and a norm's factors, are within."""


def _kept_wide(inside: Inspection) -> Iterator[str]:
    """Modules that keep more for the backward pass than their format has, which no kernel's name shows."""
    for row in inside.saved:
        if row.kept > MOST_KEPT * row.format:
            yield f"{row.module} ({row.kind}) keeps {row.kept:.2f} bytes an element for backward, not {row.format:.2f}"


_DOUBT: tuple[Verdict, ...] = ("fallback", "unknown", "partial", "emulated", "verified")
"""The verdict on a mixture is the first of these that one of its parts has."""


def _by_kernels(variant: Variant, core: AttentionCore | None, profile: Profile, inside: Inspection) -> Verification:
    """From the kernels of what the recipe claims: of the layers together, or of a mixture of each part and the head,
    those in BF16 too, with what no kernel shows: a quantised head, a recipe of the layers. Never of the router."""
    parts, claimed = variant.parts, dict[str, list[ProfiledKernel]]()
    recipes: Mapping[str, PlainRecipe] = {"mlp": parts.mlp} if parts == Parts.of(parts.mlp) else asdict(parts)
    for kernel in profile.kernels:
        if kernel.module not in (CORE, ROUTER) and (kernel.module != "head" or "head" in recipes):
            claimed.setdefault(kernel.module if kernel.module in recipes else "mlp", []).append(kernel)
    judged: list[tuple[str, Verification]] = []
    shown = {recipes[part] for part in claimed if part != "head"}
    for part, recipe in recipes.items():
        is_missing = recipe != UNQUANTIZED if part == "head" else recipe not in shown
        if part in claimed or is_missing:
            made = _claim(recipe, profile, inside if part == "mlp" else Inspection(), claimed.get(part, ()))
            judged.append((f"{part} {recipe}", made))
    if core and parts.recipes != (UNQUANTIZED,):
        mine = [kernel.name for kernel in profile.kernels if kernel.module == CORE]
        judged.append((f"attention core {core}", core_verdict(core, mine, inside.attention)))
    worst = min((verification for _, verification in judged), key=lambda made: _DOUBT.index(made.verdict))
    if len(judged) == 1:
        return worst
    words = "; ".join(f"{name}: {made.verdict}, {made.message}" for name, made in judged)
    return worst.model_copy(update={"message": words[:1024]})


def _claim(
    recipe: PlainRecipe, profile: Profile, inside: Inspection, claimed: Sequence[ProfiledKernel]
) -> Verification:
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
