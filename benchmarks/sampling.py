"""What sampling the sensors and the statistics of a timed window cost the CPU.

    python -m benchmarks.sampling [--gpus 8] [--seconds 300] [--live 5]

The sampler runs as it does in a run, a process at 20 Hz, on the tests' fake NVML: its own cost, without the driver's.
The statistics read a made-up run of that many GPUs and seconds, in 3 s windows of seven recipes and a control.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path

from precision_agent.power import sensor_sampling
from precision_agent.power.energy import Window
from precision_agent.power.sensor_sampling import SensorRow, recordings
from precision_agent.results.power_windows import WindowSensors, clocks, held_back, node_power_by_part, power_trace
from precision_agent.sampling.sample import POWER_PARTS, PowerWindow
from precision_api.result import Failure
from tests.support.fake_nvml import FakeNvml, compile_nvml

VARIANTS = 8
WINDOW_SECONDS = 3.0


def sampler_cost(gpus: int, seconds: float) -> float:
    """Seconds of CPU that the sampling process takes for each second of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.txt"
        script.write_text("".join(f"gpu GPU-{n}\npower 0 700\n" for n in range(gpus)))
        os.environ |= FakeNvml(compile_nvml(folder), script).environment()
        sampler = sensor_sampling.start([f"GPU-{n}" for n in range(gpus)], folder)
        if isinstance(sampler, Failure):
            raise SystemExit(f"{sampler.reason}: {sampler.message}")
        with sampler:
            before, began = cpu_seconds(sampler.pid), time.monotonic()
            time.sleep(seconds)
            return (cpu_seconds(sampler.pid) - before) / (time.monotonic() - began)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def statistics_cost(gpus: int, seconds: float) -> dict[str, float]:
    """Seconds of CPU: reading the samples once, and one window's share of the assessment of all variants."""
    rows = [
        SensorRow(tick * 0.05, f"GPU-{gpu}", milliwatts=700_000 + tick % 9, millijoules=round(tick * 35_000),
            throttle_ns={"74": tick * 1000, "269": 0, "270": 0, "271": 0}, celsius=60, sm_mhz=1500)
        for tick in range(round(seconds / 0.05))
        for gpu in range(gpus)
    ]  # fmt: skip
    count = math.floor(seconds / (WINDOW_SECONDS + 1))
    variants: list[list[PowerWindow]] = [[] for _ in range(VARIANTS)]
    for n in range(count):
        window = Window(n * (WINDOW_SECONDS + 1), n * (WINDOW_SECONDS + 1) + WINDOW_SECONDS)
        part = POWER_PARTS[n // VARIANTS % len(POWER_PARTS)]
        variants[n % VARIANTS].append(PowerWindow(part, window, 0.233, 0.0))
    began = time.process_time()
    found = recordings(rows)
    read = time.process_time() - began
    began = time.process_time()
    for windows in variants:
        spans = [one.window for one in windows]
        node_power_by_part(found, windows, list(found), WindowSensors({}, 0.1))
        held_back(found, spans)
        clocks(found, spans)
    assessed = time.process_time() - began
    began = time.process_time()
    power_trace(found, "", 0.0)
    return {"read": read, "window": assessed / count, "trace": time.process_time() - began, "windows": count}


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--live", type=float, default=5.0)
    given = parser.parse_args()
    cost = sampler_cost(given.gpus, given.live)
    print(f"sampling {given.gpus} GPUs at 20 Hz: {cost:.2%} of one core, in a process of its own")
    found = statistics_cost(given.gpus, given.seconds)
    print(f"a run of {given.seconds:g} s, {found['windows']:.0f} windows of {WINDOW_SECONDS:g} s:")
    print(f"  making recordings of all samples  {found['read'] * 1e3:8.1f} ms, once a palindrome")
    print(f"  energy, throttling and clocks     {found['window'] * 1e3:8.2f} ms a window, after the run")
    print(f"  the thinned trace                 {found['trace'] * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
