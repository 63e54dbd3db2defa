"""Samples power, energy, throttle counters, temperature and clocks in a process of its own, 20 times a second at most.

A thread would share the interpreter with the timed work; a process does not. It writes a line a GPU and tick to a file,
and ends when its stdin closes, when its parent is gone, or when every GPU is lost. Its times are CLOCK_MONOTONIC, which
on Linux is one clock for all processes, so that windows timed elsewhere fit.
"""

import importlib
import json
import os
import select
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from precision_agent.power import reasons as why
from precision_agent.power.energy import CounterReading, PowerSample, Trace, Window
from precision_agent.power.reasons import Reason
from precision_agent.power.throttle import KINDS, ThrottleReading
from precision_api.exchange.result import Failure

LEAST_INTERVAL_SECONDS = 0.05
"""20 Hz: sensors are renewed every 20 to 100 ms, and each question to the driver takes time from the GPU's own."""
START_SECONDS = 20.0
STOP_SECONDS = 2.0
"""A driver that hangs never lets go of its caller: then the process is killed, and what it wrote stands."""
POWER_INSTANT, GPU_SCOPE, MODULE_SCOPE = 186, 0, 1
GONE = frozenset({15, 16, 28})
"""GPU is lost, reset required, GPU not found: after these it is not asked again. Other errors are missing samples."""

Wait = Callable[[float], bool]
"""Waits until that moment of the clock; False says stop."""


@dataclass(frozen=True, slots=True)
class SensorRow:
    """What one GPU told at one moment; None where it does not tell. `lost` says in words that it is gone."""

    at: float
    gpu: str
    milliwatts: int | None = None
    module_milliwatts: int | None = None
    millijoules: int | None = None
    throttle_ns: Mapping[str, int] | None = None
    reasons: int | None = None
    celsius: int | None = None
    sm_mhz: int | None = None
    used_bytes: int | None = None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One GPU's rows by kind; `gpu` and `module` are its two sensors, the rest stands with its time.

    `used_bytes` is all memory in use on the GPU, by whomever.
    """

    gpu: Trace
    module: Trace
    throttle: tuple[ThrottleReading, ...]
    celsius: tuple[tuple[float, int], ...]
    sm_mhz: tuple[tuple[float, int], ...]
    used_bytes: tuple[tuple[float, int], ...] = ()
    lost: str | None = None


def values_within(points: Sequence[tuple[float, int]], windows: Sequence[Window]) -> list[int]:
    """The values of a recording's rows within the windows; rows are in order of time, as a sampler writes them."""
    values: list[int] = []
    for window in windows:
        start = bisect_left(points, window.start, key=_moment)
        end = bisect_right(points, window.end, lo=start, key=_moment)
        values.extend(value for _, value in points[start:end])
    return values


_moment: Callable[[tuple[float, int]], float] = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Recordings:
    """What a sampler left, by UUID; `failure` is set when it ended before it was told to."""

    gpus: Mapping[str, Recording]
    failure: Reason | None = None


class Sampler:
    """A running sampler; leave its `with` block or call `stop`."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process, self._path = process, path
        self._found: Recordings | None = None
        self._tape = Tape()
        self._read_bytes = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def recordings(self) -> Recordings:
        """All that was sampled so far; the process goes on."""
        gpus, ended = self._all(), self._process.poll()
        all_lost = ended == 0 and all(recording.lost for recording in gpus.values())
        return Recordings(gpus, None if ended is None or all_lost else why.NO_SAMPLER)

    def stop(self, patience: float = STOP_SECONDS) -> Recordings:
        """Ends the process, by force after `patience` seconds, and gives all that it wrote; again: the same again."""
        if self._found is None:
            failure = self.recordings().failure
            self._end(patience)
            self._found = Recordings(self._all(), failure)
        return self._found

    def _all(self) -> dict[str, Recording]:
        """All whole rows; only what is new is read, for a run asks after each ABBA block."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # the last line may be half written
        self._read_bytes += len(whole)
        self._tape.add(SensorRow(**json.loads(line)) for line in whole.splitlines())
        return self._tape.recordings()

    def _end(self, patience: float) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def start(uuids: Sequence[str], folder: Path, interval: float = LEAST_INTERVAL_SECONDS) -> Sampler | Failure:
    """A sampler of these GPUs that has begun, or why there is none; ValueError above 20 Hz.

    It writes to `folder`, which the caller owns.
    """
    if interval < LEAST_INTERVAL_SECONDS:
        raise ValueError(f"at most 20 samples a second: the interval is {interval:g} s, the least is 0.05 s")
    path = folder / "power.jsonl"
    try:
        path.write_text("")
    except OSError as error:
        return Failure(reason=why.NO_SAMPLER.name, message=f"writing samples: {error}"[:1024])
    command = [sys.executable, "-m", __spec__.name, str(path), str(interval), str(os.getpid()), *uuids]
    # A session of its own: Ctrl-C reaches the agent, which reads the samples and then ends this.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    answer = _first_line(process)
    if answer.get("ready"):
        return Sampler(process, path)
    process.kill()
    process.communicate()
    message = answer.get("message", f"no answer within {START_SECONDS:g} s, exit code {process.returncode}")
    return Failure(reason=answer.get("failure", why.NO_SAMPLER.name), message=str(message)[:1024])


class Tape:
    """Rows as they come, kept by GPU and kind: what was added before is not gone through again."""

    def __init__(self, rows: Iterable[SensorRow] = ()) -> None:
        self._gpus: dict[str, _Kept] = {}
        self.add(rows)

    def add(self, rows: Iterable[SensorRow]) -> None:
        """Later rows; of any GPU."""
        for row in rows:
            self._gpus.setdefault(row.gpu, _Kept()).add(row)

    def recordings(self) -> dict[str, Recording]:
        """All that was added, by UUID."""
        return {uuid: kept.recording() for uuid, kept in self._gpus.items()}


def sample(
    nvml: Any, uuids: Sequence[str], clock: Callable[[], float], wait: Wait, interval: float = LEAST_INTERVAL_SECONDS
) -> Iterator[SensorRow]:
    """Rows of these GPUs, tick by tick, until `wait` says stop or all are lost; late ticks are left out, not made up.

    NVML must be initialised.
    """
    handles: dict[str, Any] = {}
    for uuid in uuids:
        try:
            handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            yield SensorRow(clock(), uuid, lost=str(error))
    began = clock()
    while handles:
        for uuid, handle in tuple(handles.items()):
            row = _row(nvml, uuid, handle, clock)
            if row.lost:
                del handles[uuid]
            yield row
        # the next tick that is at least half an interval away: a late one is left out, not made up for in a burst
        tick = int((clock() - began) / interval + 0.5) + 1
        if not wait(began + tick * interval):
            return


def _row(nvml: Any, uuid: str, handle: Any, clock: Callable[[], float]) -> SensorRow:
    """One GPU's row; its time lies amid the questions for power and energy."""
    before = clock()
    try:
        energy = _ask(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        fields = _fields(nvml, handle)
        at = (before + clock()) / 2
        return SensorRow(
            at,
            uuid,
            milliwatts=fields.get((POWER_INSTANT, GPU_SCOPE)),
            module_milliwatts=fields.get((POWER_INSTANT, MODULE_SCOPE)),
            millijoules=energy,
            throttle_ns={str(kind.field): fields[kind.field, 0] for kind in KINDS if (kind.field, 0) in fields},
            reasons=_ask(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            celsius=_ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            sm_mhz=_ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            used_bytes=_used(nvml, handle),
        )
    except nvml.NVMLError as error:
        return SensorRow(before, uuid, lost=str(error))


def _used(nvml: Any, handle: Any) -> int | None:
    """Without the driver's reserve, where the driver has NVML's second call."""
    ask = nvml.nvmlDeviceGetMemoryInfo
    memory = _ask(nvml, ask, handle, nvml.nvmlMemory_v2) or _ask(nvml, ask, handle)
    return None if memory is None else int(memory.used)


def _fields(nvml: Any, handle: Any) -> dict[tuple[int, int], int]:
    """Power by scope and the throttle counters, by (field, scope); what the driver does not support is left out."""
    asked = [(POWER_INSTANT, GPU_SCOPE), (POWER_INSTANT, MODULE_SCOPE), *((kind.field, 0) for kind in KINDS)]
    answers = _ask(nvml, nvml.nvmlDeviceGetFieldValues, handle, asked)
    pairs = zip(asked, answers or (), strict=False)
    if any(answer.nvmlReturn in GONE for answer in answers or ()):
        raise nvml.NVMLError(next(answer.nvmlReturn for answer in answers if answer.nvmlReturn in GONE))
    return {key: _value(nvml, answer) for key, answer in pairs if answer.nvmlReturn == nvml.NVML_SUCCESS}


def _value(nvml: Any, answer: Any) -> int:
    """The member of the union that the answer says it is."""
    members = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    return int(getattr(answer.value, members.get(answer.valueType, "ullVal")))


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer; None where there is none this time or ever; raises NVMLError where the GPU is gone."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if error.value in GONE:
            raise
        return None


@dataclass(slots=True)
class _Kept:
    """One GPU's rows by kind, as they came."""

    power: list[PowerSample] = field(default_factory=list)
    module: list[PowerSample] = field(default_factory=list)
    counter: list[CounterReading] = field(default_factory=list)
    throttle: list[ThrottleReading] = field(default_factory=list)
    celsius: list[tuple[float, int]] = field(default_factory=list)
    sm_mhz: list[tuple[float, int]] = field(default_factory=list)
    used_bytes: list[tuple[float, int]] = field(default_factory=list)
    lost: str | None = None

    def add(self, row: SensorRow) -> None:
        at = row.at
        if row.milliwatts is not None:
            self.power.append(PowerSample(at, row.milliwatts / 1e3))
        if row.module_milliwatts is not None:
            self.module.append(PowerSample(at, row.module_milliwatts / 1e3))
        if row.millijoules is not None:
            self.counter.append(CounterReading(at, row.millijoules))
        if row.celsius is not None:
            self.celsius.append((at, row.celsius))
        if row.sm_mhz is not None:
            self.sm_mhz.append((at, row.sm_mhz))
        if row.used_bytes is not None:
            self.used_bytes.append((at, row.used_bytes))
        if not row.lost:
            counters = {int(key): value for key, value in (row.throttle_ns or {}).items()}
            self.throttle.append(ThrottleReading(at, counters, row.reasons))
        self.lost = self.lost or row.lost

    def recording(self) -> Recording:
        return Recording(
            gpu=Trace(tuple(self.power), tuple(self.counter), lost=self.lost is not None),
            module=Trace(tuple(self.module), scope="module", lost=self.lost is not None),
            throttle=tuple(self.throttle),
            celsius=tuple(self.celsius),
            sm_mhz=tuple(self.sm_mhz),
            used_bytes=tuple(self.used_bytes),
            lost=self.lost,
        )


def _first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the process says of its start; empty when it says nothing in time or dies."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], START_SECONDS)[0]:
        return {}
    line = process.stdout.readline()
    return dict(json.loads(line)) if line.endswith(b"\n") else {}


def _tell(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def main(arguments: Sequence[str]) -> int:
    """The sampling process: FILE INTERVAL PARENT UUID..."""
    path, interval, parent, *uuids = arguments
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        _tell(failure="nvml_not_installed", message=f"nvidia-ml-py: {error}")
        return 1
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _tell(failure="nvml_unavailable", message=str(error))
        return 1

    def wait(until: float) -> bool:
        # stdin closes with the parent; a forked sibling that holds it open must not keep us alive
        closed = select.select([sys.stdin], [], [], max(0.0, until - time.monotonic()))[0]
        return not closed and os.getppid() == int(parent)

    _tell(ready=True)
    with open(path, "a", buffering=1, encoding="utf-8") as file:
        for row in sample(nvml, uuids, time.monotonic, wait, float(interval)):
            file.write(json.dumps({key: value for key, value in asdict(row).items() if value is not None}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
