"""A variant's windows on the sensors' recordings: power of each part of the step, throttling, clocks, memory in use.

Pure. One GPU's missing or void samples void the node's figure: a sum must not lose a part.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean

from precision_agent.power import energy
from precision_agent.power import reasons as why
from precision_agent.power.aliasing import lock_with_pauses
from precision_agent.power.preflight import Health
from precision_agent.power.reasons import Reason
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, values_within
from precision_agent.power.throttle import MARKING, ThrottleReading, marking, pooled, shares
from precision_agent.power.token_energy import node_power
from precision_agent.protocol import Part
from precision_agent.sampling.calibrate import counter_scope, rest_watts
from precision_agent.sampling.sample import PowerWindow
from precision_api.exchange.result import Clocks, DeviceMemory, Gpu, PowerScope, PowerTrace, ThrottleShare
from precision_api.facts import products
from precision_api.facts.names import grouped

PART_LIMITS = energy.Limits(updates=1, seconds=0.0)
"""Of one part's windows alone: what docs/development/method.md, "Power and energy", asks for is asked of all windows of
the recipe together."""
TRACE_POINTS = 600
CAPPED_SHARE = 0.5
"""Of the windows: with more of them at the power cap, the cap decides what the GPU draws. Two H100 that trained dense
layers were at it for 92 to 97 % of them."""


@dataclass(frozen=True, slots=True)
class NodePower:
    """The node's power by part of the step, watts while it ran; the windows together, and the fewest updates that a
    sensor had. `by_abba_block`: the same watts from the windows of each ABBA block alone, which has some parts only."""

    watts: Mapping[Part, float]
    seconds: float
    updates: int
    scope: PowerScope
    by_abba_block: Mapping[int, Mapping[Part, float]] = field(default_factory=dict)
    counted: bool = True
    """By the energy counter; else by the integral of power alone."""

    def abba_blocks(self) -> frozenset[int]:
        """Those in which the power of the layers, most of a step's energy, is known by itself."""
        return frozenset(place for place, watts in self.by_abba_block.items() if "layers" in watts)

    def of_abba_block(self, place: int) -> dict[Part, float]:
        """The power of each part in this ABBA block; of one that was not replayed in it, in the nearest that has it."""
        return {part: self._nearest(part, place) for part in self.watts}

    def _nearest(self, part: Part, place: int) -> float:
        places = [other for other, watts in self.by_abba_block.items() if part in watts]
        if not places:
            return self.watts[part]
        return self.by_abba_block[min(places, key=lambda other: (abs(other - place), other))][part]


def node_power_by_part(
    recordings: Mapping[str, Recording], windows: Sequence[PowerWindow], names: Sequence[str], sensors: SensorFacts
) -> NodePower | tuple[Reason, ...]:
    """The power of all GPUs (`names`, UUIDs) while a variant's parts were replayed, or all reasons why not."""
    if not windows:
        return (why.TOO_SHORT,)
    missing = [name for name in names if name not in recordings]
    if missing:
        return (why.NO_SAMPLER,)
    traces = {name: energy.in_order(_trace(recordings[name], counter_scope(sensors.sensor))) for name in names}
    if len({trace.scope for trace in traces.values()}) > 1:
        return (why.MODULE_SHARED,)
    # over all windows, pauses with them: is there enough to judge by?
    energies = {name: _mean_power(name, trace, windows, sensors, energy.Limits()) for name, trace in traces.items()}
    whole = node_power(energies, sensors.modules)
    locked = [why.PHASE_LOCKED] if any(_locked(window, sensors.sensor_seconds) for window in windows) else []
    reasons = tuple(dict.fromkeys((*whole.reasons, *locked)))
    if reasons:
        return reasons
    watts: dict[Part, float] = {}
    for part in dict.fromkeys(window.part for window in windows):
        chosen = [window for window in windows if window.part == part]
        reading = _steps(recordings, traces, chosen, sensors)
        if reading.watts is None:
            return reading.reasons
        watts[part] = reading.watts
    by_abba_block = _by_abba_block(recordings, traces, windows, sensors)
    return NodePower(watts, whole.seconds, whole.updates, whole.scope, by_abba_block, whole.counted)


def _by_abba_block(
    recordings: Mapping[str, Recording],
    traces: Mapping[str, energy.Trace],
    windows: Sequence[PowerWindow],
    sensors: SensorFacts,
) -> dict[int, dict[Part, float]]:
    """The power of each part from the windows of one ABBA block; a part whose windows don't stand alone is left out."""
    chosen = grouped(((window.abba_block, window.part), window) for window in windows)
    powers: dict[int, dict[Part, float]] = {}
    for (place, part), part_windows in chosen.items():
        watts = _steps(recordings, traces, part_windows, sensors).watts
        if watts is not None:
            powers.setdefault(place, {})[part] = watts
    return powers


def _trace(recording: Recording, scope: energy.CounterScope) -> energy.Trace:
    """The GPU's own sensor, else the module's where only that one tells."""
    if recording.module.power and not recording.gpu.power:
        return recording.module
    return replace(recording.gpu, counter_scope=scope)


def _steps(
    recordings: Mapping[str, Recording],
    traces: Mapping[str, energy.Trace],
    windows: Sequence[PowerWindow],
    sensors: SensorFacts,
) -> energy.EnergyReading:
    """The node while the steps of one part's windows ran, its pauses taken off.

    Not where the power cap slows the GPU: the cap holds the mean, so that what a pause saves the steps draw more, and
    steps without pauses draw that mean. An H100 of 700 W told 744 W, its pauses taken off.
    """
    energies = {}
    for name, trace in traces.items():
        shares = held_back({name: recordings[name]}, [window.window for window in windows]).shares
        capped = any(throttle.reason == "power_cap" and throttle.share > CAPPED_SHARE for throttle in shares)
        paused = 0.0 if capped else _paused_seconds(windows, [name] if trace.scope == "gpu" else list(traces))
        rest = rest_watts(trace, sensors.rests, sensors.sensor_seconds) if paused else None
        energies[name] = energy.without_pauses(_mean_power(name, trace, windows, sensors, PART_LIMITS), paused, rest)
    return node_power(energies, sensors.modules)


def _mean_power(
    name: str, trace: energy.Trace, windows: Sequence[PowerWindow], sensors: SensorFacts, limits: energy.Limits
) -> energy.EnergyReading:
    first, last = windows[0], windows[-1]
    cut = energy.near(trace, energy.Window(first.window.start, last.window.end))
    step = first.steps.get(name, first.step_seconds)
    pace = energy.StepPace(step, first.longest_pause_seconds, sensors.sensor_seconds, first.calls)
    return energy.mean_power(cut, [power_window.window for power_window in windows], pace, limits)


def _paused_seconds(windows: Sequence[PowerWindow], names: Sequence[str]) -> float:
    """Of the windows together, mean of the GPUs by these names: a module's sensor sees all of its own."""
    paused = [power_window for power_window in windows if power_window.longest_pause_seconds]
    return math.fsum(
        power_window.window.seconds * (1 - fmean(power_window.running.get(name, 1.0) for name in names))
        for power_window in paused
    )


def _locked(window: PowerWindow, sensor_seconds: float) -> bool:
    """Whether any GPU's own steps are locked to its sensor: the mean of a slow GPU's and the others' is nobody's."""
    steps = window.steps.values() or (window.step_seconds,)
    return any(lock_with_pauses(step, sensor_seconds, window.longest_pause_seconds, window.calls) for step in steps)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What held a variant's clocks back on the GPU that was hit most, and what marks its figures."""

    shares: tuple[ThrottleShare, ...] = ()
    marked: ThrottleShare | None = None


_at = attrgetter("at")


def held_back(recordings: Mapping[str, Recording], windows: Sequence[energy.Window]) -> HeldBack:
    """Throttling over a variant's windows: of each reason the share on the GPU that it took most of."""
    worst: dict[str, ThrottleShare] = {}
    for recording in recordings.values():
        parts = [(window.seconds, _shares(recording.throttle, window)) for window in windows]
        for throttle in pooled(parts):
            if throttle.reason not in worst or throttle.share > worst[throttle.reason].share:
                worst[throttle.reason] = throttle
    return HeldBack(tuple(worst.values()), marking(tuple(worst.values())))


def blind(recorded: Mapping[str, Recording], windows: Sequence[energy.Window], names: Sequence[str]) -> tuple[str, ...]:
    """GPUs of which nothing tells whether heat or the power brake held their clocks back: no mark proves nothing."""

    def tells(name: str) -> bool:
        held = held_back({name: recorded[name]}, windows) if name in recorded else HeldBack()
        return any(throttle.reason in MARKING for throttle in held.shares)

    return tuple(name for name in names if not tells(name)) if windows else ()


def _shares(readings: tuple[ThrottleReading, ...], window: energy.Window) -> tuple[ThrottleShare, ...]:
    """The readings are in order of time, as a sampler writes them; only those of the window are looked at."""
    first = bisect_left(readings, window.start, key=_at)
    inside = readings[first : bisect_right(readings, window.end, lo=first, key=_at)]
    return shares(inside, window.start, window.end) if inside else ()


def clocks(recordings: Mapping[str, Recording], windows: Sequence[energy.Window]) -> Clocks | None:
    """Mean SM clock of all GPUs over the windows and the hottest moment of any; None where neither is told."""
    mhz = [value for recording in recordings.values() for value in values_within(recording.sm_mhz, windows)]
    celsius = [value for recording in recordings.values() for value in values_within(recording.celsius, windows)]
    if not mhz and not celsius:
        return None
    return Clocks(sm_mhz=round(fmean(mhz), 1) if mhz else None, celsius=float(max(celsius)) if celsius else None)


def device_memory(
    recordings: Mapping[str, Recording],
    windows: Sequence[energy.Window],
    gpus: Sequence[Gpu],
    health: Sequence[Health],
    product: str,
) -> DeviceMemory | None:
    """The most memory that NVML counted as used on any GPU within the windows; None where it told nothing there."""
    totals, before = {gpu.uuid: gpu.memory_bytes for gpu in gpus}, {gpu.uuid: gpu for gpu in health}
    part, memories = products.part(product), []
    for uuid, recording in recordings.items():
        idle, values = before.get(uuid, Health(uuid)), values_within(recording.used_bytes, windows)
        is_numa, is_grace = idle.numa_node is not None, part is not None and part.form == "Grace"
        off = (idle.memory_used_bytes or 0) if is_numa or is_grace else 0
        marks = {"with the driver's reserve": idle.memory_with_reserve, "less what was in use before": off}
        marks["with the system's pages (NUMA)"] = is_numa
        counted = ", ".join(name for name, holds in marks.items() if holds)
        if values:
            used = max(0, max(values) - off)
            memories.append(DeviceMemory(used_bytes=used, total_bytes=totals.get(uuid), counted=counted))
    return max(memories, key=lambda memory: memory.used_bytes, default=None)


def power_trace(recordings: Mapping[str, Recording], started_at: str, began: float) -> PowerTrace | None:
    """Power of all GPUs through the run, at most 600 means; an interval in which one of them has no sample is None.

    `began` is the moment of `started_at` on the samples' clock. A module counts once for all its GPUs' samples, so only
    traces of the GPUs' own sensors are drawn.
    """
    powers = [recording.gpu.power for recording in recordings.values()]
    if not powers or not all(powers):
        return None
    end = max(power[-1].at for power in powers)
    interval = max(1.0, (end - began) / TRACE_POINTS)
    count = min(TRACE_POINTS, int((end - began) / interval) + 1)
    if count < 1:
        return None
    sums: list[float | None] = [0.0] * count
    for power in powers:
        cells: list[list[float]] = [[] for _ in range(count)]
        for sample in power:
            place = int((sample.at - began) / interval)
            if 0 <= place < count:
                cells[place].append(sample.watts)
        sums = [None if old is None or not cell else old + fmean(cell) for old, cell in zip(sums, cells, strict=True)]
    watts = tuple(None if value is None else round(value, 1) for value in sums)
    return PowerTrace(started_at=started_at, interval_seconds=round(interval, 3), watts=watts)
