"""A program: named regions of device work that run in order, as CUDA graphs where that is right, else eagerly.

A graph is accepted only when what must change from replay to replay does: delayed scaling's scales, and the gradients
where they are rounded at random. A capture that bakes either in would be faster than training is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from precision_agent.backends.te.session.engine import Engine, Mark, Work
from precision_api.exchange.result import Execution, Failure

WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Region:
    """Work that is timed as one: its name, and the kind of micro batch it is part of.

    `batch_kind` is `only`, `first` or `rest`, and `step` for the optimizer, which comes once for all micro batches.
    """

    name: str
    batch_kind: str
    work: Work


@dataclass(frozen=True, slots=True)
class ReplayEvidence:
    """What two replays of a captured program showed; None where the recipe has nothing of the kind."""

    scales_moved: bool | None = None
    gradients_differ: bool | None = None
    finite: bool = True


def graph_fault(evidence: ReplayEvidence) -> str | None:
    """Why a captured program must not be used, or None."""
    if not evidence.finite:
        return "a replay's gradients are not finite"
    if evidence.scales_moved is False:
        return "delayed scales do not move over replays"
    if evidence.gradients_differ is False:
        return "two replays round the gradients alike, which is not stochastic"
    return None


@dataclass(slots=True)
class Timings:
    """Seconds of each region, mean of one run of it, over `cycles` cycles from `start` to `end` (monotonic seconds)."""

    start: float
    end: float
    cycles: int
    seconds: Mapping[tuple[str, str], float]
    runs: Mapping[tuple[str, str], int]

    @property
    def cycle_seconds(self) -> float:
        """Of the regions of one cycle together."""
        return sum(self.seconds[key] * count for key, count in self.runs.items())


@dataclass(slots=True)
class Program:
    """Regions in the order of one step; `cycle` lists the keys of one whole cycle, some of them many times."""

    engine: Engine
    regions: tuple[Region, ...]
    cycle: tuple[tuple[str, str], ...]
    execution: Execution = "eager"
    reason: str = "not captured"
    cycle_seconds: float = 0.0
    _run: dict[tuple[str, str], Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._run = {(region.name, region.batch_kind): region.work for region in self.regions}

    def go(self, key: tuple[str, str]) -> None:
        self._run[key]()

    def once(self) -> None:
        """Runs every region once, in order."""
        for region in self.regions:
            self.go((region.name, region.batch_kind))

    def warm_up(self, times: int = WARM_UPS) -> None:
        """Eager runs: workspaces, caches and heuristics are there afterwards, outside of any graph's memory."""
        for _ in range(times):
            self.once()
        self.engine.synchronize()

    def capture(self, check: "Callable[[Program], ReplayEvidence]") -> None:
        """Tries to make graphs of all regions; leaves the program eager, with the reason, where that is not right."""
        eager = dict(self._run)
        try:
            for region in self.regions:
                self._run[(region.name, region.batch_kind)] = self.engine.capture(region.work)
            self.execution, self.reason = "graph", ""
            fault = graph_fault(check(self))
        except RuntimeError as error:
            if fatal(error):
                raise
            fault = f"{type(error).__name__}: {error}"
        if fault:
            self._run = eager
            self.execution, self.reason = "eager", f"graph_unsupported: {fault}"[:500]
            self.once()  # what the failed capture left half done is done anew

    def pace(self) -> None:
        """Finds out how long a cycle takes."""
        self.time(1)
        self.cycle_seconds = max(1e-6, self.time(2).cycle_seconds)

    def time(self, cycles: int) -> Timings:
        """Runs `cycles` cycles with marks between the regions: mean seconds of one run of each."""
        self.engine.synchronize()
        start = monotonic()
        rows: list[list[Mark]] = []
        for _ in range(cycles):
            rows.append([self.engine.mark()])
            for key in self.cycle:
                self.go(key)
                rows[-1].append(self.engine.mark())
        self.engine.synchronize()
        end, runs = monotonic(), Counter(self.cycle)
        seconds = dict.fromkeys(runs, 0.0)
        for index, key in enumerate(self.cycle):
            spent = sum(self.engine.seconds(row[index], row[index + 1]) for row in rows)
            seconds[key] += spent / cycles / runs[key]
        return Timings(start, end, cycles, seconds, runs)

    def measure(self, seconds: float) -> Timings:
        """As many cycles as fit into `seconds`, at least one."""
        if not self.cycle_seconds:
            self.pace()
        return self.time(max(1, int(seconds / self.cycle_seconds)))


def batch_kinds_of(accumulation: int) -> tuple[tuple[str, bool | None], ...]:
    """Kinds of micro batches, and what a module is told: weights are quantised in the first of a step and then kept."""
    return (("only", None),) if accumulation == 1 else (("first", True), ("rest", False))


def cycle_of(names: Sequence[str], accumulation: int) -> tuple[tuple[str, str], ...]:
    """The keys of the regions `names` in the order of all micro batches of an optimizer step."""
    order = ["only"] if accumulation == 1 else ["first", *["rest"] * (accumulation - 1)]
    return tuple((name, batch_kind) for batch_kind in order for name in names)


def fatal(error: BaseException) -> bool:
    """Whether the context is worth nothing after this error. A refused capture is none: the stream is whole again."""
    text = str(error).lower()
    return "captur" not in text and ("cuda error" in text or "out of memory" in text)


def declined(error: BaseException) -> bool:
    """Whether Transformer Engine declines, in its Python or its C++ checks; anything else is a fault."""
    if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
        return "Assertion failed" in str(error)
    return isinstance(error, AssertionError | NotImplementedError | TypeError | ValueError)


def unavailable(name: str, error: Exception) -> Failure:
    """What Transformer Engine declined for `name`, in words; raises any other error as it is."""
    if not declined(error):
        raise error
    return Failure(reason="not_available", message=f"{name}: {type(error).__name__}: {error}"[:1000])


def by_name(timings: Timings, names: Sequence[str]) -> dict[str, float]:
    """Mean seconds of one run of each region, kinds of micro batch weighed as the cycle has them."""
    seconds = {}
    for name in names:
        rows = [(timings.seconds[key], timings.runs[key]) for key in timings.seconds if key[0] == name]
        if rows:
            seconds[name] = sum(spent * count for spent, count in rows) / sum(count for _, count in rows)
    return seconds


def of_batch_kind(timings: Timings, batch_kind: str) -> Timings:
    """The same timings, of the regions of one kind of micro batch alone."""
    keys = [key for key in timings.seconds if key[1] == batch_kind]
    return replace(
        timings, seconds={key: timings.seconds[key] for key in keys}, runs={key: timings.runs[key] for key in keys}
    )
