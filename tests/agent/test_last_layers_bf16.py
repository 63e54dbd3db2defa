"""The last layers of NVFP4 stay in BF16: computed from measured layer times, in rates and in energy."""

from functools import cache

import pytest

from precision_agent.run.run import run_request
from precision_api.exchange.result import MeasurementResult, RecipeResult
from precision_api.facts.recipes import RECIPE_NAMES, layers_in_bf16, risk_of, with_bf16
from precision_api.models.workload import Workload, resolve
from tests.support.result_objects import of, request_text

LAYERS = 32


@cache
def replayed(kept: int | None, baseline: str = "bf16") -> MeasurementResult:
    """Of one GPU, frozen: one for all tests that keep as many layers."""
    recipes = with_bf16(baseline, ("nvfp4",), kept)  # type: ignore[arg-type]
    asked = {"workload": resolve(Workload(preset="llama3-8b")).workload, "gpus": 1, "recipes": recipes}
    found = run_request(request_text(last_layers_bf16=kept, baseline=baseline, **asked), "replay").result
    assert found.recipes[0].training.layers == LAYERS, "llama3-8b"
    return found


def test_kept_layers_take_the_baselines_time_and_energy_by_their_number() -> None:
    none, some, half, most = map(replayed, (0, 8, 16, LAYERS - 1))
    steps = [of(result, "nvfp4").training.step_seconds.value for result in (none, some, most)]
    per_layer = (steps[1] - steps[0]) / 8
    assert per_layer > 0, "the recipe is faster than the baseline"
    assert steps[2] - steps[0] == pytest.approx(per_layer * (LAYERS - 1), rel=1e-3)
    rows = of(none, "bf16"), of(half, "nvfp4"), of(none, "nvfp4")
    baseline, kept, alone = (row.training.energy.tokens_per_joule for row in rows)
    assert baseline < kept < alone


def test_the_baseline_keeps_nothing_and_a_reader_is_told_what_was_computed() -> None:
    none, some = replayed(0), replayed(8)
    assert of(some, "bf16").training == of(none, "bf16").training
    assert of(some, "bf16").notes == of(none, "bf16").notes
    assert any("layers that stay in BF16: the last 8" in note for note in some.recipes[-1].notes)


def test_where_nothing_is_said_the_last_15_percent_stay_in_bf16_whatever_the_baseline() -> None:
    said, given = replayed(None), replayed(5)
    assert (of(said, "nvfp4").last_layers_bf16, of(said, "bf16").last_layers_bf16) == (5, None)
    assert of(said, "nvfp4").training == of(given, "nvfp4").training
    assert (of(replayed(0), "nvfp4").last_layers_bf16, of(replayed(0), "nvfp4").notes) == (0, of(said, "bf16").notes)
    fp8 = replayed(16, "fp8_current")
    assert [row.recipe for row in fp8.recipes] == ["fp8_current", "nvfp4", "bf16"]
    steps = [of(result, "nvfp4").training.step_seconds.value for result in (fp8, replayed(16))]
    assert steps[0] == pytest.approx(steps[1], rel=0.02)
    meanings = [of(replayed(kept, "fp8_current"), "nvfp4").meaning for kept in (0, 5, 16)]
    assert [meaning.kind for meaning in meanings] == ["overhead", "overhead", "not_beneficial"]
    assert "its GEMMs alone (the last 16 layers' in BF16) run 0.78x" in meanings[-1].sentence


def test_the_sums_of_a_hybrid_which_has_no_step_count_them_and_its_sentence_names_what_it_compares() -> None:
    def sums(kept: int | None) -> tuple[list[float], RecipeResult]:
        workload, recipes = resolve(Workload(preset="nemotron-3-nano-30b-a3b")).workload, ("bf16", "nvfp4")
        asked = request_text(last_layers_bf16=kept, workload=workload, recipes=recipes, gpus=1)
        rows = {row.recipe: row for row in run_request(asked, "replay").result.recipes}
        return [part.seconds.value for name in recipes for part in rows[name].sums], rows["nvfp4"]

    (*_, alone), _ = sums(0)
    (_, bf16, _, kept), nvfp4 = sums(None)
    assert kept == pytest.approx(44 / 52 * alone + 8 / 52 * bf16, rel=1e-3)
    assert (nvfp4.last_layers_bf16, nvfp4.training.tokens_per_second) == (8, None)
    cast, bare = (f"{part.speedup.value:.2f}x" for part in nvfp4.sums)
    beside = f"run {bare} as fast as bf16's, with their casts {cast}; no training figure"
    assert f"nvfp4: its GEMMs alone (the last 8 layers' in BF16) {beside}" in nvfp4.meaning.sentence


@pytest.mark.parametrize("layers", [1, 2, 7, 32, 100, 126])
def test_layers_in_bf16_are_a_share_rounded_up_and_never_all(layers: int) -> None:
    kept = {recipe: layers_in_bf16(recipe, layers) for recipe in RECIPE_NAMES}
    assert kept == {r: min(layers - 1, -(-15 * layers // 100)) if "nvfp4" in r else 0 for r in RECIPE_NAMES}
    assert layers_in_bf16("nvfp4", layers, 0) == 0


def test_a_risk_has_its_source_in_a_sentence() -> None:
    assert {recipe for recipe in RECIPE_NAMES if risk_of(recipe)} == {"nvfp4_no_rht"}
    assert {recipe for recipe in RECIPE_NAMES if risk_of(recipe, 0)} == {"nvfp4", "nvfp4_no_rht"}
    assert '"keep the last 15% of the layers in BF16 precision for better stability"' in risk_of("nvfp4", 0)
    assert '"may degrade convergence quality"' in risk_of("nvfp4_no_rht", 5)
