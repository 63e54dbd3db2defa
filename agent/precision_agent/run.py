"""From request to result: the one way that every backend takes.

Free of process state: the clock, the wish to stop and the options come in as arguments, so that a pool of processes can
run many of these, and a test can run one at any time of its choosing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from precision_agent.assess import Evidence, control_ratio, recipe_result
from precision_agent.backends.open import open_backend
from precision_agent.backends.protocol import Backend, Machine, Probe, Refusal
from precision_agent.backends.replay import ReplayOptions
from precision_agent.cases import BASELINE, CONTROL, Arm, Cases, cases_of
from precision_agent.recommend import recommend
from precision_agent.sample import LEAST_PALINDROMES, Samples, Stop, take
from precision_api import exits
from precision_api.request import REQUEST_MAX_BYTES, REQUEST_VERSION, MeasurementRequest, request_hash
from precision_api.resolution import ResolvedWorkload, resolve
from precision_api.result import Failure, MeasurementResult
from precision_api.wire import Published, WireError, encode, encode_refusal

RESERVE_SECONDS = 5.0
"""Kept of the deadline for assessing and publishing; a tenth of it where the deadline is short."""


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
class _Job:
    """One request with all that was found out about it before the first sample."""

    request: MeasurementRequest
    workload: ResolvedWorkload
    cases: Cases
    backend: Backend
    machine: Machine
    probes: dict[Arm, Probe]
    started_at: float


def run_request(
    request_json: str,
    backend: str,
    options: ReplayOptions | None = None,
    *,
    device: str = "auto",
    clock: Clock | None = None,
    terminated: Callable[[], bool] = lambda: False,
    checkpoint: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Measures what the request asks for and says how that ended; a planned failure is an Outcome, never an exception.

    `terminated` is asked before each sample; `checkpoint` gets the outcome so far after each palindrome that allows
    intervals, so that a killed run leaves a partial result.
    """
    try:
        return _run(request_json, backend, options or ReplayOptions(), device, clock or Clock(), terminated, checkpoint)
    except Refusal as refusal:
        return refused(refusal.exit, refusal.message)


def refused(exit_: exits.Exit, message: str) -> Outcome:
    """The outcome without a result."""
    return Outcome(exit_.code, encode_refusal(exit_.reason, message))


def read_request(text: str) -> MeasurementRequest:
    """The request; Refusal InvalidRequest or UnknownRequestVersion says what is wrong and where."""
    if len(text.encode("utf-8", "replace")) > REQUEST_MAX_BYTES:
        raise Refusal(exits.INVALID_REQUEST, f"the request is longer than {REQUEST_MAX_BYTES} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(exits.INVALID_REQUEST, f"the request is not JSON: {error}"[:500]) from None
    version = document.get("schema_version", REQUEST_VERSION) if isinstance(document, dict) else REQUEST_VERSION
    if version != REQUEST_VERSION:
        told = f"request version {str(version)[:40]!r}: this agent knows {REQUEST_VERSION!r}"
        raise Refusal(exits.UNKNOWN_REQUEST_VERSION, told)
    try:
        return MeasurementRequest.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in found["loc"])
        raise Refusal(exits.INVALID_REQUEST, f"{place}: {found['msg']}"[:500]) from None


def _run(
    request_json: str,
    backend_name: str,
    options: ReplayOptions,
    device: str,
    clock: Clock,
    terminated: Callable[[], bool],
    checkpoint: Callable[[Outcome], None] | None,
) -> Outcome:
    request = read_request(request_json)
    stop = _stop(clock.monotonic, clock.monotonic() + request.deadline_seconds, request.deadline_seconds, terminated)
    job = _prepared(request, open_backend(backend_name, request, options, device), clock.wall())
    arms = tuple(arm for arm, probe in job.probes.items() if probe.availability in ("ok", "emulated"))

    def after_pass(samples: Samples) -> None:
        if checkpoint and LEAST_PALINDROMES <= samples.passes < request.timing.passes:
            checkpoint(_outcome(_result(job, samples.so_far(), clock.wall())))

    samples = take(job.backend, job.cases, arms, request.timing, stop, after_pass)
    if arms and not samples.passes:
        ended = samples.ended or Failure(reason="nothing_measured")
        raise Refusal(exits.NOTHING_FINISHED, f"{ended.message}; no palindrome was complete")
    return _outcome(_result(job, samples, clock.wall()))


def _stop(monotonic: Callable[[], float], deadline: float, whole: float, terminated: Callable[[], bool]) -> Stop:
    """Ends a run that was asked to end, or whose deadline is nearer than the reserve."""
    latest = deadline - min(RESERVE_SECONDS, whole / 10)

    def stop() -> Failure | None:
        if terminated():
            return Failure(reason="terminated", message="the agent was told to stop")
        if monotonic() >= latest:
            return Failure(reason="deadline", message=f"the deadline of {whole:g} s was reached")
        return None

    return stop


def _prepared(request: MeasurementRequest, backend: Backend, started_at: float) -> _Job:
    try:
        workload = resolve(request.workload)
    except ValueError as error:
        raise Refusal(exits.INVALID_REQUEST, f"workload: {error}") from None
    cases = cases_of(request, workload)
    machine = backend.machine()
    probed: dict[str, Probe] = {}
    for arm in cases.arms:
        probed.setdefault(arm.recipe, backend.probe(arm))
    probes = {arm: probed[arm.recipe] for arm in cases.arms}
    return _Job(request, workload, cases, backend, machine, probes, started_at)


def _outcome(result: MeasurementResult) -> Outcome:
    try:
        published: Published = encode(result)
    except WireError as error:
        raise Refusal(exits.PUBLISH_FAILED, error.message) from None
    return Outcome(exits.PUBLISHED.code, published.message, published.lines, result)


def _result(job: _Job, samples: Samples, finished_at: float) -> MeasurementResult:
    request, backend = job.request, job.backend
    recipes = tuple(
        recipe_result(
            arm,
            job.cases,
            samples,
            Evidence(probe, backend.power(arm), backend.memory(arm)),
            job.machine.devices,
        )
        for arm, probe in job.probes.items()
        if arm.label != CONTROL
    )
    origin = backend.origin()
    control = control_ratio(job.cases, samples)
    formula = job.workload.formula
    return MeasurementResult(
        run=request.run,
        request_hash=request_hash(request),
        node=request.node.name,
        attempt=request.attempt,
        backend=backend.name,
        provenance=origin.provenance,
        sources=origin.sources,
        simulated=origin.simulated,
        partial=samples.ended,
        product=job.machine.product,
        gpus=job.machine.gpus,
        software=job.machine.software,
        started_at=_timestamp(job.started_at),
        finished_at=_timestamp(finished_at),
        duration_seconds=round(max(0.0, finished_at - job.started_at), 3),
        workload_name=job.workload.name,
        workload_hash=job.workload.hash,
        formula=f"{formula.name}/{formula.version}" if formula else None,
        training_flops_per_token=job.workload.training_flops_per_token,
        baseline=BASELINE,
        control_ratio=control,
        recipes=recipes,
        recommendation=recommend(recipes, control, origin.provenance),
    )


def _timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the second: as Kubernetes writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
