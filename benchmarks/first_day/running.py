"""Runs steps one after the other within a budget, each in its own process, and keeps how every one of them ended."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Literal

from benchmarks.first_day.checks import counted, read_notebook
from benchmarks.first_day.keeping import MOST_LOG_BYTES, RECORD, RESULTS, TRACES, compressed, pack
from benchmarks.first_day.steps import Step
from precision_agent.power import nvml
from tests.rehearsal.answers import PREFIX

RESERVE_SECONDS = 12.0
"""Of the budget: for ending a step and for packing what it left."""
GRACE_SECONDS = 25.0
"""From the signal that asks a step to end until it is killed; the agent writes its partial result in this time."""
LAST_LINES = 30
Status = Literal["done", "failed", "timed out", "no time left"]
PACKAGES = ("torch", "transformer-engine", "transformer-engine-torch", "nvidia-cudnn-cu13", "nvidia-ml-py", "triton")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step's process ended: its exit code (None: it had to be ended), seconds, and the last lines that it
    printed."""

    code: int | None
    seconds: float
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One step as it turned out. `error` is set unless it is done; facts and checks are those it had until then."""

    step: str
    status: Status
    started_at: str
    seconds: float
    allowed_seconds: float
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, str]] = field(default_factory=list)


Start = Callable[[Step, float], Ended]
"""Runs one step for at most so many seconds."""


def allowed(step: Step, left: float) -> float | None:
    """Seconds that the step may take of what is left of the budget; None where it is not worth beginning."""
    seconds = min(step.most_seconds, left - RESERVE_SECONDS - GRACE_SECONDS)
    return seconds if seconds >= step.least_seconds else None


def run_steps(
    steps: Sequence[Step],
    budget: float,
    start: Start,
    notebook: Callable[[Step], Path],
    keep: Callable[[Sequence[Record]], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Record, ...]:
    """All steps in their order, whatever becomes of the one before; `keep` hears the records after each."""
    began = clock()
    records: list[Record] = []
    for step in steps:
        left = budget - (clock() - began)
        seconds = allowed(step, left)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if seconds is None:
            wanted = step.least_seconds + RESERVE_SECONDS + GRACE_SECONDS
            message = (
                f"{left:.0f} s of the budget were left, and it wants {wanted:.0f} s: run it in a command of its own"
            )
            records.append(Record(step.name, "no time left", now, 0.0, 0.0, message))
        else:
            records.append(_record(step, now, seconds, start(step, seconds), notebook(step)))
        keep(records)
    return tuple(records)


def _record(step: Step, now: str, seconds: float, ended: Ended, notebook: Path) -> Record:
    facts, checks = read_notebook(notebook)
    status: Status = "timed out" if ended.code is None else "failed" if ended.code else "done"
    error = ""
    if ended.code is None:
        error = f"ended after {ended.seconds:.0f} s\n" + "\n".join(ended.last_lines)
    elif ended.code:
        error = f"exit code {ended.code}\n" + "\n".join(ended.last_lines)
    return Record(step.name, status, now, round(ended.seconds, 1), round(seconds, 1), error, facts, checks)


class Log:
    """What the steps print goes to the screen and to a file, which stays below its limit."""

    def __init__(self, path: Path, most_bytes: int = MOST_LOG_BYTES) -> None:
        self._file: IO[bytes] = path.open("ab")
        self._left = most_bytes - path.stat().st_size
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def line(self, text: str) -> None:
        """One line, without its end."""
        print(text, flush=True)
        self.last.append(text[:2000])
        raw = f"{text}\n".encode(errors="replace")
        if self._left >= len(raw):
            self._file.write(raw)
            self._file.flush()
        elif self._left > 0:
            self._file.write(b"(the log is full: what follows was on the screen alone)\n")
            self._file.flush()
            self._left = 0
        self._left -= len(raw)

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def run_process(command: Sequence[str], seconds: float, log: Log, grace: float = GRACE_SECONDS) -> Ended:
    """Runs a command in a session of its own; after `seconds` it gets SIGTERM, after `grace` more its whole session is
    killed. So is what it leaves behind."""
    log.last.clear()
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, errors="replace", text=True
    )
    reader = threading.Thread(target=_read, args=(process.stdout, log), daemon=True)
    reader.start()
    late = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        _kill(process.pid)
        process.wait()
    reader.join(5.0)
    return Ended(None if late else process.returncode, time.monotonic() - began, tuple(log.last))


def _read(stream: IO[str] | None, log: Log) -> None:
    assert stream
    for line in stream:
        log.line(line.rstrip("\n"))


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def machine() -> dict[str, Any]:
    """The machine and its software, without importing torch; `simulated` is true in a rehearsal."""
    reading = nvml.read()
    gpus = [gpu.model_dump() for gpu in reading.gpus]
    return {
        "gpus": gpus,
        "driver": reading.driver,
        "nvml": reading.failure.message if reading.failure else "ok",
        "simulated": any(str(gpu["name"]).startswith(PREFIX) for gpu in gpus),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
        "commit": _commit(),
    }


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Installed versions; None where a package is not there."""
    installed: dict[str, str | None] = {}
    for name in packages:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = None
    return installed


def _commit() -> str | None:
    """The checkout's commit; PRECISION_PROFILER_COMMIT says it where a copy without its history runs."""
    if commit := os.environ.get("PRECISION_PROFILER_COMMIT"):
        return commit
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return git.stdout.strip() or None


@dataclass(frozen=True, slots=True)
class Keeper:
    """Writes what a command has so far to its folder, whole at any moment. `work` holds results and traces."""

    out: Path
    work: Path
    machine: Mapping[str, Any]
    asked: Mapping[str, Any]

    def __call__(self, records: Sequence[Record]) -> None:
        results = pack(compressed(self.work / "results"), self.out / RESULTS)
        traces = pack(compressed(self.work / "traces"), self.out / TRACES)
        record = {
            "version": 1,
            "machine": dict(self.machine),
            "asked": dict(self.asked),
            "steps": [asdict(record) for record in records],
            "results": {"kept": results.kept, "left_out": results.left_out},
            "traces": {"kept": traces.kept, "left_out": traces.left_out},
        }
        whole = self.out / f"{RECORD}.part"
        whole.write_text(json.dumps(record, indent=1), encoding="utf-8")
        whole.replace(self.out / RECORD)


def summary(records: Sequence[Record]) -> str:
    """A line for each step."""
    lines = [f"{'STEP':<20}{'STATUS':<15}{'SECONDS':>8}   CHECKS"]
    for record in records:
        checks = ", ".join(f"{many} {verdict}" for verdict, many in counted(record.checks).items() if many)
        words = checks or record.error.splitlines()[0][:90]
        lines.append(f"{record.step:<20}{record.status:<15}{record.seconds:>8.0f}   {words}")
    return "\n".join(lines)


def worker_command(step: Step, seconds: float, work: Path, options: Sequence[str]) -> list[str]:
    """The process of one step."""
    return [
        sys.executable, "-m", "benchmarks.first_day.worker", step.name, "--work", str(work),
        "--seconds", f"{seconds:.0f}", *options,
    ]  # fmt: skip
