"""A backend whose every sample the test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from precision_agent.backends.protocol import Machine, Origin, Power, Probe
from precision_agent.cases import Arm, Case, GemmCase
from precision_api.result import Backend, Failure, Memory, Software, Verification

VERIFIED = Probe("ok", verification=Verification(verdict="verified"))


def one_second(case: Case, arm: Arm) -> float | Failure:
    """The simplest device: everything takes a second."""
    return 1.0


@dataclass
class FakeBackend:
    """Answers from a function of case and arm and writes down what it was asked."""

    seconds: Callable[[Case, Arm], float | Failure] = one_second
    probes: Mapping[str, Probe] = field(default_factory=dict)
    watts: float | None = 1000.0
    name: Backend = "replay"
    asked: list[tuple[str, str]] = field(default_factory=list)
    settled: list[tuple[str, float]] = field(default_factory=list)

    def machine(self) -> Machine:
        return Machine("GB200", 4, (), Software(agent="0.1.0", stack_hash="0123"))

    def origin(self) -> Origin:
        return Origin("measured")

    def probe(self, arm: Arm) -> Probe:
        return self.probes.get(arm.recipe, VERIFIED)

    def settle(self, arm: Arm, seconds: float) -> None:
        self.settled.append((arm.label, seconds))

    def measure(self, case: Case, arm: Arm, seconds: float) -> float | Failure:
        self.asked.append((arm.label, f"{case.name}/{case.pass_}" if isinstance(case, GemmCase) else "training"))
        return self.seconds(case, arm)

    def power(self, arm: Arm) -> Power:
        return Power(self.watts, () if self.watts else ("counter_disagrees",))

    def memory(self, arm: Arm) -> Memory:
        return Memory(process_peak_bytes=1)
