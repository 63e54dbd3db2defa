"""The narrow door between the run and whatever takes its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from precision_agent.cases import Arm, Case
from precision_api.exits import Exit
from precision_api.result import (
    Availability,
    Failure,
    Gpu,
    Memory,
    PowerScope,
    Provenance,
    Simulated,
    Software,
    Verification,
)
from precision_api.result import Backend as BackendName


class Refusal(Exception):
    """There will be no result: `exit` is the row of the table of exit codes, the message tells this case."""

    def __init__(self, exit_: Exit, message: str) -> None:
        super().__init__(message)
        self.exit = exit_
        self.message = message


@dataclass(frozen=True, slots=True)
class Machine:
    """What is measured: `devices` GPUs (or 1 CPU) computing at once. A CPU has no `gpus`."""

    product: str
    devices: int
    gpus: tuple[Gpu, ...]
    software: Software


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the figures come from; a made-up field makes the whole result simulated."""

    provenance: Provenance
    sources: tuple[str, ...] = ()
    simulated: tuple[Simulated, ...] = ()


UNKNOWN = Verification(verdict="unknown")


@dataclass(frozen=True, slots=True)
class Probe:
    """What one forward and backward pass of a recipe showed: does it run, and in which precision."""

    availability: Availability
    reason: str = ""
    verification: Verification = UNKNOWN


@dataclass(frozen=True, slots=True)
class Power:
    """Mean draw of all devices over an arm's training segments; `watts` is None where there are `reasons`."""

    watts: float | None
    reasons: tuple[str, ...] = ()
    scope: PowerScope = "gpu"


class Backend(Protocol):
    """Takes samples. A figure that can't be had is a Failure, never an exception and never 0."""

    @property
    def name(self) -> BackendName:
        """Which backend, as the result names it."""

    def machine(self) -> Machine:
        """The devices and the software; raises Refusal where they are not what the request promised."""

    def origin(self) -> Origin:
        """Where the figures of this run come from; asked after the last sample."""

    def probe(self, arm: Arm) -> Probe:
        """Runs the arm's recipe once, forward and backward, and checks its numbers."""

    def settle(self, arm: Arm, seconds: float) -> None:
        """Runs the arm's load untimed, so that clocks and temperature are its own."""

    def measure(self, case: Case, arm: Arm, seconds: float) -> float | Failure:
        """Mean seconds of one call over about `seconds` of calls, at least one."""

    def power(self, arm: Arm) -> Power:
        """Draw during the arm's training segments."""

    def memory(self, arm: Arm) -> Memory:
        """Peak memory of the arm, bytes."""
