"""Rotations, depths and what is given up where memory ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.te import sizes
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.model import SlidingWindow
from precision_api.models.presets import PRESETS
from precision_api.models.room import layer_bytes
from precision_api.models.shapes import WHOLE, Split

LLAMA = PRESETS["llama3-8b"].model
LARGE = PRESETS["llama3.1-405b"].model
GIB = 1 << 30
SEVEN: tuple[Recipe, ...] = ("bf16", *["mxfp8"] * 5, "bf16")
"""Of seven variants: a baseline, five recipes, the control."""


@given(st.integers(1, 1 << 32), st.integers(1, 1 << 28))
def test_rotated_buffers_together_are_at_least_twice_the_cache(working_set: int, l2: int) -> None:
    turns = sizes.rotations(working_set, l2)
    assert 1 <= turns <= sizes.MOST_ROTATIONS
    assert turns == sizes.MOST_ROTATIONS or turns * working_set >= 2 * l2
    assert turns == 1 or (turns - 1) * working_set < 2 * l2


def test_large_layers_are_not_rotated_and_depth_is_given_up_first() -> None:
    assert sizes.rotations(sizes.working_set_bytes(8192, 4096, 28672), 50 << 20) == 1
    assert sizes.rotations(sizes.working_set_bytes(128, 1024, 1024, groups=8), 50 << 20) == 5
    shallow = (sizes.Trial(4), sizes.Trial(2), sizes.Trial(1))
    assert sizes.ladder(32, head=True) == (
        *shallow,
        sizes.Trial(1, optimizer=False),
        sizes.Trial(1, head=False, optimizer=False),
    )
    assert sizes.ladder(1, head=False) == (sizes.Trial(1, head=False), sizes.Trial(1, head=False, optimizer=False))


def test_models_fit_with_their_variants_and_gemms_by_less_depth() -> None:
    trials = sizes.ladder(32, head=True)
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials) == sizes.Trial(4)
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, 180 * GIB, trials).layers == 1
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, GIB, trials) == trials[-1]
    trials = sizes.ladder(32, head=True)
    gemms = 7 * sizes.unit_bytes(8192, 4096, 28672, 1, 50 << 20)  # of llama3-8b's widest layer alone, in all variants
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials, gemms) == sizes.Trial(2)
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials, 80 * GIB) == sizes.Trial(1)
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, GIB, trials, gemms) == trials[-1]


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_deeper_model_and_more_variants_need_more(layers: int, variants: int) -> None:
    def needs(deep: int, many: int) -> int:
        return sizes.needed_bytes(LLAMA, 4096, WHOLE, sizes.Trial(deep), ["nvfp4"] * many)

    assert needs(layers + 1, variants) > needs(layers, variants)
    assert needs(layers, variants + 1) > needs(layers, variants)
    without = sizes.needed_bytes(LLAMA, 4096, WHOLE, sizes.Trial(layers, optimizer=False), ["nvfp4"] * variants)
    assert without < needs(layers, variants)


@pytest.mark.parametrize("preset", ["llama3-8b", "kimi-k2", "qwen3-30b-a3b"])
def test_what_is_said_to_fit_before_a_run_is_what_the_last_trial_needs(preset: Any) -> None:
    model, split = PRESETS[preset].model, Split(expert=2 if PRESETS[preset].model.moe else 1)
    last = sizes.trials_of(model)[-1]
    assert sizes.needed_bytes(model, 4096, split, last, RECIPE_NAMES) == layer_bytes(model, 4096, split, RECIPE_NAMES)


@pytest.mark.parametrize(("measured", "layers", "other"), [(4, 32, 2), (2, 32, 1), (1, 32, 2), (1, 1, None), (3, 3, 1)])
def test_the_check_is_made_at_another_depth(measured: int, layers: int, other: int | None) -> None:
    assert sizes.second_depth(measured, layers) == other


@pytest.mark.parametrize(("short", "depth", "expected"), [(21, 4, 2), (42, 4, 4), (0, 4, 0), (35, 6, 5)])
def test_windowed_layers_are_in_the_short_model_by_their_share(short: int, depth: int, expected: int) -> None:
    window = SlidingWindow(size=4096, windowed_layers=short) if short else None
    model = LLAMA.model_copy(update={"num_hidden_layers": 42, "sliding_window": window})
    assert sum(sizes.windowed(model, depth)) == expected
