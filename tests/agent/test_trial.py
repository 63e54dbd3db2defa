"""A CPU trial of a big model runs a narrow one, and says so."""

from __future__ import annotations

from typing import get_args

import pytest

from precision_agent.run.trial import MOST_LAYER_FLOPS, fitted, on_cpu
from precision_api.resolution import resolve
from precision_api.shapes import step_shape_problems
from precision_api.workload import PresetName, Workload
from tests.support.result_objects import request


@pytest.mark.parametrize("preset", get_args(PresetName))
def test_every_preset_becomes_a_model_that_a_cpu_gets_through_and_every_recipe_takes(preset: PresetName) -> None:
    small, notes = fitted(request(workload=Workload(preset=preset), product="CPU"))
    found = resolve(small.workload)
    assert found.model is not None
    assert found.training_flops_per_token is not None
    assert found.tokens_per_micro_batch is not None
    each = found.training_flops_per_token * found.tokens_per_micro_batch / found.model.num_hidden_layers
    assert each <= MOST_LAYER_FLOPS
    assert found.name == f"{preset} (reduced width)"
    assert notes[0].endswith(f"no figure here is {preset}'s")
    assert not step_shape_problems(found.gemms, "mxfp8")


def test_a_model_that_fits_is_measured_as_it_is() -> None:
    asked = request(product="CPU")
    assert fitted(asked) == (asked, ())


def test_only_a_cpu_that_was_asked_for_is_a_trial() -> None:
    assert on_cpu("cpu", request())
    assert on_cpu("auto", request(product="CPU"))
    assert not on_cpu("auto", request())
