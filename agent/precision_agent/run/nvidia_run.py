"""`run --method nvidia`: opens the devices, lets one of them repeat NVIDIA's method, and says how that ended."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from precision_agent.cases import GemmCase, Variant
from precision_agent.method.nvidia_method import CALLS, WARMUPS, ShapeRow, measure, result_of
from precision_agent.protocol import Refusal
from precision_agent.results.result import timestamp
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.request_reading import read_request
from precision_agent.run.run import Outcome, Surroundings, outcome_of, refused, resolved
from precision_agent.run.stops import told_to_stop
from precision_agent.run.trial import fitted, on_cpu
from precision_agent.sampling.devices import Call, Stop
from precision_api.exchange.exits import NOTHING_FINISHED
from precision_api.exchange.request import MeasurementRequest, request_hash
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe
from precision_api.models.workload import resolve

SLOWEST_FLOPS_PER_SECOND = 1e9
"""For the deadline of a call that hangs: slower than any core."""


def run_nvidia(text: str, wanted: Wanted, around: Surroundings, repeats: int) -> Outcome:
    """The outcome of NVIDIA's method on one device; a planned failure is an Outcome, never an exception."""
    try:
        job = _job(read_request(text), wanted)

        def stop() -> Failure | None:
            return told_to_stop() if around.terminated() else None

        started = around.clock.wall()
        opened = around.opener(wanted, job.request, stop)
        try:
            rows = _rows(job.request, opened, around, stop, repeats)
            return _published(job, opened, rows, started, around)
        finally:
            opened.close()
    except Refusal as refusal:
        return refused(refusal.exit, refusal.message)


@dataclass(frozen=True, slots=True)
class _Job:
    """The request as it came and as it is measured, which on a CPU may be another; `notes` say so."""

    asked: MeasurementRequest
    request: MeasurementRequest
    notes: tuple[str, ...] = ()


def _job(asked: MeasurementRequest, wanted: Wanted) -> _Job:
    cpu = wanted.backend != "replay" and on_cpu(wanted.device, asked)
    return _Job(asked, *resolved(lambda: fitted(asked))) if cpu else _Job(asked, asked)


def _rows(
    request: MeasurementRequest, opened: Opened, around: Surroundings, stop: Stop, repeats: int
) -> tuple[ShapeRow, ...]:
    def plain(case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        if stop():
            raise Refusal(NOTHING_FINISHED, "the agent was told to stop; NVIDIA's method has no partial result")
        seconds = (warmups + calls) * case.flops / SLOWEST_FLOPS_PER_SECOND
        call = Call("plain", (case, recipe, warmups, calls), seconds, Variant(recipe, recipe))
        (answer,) = opened.devices.spread([call])
        return answer if isinstance(answer, float | Failure) else Failure(reason="failed", message=str(answer)[:1024])

    def report(done: float) -> None:
        around.progress("measure", done, math.nan)

    return resolved(lambda: measure(request, plain, repeats, report))


def _published(job: _Job, opened: Opened, rows: Sequence[ShapeRow], started: float, around: Surroundings) -> Outcome:
    machine, provenance, finished = opened.devices.machine(), opened.devices.provenance(), around.clock.wall()
    basis: dict[str, Any] = {
        "run": job.asked.run,
        "request_hash": request_hash(job.asked),
        "node": job.asked.node.name,
        "attempt": job.asked.attempt,
        "backend": opened.devices.name,
        "provenance": provenance.kind,
        "simulated": provenance.simulated,
        "product": machine.product,
        "gpus": machine.gpus[:1],
        "software": machine.software,
        "started_at": timestamp(started),
        "finished_at": timestamp(finished),
        "duration_seconds": round(max(0.0, finished - started), 3),
        "sources": (
            *provenance.sources,
            *job.notes,
            f"{WARMUPS} warm-ups and {CALLS} calls a shape, as benchmark_gemm.py has them",
        ),
    }
    return outcome_of(result_of(rows, resolve(job.request.workload), basis))
