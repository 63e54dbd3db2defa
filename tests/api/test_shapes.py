"""A workload becomes the GEMMs of one training step, and says which recipes can take them."""

import json
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models import shapes as listed
from precision_api.models.flops import parameters, weights_of_one_gpu
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PRESETS, PUBLISHED_SPLITS, PresetName, published_split
from precision_api.models.shapes import parse_shape
from precision_api.models.workload import Workload, concrete, resolve, workload_hash
from tests.support.golden import FOLDER, beside

TABLES = beside(__file__)

PLAIN = {"hiddenSize": 4096, "intermediateSize": 16384, "numAttentionHeads": 32, "numHiddenLayers": 24}
SIZES = {"microBatchSize": 31, "sequenceLength": 512}

PUBLISHED = json.loads((FOLDER / "te_gemm_profiling.json").read_text(encoding="utf-8"))
NVIDIA_TWELVE = {(name, pass_, m, k, n) for name, pass_, m, k, n in PUBLISHED["gemms"]}
"""NVIDIA Transformer Engine, GEMM profiling tutorial: CodonFM 5B, micro batch 31, sequence 512."""


def workload(**fields: Any) -> Workload:
    return Workload.model_validate({"name": "w"} | fields)


def forward(model: ModelSpec, tokens: int) -> dict[str, tuple[int, int, int, int]]:
    return {g.name: (g.m, g.k, g.n, g.count) for g in listed.model_gemms(model, tokens) if g.pass_ == "fprop"}


@pytest.mark.parametrize("fields", [{"preset": "codonfm-5b"}, {"model": PLAIN, **SIZES}], ids=["preset", "model"])
def test_codonfm_5b_gives_exactly_the_twelve_shapes_of_nvidias_tutorial(fields: dict[str, Any]) -> None:
    gemms = resolve(workload(**fields)).gemms
    assert ({(g.name, g.pass_, g.m, g.k, g.n) for g in gemms}, len(gemms)) == (NVIDIA_TWELVE, 12)
    assert {g.count for g in gemms} == {24}


def test_gates_heads_and_tensor_parallelism_shape_the_gemms() -> None:
    assert forward(PRESETS["llama3-8b"].model, 8192) == {
        "qkv": (8192, 4096, 6144, 32),
        "attn_out": (8192, 4096, 4096, 32),
        "mlp_up": (8192, 4096, 28672, 32),
        "mlp_down": (8192, 14336, 4096, 32),
        "lm_head": (8192, 4096, 128256, 1),
    }
    assert {g.name: (g.m, g.k, g.n) for g in resolved(preset="llama3-8b", tensorParallel=4) if g.pass_ == "fprop"} == {
        "qkv": (8192, 4096, 6144 // 4),
        "attn_out": (8192, 4096 // 4, 4096),
        "mlp_up": (8192, 4096, 28672 // 4),
        "mlp_down": (8192, 14336 // 4, 4096),
        "lm_head": (8192, 4096, 128256 // 4),
    }
    shapes = forward(PRESETS["gemma2-9b"].model, 1024)
    assert shapes["qkv"] == (1024, 3584, (16 + 2 * 8) * 256, 42)
    assert shapes["attn_out"] == (1024, 16 * 256, 3584, 42)


def resolved(**fields: Any) -> tuple[listed.Gemm, ...]:
    return resolve(workload(**fields)).gemms


def test_experts_share_the_tokens_beside_dense_layers_and_over_gpus() -> None:
    shapes = {g.name: g for g in resolved(preset="mixtral-8x7b", expertParallel=4) if g.pass_ == "fprop"}
    up = shapes["experts_up"]
    assert (up.m, up.k, up.n, up.groups, up.count) == (4 * 4096 * 2 // 8, 4096, 28672, 2, 32 * 2)
    assert shapes["qkv"].m == 4096
    assert forward(PRESETS["mixtral-8x7b"].model, 4096) == {
        "qkv": (4096, 4096, 6144, 32),
        "attn_out": (4096, 4096, 4096, 32),
        "router": (4096, 4096, 8, 32),
        "experts_up": (4096 * 2 // 8, 4096, 28672, 32 * 8),
        "experts_down": (4096 * 2 // 8, 14336, 4096, 32 * 8),
        "lm_head": (4096, 4096, 32000, 1),
    }
    moe = {"numExperts": 60, "topK": 4, "expertIntermediateSize": 1408, "sharedExpertIntermediateSize": 5632}
    model = ModelSpec.model_validate(PLAIN | {"gatedMLP": True, "moe": moe | {"denseLayers": 3}})
    shapes = forward(model, 1000)
    assert shapes["mlp_up"] == (1000, 4096, 2 * 16384, 3)
    assert shapes["experts_up"] == (67, 4096, 2816, 21 * 60)  # 1000 x 4 / 60 = 66.7, rounded up
    assert shapes["shared_down"] == (1000, 5632, 4096, 21)
    assert {g.groups for g in listed.model_gemms(model, 1000) if g.name.startswith("experts")} == {60}


@pytest.mark.parametrize(("preset", "fields", "share"), TABLES["shares"])
def test_the_gpus_of_a_tensor_parallel_group_share_the_work_of_their_tokens(
    preset: PresetName, fields: dict[str, int], share: int
) -> None:
    """Expert parallelism moves work between GPUs, each with tokens of its own: none has less of it. Each GPU has the
    whole router."""

    def work(**more: int) -> int:
        return sum(gemm.count * gemm.flops for gemm in resolved(preset=preset, **more) if gemm.name != "router")

    assert share * work(**fields) == work()


@pytest.mark.parametrize(
    ("fields", "words"),
    TABLES["indivisible"],
)
def test_parallelism_that_does_not_divide_is_refused_with_field_and_remedy(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        resolve(workload(**fields))


@given(tensor=st.sampled_from((1, 2, 4, 8)), expert=st.sampled_from((1, 2, 4, 8)), layers=st.integers(1, 48))
def test_the_gpus_of_a_group_hold_the_whole_model_between_them(tensor: int, expert: int, layers: int) -> None:
    """Norms and routers are on every GPU; all else is held once."""
    model = PRESETS["mixtral-8x7b"].model
    alone, split = (weights_of_one_gpu(model, layers, listed.Split(*parts)) for parts in ((1, 1), (tensor, expert)))
    experts = layers * 8 * 3 * 4096 * 14336
    everywhere = layers * (2 * 4096 + 4096 * 8) + 4096
    matrices = alone - experts - everywhere
    assert split == pytest.approx(everywhere + matrices / tensor + experts / tensor / expert, abs=layers + 2)


def test_a_gpu_with_all_layers_holds_the_model_and_published_splits_divide() -> None:
    for preset in ("llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma2-9b"):
        model = PRESETS[preset].model
        counted = parameters(model)
        lookup = 0 if model.tied_embedding else counted.embedding
        assert weights_of_one_gpu(model, model.num_hidden_layers) == counted.total - lookup
    for row in PUBLISHED_SPLITS:
        split = listed.Split(row.tensor_parallel, row.expert_parallel)
        assert not listed.split_problems(PRESETS[row.preset].model, split)
        assert row.gpus % (row.tensor_parallel * row.pipeline * row.context) == 0
    assert published_split("llama3.1-405b", "GB200") is not None
    assert published_split("mistral-7b", "GB200") is None


@given(m=st.integers(1, 999), k=st.integers(1, 999), n=st.integers(1, 999))
def test_all_passes_do_equal_work_and_remember_their_forward_gemm(m: int, k: int, n: int) -> None:
    triple = listed.passes(listed.Gemm("g", "fprop", m, k, n))
    assert {gemm.flops for gemm in triple} == {2 * m * k * n}
    assert {gemm.forward for gemm in triple} == {(m, k, n)}


def test_explicit_shapes_are_literal_and_equal_ones_are_counted() -> None:
    resolved = resolve(
        workload(shapes=[{"m": 64, "k": 32, "n": 16}, {"m": 8, "k": 8, "n": 8}, {"m": 64, "k": 32, "n": 16}])
    )
    assert [(g.name, g.pass_, g.m, g.k, g.n, g.count) for g in resolved.gemms] == [
        ("64x32x16", "fprop", 64, 32, 16, 2),
        ("8x8x8", "fprop", 8, 8, 8, 1),
        ("64x32x16", "dgrad", 64, 16, 32, 2),
        ("8x8x8", "dgrad", 8, 8, 8, 1),
        ("64x32x16", "wgrad", 32, 64, 16, 2),
        ("8x8x8", "wgrad", 8, 8, 8, 1),
    ]
    assert (resolved.parameters, resolved.training_flops_per_token, resolved.formula) == (None, None, None)


def test_equal_gemms_are_measured_once_and_their_counts_added() -> None:
    square = {"hiddenSize": 64, "intermediateSize": 192, "numAttentionHeads": 4, "numHiddenLayers": 3}
    gemms = listed.model_gemms(ModelSpec.model_validate(square), 128)
    merged = listed.distinct(gemms)
    # qkv and mlp_up are both 64 -> 192; no two others are equal within one pass.
    assert [(g.name, g.pass_, g.count) for g in merged if g.count == 6] == [
        ("qkv", "fprop", 6),
        ("qkv", "dgrad", 6),
        ("qkv", "wgrad", 6),
    ]
    assert sum(g.count * g.flops for g in merged) == sum(g.count * g.flops for g in gemms)


@pytest.mark.parametrize(
    "other", [{"quantized": False}, {"groups": 4}, {"pass_": "dgrad"}, {"m": 8}, {"k": 8}, {"n": 8}]
)
def test_gemms_that_run_differently_are_measured_apart(other: dict[str, Any]) -> None:
    gemm = listed.Gemm("a", "fprop", 16, 32, 64)
    assert len(listed.distinct((gemm, replace(gemm, **other), gemm))) == 2


@pytest.mark.parametrize(("recipe", "shape", "severity", "words"), TABLES["alignment"])
def test_every_dimension_must_fit_the_recipe_in_every_pass(
    recipe: Recipe, shape: list[int], severity: str | None, words: str
) -> None:
    for gemm in listed.passes(listed.Gemm("up", "fprop", *shape)):
        problems = listed.training_shape_problems(gemm, recipe)
        assert [problem.severity for problem in problems] == ([severity] if severity else [])
        for problem in problems:
            assert problem.message.startswith("up: ")
            assert words in problem.message


def test_a_step_tells_each_problem_once_and_an_odd_vocabulary_is_none() -> None:
    gemms = (
        *listed.passes(listed.Gemm("a", "fprop", 64, 128, 192)),
        *listed.passes(listed.Gemm("b", "fprop", 64, 8, 64)),
    )
    assert [(p.severity, p.message[0]) for p in listed.step_shape_problems(gemms, "nvfp4")] == [
        ("error", "b"),
        ("warning", "a"),
    ]
    model = ModelSpec.model_validate(PLAIN | {"vocabSize": 50257})
    assert all(not listed.step_shape_problems(listed.model_gemms(model, 8192), recipe) for recipe in RECIPE_NAMES)
    mixed = listed.step_shape_problems(listed.model_gemms(model, 8192), replace(Parts.of("nvfp4"), head="mxfp8"))
    assert [problem.message[:30] for problem in mixed] == ["lm_head: mxfp8 needs dimension"]
    gemms = resolve(workload(preset="llama3-8b")).gemms
    assert {g.name for g in gemms if not g.quantized} == {"lm_head"}


def test_every_preset_has_a_row_and_gives_name_and_sizes() -> None:
    assert set(PRESETS) == set(get_args(PresetName))
    plain = concrete(Workload.model_validate({"preset": "llama3-8b", "microBatchSize": 4}))
    assert (plain.name, plain.micro_batch_size, plain.sequence_length, plain.preset) == ("llama3-8b", 4, 8192, None)
    assert plain.model == PRESETS["llama3-8b"].model


@given(preset=st.sampled_from(get_args(PresetName)))
def test_resolving_a_resolved_workload_changes_nothing(preset: PresetName) -> None:
    once = resolve(Workload(preset=preset))
    travelled = Workload.model_validate_json(once.workload.model_dump_json(by_alias=True, exclude_none=True))
    assert resolve(travelled) == once


def test_the_hash_is_of_what_is_measured_not_of_how_it_was_written() -> None:
    preset = workload_hash(Workload(preset="codonfm-5b"))
    written_out = PLAIN | {"numKeyValueHeads": 32, "headDim": 128, "causal": False}
    assert workload_hash(workload(model=written_out, **SIZES)) == preset
    assert workload_hash(workload(model=PLAIN, **SIZES)) != preset
    assert workload_hash(Workload(preset="codonfm-5b", sequence_length=1024)) != preset
    first, second = {"m": 8, "k": 16, "n": 32}, {"m": 32, "k": 16, "n": 8}
    assert workload_hash(workload(shapes=[first, second])) == workload_hash(workload(shapes=[second, first]))
    assert workload_hash(workload(shapes=[first])) != workload_hash(workload(shapes=[second]))
    whole = workload_hash(Workload(preset="llama3-8b"))
    assert workload_hash(Workload(preset="llama3-8b", tensor_parallel=1)) == whole
    for changed in ({"tensor_parallel": 2}, {"gradient_accumulation": 4}, {"recompute": "Full"}):
        assert workload_hash(Workload.model_validate({"preset": "llama3-8b", **changed})) != whole


def test_a_config_that_lies_in_a_config_map_cannot_be_resolved_without_the_cluster() -> None:
    ref = {"configMapKeyRef": {"name": "models", "key": "config.json"}}
    with pytest.raises(ValueError, match="configMapKeyRef can only be read in the cluster"):
        resolve(workload(huggingFaceConfig=ref, **SIZES))


@pytest.mark.parametrize(
    ("fields", "words"),
    TABLES["wrong"],
)
def test_a_wrong_workload_is_refused_with_field_and_remedy(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Workload.model_validate(fields)


@pytest.mark.parametrize(
    "text", ["64x64", "64x64x64x64", "64,64,64", "axbxc", "64x-1x64", "64x0x64", "99999999x1x1", ""]
)
def test_a_shape_that_is_not_mxkxn_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="shape"):
        parse_shape(text)


def test_gemms_are_shapes_in_another_spelling_m_then_k_then_n() -> None:
    texts = workload(name="w", gemms=["15872x4096x12288", "64X32x16"])
    shapes = workload(name="w", shapes=[{"m": 15872, "k": 4096, "n": 12288}, {"m": 64, "k": 32, "n": 16}])
    assert resolve(texts).gemms == resolve(shapes).gemms
    assert workload_hash(texts) == workload_hash(shapes)
    assert concrete(texts) == shapes, "what travels to an agent, which may be older than the field"
    shape = parse_shape("15872x4096X12288")
    assert (shape.m, shape.k, shape.n) == (15872, 4096, 12288)
