"""What a run finds out on its way, as lines of text for whoever follows it. Pure."""

from collections.abc import Iterator, Mapping

from precision_agent.cases import Case, GemmCase
from precision_agent.protocol import Probe
from precision_agent.results.profiling import After
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe

RUNS = ("ok", "emulated")
"""Availabilities of a recipe that is measured."""


def request_note(request: MeasurementRequest) -> str:
    """Whose request it is and when it must end."""
    whose = f"{request.namespace}/{request.profile}, run {request.run}, attempt {request.attempt}"
    return f"node {request.node.name}: {whose}; deadline {request.deadline_seconds} s"


def probe_notes(probes: Mapping[Recipe, Probe]) -> Iterator[str]:
    """The recipes that run here, then each one that does not, with its reason."""
    runs = [recipe for recipe, probe in probes.items() if probe.availability in RUNS]
    yield f"{len(runs)} of {len(probes)} recipes run here: {', '.join(runs) or 'none'}"
    for recipe, probe in probes.items():
        if recipe not in runs:
            yield f"recipe {recipe}: {probe.availability}: {probe.reason}"


def failure_note(variant: str, case: Case, failure: Failure) -> str:
    """One case of a variant that has no figure, with its reason."""
    what = f"{case.name} {case.pass_} {case.mode}" if isinstance(case, GemmCase) else "training"
    return f"recipe {variant}: {what}: {failure.reason}: {failure.message}"


def after_notes(after: After) -> Iterator[str]:
    """What failed after the ABBA blocks: kernels that were not seen, depths that were not checked, loss runs."""
    yield from (f"recipe {variant}: {text}" for variant, texts in after.notes.items() for text in texts)
    for variant, loss in after.losses.items():
        if loss.failure:
            yield f"recipe {variant}: loss run: {loss.failure.reason}: {loss.failure.message}"
