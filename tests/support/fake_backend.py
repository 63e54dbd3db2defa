"""A device whose every sample the test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from precision_agent.cases import Arm, Case, GemmCase, TrainingCase
from precision_agent.protocol import (
    Device,
    Inspection,
    LossPlan,
    LossTrack,
    Origin,
    Part,
    Probe,
    Profile,
    Sample,
)
from precision_agent.sampling.devices import LocalDevices
from precision_api.recipes import Recipe
from precision_api.result import Backend, Failure, Gpu, Memory, Software, Verification

VERIFIED = Probe("ok", verification=Verification(verdict="verified"))
NOT_THERE = Failure(reason="not_available")


def one_second(case: Case, arm: Arm) -> float | Failure:
    """The simplest device: everything takes a second."""
    return 1.0


@dataclass
class FakeBackend:
    """Answers from a function of case and arm and writes down what it was asked.

    A training step of s seconds is all layers: a third forward, the rest backward, as deep as the model.
    """

    seconds: Callable[[Case, Arm], float | Failure] = one_second
    probes: Mapping[str, Probe] = field(default_factory=dict)
    prepares: Callable[[Case, Arm], Failure | None] = lambda case, arm: None
    losses: Callable[[Arm, LossPlan], LossTrack | Failure] = lambda arm, plan: NOT_THERE
    profiles: Callable[[Arm], Profile | Failure] = lambda arm: NOT_THERE
    depths: Callable[[Arm], Sample | Failure] = lambda arm: NOT_THERE
    inspects: Callable[[Arm], Inspection] = lambda arm: Inspection()
    uuid: str | None = None
    name: Backend = "replay"
    now: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    settled: list[tuple[str, float]] = field(default_factory=list)
    windows: list[tuple[str, Part, float]] = field(default_factory=list)

    def device(self) -> Device:
        gpu = Gpu(uuid=self.uuid, name="NVIDIA GB200") if self.uuid else None
        return Device("GB200" if gpu else "CPU", Software(agent="0.1.0", stack_hash="0123"), gpu)

    def origin(self) -> Origin:
        return Origin("measured")

    def probe(self, arm: Arm) -> Probe:
        return self.probes.get(arm.recipe, VERIFIED)

    def prepare(self, case: Case, arm: Arm) -> Failure | None:
        return self.prepares(case, arm)

    def settle(self, arm: Arm, seconds: float) -> Sample | Failure:
        self.settled.append((arm.label, seconds))
        return self._sample(1.0, seconds)

    def measure(self, case: Case, arm: Arm, seconds: float) -> Sample | Failure:
        self.asked.append((arm.label, f"{case.name}/{case.pass_}" if isinstance(case, GemmCase) else "training"))
        found = self.seconds(case, arm)
        if isinstance(found, Failure):
            return found
        return self._sample(found, seconds, case if isinstance(case, TrainingCase) else None)

    def power_window(
        self, arm: Arm, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> Sample | Failure:
        self.windows.append((arm.label, part, longest_pause_seconds))
        return self._sample(0.233, seconds)

    def second_depth(self, arm: Arm, seconds: float) -> Sample | Failure:
        return self.depths(arm)

    def profile(self, arm: Arm, trace: Path | None = None) -> Profile | Failure:
        return self.profiles(arm)

    def inspect(self, arm: Arm) -> Inspection:
        return self.inspects(arm)

    def loss_run(self, arm: Arm, plan: LossPlan) -> LossTrack | Failure:
        return self.losses(arm, plan)

    def memory(self, arm: Arm) -> Memory:
        return Memory(process_peak_bytes=1)

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        return 1.0

    def _sample(self, each: float, seconds: float, case: TrainingCase | None = None) -> Sample:
        start, self.now = self.now, self.now + seconds
        if case is None:
            return Sample(each, 1, start, self.now)
        regions = {"layers_forward": each / 3, "layers_backward": each * 2 / 3}
        return Sample(each, 1, start, self.now, regions, case.layers)  # type: ignore[arg-type]


def crew_of(*backends: FakeBackend) -> LocalDevices:
    """A node of these devices."""
    return LocalDevices(backends, len(backends))
