"""MFU: each part's FLOPs over the dense peak of its format; absent without a peak, and nothing is ranked by it."""

from dataclasses import replace

import pytest

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import cases_of
from precision_agent.results.explain import explain
from precision_agent.results.recommend import recommend
from precision_agent.results.train import RecipePower, training_of
from precision_agent.run.run import run_request
from precision_api.exchange.message import RecipeSummary
from precision_api.exchange.result import Gpu, MeasurementResult, Training, Utilisation
from precision_api.facts.products import part
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.kinds.report import RecipeReport
from precision_api.models.flop_shares import flops_by_format, mfu, weights_in_gemms
from precision_api.models.flops import training_flops_per_token
from precision_api.models.presets import PRESETS
from precision_api.models.workload import resolve
from tests.agent.test_assess import NVFP4, POWER, run_of
from tests.agent.test_replay import MOMENT
from tests.support.golden import FOLDER
from tests.support.result_objects import recipe_result, request, request_text

MODEL = PRESETS["llama3-8b"].model
TOTAL = training_flops_per_token(MODEL, 8192)
LAYERS = 6 * sum(weights for gemm, weights in weights_in_gemms(MODEL).items() if gemm.quantized)
MLP = 6 * sum(weights for gemm, weights in weights_in_gemms(MODEL).items() if gemm.name.startswith("mlp"))


@pytest.mark.parametrize(
    ("recipe", "baseline", "scope", "kept", "low"),
    [
        ("bf16", "bf16", "all", 0, {}),
        ("mxfp8", "bf16", "all", 0, {"fp8": LAYERS}),
        ("nvfp4", "bf16", "all", 5, {"fp4": LAYERS * 27 / 32}),
        ("nvfp4", "bf16", "mlp", 0, {"fp4": MLP}),
        ("nvfp4", "fp8_current", "mlp", 5, {"fp4": MLP * 27 / 32}),
        ("mxfp8", "mxfp8", "mlp", 0, {"fp8": MLP}),
    ],
)
def test_parts_are_counted_in_the_format_that_they_ran_in(
    recipe: str, baseline: str, scope: str, kept: int, low: dict[str, float]
) -> None:
    asked = request(recipes=(recipe,), baseline=baseline, recipe_scope=scope)
    cases = cases_of(asked, resolve(asked.workload))
    variant = next(variant for variant in cases.variants if variant.recipe == recipe)
    names = {case.name: case.recipe_of(variant) for case in cases.gemms}
    flops = flops_by_format(MODEL, 8192, names, recipe, kept)
    assert flops == pytest.approx({**low, "bf16": TOTAL - sum(low.values())}), "attention, head and kept layers in BF16"
    peaks = part("GB200").peaks
    assert mfu(flops, peaks, 1e-3) == pytest.approx(sum(count / peaks[kind] for kind, count in flops.items()) / 1e-3)


def test_without_a_peak_there_is_no_mfu_and_never_a_zero() -> None:
    assert mfu({"fp4": 1.0, "bf16": 1.0}, part("H100").peaks, 1.0) is None
    for name in ("NVIDIA GH200 480GB", "NVIDIA H200"):
        run = replace(run_of(), gpus=(Gpu(uuid="GPU-0", name=name, memory_bytes=1),) * 4)
        training = training_of(NVFP4, run, RecipePower(POWER, {}))
        assert training.mfu is None
        assert training.teraflops_per_gpu == pytest.approx(training.model_flops_per_second / 4e12)
    assert training_of(NVFP4, run_of(), RecipePower(POWER, {})).teraflops_per_gpu is None, "a CPU is no GPU"


def test_the_replay_has_tflops_first_and_a_share_of_bf16_peak_beside_mfu() -> None:
    result = MeasurementResult.model_validate_json((FOLDER / "result_gb200.json").read_text())
    by_recipe = {row.recipe: row.training for row in result.recipes if row.training}
    for training in by_recipe.values():
        assert training.teraflops_per_gpu * 1e12 / training.mfu.peak_flops_per_second == pytest.approx(
            training.mfu.value, rel=1e-4
        )
        assert training.mfu.of_bf16_peak == pytest.approx(training.teraflops_per_gpu * 1e12 / 2.5e15, rel=1e-4)
    assert by_recipe["nvfp4"].mfu.peak.startswith("GB200 dense FP4 and BF16: ")
    told = [row.figure for row in explain(result) if row.of.startswith("nvfp4")]
    assert told.index("TFLOP/s per GPU") < told.index("tokens/s") < told.index("MFU") == told.index("of BF16 peak") - 1


def test_what_fell_back_has_no_share_of_the_peak_that_it_never_ran_at() -> None:
    text = request_text(recipes=("bf16", "nvfp4"), gpus=1)
    result = run_request(text, "replay", ReplayOptions(fault="silent_fallback"), clock=MOMENT).result
    rows = {row.recipe: row for row in result.recipes}
    assert rows["nvfp4"].verification.verdict == "fallback"
    assert (rows["nvfp4"].training.mfu.value, rows["nvfp4"].training.mfu.peak_flops_per_second) == (None, None)
    assert rows["nvfp4"].training.mfu.of_bf16_peak == pytest.approx(rows["bf16"].training.mfu.of_bf16_peak, rel=0.01)
    shown = [(row.of, row.figure) for row in explain(result) if row.figure in ("MFU", "of BF16 peak")]
    assert shown == [
        *(("bf16 (simulated)", figure) for figure in ("MFU", "of BF16 peak")),
        ("nvfp4 (simulated)", "of BF16 peak"),
    ], "nobody says a peak is unknown"


def test_nothing_is_ranked_by_mfu() -> None:
    rows = [recipe_result(recipe, 1 + at / 8) for at, recipe in enumerate(RECIPE_NAMES)]

    def with_mfu(share: float, training: Training) -> Training:
        known = Utilisation(value=share, of_bf16_peak=share, peak_flops_per_second=1e15, peak="x")
        return training.model_copy(update={"mfu": known})

    ways = [
        recommend(
            [row.model_copy(update={"training": with_mfu(share(at), row.training)}) for at, row in enumerate(rows)],
            None,
            "measured",
        )
        for share in (lambda at: 0.1 * at, lambda at: 0.9 - 0.1 * at)
    ]
    assert ways[0] == ways[1] == recommend(rows, None, "measured")
    for kind in (RecipeSummary, RecipeReport):
        assert not {"mfu", "of_bf16_peak"} & set(kind.model_fields), "reports, BEST and plans never see it"
