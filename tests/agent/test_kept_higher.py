"""Layers that stay in the baseline's recipe are computed from measured layer times, in rates and in energy."""

from __future__ import annotations

from functools import cache

import pytest

from precision_agent.run.run import run_request
from precision_api.exchange.result import MeasurementResult
from precision_api.models.resolution import resolve
from precision_api.models.workload import Workload
from tests.support.result_objects import of, request_text

LAYERS = 32


@cache
def replayed(kept: int) -> MeasurementResult:
    """Of one GPU, frozen: one for all tests that keep as many layers."""
    asked = {"workload": resolve(Workload(preset="llama3-8b")).workload, "gpus": 1, "recipes": ("bf16", "nvfp4")}
    found = run_request(request_text(kept_higher_layers=kept, **asked), "replay").result
    assert found.recipes[0].training.layers == LAYERS, "llama3-8b"
    return found


def test_a_recipe_with_kept_layers_lies_between_itself_and_the_baseline_by_their_number() -> None:
    none, some, most = replayed(0), replayed(8), replayed(LAYERS - 1)
    recipe = none.recipes[-1].recipe
    steps = []
    for result in (none, some, most):
        training = of(result, recipe).training
        steps.append(training.step_seconds.value)
    per_layer = (steps[1] - steps[0]) / 8
    assert per_layer > 0, "the recipe is faster than the baseline"
    assert steps[2] - steps[0] == pytest.approx(per_layer * (LAYERS - 1), rel=1e-3)


def test_energy_of_kept_layers_is_the_baselines() -> None:
    none, some = replayed(0), replayed(16)
    recipe = none.recipes[-1].recipe
    energies = []
    for result in (none, some):
        training = of(result, recipe).training
        assert training.energy.tokens_per_joule is not None
        energies.append(training.energy.tokens_per_joule)
    baseline = none.recipes[0].training
    assert baseline.energy.tokens_per_joule < energies[1] < energies[0]


def test_the_baseline_keeps_nothing_and_a_reader_is_told_what_was_computed() -> None:
    none, some = replayed(0), replayed(8)
    assert of(some, "bf16").training == of(none, "bf16").training
    assert of(some, "bf16").notes == of(none, "bf16").notes
    assert any("layers kept in bf16: 8" in note for note in some.recipes[-1].notes)
