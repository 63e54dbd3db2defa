"""Did the claimed precision run? From the share of GEMM time that kernel names give, and from the error against FP32.

Pure. All tolerances of both stand here, each with its reason. Doubt is `unknown` or `partial`, never a pass. A trace of
somebody's own is judged by the same words and rules: a name that no rule understands stays in the GEMMs' time and
proves nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from precision_agent.precision.kernel_grammars import KernelClass
from precision_agent.precision.kernels import Classified, classify, emulation_seen
from precision_agent.precision.occupancy import Span, divided
from precision_api.exchange.request import AttentionCore
from precision_api.exchange.result import Verdict, Verification
from precision_api.facts.recipes import RECIPES, Recipe

FULL_SHARE = 0.99
"""Share of GEMM time from which a recipe counts as run in full. To be calibrated on a GPU: a stray small kernel (a
router, an unknown name of some microseconds) must not turn a run into `partial`, one pass of one layer in 32 must."""

NAMES_TOLD = 5

EXPECTED_CLASS: Mapping[Recipe, KernelClass] = {recipe: row.kernels for recipe, row in RECIPES.items()}
EMULATED_THROUGH: Mapping[Recipe, KernelClass] = {"fp8_block": "mxfp8"}
"""On Blackwell, Transformer Engine turns FP8 block scales into MXFP8's and runs MXFP8's kernels."""


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """Relative error ||found - exact|| / ||exact|| that a recipe's product of normal data may have, bounds included."""

    low: float
    high: float


_BANDS = {"bf16": ErrorBand(2e-4, 1e-2), "fp8": ErrorBand(1e-2, 8.5e-2), "fp4": ErrorBand(9e-2, 3e-1)}
ERROR_BANDS: Mapping[Recipe, ErrorBand] = {recipe: _BANDS[row.format] for recipe, row in RECIPES.items()}
"""By the recipe's number format. Bands for normal data, the same for y, dx and dW. The reference quantizers in plain
torch give 0.0017 for bf16 (the result's rounding to 8 bits), 0.037 for two E4M3 operands, 0.059 with an E5M2 gradient,
0.15 for two NVFP4 operands, 0.17 with stochastic rounding; they hardly depend on the shape. On a GB200 somebody
measured 0.037 for MXFP8 and 0.043 for per-tensor FP8 (marin-community/marin issue 7282). The bands lie around that and
don't overlap: an error below a band means that a more exact format ran, one above it a wrong product. bf16's reaches
far down because FP32 results of bf16 operands are as good, and up for accumulation in another order."""


def numeric_verdict(recipe: Recipe, error: float) -> Literal["within", "too_exact", "too_large"]:
    """How a relative error against FP32 fits the claimed recipe; anything that is no number is `too_large`."""
    band = ERROR_BANDS[recipe]
    if not isfinite(error) or error > band.high:
        return "too_large"
    return "too_exact" if error < band.low else "within"


def verdict(
    claimed: Recipe,
    shares: Mapping[KernelClass, float],
    emulated: bool = False,
    errors: Iterable[float] = (),
    full_share: float = FULL_SHARE,
    unknown: Iterable[str] = (),
) -> Verification:
    """The verdict on one recipe's GEMMs, from `shares` of their time by class and, where measured, numerical errors.

    `emulated`: a kernel of the emulation was seen. Errors only ever lower a verdict: names are the stronger proof of
    what ran, but a product more exact than its format can be, or wrong, is no pass whatever the names say.
    `full_share`: from which share of the GEMMs' time on the recipe counts as run in full. `unknown`: names that no rule
    knows, the longest first; the message has them.
    """
    by_names = _by_names(claimed, shares, emulated, full_share)
    names = ", ".join(name[:80] for name in list(dict.fromkeys(unknown))[:NAMES_TOLD])
    if names:
        by_names = _told(by_names.verdict, by_names.share, f"{by_names.message}; unknown kernels: {names}")
    fits = {numeric_verdict(claimed, error) for error in errors}
    if by_names.verdict not in ("verified", "emulated", "partial") or fits <= {"within"}:
        return by_names
    if "too_large" in fits:
        return _told("unknown", by_names.share, f"{by_names.message}; but errors are above {claimed}'s band")
    if by_names.verdict == "partial":
        return by_names  # a part in higher precision explains errors below the band
    return _told(
        "fallback", by_names.share, f"{by_names.message}; but errors are below {claimed}'s band: too exact for it"
    )


def _by_names(claimed: Recipe, shares: Mapping[KernelClass, float], emulated: bool, full_share: float) -> Verification:
    message = ", ".join(f"{name} {share:.1%}" for name, share in sorted(shares.items(), key=lambda row: -row[1]))
    if not shares:
        return _told("unknown", None, "no GEMM kernel was seen")
    summary = f"GEMM time by kernel class: {message}"
    share = shares.get(EXPECTED_CLASS[claimed], 0.0)
    through = EMULATED_THROUGH.get(claimed)
    if share >= full_share:
        return _told("verified", share, summary)
    if emulated and through and share + shares.get(through, 0.0) >= full_share:
        return _told("emulated", share + shares[through], f"{summary}; {claimed} runs through {through}'s kernels")
    if share > 1 - FULL_SHARE:
        return _told("partial", share, summary)
    if shares.get("unknown", 0.0) > 1 - FULL_SHARE:
        return _told("unknown", share, f"{summary}; what the unknown kernels computed is unknown")
    return _told("fallback", share, summary)


_CORES: Mapping[str, KernelClass] = {"f16": "bf16", "f8": "fp8", "mxfp8": "mxfp8"}
"""What cuDNN's fused attention multiplies in, by the word in its kernels' names: f16 and f8 as an H100 showed them with
Transformer Engine 2.20.2 and cuDNN 9.14, mxfp8 as a public trace of GB300 has it."""
_CORE_NAME = re.compile(r"sdpa_sm\d+_flash_(?P<pass>[fb]prop)_(?:wgmma_)?(?P<word>[a-z0-9]+)_")


_OTHER_CORE = re.compile(r"flash_?(?:attn|attention|fwd|bwd)|\bflash::|fmha")
"""Attention that is not cuDNN's: nothing in the name tells in which format it multiplies."""
IN_FP8 = "FusedAttention (sub-backend 2)"
"""Transformer Engine's name of cuDNN's FP8 attention (NVTE_FP8 of fused_attn.h, 2.8 to 2.20)."""


def core_verdict(core: AttentionCore, names: Sequence[str], backend: str | None) -> Verification:
    """The verdict on attention's core by the names of its kernels, forward and backward, which must all be of its
    format, and by the `backend` that Transformer Engine chose for the step: what is not in FP8 there is a fallback."""
    fused = {name: match for name in names if (match := _CORE_NAME.search(name.lower()))}
    apart = {name for name in names if classify(name).kernel_class not in ("not_a_gemm", "unknown")}
    if not fused:
        if apart:
            return _told("fallback", 0.0, "attention ran unfused, which multiplies in BF16")
        return _told("unknown", None, "no kernel of cuDNN's attention was seen")
    message = f"{backend or 'unknown backend'}, cuDNN's kernels: {', '.join(name[:80] for name in fused)}"
    kinds = {_CORES.get(match["word"], "unknown") for match in fused.values()}
    if others := apart | {name for name in names if name not in fused and _OTHER_CORE.search(name.lower())}:
        kinds |= {"unknown"}
        message += f"; beside them {', '.join(name[:80] for name in sorted(others))}"
    if "bf16" in kinds or backend not in (IN_FP8, None):
        return _told("fallback", None, message)
    both = len({match["pass"] for match in fused.values()}) == 2
    proved = kinds == {EXPECTED_CLASS[core]} and both and backend is not None
    return _told("verified" if proved else "unknown", 1.0 if proved else None, message)


def _told(name: Verdict, share: float | None, message: str) -> Verification:
    return Verification(verdict=name, share=share, message=message[:1024])


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A kernel by its name, how often it ran, and its seconds: a moment that n GEMMs share is 1/n of it for each."""

    kernel: Classified
    launches: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TraceShares:
    """What the kernels of a trace come to. `gemm_seconds` is the union over each GPU's streams, all GPUs added.

    `gpus` and `streams`: those that GEMMs ran on. `gemms`: the names that are GEMMs or may be, the longest first.
    `other_launches`: of kernels that surely multiply no weights, which are not timed.
    """

    gpus: int
    streams: int
    gemms: tuple[NamedTime, ...]
    other_launches: int
    emulated: bool

    @property
    def gemm_seconds(self) -> float:
        """Time in which a GEMM ran."""
        return sum(row.seconds for row in self.gemms)

    @property
    def shares(self) -> dict[KernelClass, float]:
        """Share of the GEMMs' time by class, the largest first; empty without any."""
        seconds: dict[KernelClass, float] = {}
        for row in self.gemms:
            name = row.kernel.kernel_class
            seconds[name] = seconds.get(name, 0.0) + row.seconds
        whole = self.gemm_seconds
        ordered = sorted(seconds.items(), key=lambda row: -row[1])
        return {name: spent / whole for name, spent in ordered} if whole > 0 else {}

    @property
    def unknown(self) -> tuple[NamedTime, ...]:
        """Names that no rule understands, the longest first."""
        return tuple(row for row in self.gemms if row.kernel.kernel_class == "unknown")


@dataclass(slots=True)
class Tally:
    """Kernels one by one to `TraceShares`. Keeps two numbers and a name for each GEMM, of the rest only the names."""

    gemms: int = 0
    _names: dict[str, Classified] = field(default_factory=dict)
    _launches: Counter[str] = field(default_factory=Counter)
    _spans: dict[str, list[tuple[Span, str]]] = field(default_factory=dict)
    _streams: set[tuple[str, str]] = field(default_factory=set)

    @property
    def names(self) -> int:
        """How many different names came."""
        return len(self._names)

    def add(self, name: str, start: float, seconds: float, gpu: str, stream: str) -> None:
        """One run of a kernel: start and seconds on the clock of its GPU."""
        if name not in self._names:
            self._names[name] = classify(name)
        self._launches[name] += 1
        if self._names[name].kernel_class != "not_a_gemm":
            self.gemms += 1
            self._streams.add((gpu, stream))
            self._spans.setdefault(gpu, []).append(((start, start + seconds), name))

    def shares(self) -> TraceShares:
        """What came so far."""
        seconds = dict.fromkeys(self._names, 0.0)
        for launched in self._spans.values():
            for (_, name), spent in zip(launched, divided([span for span, _ in launched]), strict=True):
                seconds[name] += spent
        rows = [NamedTime(read, self._launches[name], seconds[name]) for name, read in self._names.items()]
        gemms = sorted((row for row in rows if row.kernel.kernel_class != "not_a_gemm"), key=lambda row: -row.seconds)
        return TraceShares(
            gpus=len({gpu for gpu, _ in self._streams}),
            streams=len(self._streams),
            gemms=tuple(gemms),
            other_launches=self._launches.total() - self.gemms,
            emulated=emulation_seen(self._names),
        )


CLAIMS: Mapping[str, Recipe] = {"fp8": "fp8_current", **{recipe: recipe for recipe in EXPECTED_CLASS}}
"""What can be claimed: a recipe, or `fp8` where it is not known which. Delayed and current scaling run the same GEMM
kernels, and so do NVFP4 with and without Hadamard transforms: names can't tell them apart."""


def claim_verdict(claimed: str, trace: TraceShares, least_share: float = FULL_SHARE) -> Verification:
    """The verdict on a claim of the table; `least_share` of the GEMMs' time must prove it."""
    unknown = [row.kernel.name for row in trace.unknown]
    verification = verdict(CLAIMS[claimed], trace.shares, trace.emulated, (), least_share, unknown)
    doubt = trace.shares.get("unknown", 0.0)
    if verification.verdict in ("verified", "emulated") or not doubt or verification.share is None:
        return verification
    more = f"; {verification.share + doubt:.1%} if all unknown kernels were {claimed}'s, which nothing shows"
    return verification.model_copy(update={"message": f"{verification.message}{more}"[:1024]})
