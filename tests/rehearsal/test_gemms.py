"""The count of a step's GEMMs against the shapes' list, without the step."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from precision_api.models.shapes import WHOLE, Split, model_gemms
from tests.rehearsal.gemms import DENSE, LATENT, MIXTURE, TOKENS, listed, product, ran, wrong


def test_a_dense_models_list_is_the_shapes_list() -> None:
    short = DENSE.model_copy(update={"num_hidden_layers": 2})
    found = listed(DENSE, TOKENS, WHOLE, 2, 0)
    assert sum(found.values()) == sum(gemm.count for gemm in model_gemms(short, TOKENS))
    assert found["head", 512, 1024, 2048] == 1


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


def test_dense_layers_are_listed_beside_those_with_experts() -> None:
    found = listed(LATENT, TOKENS, WHOLE, 2, 1)
    assert found[product("attention", (TOKENS, 256), 512)] == 3  # q_down of all three
    assert found[product("mlp", (TOKENS, 2048), 512)] == 1  # the dense layer's first GEMM
    assert sum(count for (module, *_), count in found.items() if module == "router") == 2 * 3


def test_what_ran_is_read_from_names_and_attentions_products_are_left_out() -> None:
    seen = [("attention", "nvjet_tst 64x32x128"), ("core_attention", "nvjet_tst 9x9x9"), ("mlp", "rmsnorm_kernel")]
    assert ran(SimpleNamespace(module=module, name=name) for module, name in seen) == {("attention", 32, 64, 128): 1}


def test_what_is_listed_and_does_not_run_is_told_and_the_other_way_round() -> None:
    one, other = ("mlp", 32, 64, 128), ("attention", 16, 32, 64)
    assert wrong(Counter({one: 2}), Counter({one: 2})) == ()
    assert wrong(Counter({one: 2}), Counter({one: 1, other: 1})) == (
        "attention: 16 x 32, summed over 64: listed 0, ran 1",
        "mlp: 32 x 64, summed over 128: listed 2, ran 1",
    )
