"""Whether a run's power sensors void energy without a fault, and whether each counter that is 5 % off is found.

    python -m benchmarks.sensors --nodes 10000

Simulated nodes of 1 to 8 GPUs: sensors renewed every 20 to 200 ms, each time with the mean of the last 25 to 100 ms;
layers of 5 to 400 ms whose draw falls by up to 40 % for a part of them; three arms of a quick run, paused as the agent
pauses. A counter sums up what its sensor saw, or all energy, by chance of the node. Each node is judged as it is, and
with the first GPU's counter or power reading 5 % high or low; every second one tells the module's draw too, 120 W above
the GPU's. --first goes on where another command was ended.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import numpy as np

from precision_agent.power import aliasing, energy
from precision_agent.power.energy import CounterReading, PowerSample, Trace, Window
from precision_agent.power.sensor_sampling import Recording
from precision_agent.sampling import calibrate

REST_WATTS, LOAD_WATTS, ARMS, VISITS, POLL = 120.0, 690.0, 3, 8, 0.05
TRAINING_SECONDS, POWER_SECONDS = 0.42, 1.33
"""Of one visit of a quick run."""
FAULT = 0.05


@dataclass(frozen=True)
class Layer:
    """Equal layers: for `busy` of its seconds it draws LOAD_WATTS, for the rest `low` of them."""

    seconds: float
    busy: float
    low: float

    def pieces(self, count: int) -> list[tuple[float, float]]:
        """Seconds and watts of so many layers, one after the other."""
        part = self.busy * self.seconds
        return [(part, LOAD_WATTS), (self.seconds - part, self.low * LOAD_WATTS)] * count


class Timeline:
    """What a node's GPUs draw, piece by piece, from 0 s on."""

    def __init__(self) -> None:
        self.pieces = [(1.0, REST_WATTS)]
        self.now = 1.0

    def add(self, pieces: Sequence[tuple[float, float]]) -> Window:
        """When these pieces were."""
        began = self.now
        self.pieces += pieces
        self.now += math.fsum(seconds for seconds, _ in pieces)
        return Window(began, self.now)

    def joules(self, at: np.ndarray) -> np.ndarray:
        """Until each moment."""
        seconds, watts = np.array(self.pieces).T
        times = np.concatenate([[0.0], np.cumsum(seconds)])
        return np.interp(at, times, np.concatenate([[0.0], np.cumsum(seconds * watts)]))


@dataclass(frozen=True)
class Sensor:
    """Renewed every `period` from `phase` on, it shows the mean of the last `look` seconds."""

    period: float
    look: float
    phase: float
    sums_all: bool

    def recording(self, timeline: Timeline, chance: Random) -> Recording:
        """Polled at 20 Hz."""
        renewed = np.arange(self.phase, timeline.now + 1.0, self.period)
        joules = timeline.joules(renewed)
        seen = (joules - timeline.joules(renewed - self.look)) / self.look
        counter = joules if self.sums_all else np.cumsum(seen * self.period)
        renewed_until = self.phase + self.period * len(renewed)
        ticks = np.arange(self.phase + self.period + chance.uniform(0, POLL), renewed_until - 2 * POLL, POLL)
        ticks = ticks + np.random.default_rng(chance.randrange(1 << 30)).uniform(0, 0.002, len(ticks))
        place = ((ticks - self.phase) / self.period).astype(int)
        at, watts, millijoules = (
            ticks.tolist(),
            seen[place].tolist(),
            np.rint(1e3 * counter[place]).astype(int).tolist(),
        )
        power = tuple(map(PowerSample, at, watts))
        return Recording(Trace(power, tuple(map(CounterReading, at, millijoules))), Trace(scope="module"), (), (), ())


@dataclass(frozen=True)
class Node:
    """A node's recordings by GPU, the square wave's window, and the windows of all arms' training and GEMMs."""

    recordings: dict[str, Recording]
    square: Window
    timed: tuple[list[Window], list[Window]]

    def with_fault(self, factor: float, of_reading: bool = False) -> "Node":
        """The first GPU's counter runs that much too fast, or its power reads that much too high."""
        name, first = next(iter(self.recordings.items()))
        if of_reading:
            faulty = replace(first.gpu, power=tuple(PowerSample(row.at, factor * row.watts) for row in first.gpu.power))
        else:
            counter = tuple(CounterReading(row.at, round(factor * row.millijoules)) for row in first.gpu.counter)
            faulty = replace(first.gpu, counter=counter)
        return replace(self, recordings={name: replace(first, gpu=faulty)})

    def with_module(self) -> "Node":
        """The driver tells the draw of each GPU's module too."""
        return replace(self, recordings={name: _on_a_module(recording) for name, recording in self.recordings.items()})

    def voids(self) -> bool:
        """Whether the agent has no energy for it."""
        if calibrate.counter_scope(calibrate.calibrated(self.recordings, self.square)) == "more":
            return False  # energy is the reading's
        loads = [energy.joined(windows) for windows in self.timed]
        return any(energy.counter_off(recording.gpu, loads) for recording in self.recordings.values())

    def square_apart(self) -> bool:
        """Whether the square wave alone finds counter and integral apart."""
        return calibrate.calibrated(self.recordings, self.square).accuracy != "calibrated"


def _on_a_module(recording: Recording) -> Recording:
    power = tuple(PowerSample(sample.at, sample.watts + REST_WATTS) for sample in recording.gpu.power)
    return replace(recording, module=Trace(power, scope="module"))


def node(seed: int) -> Node:
    """The node of this seed."""
    chance, line = Random(f"sensors/{seed}"), Timeline()
    period, seconds, gpus = chance.uniform(0.02, 0.2), chance.uniform(0.005, 0.4), chance.randint(1, 8)
    look, sums_all = min(period, chance.uniform(0.025, 0.1)), chance.random() < 0.5
    first = Layer(seconds, chance.uniform(0.5, 0.9), chance.uniform(0.6, 1.0))
    square = _square(line, first, chance)
    layers = [first, *(replace(first, seconds=seconds * chance.uniform(0.6, 1.0)) for _ in range(ARMS - 1))]
    timed: tuple[list[Window], list[Window]] = ([], [])
    for _ in range(VISITS):
        for layer in layers:
            for load, windows in zip(timed, _visit(line, layer, period, chance), strict=True):
                load += windows
    line.add([(1.0, REST_WATTS)])
    sensors = [Sensor(period, look, chance.uniform(0, period), sums_all) for _ in range(gpus)]
    return Node({f"GPU-{place}": one.recording(line, chance) for place, one in enumerate(sensors)}, square, timed)


def _square(line: Timeline, layer: Layer, chance: Random) -> Window:
    began = line.now
    for pause in islice(calibrate.wave_pauses(chance.randrange(1 << 30)), calibrate.WAVES):
        line.add([(chance.uniform(0, 0.002), REST_WATTS)])
        line.add(layer.pieces(math.ceil(calibrate.HALF_WAVE_SECONDS / layer.seconds)))
        line.add([(pause, REST_WATTS)])
    window = Window(began, line.now)
    line.add([(1.0, REST_WATTS)])
    return window


def _visit(line: Timeline, layer: Layer, period: float, chance: Random) -> tuple[list[Window], list[Window]]:
    """A discarded load, then the windows of the training step with its power window, and of 12 GEMMs; a few
    milliseconds apart."""

    def gap() -> None:
        line.add([(chance.uniform(0.002, 0.02), REST_WATTS)])

    gap()
    line.add(layer.pieces(math.ceil(1 / layer.seconds)))
    gap()
    training = line.add(layer.pieces(math.ceil(TRAINING_SECONDS / layer.seconds)))
    gap()
    longest, calls = aliasing.sure_pause([layer.seconds], period)
    waits, began = aliasing.pauses(chance.randrange(1 << 30), longest), line.now
    while line.now < began + max(POWER_SECONDS, 62 * period / VISITS):  # 60 updates, else there is no energy anyway
        line.add(layer.pieces(calls))
        if longest:
            line.add([(next(waits), REST_WATTS)])
    power = Window(began, line.now)
    gemms = []
    for _ in range(12):
        gap()
        gemms.append(line.add([(1.75 / 12, chance.uniform(0.8, 1.0) * LOAD_WATTS)]))
    return [training, power], gemms


def main() -> int:
    """Prints the shares; 1 where more than 0.1 % are void without a fault, or a fault was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    void = square = missed = gpus = 0
    for seed in range(asked.first, asked.first + asked.nodes):
        made = node(seed) if seed % 4 < 2 else node(seed).with_module()
        gpus += len(made.recordings)
        void += made.voids()
        square += made.square_apart()
        missed += not made.with_fault(1 + FAULT * (1 if seed % 2 else -1), seed % 8 > 3).voids()
        done = seed - asked.first + 1
        if done % 500 == 0 or done == asked.nodes:
            print(
                f"nodes {asked.first} to {seed} ({gpus} GPUs): {void} without a fault have no energy "
                f"({void / done:.2%}), {missed} of {done} faults missed; by the square wave alone {square} of the "
                "nodes have an unverified sensor",
                flush=True,
            )
    return 1 if missed or void > asked.nodes / 1000 else 0


if __name__ == "__main__":
    raise SystemExit(main())
