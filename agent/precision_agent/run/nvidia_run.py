"""`run --method nvidia`: opens the devices, lets one of them repeat NVIDIA's method, and says how that ended."""

import math

from precision_agent.cases import GemmCase, Variant
from precision_agent.method.nvidia_method import CALLS, WARMUPS, ShapeRow, measure, result_of
from precision_agent.protocol import Refusal
from precision_agent.results.result import basis_of
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.request_reading import read_request
from precision_agent.run.run import Outcome, Surroundings, outcome_of, refused, resolved
from precision_agent.run.stops import told_to_stop
from precision_agent.run.trial import fitted, on_cpu
from precision_agent.sampling.devices import Call, Stop
from precision_api.exchange.exits import NOTHING_FINISHED
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe
from precision_api.models.workload import resolve

SLOWEST_FLOPS_PER_SECOND = 1e9
"""For the deadline of a call that hangs: slower than any core."""


def run_nvidia(text: str, wanted: Wanted, around: Surroundings, repeats: int) -> Outcome:
    """The outcome of NVIDIA's method on one device; a planned failure is an Outcome, never an exception."""
    try:
        asked = read_request(text)
        cpu = wanted.backend != "replay" and on_cpu(wanted.device, asked)
        request, notes = resolved(lambda: fitted(asked)) if cpu else (asked, ())

        def stop() -> Failure | None:
            return told_to_stop() if around.terminated() else None

        started = around.clock.wall()
        opened = around.opener(wanted, request, stop)
        try:
            rows = _rows(request, opened, around, stop, repeats)
            machine, provenance = opened.devices.machine(), opened.devices.provenance()
            basis = basis_of(asked, opened.devices.name, machine, provenance, started, around.clock.wall())
            calls = f"{WARMUPS} warm-ups and {CALLS} calls a shape, as benchmark_gemm.py has them"
            basis |= {"gpus": machine.gpus[:1], "sources": (*provenance.sources, *notes, calls)}
            return outcome_of(result_of(rows, resolve(request.workload), basis))
        finally:
            opened.close()
    except Refusal as refusal:
        return refused(refusal.exit, refusal.message)


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
