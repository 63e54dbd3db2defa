"""Kernels out of a profiler's trace (Chrome's format, as torch.profiler writes it), each with where it was launched.

Pure. A kernel runs later than it was launched: it belongs to the ranges that were open on the CPU when its launch was
called, found by the correlation id that both carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from precision_agent.precision.kernels import classify
from precision_agent.protocol import ProfiledKernel

TracedPass = Literal["forward", "backward", "other"]
PREFIX = "pp"
GPU_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
US = 1e-6
OF_A_GEMM = frozenset({"splitk-reduction", "cublaslt-epilogue"})
"""Rules for kernels that multiply nothing but end a library's GEMM: a call of it isn't over before them."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a kernel: seconds, start and end on the GPU's clock, and the ranges around its launch."""

    name: str
    start: float
    end: float
    pass_: TracedPass = "other"
    module: str = ""
    region: str = ""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Range:
    start: float
    end: float
    pass_: str
    module: str
    region: str


def range_name(pass_: str = "", module: str = "", region: str = "") -> str:
    """The name of a range in the trace; what is empty is taken from the range around it."""
    return f"{PREFIX}:{pass_}:{module}:{region}"


def launches(trace: Mapping[str, Any]) -> tuple[Launch, ...]:
    """All GPU work of the trace, in the order of its start."""
    events = [event for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    called = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    told = [_range(event) for event in events]
    ranges = sorted((one for one in told if one), key=lambda range_: range_.start)
    work = [event for event in events if event.get("cat") in GPU_WORK]
    found = [_launch(event, called.get(event.get("args", {}).get("correlation")), ranges) for event in work]
    return tuple(sorted(found, key=lambda launch: launch.start))


def busy(found: Iterable[Launch]) -> float | None:
    """Share of the time from the first start to the last end in which something ran (0 to 1); None without work."""
    spans = sorted((launch.start, launch.end) for launch in found)
    if not spans or spans[-1][1] <= spans[0][0]:
        return None
    covered, until = 0.0, spans[0][0]
    for start, end in spans:
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return min(1.0, covered / (until - spans[0][0]))


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds of the kernels of one region by what they do."""

    gemm: float
    other: float

    @property
    def gemm_share(self) -> float | None:
        """The GEMMs' part of the region's kernels; None without kernels."""
        whole = self.gemm + self.other
        return self.gemm / whole if whole > 0 else None


def shares(found: Iterable[Launch], region: str) -> Shares:
    """Kernel seconds of a region. What no rule knows counts as a GEMM: kernel-only time is never told too small."""
    gemm = other = 0.0
    for launch in found:
        if launch.region != region:
            continue
        read = classify(launch.name)
        if read.kernel_class == "not_a_gemm" and read.rule not in OF_A_GEMM:
            other += launch.seconds
        else:
            gemm += launch.seconds
    return Shares(gemm, other)


def kernels(found: Iterable[Launch], steps: int) -> tuple[ProfiledKernel, ...]:
    """Launches added up by name, pass and module, as seconds of one of `steps` steps, the longest first."""
    seconds: dict[tuple[str, TracedPass, str], float] = {}
    for launch in found:
        key = (launch.name, launch.pass_, launch.module)
        seconds[key] = seconds.get(key, 0.0) + launch.seconds / steps
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    return tuple(ProfiledKernel(name, spent, pass_, module) for (name, pass_, module), spent in rows)


def _range(event: Mapping[str, Any]) -> _Range | None:
    parts = str(event.get("name", "")).split(":")
    if event.get("cat") not in ("user_annotation", "cpu_op") or len(parts) != 4 or parts[0] != PREFIX:
        return None
    start = float(event["ts"])
    return _Range(start, start + float(event.get("dur", 0.0)), *parts[1:])


def _launch(event: Mapping[str, Any], called: float | None, ranges: list[_Range]) -> Launch:
    start = float(event["ts"]) * US
    end = start + float(event.get("dur", 0.0)) * US
    pass_ = module = region = ""
    if called is not None:
        for open_ in ranges:  # in the order of their starts: an inner one overrules what is around it
            if open_.start <= called <= open_.end:
                pass_, module, region = open_.pass_ or pass_, open_.module or module, open_.region or region
    known: TracedPass = "forward" if pass_ == "forward" else "backward" if pass_ == "backward" else "other"
    return Launch(str(event.get("name", "")), start, end, known, module, region)
