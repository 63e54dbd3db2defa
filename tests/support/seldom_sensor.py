"""A GPU whose sensor looks 25 ms in each 100 ms (A100, H100), under a load of which every joule is known."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from precision_agent.power.energy import CounterReading, PowerSample, Trace, Window
from precision_agent.power.sensor_sampling import Recording

PERIOD, LOOK = 0.1, 0.025
WAVES, HALF_WAVE, REST_WATTS = 10, 0.37, 120.0
FROM = WAVES * 2 * HALF_WAVE
"""The steps begin where the square wave has ended."""


@dataclass(frozen=True)
class Steps:
    """Equal steps, each at 690 W and then at 400 W, with a pause after each `calls` of them."""

    seconds: float
    busy: float
    waits: Iterator[float]
    calls: int = 1

    @property
    def watts(self) -> float:
        """While a step runs, in the mean: the truth."""
        return 690.0 * self.busy + 400.0 * (1 - self.busy)

    def pieces(self) -> Iterator[tuple[float, float, bool]]:
        """Seconds, watts, and whether a step runs; without end."""
        while True:
            for _ in range(self.calls):
                yield self.busy * self.seconds, 690.0, True
                yield (1 - self.busy) * self.seconds, 400.0, True
            yield next(self.waits), REST_WATTS, False


class SeldomSensor:
    """A square wave between rest and 650 W, then the steps until `seconds` after `FROM`."""

    def __init__(self, steps: Steps, seconds: float = 14.0) -> None:
        self._times, self._joules, self._worked = [-1.0], [0.0], [0.0]
        self._add(1.0, REST_WATTS, False)
        for _ in range(WAVES):
            self._add(HALF_WAVE, 650.0, False)
            self._add(HALF_WAVE, REST_WATTS, False)
        self.end = FROM + seconds
        for length, watts, works in steps.pieces():
            self._add(length, watts, works)
            if self._times[-1] > self.end + 1:
                break

    @property
    def rests(self) -> tuple[Window, ...]:
        """The waves' second halves."""
        return tuple(Window((2 * n + 1) * HALF_WAVE, (2 * n + 2) * HALF_WAVE) for n in range(WAVES))

    def running(self, window: Window) -> float:
        """The share of a window in which steps ran."""
        return (self._at(self._worked, window.end) - self._at(self._worked, window.start)) / window.seconds

    def recording(self) -> Recording:
        """Polled at 20 Hz; counter and reading share the sensor, so that their agreement shows nothing."""
        looks = range(int(self.end / PERIOD) + 1)
        seen = [self._mean(k * PERIOD - LOOK, k * PERIOD) for k in looks]
        counter = [0.0]
        for watts in seen:
            counter.append(counter[-1] + watts * PERIOD)
        ticks = [0.003 + 0.05 * k for k in range(int(self.end / 0.05) - 1)]
        power = tuple(PowerSample(at, seen[int(at / PERIOD)]) for at in ticks)
        readings = tuple(CounterReading(at, round(1e3 * counter[int(at / PERIOD)])) for at in ticks)
        return Recording(Trace(power, readings), Trace(scope="module"), (), (), ())

    def _mean(self, start: float, end: float) -> float:
        return (self._at(self._joules, end) - self._at(self._joules, start)) / (end - start)

    def _add(self, length: float, watts: float, works: bool) -> None:
        self._times.append(self._times[-1] + length)
        self._joules.append(self._joules[-1] + watts * length)
        self._worked.append(self._worked[-1] + (length if works else 0.0))

    def _at(self, sums: list[float], at: float) -> float:
        place = bisect_right(self._times, at)
        a, b = self._times[place - 1], self._times[place]
        return sums[place - 1] + (sums[place] - sums[place - 1]) * (at - a) / (b - a)
