"""In which precision the GEMMs of a trace ran, and whether that is what somebody claims. Pure.

The words and rules are the verification's: a name that no rule understands stays in the GEMMs' time and proves nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from precision_agent.precision.kernels import Classified, KernelClass, classify, emulation_seen
from precision_agent.precision.occupancy import Span, divided
from precision_agent.precision.verification import EXPECTED_CLASS, FULL_SHARE, verdict
from precision_api.exchange.result import Verification
from precision_api.facts.recipes import Recipe


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
