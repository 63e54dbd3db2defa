"""What a run knows of its sensors: samples while it runs, and what was found out before the first context."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from precision_agent.power.energy import Window
from precision_agent.power.preflight import Health
from precision_agent.power.reasons import NO_POWER_SENSOR
from precision_agent.power.sensor_sampling import Recordings
from precision_api.exchange.result import Failure, PowerScope, Sensor

USUAL_SENSOR_SECONDS = 0.1
"""A sensor's period where none was seen: A100 and H100 renew theirs so often."""


NO_SENSOR = Failure(reason=NO_POWER_SENSOR.name, message=NO_POWER_SENSOR.sentence)


class Sensors(Protocol):
    """Samples of all GPUs by UUID, on the clock of the run's windows."""

    def recordings(self) -> Recordings:
        """All that was sampled so far."""

    def stop(self) -> object:
        """Ends the sampling; again: nothing."""


@dataclass(frozen=True, slots=True)
class SensorFacts:
    """Sensors and what is known of them. Without `sensors` there is no energy figure, and `failure` says why.

    `idle_watts` is what all sensors of one scope drew together before any load; `modules` says on which board each GPU
    (UUID) sits. `rests` are the moments in which warm GPUs with our contexts on them had nothing to do.
    """

    sensors: Sensors | None = None
    failure: Failure = NO_SENSOR
    idle_watts: Mapping[PowerScope, float] = field(default_factory=dict)
    health: tuple[Health, ...] = ()
    sensor: Sensor | None = None
    sensor_seconds: float = USUAL_SENSOR_SECONDS
    modules: Mapping[str, str] = field(default_factory=dict)
    began: float = 0.0
    """When sampling began, on the samples' clock."""
    rests: tuple[Window, ...] = ()
    warms_up: bool = False
    """Whether clocks and temperature are there to wait for."""
