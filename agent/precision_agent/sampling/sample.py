"""Takes the samples of a run: ABBA block after ABBA block, until all are done or somebody says stop."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

from precision_agent.cases import Case, Cases, GemmCase, TrainingCase, Variant, refusal_of
from precision_agent.method.full_depth import REGIONS
from precision_agent.method.slot import abba_blocks, slot_of
from precision_agent.power.aliasing import sure_pause
from precision_agent.power.energy import Window
from precision_agent.protocol import Load, Part, RegionName, Sample, parts_of
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_api.exchange.request import Timing
from precision_api.exchange.result import TERMINATED, UNFINISHED, Failure

CaseKey = tuple[str, Case]
"""A variant's label and a case."""
LEAST_ABBA_BLOCKS = 2
"""One ABBA block has no spread, so no interval, and a number without an interval is not a result."""
STOPPED = frozenset({TERMINATED, "deadline"})
POWER_PARTS: tuple[Part, ...] = ("layers", "head", "layers", "optimizer", "dense", "layers")
"""Which part of the step a variant's slots replay in turn, the layers in the place of one that the model lacks: they
are most of a full-depth step."""


@dataclass(frozen=True, slots=True)
class PowerWindow:
    """One part of a variant's step replayed on all GPUs at once; the window is the intersection of theirs.

    By device: `steps`, the period of its own steps (left out: `step_seconds`, which is their mean), and `running`, the
    share of the window in which steps ran; the rest were pauses, one after each group of `calls` steps. `abba_block` is
    the place, from 0, of the one that the window belongs to.
    """

    part: Part
    window: Window
    step_seconds: float
    longest_pause_seconds: float
    running: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    calls: int | None = None
    abba_block: int = 0


DEPTH_CHANGED = Failure(
    reason="depth_changed",
    message="the short model was another one on some GPU or after a restart (layers, parts or weights of the "
    "optimizer differ): memory was short",
)


@dataclass(frozen=True, slots=True)
class Samples:
    """What the complete ABBA blocks gave: for each ABBA block one value a device, in the order of the devices' names.

    `seconds` are of one call, by variant and case; `regions` of the training step's parts, by variant, device and
    region. A failed case has its reason instead, also where it failed on one device only: a sum of the others would be
    too small. `windows` are the power windows, `timed` all windows in which a variant was measured, `loads` those of
    its GEMMs and of its training step. `ended` tells why there are fewer ABBA blocks than asked for, `repeated` how
    many were measured twice because a GPU was throttled by heat or brake.
    """

    passes: int
    seconds: Mapping[CaseKey, tuple[tuple[float, ...], ...]]
    failures: Mapping[CaseKey, Failure]
    regions: Mapping[str, tuple[Mapping[RegionName, tuple[float, ...]], ...]] = field(default_factory=dict)
    windows: Mapping[str, tuple[PowerWindow, ...]] = field(default_factory=dict)
    timed: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)
    loads: Mapping[tuple[str, Load], tuple[Window, ...]] = field(default_factory=dict)
    facts: Mapping[CaseKey, Sample] = field(default_factory=dict)
    power_failures: Mapping[str, Failure] = field(default_factory=dict)
    ended: Failure | None = None
    repeated: int = 0

    def of(self, variant: Variant, case: Case) -> tuple[float, ...] | Failure:
        """The devices' mean in each ABBA block, or why there is none."""
        values = self.by_device(variant, case)
        return values if isinstance(values, Failure) else tuple(fmean(devices) for devices in values)

    def by_device(self, variant: Variant, case: Case) -> tuple[tuple[float, ...], ...] | Failure:
        """The values of one variant and case, or why there are none."""
        failure = self.failures.get((variant.label, case))
        if failure:
            return failure
        values = self.seconds.get((variant.label, case), ())
        return values or self.ended or Failure(reason="not_measured", message="no complete palindrome")

    def regions_of(self, variant: Variant, place: int) -> Mapping[RegionName, tuple[float, ...]]:
        """Seconds of each region on one device, a value an ABBA block; empty where the step was not timed."""
        devices = self.regions.get(variant.label, ())
        return devices[place] if devices else {}

    def so_far(self) -> "Samples":
        """These samples as a partial run's: what is published in case that the rest never comes."""
        return replace(self, ended=Failure(reason=UNFINISHED, message=f"{self.passes} palindromes were complete"))


@dataclass(slots=True)
class _AbbaBlock:
    slots: dict[CaseKey, list[tuple[Sample, ...]]] = field(default_factory=dict)
    windows: dict[str, list[PowerWindow]] = field(default_factory=dict)
    spans: dict[CaseKey, list[Window]] = field(default_factory=dict)
    """When all devices were at work, of each slot in which they ever were."""
    ended: Failure | None = None

    def loads(self) -> dict[tuple[str, Load], list[Window]]:
        """The windows of each variant's GEMMs and of its training step, power windows left out."""
        loads: dict[tuple[str, Load], list[Window]] = {}
        for (label, case), spans in self.spans.items():
            load: Load = "training" if isinstance(case, TrainingCase) else "gemms"
            loads.setdefault((label, load), []).extend(spans)
        return loads

    def timed(self) -> dict[str, list[Window]]:
        """All windows of each variant, power windows too."""
        timed: dict[str, list[Window]] = {}
        for (label, _), spans in self.spans.items():
            timed.setdefault(label, []).extend(spans)
        for label, windows in self.windows.items():
            timed.setdefault(label, []).extend(power_window.window for power_window in windows)
        return timed


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the run does between ABBA blocks: `hot` says of the variants' windows that their figure would be marked.

    `after_pass` is given the number of complete ABBA blocks, and a function that puts their samples together.
    """

    after_pass: Callable[[int, Callable[[], Samples]], None] = lambda passes, samples: None
    hot: Callable[[Sequence[Sequence[Window]]], bool] = lambda windows: False
    before_slot: Callable[[int, int], None] = lambda done, of: None
    failed: Callable[[Variant, Case, Failure], None] = lambda variant, case, failure: None


HOOKS = Hooks()


def take(
    devices: Devices,
    cases: Cases,
    variants: tuple[Variant, ...],
    timing: Timing,
    stop: Stop,
    sensor_seconds: float | None = None,
    hooks: Hooks = HOOKS,
    failures: Mapping[CaseKey, Failure] | None = None,
) -> Samples:
    """Measures `cases` for `variants`; an unfinished ABBA block is thrown away, for its pairs are incomplete.

    `failures` are known before: what failed while it was prepared is not tried again. With `sensor_seconds`, the period
    of the power sensors, there are power windows.
    """
    return _Taking(devices, cases, timing, stop, sensor_seconds, hooks, variants).run(dict(failures or {}))


def intersection(samples: Sequence[Sample]) -> Window | None:
    """When all devices were at work; None where they never were."""
    start, end = max(sample.start for sample in samples), min(sample.end for sample in samples)
    return Window(start, end) if start < end else None


def first_failure(names: Sequence[str], answers: Sequence[object]) -> Failure | None:
    """The first device's failure, which is told by its name where there are more devices than one."""
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Failure):
            if len(names) == 1 or answer.reason in STOPPED:
                return answer
            return Failure(reason=answer.reason, message=f"{name}: {answer.message}"[:1024])
    return None


@dataclass
class _Taking:
    devices: Devices
    cases: Cases
    timing: Timing
    stop: Stop
    sensor_seconds: float | None
    hooks: Hooks
    variants: tuple[Variant, ...]
    passes: list[_AbbaBlock] = field(default_factory=list)
    failures: dict[CaseKey, Failure] = field(default_factory=dict)
    power_failures: dict[str, Failure] = field(default_factory=dict)
    repeated: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        training, metered = self.cases.training is not None, self.sensor_seconds is not None
        self.slot = slot_of(self.timing, bool(self.cases.gemms), training, metered)
        self.names = self.devices.machine().names

    def run(self, failures: dict[CaseKey, Failure]) -> Samples:
        """All ABBA blocks; one in which heat or brake held a GPU back is measured once more, then it stands."""
        keys = [(variant, case) for variant in self.variants for case in self.cases.all]
        refused = {(variant.label, case): refusal_of(case, variant, self.devices.name) for variant, case in keys}
        self.failures = {key: failure for key, failure in refused.items() if failure} | failures
        chronic = False
        for abba_block in abba_blocks(self.variants, self.timing.passes, self.timing.seed):
            taken = self._abba_block(abba_block)
            if not taken.ended and not chronic and self._hot(taken):
                self.repeated += 1
                again = self._abba_block(abba_block)
                # where the second is cut off, the first stands: a marked figure is better than none
                taken = taken if again.ended else again
                chronic = self._hot(taken)
            if taken.ended:
                return self._frozen(taken.ended)
            self.passes.append(taken)
            self.hooks.after_pass(len(self.passes), lambda: self._frozen(None))
        return self._frozen(None)

    def _hot(self, taken: _AbbaBlock) -> bool:
        return self.hooks.hot(tuple(taken.timed().values()))

    def _abba_block(self, abba_block: tuple[Variant, ...]) -> _AbbaBlock:
        taken = _AbbaBlock()
        for variant in abba_block:
            self.hooks.before_slot(self.done, 2 * len(self.variants) * self.timing.passes)
            self.done += 1
            if self.slot.discarded:
                seconds = self.slot.discarded
                self.devices.all(Call("settle", (variant, seconds), seconds, variant))
            for case in self.cases.all:
                taken.ended = self.stop() or self._case(case, variant, taken)
                if taken.ended:
                    return taken
        return taken

    def _case(self, case: Case, variant: Variant, taken: _AbbaBlock) -> Failure | None:
        """Measures one case of one slot; why the run must end, or None."""
        key = (variant.label, case)
        if key in self.failures:
            return None
        gemm = isinstance(case, GemmCase)  # all GEMMs share a segment, the training step has one with its power window
        seconds = self.slot.gemms / len(self.cases.gemms) if gemm else self.slot.training
        answers = tuple(map(_timed, self.devices.all(Call("measure", (case, variant, seconds), seconds, variant))))
        failure = first_failure(self.names, answers)
        if failure:
            if failure.reason in STOPPED:
                return failure
            self.failures[key] = failure
            self.hooks.failed(variant, case, failure)
            return None
        taken.slots.setdefault(key, []).append(answers)
        span = intersection(answers)
        taken.spans.setdefault(key, []).extend([span] if span else [])
        if not gemm and self.sensor_seconds is not None:
            # by complete ABBA blocks: one that is measured again replays the same parts
            number = 2 * len(self.passes) + len(taken.slots[key]) - 1
            return self._power(variant, answers, taken, self.sensor_seconds, number)
        return None

    def _power(
        self, variant: Variant, step: Sequence[Sample], taken: _AbbaBlock, sensor_seconds: float, number: int
    ) -> Failure | None:
        """The power window of the variant's slot `number`; why the run must end, or None."""
        part = POWER_PARTS[number % len(POWER_PARTS)]
        seconds = self.slot.power
        if part not in parts_of(step[0].regions):
            part = "layers"
        periods = [parts_of(sample.regions).get(part, sample.seconds) for sample in step]
        pause, calls = sure_pause(periods, sensor_seconds)
        arguments = (variant, part, seconds, pause, self.timing.seed + number, calls)
        answers = self.devices.all(Call("power_window", arguments, seconds, variant))
        failure = first_failure(self.names, answers)
        if failure:
            if failure.reason in STOPPED:
                return failure
            self.power_failures.setdefault(variant.label, failure)
            return None
        window = intersection(answers)
        if window:
            steps = {name: answer.seconds for name, answer in zip(self.names, answers, strict=True)}
            running = {name: answer.running for name, answer in zip(self.names, answers, strict=True)}
            period, place = fmean(steps.values()), len(self.passes)
            made = PowerWindow(part, window, period, pause, running, steps, calls, place)
            taken.windows.setdefault(variant.label, []).append(made)
        return None

    def _frozen(self, ended: Failure | None) -> Samples:
        keys = {key for taken in self.passes for key in taken.slots} - self.failures.keys()
        whole = {key: [taken.slots[key] for taken in self.passes if key in taken.slots] for key in keys}
        failures = self.failures | {key: DEPTH_CHANGED for key, passes in whole.items() if _depth_changed(passes)}
        whole = {key: passes for key, passes in whole.items() if key not in failures}
        return Samples(
            passes=len(self.passes),
            seconds={key: tuple(_device_means(slots) for slots in passes) for key, passes in whole.items()},
            failures=failures,
            regions={key[0]: _by_device(passes) for key, passes in whole.items() if isinstance(key[1], TrainingCase)},
            windows=_joined(taken.windows for taken in self.passes),
            timed=_joined(taken.timed() for taken in self.passes),
            loads=_joined(taken.loads() for taken in self.passes),
            facts={key: _fact(passes) for key, passes in whole.items()},
            power_failures=dict(self.power_failures),
            ended=ended,
            repeated=self.repeated,
        )


K = TypeVar("K")
W = TypeVar("W")


def _joined(blocks: Iterable[Mapping[K, Sequence[W]]]) -> dict[K, tuple[W, ...]]:
    """The windows of all ABBA blocks together."""
    joined: dict[K, tuple[W, ...]] = {}
    for block in blocks:
        for key, windows in block.items():
            joined[key] = (*joined.get(key, ()), *windows)
    return joined


def _timed(answer: object) -> Any:
    """The answer, or a Failure where a time is no positive number: nothing was timed then, and 0 is no figure."""
    if not isinstance(answer, Sample):
        return answer
    spent = (("a call", answer.seconds), *answer.regions.items())
    bad = [f"{name}: {seconds:g} s" for name, seconds in spent if not 0 < seconds < math.inf]
    return Failure(reason="no_time", message=f"not a time: {', '.join(bad)}"[:1024]) if bad else answer


def _depth_changed(passes: Sequence[Sequence[Sequence[Sample]]]) -> bool:
    """Whether the short model was another one on some device or in some slot: its regions can't be put together."""
    depths = {
        (sample.layers_measured, sample.dense_measured, sample.optimizer_parameters, frozenset(sample.regions))
        for slots in passes
        for slot in slots
        for sample in slot
    }
    return len(depths) > 1


def _fact(passes: Sequence[Sequence[Sequence[Sample]]]) -> Sample:
    """What stands for all samples of a case: the first, but eager where one of them was."""
    samples = [sample for slots in passes for slot in slots for sample in slot]
    ran = next((sample for sample in samples if sample.execution == "eager"), samples[0])
    return replace(samples[0], execution=ran.execution, execution_reason=ran.execution_reason)


def _device_means(slots: Sequence[Sequence[Sample]]) -> tuple[float, ...]:
    """Seconds of a call on each device, mean of an ABBA block's slots."""
    return tuple(fmean([sample.seconds for sample in device]) for device in zip(*slots, strict=True))


def _by_device(passes: Sequence[Sequence[Sequence[Sample]]]) -> tuple[Mapping[RegionName, tuple[float, ...]], ...]:
    """The regions of the step on each device, a value an ABBA block: the mean of its slots. All samples have the same
    regions, else their depth has changed."""
    names = [name for name in REGIONS if name in passes[0][0][0].regions]
    return tuple(
        {name: tuple(fmean(slot[place].regions[name] for slot in slots) for slots in passes) for name in names}
        for place in range(len(passes[0][0]))
    )
