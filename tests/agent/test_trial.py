"""A CPU trial of a big model runs a narrow one, and says so."""

import json
from pathlib import Path
from typing import get_args

import pytest

from precision_agent.run.trial import MOST_LAYER_FLOPS, fitted, on_cpu
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PresetName
from precision_api.models.shapes import step_shape_problems
from precision_api.models.workload import Workload, resolve
from tests.support.result_objects import request

GOLDEN = Path(__file__).parents[1] / "golden" / "models_2026.json"


@pytest.mark.parametrize("preset", get_args(PresetName))
def test_every_preset_becomes_a_model_that_a_cpu_gets_through_and_every_recipe_takes(preset: PresetName) -> None:
    small, notes = fitted(request(workload=Workload(preset=preset), product="CPU"))
    found = resolve(small.workload)
    each = found.training_flops_per_token * found.tokens_per_micro_batch / found.model.num_hidden_layers
    assert each <= MOST_LAYER_FLOPS
    assert found.name == f"{preset} (reduced width)"
    assert notes[0].endswith(f"no figure here is {preset}'s")
    assert not step_shape_problems(found.gemms, "mxfp8")


@pytest.mark.parametrize("name", ["Kimi-K2", "GPT-OSS-120B", "Nemotron-3-Nano-30B-A3B", "Llama-4-Scout"])
def test_latent_attention_experts_and_hybrids_are_narrowed_too(name: str) -> None:
    row = next(row for row in json.loads(GOLDEN.read_text())["models"] if row["name"] == name)
    workload = Workload(name=name, model=model_from_mapping(row["config"]), micro_batch_size=1, sequence_length=4096)
    small, _ = fitted(request(workload=workload, product="CPU"))
    again = ModelSpec.model_validate(small.workload.model.model_dump())
    assert again.step_parts == workload.model.step_parts
    assert (again.hybrid is None) == (workload.model.hybrid is None)  # a window is dropped: sequences are shorter
    assert {gemm.name for gemm in resolve(small.workload).gemms} == {gemm.name for gemm in resolve(workload).gemms}
    assert not step_shape_problems(resolve(small.workload).gemms, "mxfp8")


def test_a_model_that_fits_is_measured_as_it_is_and_only_a_wanted_cpu_is_a_trial() -> None:
    asked = request(product="CPU")
    assert fitted(asked) == (asked, ())
    assert on_cpu("cpu", request())
    assert on_cpu("auto", request(product="CPU"))
    assert not on_cpu("auto", request())
