"""Kernels out of a profiler's trace (Chrome's format, as torch.profiler writes it), each with where it was launched.

Pure. A kernel runs later than it was launched: it belongs to the ranges that were open on the CPU when its launch was
called, found by the correlation id that both carry.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

from precision_agent.precision.kernels import classify
from precision_agent.precision.occupancy import Span, divided, union
from precision_agent.protocol import KernelSeconds, ProfiledKernel, TracedPass

PREFIX = "pp"
GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "cuGraphLaunch"})
US = 1e-6


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a kernel: start and end (seconds on the GPU's clock), its stream, and the ranges around its launch."""

    name: str
    start: float
    end: float
    pass_: TracedPass = "other"
    module: str = ""
    region: str = ""
    stream: int | None = None

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def dense(self) -> bool:
        """Whether a region of dense layers launched it, beside which others have experts."""
        return self.region in ("dense_forward", "dense_backward")

    @property
    def multiplies(self) -> bool:
        """Whether it is a GEMM or ends one. So is what no rule knows: kernel-only time is never told too small."""
        return classify(self.name).of_a_gemm


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
    """All GPU work of the trace, in the order of its start; none where a profiler saw nothing but copies and fills."""
    events = [event for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    called = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    ranges_or_none = [_range(event) for event in events]
    ranges = sorted((range_ for range_ in ranges_or_none if range_), key=lambda range_: range_.start)
    replays = sorted(
        (float(event["ts"]), event["args"]["correlation"]) for event in events if event.get("name") in GRAPH_LAUNCHES
    )
    regions = [range_ for range_ in ranges if range_.region]
    if len(replays) == len(regions):  # a graph each: by their order, for two clocks may be microseconds apart
        called |= {number: range_.start for (_, number), range_ in zip(replays, regions, strict=True)}
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not any(event["cat"] == "kernel" for event in work):
        return ()
    launched = [_launch(event, called.get(event.get("args", {}).get("correlation")), ranges) for event in work]
    return tuple(sorted(launched, key=lambda launch: launch.start))


def shares(launched: Iterable[Launch], region: str, steps: int) -> KernelSeconds:
    """Kernel seconds of a region in one of `steps` steps, kernels that run at the same time counted once.

    Where a cast runs beside a GEMM, that time is the GEMM's.
    """
    inside = [launch for launch in launched if launch.region == region]
    gemms = [launch for launch in inside if launch.multiplies]
    alone = union([launch.span for launch in gemms])
    whole = union([launch.span for launch in inside])
    streams = len({launch.stream for launch in gemms})  # 1 where the trace does not tell them
    return KernelSeconds(alone / steps, (whole - alone) / steps, len(gemms) / steps, streams)


def gaps(launched: Iterable[Launch]) -> dict[str, float]:
    """By region the seconds in which no kernel ran from its first one to the next region's: the median of its runs.

    Regions are told by their order: `launched` are sorted by their start, and each replays one graph.
    """
    runs = [tuple(run) for _, run in groupby(launched, key=lambda launch: launch.region)]
    last_end = max((launch.end for run in runs[-1:] for launch in run), default=0.0)
    starts = [*(run[0].start for run in runs[1:]), last_end]
    idle: dict[str, list[float]] = {}
    for run, end in zip(runs, starts, strict=False):
        idle.setdefault(run[0].region, []).append(end - run[0].start - union([launch.span for launch in run]))
    return {region: max(0.0, median(seconds)) for region, seconds in idle.items()}


def placed(replayed: Sequence[Launch], eager: Sequence[Launch]) -> tuple[Launch, ...]:
    """Replayed launches in the modules that launched them eagerly: a region's n-th run of a kernel is its n-th there.

    Empty where other GEMMs ran in the one than in the other, or as many in other regions.
    """
    gemms = [Counter((run.region, run.name) for run in side if run.multiplies) for side in (replayed, eager)]
    modules: dict[tuple[str, str], list[str]] = {}
    for launch in eager:
        modules.setdefault((launch.region, launch.name), []).append(launch.module)
    made = [replace(run, module=(modules.get((run.region, run.name)) or [""]).pop(0)) for run in replayed]
    return tuple(made) if gemms[0] == gemms[1] else ()


def kernel_seconds(launched: Iterable[Launch], steps: int) -> float:
    """In one of `steps` steps the time in which some kernel ran."""
    return union([launch.span for launch in launched]) / steps


def kernels(launched: Iterable[Launch], steps: int) -> tuple[ProfiledKernel, ...]:
    """Launches added up by name, pass, module and kind of layer, as seconds of one of `steps` steps, the longest first.

    A moment in which n kernels run is an n-th for each: the rows add up to the time that passed.
    """
    ran = list(launched)
    seconds: dict[tuple[str, TracedPass, str, bool], float] = {}
    for launch, spent in zip(ran, divided([launch.span for launch in ran]), strict=True):
        key = (launch.name, launch.pass_, launch.module, launch.dense)
        seconds[key] = seconds.get(key, 0.0) + spent / steps
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    return tuple(ProfiledKernel(name, spent, pass_, module, dense) for (name, pass_, module, dense), spent in rows)


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
    pass_of_module: TracedPass = "forward" if pass_ == "forward" else "backward" if pass_ == "backward" else "other"
    stream = event.get("args", {}).get("stream")
    return Launch(str(event.get("name", "")), start, end, pass_of_module, module, region, stream)
