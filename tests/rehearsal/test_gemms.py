"""The count of a step's GEMMs against the shapes' list, without the step."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.protocol import KernelSeconds, Profile, ProfiledKernel
from precision_api.models.shapes import PASSES, WHOLE, Split, model_gemms
from tests.rehearsal import replays
from tests.rehearsal.gemms import DENSE, LATENT, MIXTURE, TOKENS, listed, product, ran, wrong


def test_a_models_list_is_the_shapes_list_beside_experts_too() -> None:
    short = DENSE.model_copy(update={"num_hidden_layers": 2})
    found = listed(DENSE, TOKENS, WHOLE, 2, 0)
    assert sum(found.values()) == sum(gemm.count for gemm in model_gemms(short, TOKENS))
    assert found["head", 512, 1024, 2048] == 1
    found = listed(LATENT, TOKENS, WHOLE, 2, 1)
    assert found[product("attention", (TOKENS, 256), 512)] == 3  # q_down of all three
    assert found[product("mlp", (TOKENS, 2048), 512)] == 1  # the dense layer's first GEMM
    assert sum(count for (module, *_), count in found.items() if module == "router") == 2 * 3


@pytest.mark.parametrize("split", [WHOLE, Split(expert=2)])
def test_experts_count_one_by_one_with_the_rows_that_they_are_padded_to(split: Split) -> None:
    plain, padded = (listed(MIXTURE, 1040, split, 2, 0, recipe) for recipe in ("bf16", "nvfp4"))  # type: ignore[arg-type]
    assert sum(plain.values()) == sum(padded.values())
    local, rows = 8 // split.expert, 260 * split.expert
    more = -(-rows // 128) * 128
    forward, summed = product("mlp", (rows, 256), 512), product("mlp", (512, 256), rows)
    assert plain[forward] == plain[summed] == 2 * local  # down's data and weight gradient, of two layers
    assert padded[product("mlp", (more, 256), 512)] == padded[product("mlp", (512, 256), more)] == 2 * local
    assert not {forward, summed} & padded.keys()


def test_what_ran_is_read_from_names_and_what_is_not_listed_told() -> None:
    seen = [("attention", "nvjet_tst 64x32x128"), ("core_attention", "nvjet_tst 9x9x9"), ("mlp", "rmsnorm_kernel")]
    assert ran(SimpleNamespace(module=module, name=name) for module, name in seen) == {("attention", 32, 64, 128): 1}
    one, other = ("mlp", 32, 64, 128), ("attention", 16, 32, 64)
    assert wrong(Counter({one: 2}), Counter({one: 2})) == ()
    assert wrong(Counter({one: 2}), Counter({one: 1, other: 1})) == (
        "attention: 16 x 32, summed over 64: listed 0, ran 1",
        "mlp: 32 x 64, summed over 128: listed 2, ran 1",
    )


FP8, BF16 = "nvjet_sm90_qqtst_128x128_128x6_2x1_h_bz_TNT", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNN"
OWN = {"fprop": product("", (8, 6), 2), "dgrad": product("", (8, 2), 6), "wgrad": product("", (2, 6), 8)}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"execution": "not captured"}, "no graph (not captured)"),
        ({"gaps": None}, "fprop, 1 groups: "),
        ({"gaps": 0.0}, "fprop, 1 groups: "),
        ({"dgrad": OWN["fprop"]}, "dgrad, 1 groups: GEMMs {('', 6, 8, 2)}"),
        ({"step": 0.0}, "eager kernels of a training step, or no gaps"),
        ({"module": "head"}, "mlp"),
        ({"pass_": "forward"}, "no backward kernels"),
        ({"name": BF16}, "GEMM time by kernel class: bf16 100.0%"),
    ],
    ids=str,
)
def test_replays_that_are_not_told_apart_are_said(changed: dict[str, Any], problem: str) -> None:
    seconds = {pass_: KernelSeconds(1.0, 0.0, gaps=changed.get("gaps", 1e-6)) for pass_ in PASSES}
    made = {pass_: {changed.get(pass_, gemm)} for pass_, gemm in zip(PASSES, OWN.values(), strict=True)}
    modules = ("attention", "core_attention", changed.get("module", "mlp"))
    places = [(pass_, module) for pass_ in ("forward", changed.get("pass_", "backward")) for module in modules]
    kernels = tuple(ProfiledKernel(changed.get("name", FP8), 1.0, *place) for place in places)
    layer, step = replays.Layer(LinearShape(8, 2, 6), seconds, made), Profile(kernels, 3.0, 3)
    step = replace(step, gaps=changed.get("step", 1e-6))
    said = replays.wrong("fp8_current", changed.get("execution", "graph"), [layer], step)
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("which", "error", "code"),
    [("none", ValueError, 0), ("fp8_b", ValueError, 0), ("fp8_b", TypeError, 1), ("fp8_b", AttributeError, 1),
     ("bf16", ValueError, 1), ("fp8", ValueError, 1)],
)  # fmt: skip
def test_calls_that_are_not_taken_any_more_and_recipes_that_all_fail_end_with_1(
    which: str, error: type[Exception], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(recipe: str) -> tuple[str]:
        if recipe.startswith(which):
            raise error("not taken")
        return (recipe,)

    for name, value in (("CUDA_REHEARSAL_COMPUTE", "9.0"), ("CUDA_REHEARSAL_SHAPES", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(replays, "seen", seen)
    monkeypatch.setattr(replays, "wrong", lambda *_: "")
    assert replays.main() == code
