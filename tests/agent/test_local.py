"""One box without a cluster: what command line and GPUs come to, and what a mistake is told.

A CPU trial of a big model runs a narrow one, and says so.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from precision_agent.method.duration import phases, total_seconds
from precision_agent.power.nvml import GpuReadings
from precision_agent.protocol import Refusal
from precision_agent.run import local
from precision_agent.run.cli_run import run
from precision_agent.run.trial import MOST_LAYER_FLOPS, fitted, on_cpu
from precision_api.exchange.exits import DEVICE_MISSING, INVALID_REQUEST, Exit
from precision_api.exchange.request import TIMINGS, LossRuns, MeasurementRequest, request_json, timing_title
from precision_api.exchange.result import Failure, Gpu
from precision_api.facts.mixtures import Parts
from precision_api.kinds.profile import Benchmarks
from precision_api.models.huggingface import model_from_mapping
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PresetName
from precision_api.models.shapes import step_shape_problems
from precision_api.models.workload import Workload, resolve
from tests.support.golden import beside
from tests.support.result_objects import request

TABLES = beside(__file__)

NOTHING = GpuReadings(failure=Failure(reason="nvml_unavailable", message="NVML Shared Library Not Found"))
CONFIG = TABLES["config"]
GOLDEN = Path(__file__).parents[1] / "golden" / "models_2026.json"


def gpus(*names: str) -> GpuReadings:
    return GpuReadings(tuple(Gpu(uuid=f"GPU-{index}", name=name) for index, name in enumerate(names)))


H200 = local.box(gpus("NVIDIA H200", "NVIDIA H200"), "auto")


def made(machine: local.Box = H200, **asked: Any) -> MeasurementRequest:
    return local.local_request(local.Asked(**asked), machine, "box", "local-1")


def refusal(machine: local.Box = H200, **asked: Any) -> tuple[Exit, str]:
    with pytest.raises(Refusal) as caught:
        made(machine, **asked)
    return caught.value.exit, caught.value.message


def test_gpus_of_the_box_are_measured_with_what_they_can_run_and_without_one_the_trial_is_offered() -> None:
    assert local.Box("H200", 2, ("bf16", "fp8_delayed", "fp8_current", "fp8_block")) == H200
    assert local.box(gpus("NVIDIA GB200"), "auto").recipes[-1] == "nvfp4"
    box = local.box(gpus("NVIDIA RTX 6000 Ada"), "auto")
    assert box.product == "NVIDIA RTX 6000 Ada"
    assert set(box.recipes) >= {"bf16", "mxfp8", "nvfp4"}
    with pytest.raises(Refusal) as caught:
        local.box(NOTHING, "auto")
    assert caught.value.exit == DEVICE_MISSING
    assert "NVML Shared Library Not Found" in caught.value.message
    assert "nothing was measured" in caught.value.message
    assert caught.value.message.endswith(local.CPU_TRIAL)


def test_the_trial_on_the_cpu_says_what_it_runs_refuses_a_shape_that_takes_hours_and_narrows_a_model() -> None:
    trial = made(local.box(GpuReadings(), "cpu"))
    assert (trial.node.product, trial.node.gpus, trial.recipes) == ("CPU", 1, ("bf16", "fp8_current"))
    assert trial.training is False
    assert trial.workload.name == "cpu-trial"
    refused = refusal(local.box(GpuReadings(), "cpu"), shapes=("8192x4096x28672",))
    assert refused[0] == INVALID_REQUEST
    assert "one call of 8192x4096x28672 may take 96 s" in refused[1]
    assert "--shape 256x512x1024" in refused[1]
    assert made(local.box(GpuReadings(), "cpu"), preset="llama3-8b").training


@pytest.mark.parametrize(("gpu", "count"), [(None, 2), ("GPU-1", 1)])
def test_one_gpu_can_be_chosen_by_its_uuid(gpu: str | None, count: int) -> None:
    assert local.box(gpus("NVIDIA H200", "NVIDIA H200"), "auto", gpu).gpus == count


@pytest.mark.parametrize(("names", "gpu", "words"), TABLES["gpus"])
def test_gpus_that_do_not_fit_the_wish_are_refused_with_the_next_step(
    names: list[str], gpu: str | None, words: str
) -> None:
    with pytest.raises(Refusal) as caught:
        local.box(gpus(*names), "auto", gpu)
    assert caught.value.exit == DEVICE_MISSING
    assert words in caught.value.message


def test_the_request_travels_as_any_other_with_timing_and_deadline_of_its_plan() -> None:
    found = made(preset="llama3-8b", step={"tensor_parallel": 2}, timing="standard", loss_steps=20)
    assert (found.timing, found.workload.tensor_parallel, found.loss.steps) == (TIMINGS["standard"], 2, 20)
    assert MeasurementRequest.model_validate_json(request_json(found)) == found
    standard = made(preset="llama3-8b", timing="standard")
    assert standard.deadline_seconds == pytest.approx(3 * total_seconds(phases(standard)), abs=1)
    assert made(shapes=("64x64x64",)).deadline_seconds == local.LEAST_DEADLINE_SECONDS


SAME_WORDS = TABLES["same_words"]
"""Fields of a profile's `benchmarks` and the option of a local run that says the same."""
WORKLOAD_OPTIONS = {"hugging_face_config": "hf_config", "shapes": "shape", "gemms": "shape", "model": "hf_config"}


def leaves(model: type[BaseModel], before: str = "") -> list[str]:
    found: list[str] = []
    for name, one in model.model_fields.items():
        place = before + (one.alias or name)
        nested = isinstance(one.annotation, type) and issubclass(one.annotation, BaseModel)
        found += leaves(one.annotation, f"{place}.") if nested else [place]  # type: ignore[arg-type]
    return found


def test_whatever_a_profile_says_of_workload_and_benchmarks_a_local_run_has_an_option_for() -> None:
    options = set(inspect.signature(run).parameters)
    assert set(leaves(Benchmarks)) == set(SAME_WORDS), "a field is new: give a local run an option for it"
    assert set(SAME_WORDS.values()) <= options
    assert {WORKLOAD_OPTIONS.get(name, name) for name in Workload.model_fields} <= options


def test_every_option_reaches_the_request() -> None:
    found = made(
        preset="llama3-8b", name="mine", baseline="fp8_current", scope="mlp", last_layers_bf16=4, modes=("autocast",),
        may_halve_micro_batch=True, loss_steps=20, loss_seeds=2, recipes=("bf16",), attention_core="fp8_delayed",
        primary_weights="recipe",
    )  # fmt: skip
    assert (found.attention_core, found.primary_weights) == ("fp8_delayed", "recipe")
    mixed = made(preset="llama3-8b", mixtures=("ours:mlp=nvfp4,attention=bf16",))
    assert [mixture.parts for mixture in mixed.mixtures] == [Parts("nvfp4", "bf16", "nvfp4", "nvfp4", "nvfp4")]
    assert timing_title(found) == "1/quick/mlp-bf16/fp8_delayed-attention/primary-weights"
    assert (found.workload.name, found.baseline, found.recipe_scope, found.last_layers_bf16) == (
        "mine", "fp8_current", "mlp", 4,
    )  # fmt: skip
    assert (found.gemm_modes, found.may_halve_micro_batch, found.loss) == (
        ("autocast",), True, LossRuns(steps=20, seeds=2),
    )  # fmt: skip
    assert made(preset="llama3-8b", modes=()).gemm_modes == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"timing": "standard"}, LossRuns(steps=50, seeds=3)),
        ({"timing": "standard", "loss_seeds": 2}, LossRuns(steps=50, seeds=2)),
        ({"timing": "standard", "loss": False}, None),
        ({"timing": "standard", "training": False}, None),
        ({"timing": "standard", "preset": "codonfm-5b"}, None),
        ({"timing": "standard", "preset": "mixtral-8x7b"}, LossRuns(steps=50, seeds=3)),
        ({"timing": "standard", "preset": "nemotron-h-56b"}, None),
        ({"loss": True}, LossRuns(steps=50, seeds=1)),
        ({"loss_steps": 20}, LossRuns(steps=20, seeds=1)),
    ],
)
def test_loss_runs_come_with_standard_unless_said_otherwise(options: dict[str, Any], expected: LossRuns | None) -> None:
    assert made(**{"preset": "llama3-8b", **options}).loss == expected


@pytest.mark.parametrize("asked", [None, "fused", "separate"])
def test_how_weight_gradients_add_up_travels_only_where_it_was_said(asked: str | None) -> None:
    """An agent that knows no such thing takes the request all the same."""
    found = made(preset="llama3-8b", weight_gradients=asked)
    assert found.weight_gradients == asked
    assert ("weight_gradients" in request_json(found)) is (asked is not None)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        *beside(__file__)["refused"],
        ({"hf_config": Path("/nowhere/config.json")}, "--hf-config: reading /nowhere/config.json"),
    ],
)
def test_a_wrong_wish_names_the_option_and_the_next_step(asked: dict[str, Any], words: str) -> None:
    found = refusal(**asked)
    assert found[0] == INVALID_REQUEST
    assert words in found[1]
    with pytest.raises(Refusal, match=re.escape(words)) as caught:
        local.check(local.Asked(**asked), "auto")  # without a look at a machine
    assert caught.value.exit == INVALID_REQUEST


def test_names_and_lists_from_a_shell_and_a_config_file_become_what_a_request_holds(tmp_path: Path) -> None:
    assert (local.plain_name("box 7.lab"), local.plain_name("")) == ("box-7.lab", "local")
    assert local.names_of(["bf16,mxfp8", "nvfp4", "bf16"]) == ("bf16", "mxfp8", "nvfp4")
    assert local.step_fields(a=1, b=None) == {"a": 1}
    file = tmp_path / "small.json"
    file.write_text(json.dumps(CONFIG))
    found = made(hf_config=file, micro_batch_size=1, sequence_length=512)
    assert found.workload.name == "small"
    assert found.workload.hugging_face_config is not None


@pytest.mark.parametrize(("preset", "step", "told"), TABLES["published_splits"])
def test_a_published_split_is_told_where_the_command_line_says_nothing(
    preset: str | None, step: dict[str, int], told: bool
) -> None:
    hint = local.hint(local.Asked(preset=preset, step=step), local.box(gpus("NVIDIA GB200"), "auto"))
    assert (hint is not None) is told
    if hint:
        assert "--tensor-parallel 4" in hint
        assert "Megatron-Bridge" in hint


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
