"""A device whose every sample the test decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from precision_agent import protocol
from precision_agent.cases import Case, GemmCase, TrainingCase, Variant
from precision_agent.sampling.devices import LocalDevices
from precision_api.exchange.result import Backend, Failure, Gpu, Memory, Software, Verification
from precision_api.facts.recipes import Recipe

ASSUMED = protocol.Probe("ok", verification=Verification(verdict="assumed"))
NOT_THERE = Failure(reason="not_available")


def one_second(case: Case, variant: Variant) -> float | Failure:
    """The simplest device: everything takes a second."""
    return 1.0


@dataclass
class FakeBackend:
    """Answers from a function of case and variant and writes down what it was asked.

    A training step of s seconds is all layers: a third forward, the rest backward, as deep as the model.
    """

    seconds: Callable[[Case, Variant], float | Failure] = one_second
    probes: Mapping[str, protocol.Probe] = field(default_factory=dict)
    prepares: Callable[[Case, Variant], Failure | None] = lambda case, variant: None
    losses: Callable[[Variant, protocol.LossPlan], protocol.LossTrack | Failure] = lambda variant, plan: NOT_THERE
    profiles: Callable[[Variant], protocol.Profile | Failure] = lambda variant: NOT_THERE
    depths: Callable[[Variant], protocol.Sample | Failure] = lambda variant: NOT_THERE
    inspects: Callable[[Variant], protocol.Inspection] = lambda variant: protocol.Inspection()
    own_calls: Callable[[Variant], Mapping[protocol.GemmName, float] | Failure] = lambda variant: NOT_THERE
    uuid: str | None = None
    name: Backend = "replay"
    now: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    settled: list[tuple[str, float]] = field(default_factory=list)
    windows: list[tuple[str, protocol.Part, float]] = field(default_factory=list)

    def device(self) -> protocol.Device:
        gpu = Gpu(uuid=self.uuid, name="NVIDIA GB200") if self.uuid else None
        return protocol.Device("GB200" if gpu else "CPU", Software(agent="0.1.0", stack_hash="0123"), gpu)

    def provenance(self) -> protocol.ResultProvenance:
        return protocol.ResultProvenance("replayed")

    def probe(self, variant: Variant) -> protocol.Probe:
        return self.probes.get(variant.recipe, ASSUMED)

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        return self.prepares(case, variant)

    def settle(self, variant: Variant, seconds: float, load: protocol.Load | None = None) -> protocol.Sample | Failure:
        self.settled.append((variant.label, seconds))
        return self._sample(1.0, seconds)

    def measure(self, case: Case, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        self.asked.append((variant.label, f"{case.name}/{case.pass_}" if isinstance(case, GemmCase) else "training"))
        found = self.seconds(case, variant)
        if isinstance(found, Failure):
            return found
        return self._sample(found, seconds, case if isinstance(case, TrainingCase) else None)

    def power_window(
        self,
        variant: Variant,
        part: protocol.Part,
        seconds: float,
        longest_pause_seconds: float,
        seed: int,
        calls: int = 1,
    ) -> protocol.Sample | Failure:
        self.windows.append((variant.label, part, longest_pause_seconds))
        return self._sample(0.233, seconds)

    def second_depth(self, variant: Variant, seconds: float) -> protocol.Sample | Failure:
        return self.depths(variant)

    def own_gemm_calls(
        self, variant: Variant, lead_seconds: float, seconds: float, repeats: int
    ) -> tuple[Mapping[protocol.GemmName, float], ...] | Failure:
        self.asked.append((variant.label, "own calls"))
        found = self.own_calls(variant)
        return found if isinstance(found, Failure) else (found,) * repeats

    def profile(
        self, variant: Variant, load: protocol.Load, lead_seconds: float, trace: Path | None = None
    ) -> protocol.Profile | Failure:
        self.asked.append((variant.label, f"profile/{load}"))
        return self.profiles(variant)

    def inspect(self, variant: Variant) -> protocol.Inspection:
        return self.inspects(variant)

    def loss_run(self, variant: Variant, plan: protocol.LossPlan) -> protocol.LossTrack | Failure:
        return self.losses(variant, plan)

    def memory(self, variant: Variant) -> Memory:
        return Memory(process_peak_bytes=1)

    def plain(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        return 1.0

    def _sample(self, duration: float, seconds: float, case: TrainingCase | None = None) -> protocol.Sample:
        start, self.now = self.now, self.now + seconds
        if case is None:
            return protocol.Sample(duration, 1, start, self.now)
        regions = {"layers_forward": duration / 3, "layers_backward": duration * 2 / 3}
        return protocol.Sample(duration, 1, start, self.now, regions, case.layers)  # type: ignore[arg-type]


def devices_of(*backends: FakeBackend) -> LocalDevices:
    return LocalDevices(backends, len(backends))
