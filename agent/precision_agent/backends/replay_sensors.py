"""The sensors of a replayed node: samples made up from what each GPU is said to have drawn, on the replay's clock.

They are read by the same arithmetic as real ones. There are samples within the timed windows only: what a node drew
between them is of no figure.
"""

import math
from collections.abc import Iterator, Sequence

from precision_agent.backends.replay import PowerInterval, Replay
from precision_agent.backends.replay_tables import IDLE_SHARE, THROTTLED_SHARE
from precision_agent.power.energy import Trace
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, Recordings, SensorRow, Tape
from precision_agent.power.throttle import KINDS
from precision_api.exchange.result import Sensor

INTERVAL_SECONDS = 0.1
SAMPLES_OF_A_WINDOW = 20
LONGEST_INTERVAL_SECONDS = 0.4
WRONG_COUNTER = 1.2
"""With the fault `power_invalid` the counter grows that many times too fast."""
HARDWARE_THERMAL = next(kind.field for kind in KINDS if kind.name == "hardware_thermal")
HOT_CELSIUS = 92


class ReplaySensors:
    """Sensors of the replayed GPUs; `recordings` is made up to the replay's present moment."""

    def __init__(self, gpus: Sequence[Replay]) -> None:
        self._tapes = tuple(_Tape(gpu) for gpu in gpus)

    def recordings(self) -> Recordings:
        """All samples so far."""
        return Recordings({tape.uuid: tape.recording() for tape in self._tapes})

    def stop(self) -> None:
        """There is nothing to stop."""


def sensing(gpus: Sequence[Replay]) -> SensorFacts:
    """What a run needs to know of the replayed sensors."""
    return SensorFacts(
        sensors=ReplaySensors(gpus),
        idle_watts={"gpu": sum(gpu.part.power_limit_watts * IDLE_SHARE for gpu in gpus)},
        sensor=Sensor(message="replayed: no sensor was calibrated"),
        sensor_seconds=INTERVAL_SECONDS,
    )


class _Tape:
    """One GPU's samples: at both edges of each window and evenly between; the counter adds up what was drawn."""

    def __init__(self, gpu: Replay) -> None:
        self._gpu, self.uuid = gpu, gpu.uuid
        self._samples = Tape()
        self._seen = 0
        self._joules = self._throttled = self._last = 0.0
        self._hot = gpu.options.fault == "throttled" and gpu.index == 0
        self._factor = WRONG_COUNTER if gpu.options.fault == "power_invalid" else 1.0

    def recording(self) -> Recording:
        """All samples so far; what was made up before stays."""
        for interval in self._gpu.power_intervals[self._seen :]:
            self._samples.add(self._window(interval))
        self._seen = len(self._gpu.power_intervals)
        nothing = Recording(Trace(), Trace(scope="module"), (), (), ())
        return self._samples.recordings().get(self.uuid, nothing)

    def _window(self, interval: PowerInterval) -> Iterator[SensorRow]:
        self._joules += self._gpu.part.power_limit_watts * IDLE_SHARE * (interval.start - self._last)
        for at in _moments(interval):
            spent = at - interval.start
            held = round((self._throttled + THROTTLED_SHARE * spent) * 1e9)
            yield SensorRow(
                at,
                self.uuid,
                milliwatts=round(interval.watts * 1e3),
                millijoules=round((self._joules + interval.watts * spent) * self._factor * 1e3),
                throttle_ns={str(HARDWARE_THERMAL): held} if self._hot else {},
                celsius=HOT_CELSIUS if self._hot else None,
            )
        self._joules += interval.watts * (interval.end - interval.start)
        self._throttled += THROTTLED_SHARE * (interval.end - interval.start)
        self._last = interval.end


def _moments(drawn: PowerInterval) -> Iterator[float]:
    """From start to end, inclusive; the start a hair later, for the last window ended there."""
    length = drawn.end - drawn.start
    spacing = min(max(INTERVAL_SECONDS, length / SAMPLES_OF_A_WINDOW), LONGEST_INTERVAL_SECONDS)
    steps = max(1, math.ceil(length / spacing - 1e-9))
    yield drawn.start + min(1e-6, length / 4)
    for step in range(1, steps + 1):
        yield drawn.start + length * step / steps
