"""From request to result: the one way that every backend takes.

Free of process state: the clock, the wish to stop and the options come in as arguments, so that a pool of processes can
run many of these, and a test can run one at any time of its choosing.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import Case, TrainingCase, Variant, cases_of, refusal_of
from precision_agent.method.duration import profile_seconds
from precision_agent.power.energy import Window
from precision_agent.power.sensor_sampling import Recordings
from precision_agent.protocol import Probe, Refusal
from precision_agent.results.power_windows import held_back
from precision_agent.results.profiling import Looking, look
from precision_agent.results.result import RunFacts, measured, result_of
from precision_agent.results.train import Measured
from precision_agent.run.open import Opened, Wanted, open_node
from precision_agent.run.progress import RUNS, after_notes, failure_note, probe_notes, request_note
from precision_agent.run.request_reading import halved, read_request
from precision_agent.run.stops import RunStops
from precision_agent.run.trial import fitted, on_cpu
from precision_agent.sampling import sample
from precision_agent.sampling.calibrate import WAVES, calibrated, period, square_wave
from precision_agent.sampling.devices import Call, Stop
from precision_agent.sampling.profiles import LEADS, Leads
from precision_agent.sampling.steady import LONGEST_SECONDS, WarmUp, warm_up
from precision_api.exchange import exits
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure, MeasurementResult, Memory, Steadiness
from precision_api.exchange.wire import WireError, encode, encode_refusal
from precision_api.models.workload import resolve

PROBE_SECONDS = 60.0
"""A probe in a subprocess imports everything once more."""
WARM_UP_SHARE = 0.25
"""Of the deadline, at most, for warming up."""
Progress = Callable[[str, float, float], None]
"""Hears the phase, the share of it that is done, and the seconds that are left of it (NaN: not known)."""
Note = Callable[[str], None]
"""Hears what a run finds out, when it does: the machine, what fails and why."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time (seconds since 1970) for the record, monotonic time for the deadline."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: exit code, termination message, last lines of the log; `result` is None without one."""

    exit_code: int
    message: bytes
    lines: tuple[str, ...] = ()
    result: MeasurementResult | None = None

    @property
    def log(self) -> bytes:
        """What stands last in the agent's log: an empty line, so that nothing is glued to the first, then the lines."""
        return b"".join(line.encode() + b"\n" for line in ("", *self.lines)) if self.lines else b""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run is told from outside, beside its request.

    `terminated` is asked before each sample; `checkpoint` gets the outcome so far after each ABBA block that allows
    intervals, so that a killed run leaves a partial result; `trace` is the folder for profiled steps. `warm_up` and
    `waves` say how long the GPUs are warmed and their sensors calibrated, `leads` how long they work before a profile.
    `progress` and `note` are called between samples, never within a timed window.
    """

    clock: Clock = Clock()
    terminated: Callable[[], bool] = lambda: False
    checkpoint: Callable[[Outcome], None] | None = None
    progress: Progress = lambda phase, done, left: None
    note: Note = lambda text: None
    trace: Path | None = None
    opener: Callable[[Wanted, MeasurementRequest, Stop], Opened] = open_node
    warm_up: WarmUp = field(default_factory=WarmUp)
    waves: int = WAVES
    leads: Leads = LEADS


def run_request(request_json: str, backend: str, options: ReplayOptions | None = None, **around: Any) -> Outcome:
    """The outcome of a run on the backend of this name; `around`: fields of Surroundings."""
    return run_wanted(request_json, Wanted(backend, options=options or ReplayOptions()), Surroundings(**around))


def run_wanted(request_json: str, wanted: Wanted, around: Surroundings) -> Outcome:
    """Measures what the request asks for and says how that ended: a planned failure is an Outcome, no exception."""
    try:
        return _Run(read_request(request_json), wanted, around).outcome()
    except Refusal as refusal:
        return refused(refusal.exit, refusal.message)


def refused(exit_: exits.Exit, message: str) -> Outcome:
    return Outcome(exit_.code, encode_refusal(exit_.reason, message))


class _OutOfMemory(Exception):
    """The training step of a variant does not fit, and the request allows a smaller micro batch."""


class _Run:
    """One run: from the open devices to the outcome."""

    def __init__(self, request: MeasurementRequest, wanted: Wanted, around: Surroundings) -> None:
        self.asked, self.request = request, request
        self.wanted, self.around = wanted, replace(around, progress=self._progress)
        self.phases: list[tuple[str, float]] = []
        self.report = around.progress
        kernels = wanted.backend != "replay" and not on_cpu(wanted.device, request)
        kept = profile_seconds(request) if kernels else 0.0
        self.stops = RunStops(around.terminated, around.clock.monotonic, request.deadline_seconds, kept)
        self.stop = self.stops.everything
        self.started_at = around.clock.wall()
        self.memory: dict[str, Memory] = {}
        self.notes: tuple[str, ...] = ()
        if wanted.backend != "replay" and on_cpu(wanted.device, request):
            self.request, self.notes = resolved(lambda: fitted(request))

    def _progress(self, phase: str, done: float, left: float) -> None:
        if not self.phases or self.phases[-1][0] != phase:
            self.phases.append((phase, self.around.clock.wall()))
        self.report(phase, done, left)

    def _note(self, *texts: str) -> None:
        for text in texts:
            self.around.note(text)

    def _ended(self, facts: RunFacts) -> Outcome:
        return outcome_of(result_of(replace(facts, phases=tuple(self.phases)), self.around.clock.wall()))

    def outcome(self) -> Outcome:
        """Measures and publishes; out of memory begins anew with a smaller micro batch where that is allowed.

        Anew is a new set of devices; the sensors go on, with the health and the idle power from before the first one.
        """
        wanted = self.wanted
        self.around.note(request_note(self.asked))
        with ExitStack() as ends:
            while True:
                self.around.progress("preflight", 0.0, math.nan)
                opened = self.around.opener(wanted, self.request, self.stop)
                ends.callback(opened.close)
                try:
                    return self._measured(opened)
                except _OutOfMemory as error:
                    smaller = halved(self.request)
                    assert smaller is not None, "out of memory is raised only where the micro batch can be halved"
                    self.request = smaller
                    self.notes = (f"the micro batch was halved to {smaller.workload.micro_batch_size}: {error}"[:1024],)
                    self.around.note(self.notes[0])
                opened.devices.close()
                wanted = replace(wanted, sensing=opened.sensing)

    def _measured(self, opened: Opened) -> Outcome:
        facts = self._prepared(opened)
        variants = tuple(variant for variant, probe in facts.probes.items() if probe.availability in RUNS)
        failures = self._rehearsed(opened, facts, variants)
        facts = self._warmed(opened, facts, variants)
        samples = self._sampled(opened, facts, variants, failures)
        self.stops.timed(samples.passes)
        if samples.ended:
            self.around.note(f"ends early: {samples.ended.message}")
        if variants and not samples.passes:
            ended = samples.ended or Failure(reason="nothing_measured")
            raise Refusal(exits.NOTHING_FINISHED, f"{ended.message}; no palindrome was complete")
        facts = self._up_to_now(opened, measured(facts, samples), variants)
        after = look(self._looking(opened, facts, variants))
        self._note(*after_notes(after))
        # what was cut off here has no figure of its own to tell: the whole is a partial result
        facts = measured(replace(facts, after=after), replace(samples, ended=samples.ended or self.stop()))
        return self._ended(self._up_to_now(opened, facts, variants))

    def _looking(self, opened: Opened, facts: RunFacts, variants: Sequence[Variant]) -> Looking:
        sensors = opened.sensing.sensors
        return Looking(
            devices=opened.devices,
            request=self.request,
            run=facts.run,
            variants=variants,
            stops=self.stops,
            report_progress=lambda phase, done: self.around.progress(phase, done, math.nan),
            recorded=lambda: sensors.recordings().gpus if sensors else {},
            trace=self.around.trace,
            leads=self.around.leads,
        )

    def _prepared(self, opened: Opened) -> RunFacts:
        """Devices, cases and one probe for each recipe, spread over the devices."""
        workload = resolved(lambda: resolve(self.request.workload))
        cases = cases_of(self.request, workload)
        self.around.progress("start", 0.0, math.nan)
        machine = opened.devices.machine()
        self._note(f"{machine.devices} x {machine.product}, measured by {opened.devices.name}", *opened.notes)
        self.around.progress("probe", 0.0, math.nan)
        by_recipe = {variant.recipe: variant for variant in reversed(cases.variants)}
        calls = [Call("probe", (variant,), PROBE_SECONDS, variant) for variant in by_recipe.values()]
        answers = opened.devices.spread(calls)
        probes = dict(zip(by_recipe, map(_probe, answers), strict=True))
        self._note(*probe_notes(probes))
        kept = self.request.last_layers_bf16
        return RunFacts(
            asked=self.asked,
            request=self.request,
            run=Measured(cases, sample.Samples(0, {}, {}), workload, machine.names, machine.gpus, layers_bf16=kept),
            backend=opened.devices.name,
            machine=machine,
            provenance=opened.devices.provenance(),
            probes={variant: probes[variant.recipe] for variant in cases.variants},
            sensing=opened.sensing,
            recordings=Recordings({}),
            began=opened.sensing.began,
            started_at=self.started_at,
            notes=(*opened.notes, *self.notes),
        )

    def _rehearsed(self, opened: Opened, facts: RunFacts, variants: Sequence[Variant]) -> dict[sample.CaseKey, Failure]:
        """Everything built, checked and captured once before anything is timed; what fails is not tried again.

        The models of all variants first: GEMMs that had their room would have to give way, and be built again.
        """
        failures: dict[sample.CaseKey, Failure] = {}
        training, gemms = facts.run.cases.training, facts.run.cases.gemms
        loads: list[Sequence[Case]] = [[training], gemms] if training else [gemms]
        rounds = [(variant, load) for load in loads for variant in variants]
        for place, (variant, cases) in enumerate(rounds):
            self.around.progress("prepare", place / len(rounds), math.nan)
            for case in cases:
                if self.stop() or refusal_of(case, variant, facts.backend):
                    continue
                answers = opened.devices.all(Call("prepare", (case, variant), variant=variant))
                failure = sample.first_failure(facts.run.names, answers)
                if not failure or failure.reason in sample.STOPPED:
                    continue
                if failure.reason == "out_of_memory" and isinstance(case, TrainingCase) and halved(self.request):
                    raise _OutOfMemory(f"{variant.label}: {failure.message}")
                failures[variant.label, case] = failure
                self.around.note(failure_note(variant.label, case, failure))
        return failures

    def _warmed(self, opened: Opened, facts: RunFacts, variants: Sequence[Variant]) -> RunFacts:
        """Sensors calibrated by a square-wave load, then clocks and temperature made steady: where there are such."""
        sensing, sensors = opened.sensing, opened.sensing.sensors
        if not sensing.warms_up or sensors is None or not variants:
            message = "a replay has no clocks to wait for" if facts.backend == "replay" else "no clocks to watch"
            return replace(facts, steadiness=Steadiness(state="not_checked", message=message))
        variant = facts.run.cases.baseline if facts.run.cases.baseline in variants else variants[0]
        self.around.progress("sensor", 0.0, math.nan)
        wave = square_wave(opened.devices, variant, self.stop, self.request.timing.seed, self.around.waves)
        if wave:
            sensor = calibrated(sensors.recordings().gpus, wave.window)
            seconds = period(sensor) or sensing.sensor_seconds
            sensing = replace(sensing, sensor=sensor, sensor_seconds=seconds, rests=wave.rests)
        plan = self.around.warm_up
        longest = min(plan.longest_seconds, LONGEST_SECONDS, WARM_UP_SHARE * self.request.deadline_seconds)

        def told(spent: float) -> None:
            self.around.progress("warm_up", spent / longest, math.nan)  # nobody knows when: the plan's time is likelier

        plan = replace(plan, longest_seconds=longest)
        steadiness = warm_up(opened.devices, variant, lambda: sensors.recordings().gpus, self.stop, told, plan)
        return replace(facts, sensing=sensing, steadiness=steadiness)

    def _sampled(
        self, opened: Opened, facts: RunFacts, variants: tuple[Variant, ...], failures: dict[sample.CaseKey, Failure]
    ) -> sample.Samples:
        sensors = opened.sensing.sensors
        began, keep = self.around.clock.monotonic(), self.around.checkpoint

        def after_pass(passes: int, samples: Callable[[], sample.Samples]) -> None:
            self.stops.timed(passes)
            if keep and sample.LEAST_ABBA_BLOCKS <= passes < self.request.timing.passes:
                so_far = self._up_to_now(opened, measured(facts, samples().so_far()), variants)
                keep(self._ended(so_far))

        def hot(by_variant: Sequence[Sequence[Window]]) -> bool:
            recorded = sensors.recordings().gpus if sensors else {}
            return any(held_back(recorded, windows).marked for windows in by_variant)

        def before_slot(done: int, of: int) -> None:
            spent = self.around.clock.monotonic() - began
            left = spent * max(0, of - done) / done if done else math.nan  # a repeated ABBA block comes on top
            self.around.progress("measure", min(1.0, done / of), left)

        sensor_seconds = facts.sensing.sensor_seconds if sensors and facts.run.cases.training else None

        def failed(variant: Variant, case: Case, failure: Failure) -> None:
            self.around.note(failure_note(variant.label, case, failure))

        hooks = sample.Hooks(after_pass, hot, before_slot, failed)
        stop, timing = self.stops.sampling, self.request.timing
        return sample.take(opened.devices, facts.run.cases, variants, timing, stop, sensor_seconds, hooks, failures)

    def _up_to_now(self, opened: Opened, facts: RunFacts, variants: Sequence[Variant]) -> RunFacts:
        """With the samples of the sensors and each variant's peak memory as they are now."""
        if not self.stop():
            for variant in variants:
                answers = opened.devices.all(Call("memory", (variant,), variant=variant))
                memories = [answer for answer in answers if isinstance(answer, Memory)]
                if memories:
                    self.memory[variant.label] = _most(memories)
        sensors = opened.sensing.sensors
        recordings = sensors.recordings() if sensors else Recordings({})
        return replace(facts, memory=dict(self.memory), recordings=recordings, provenance=opened.devices.provenance())


_T = TypeVar("_T")


def resolved(work: Callable[[], _T]) -> _T:
    """What `work` makes of the request's workload; a workload that can't be is a Refusal."""
    try:
        return work()
    except ValueError as error:
        raise Refusal(exits.INVALID_REQUEST, f"workload: {error}") from None


def _probe(answer: object) -> Probe:
    if isinstance(answer, Probe):
        return answer
    if isinstance(answer, Failure) and answer.reason not in sample.STOPPED:
        return Probe("probe_failed", f"{answer.reason}: {answer.message}"[:1024])
    cause = answer.message if isinstance(answer, Failure | Refusal) else str(answer)
    raise Refusal(exits.NOTHING_FINISHED, f"{cause}; no palindrome was complete")


def _most(memories: Sequence[Memory]) -> Memory:
    """The fullest device's figure of each way of counting."""
    fields = Memory.model_fields
    values = {name: [getattr(gpu, name) for gpu in memories if getattr(gpu, name) is not None] for name in fields}
    return Memory(**{name: max(sizes) for name, sizes in values.items() if sizes})


def outcome_of(result: MeasurementResult) -> Outcome:
    """The outcome with this result; Refusal where it is too large to be published."""
    try:
        published = encode(result)
    except WireError as error:
        raise Refusal(exits.PUBLISH_FAILED, error.message) from None
    return Outcome(exits.PUBLISHED.code, published.message, published.lines, result)
