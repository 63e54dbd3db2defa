"""Which variants and cases follow from a request, and in which order they are measured."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import CONTROL, Cases, GemmCase, TrainingCase, Variant, cases_of, refusal_of
from precision_agent.method.slot import abba_blocks
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.gemm_text import Shape
from precision_api.models.workload import Workload, resolve
from tests.support.result_objects import request

SHAPES = Workload(name="shapes", shapes=(Shape(m=64, k=128, n=256), Shape(m=64, k=128, n=256)))


def cases(**changes: object) -> Cases:
    asked = request(**changes)
    return cases_of(asked, resolve(asked.workload))


def gemm(**changes: object) -> GemmCase:
    defaults: dict[str, object] = {"m": 64, "k": 64, "n": 64, "count": 1, "mode": "autocast"}
    return GemmCase("qkv", "fprop", **(defaults | changes))  # type: ignore[arg-type]


def test_the_baseline_comes_first_a_control_last_and_the_head_stays_in_bf16() -> None:
    found = cases(recipes=("nvfp4", "nvfp4"))
    assert [variant.label for variant in found.variants] == ["bf16", "nvfp4", CONTROL]
    assert found.variants[-1].recipe == "bf16"
    found = cases()
    assert found.training.tokens == 64
    assert found.all[0] == found.training, "its clock is that of the load that was discarded"
    heads = [case for case in cases().gemms if case.name == "lm_head"]
    assert heads
    assert {case.recipe_of(Variant("nvfp4", "nvfp4")) for case in heads} == {"bf16"}
    assert gemm().recipe_of(Variant("nvfp4", "nvfp4")) == "nvfp4"
    kept = gemm(higher="fp8_current")  # by the scope, but layers that stay in bf16 do so whole
    assert [kept.recipe_of(Variant(name, name)) for name in ("nvfp4", "bf16")] == ["fp8_current", "bf16"]  # type: ignore[arg-type]


def test_equal_shapes_are_measured_once_and_delayed_scaling_where_the_share_is_known() -> None:
    found = cases(workload=SHAPES)
    assert Counter((case.pass_, case.mode) for case in found.gemms) == {
        (pass_, mode): 1 for pass_ in ("fprop", "dgrad", "wgrad") for mode in ("autocast", "prequantized")
    }
    assert {case.count for case in found.gemms} == {2}
    case, variant = gemm(mode="prequantized"), Variant("fp8_delayed", "fp8_delayed")
    assert refusal_of(case, variant, "replay")
    assert refusal_of(case, variant, "transformer-engine") is None


@pytest.mark.parametrize(
    ("changes", "reason"), [({"training": False}, "not_requested"), ({"workload": SHAPES}, "no_model")]
)
def test_an_absent_training_case_has_its_reason(changes: dict[str, object], reason: str) -> None:
    found = cases(**changes)
    assert found.training is None
    assert found.no_training.reason == reason


@pytest.mark.parametrize(
    ("recipe", "case", "reason"),
    [
        ("fp8_delayed", gemm(mode="prequantized"), "no_prequantized_mode"),
        ("mxfp8", gemm(m=48), "misaligned"),
        ("fp8_current", gemm(n=24), "misaligned"),
        ("mxfp8", gemm(m=48, quantized=False), None),
        ("bf16", gemm(m=7), None),
        ("mxfp8", TrainingCase(64, 1e9), None),
    ],
)
def test_what_no_hardware_could_run_is_refused_with_a_reason(
    recipe: Recipe, case: GemmCase | TrainingCase, reason: str | None
) -> None:
    refused = refusal_of(case, Variant(recipe, recipe), "torch-cuda")
    assert (refused.reason if refused else None) == reason


VARIANTS = tuple(Variant(recipe, recipe) for recipe in RECIPE_NAMES)


@given(st.integers(1, 7), st.integers(1, 12), st.integers())
def test_every_abba_block_reads_the_same_backwards_and_has_each_variant_twice(
    variants: int, passes: int, seed: int
) -> None:
    made = list(abba_blocks(VARIANTS[:variants], passes, seed))
    assert len(made) == passes
    for one in made:
        assert one == one[::-1]
        assert Counter(one) == dict.fromkeys(VARIANTS[:variants], 2)


def test_the_order_is_drawn_anew_for_each_abba_block_and_again_the_same_from_the_same_seed() -> None:
    made = list(abba_blocks(VARIANTS, 8, 1))
    assert len(set(made)) > 4
    assert made == list(abba_blocks(VARIANTS, 8, 1))
    assert made != list(abba_blocks(VARIANTS, 8, 2))
