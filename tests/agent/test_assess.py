"""From samples to results: what is complete counts, what failed is named, and nothing is left out of a sum."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from precision_agent.cases import Case, Cases, GemmCase, TrainingCase, Variant, cases_of
from precision_agent.power.reasons import COUNTER_DISAGREES
from precision_agent.precision.evidence import Tax
from precision_agent.protocol import Probe, RegionName, Sample
from precision_agent.results.assess import RecipeEvidence, control_ratio, recipe_result, with_meanings
from precision_agent.results.power_windows import NodePower
from precision_agent.results.train import Measured, RecipePower
from precision_agent.sampling.sample import take
from precision_api.exchange.request import Timing
from precision_api.exchange.result import Execution, Failure, RecipeResult
from precision_api.models.workload import Workload, resolve
from tests.support.fake_backend import ASSUMED, FakeBackend, devices_of, one_second
from tests.support.result_objects import TINY_WORKLOAD, request

TIMING = Timing(passes=3, segment_seconds=3.0, discard_seconds=1.0)
NVFP4 = Variant("nvfp4", "nvfp4")
Stop = Callable[[], Failure | None]


def tiny() -> Cases:
    asked = request(recipes=("nvfp4",))
    return cases_of(asked, resolve(asked.workload))


def twice_as_fast(case: Case, variant: Variant) -> float | Failure:
    return 0.5 if variant.recipe == "nvfp4" else 1.0


def run_on(*backends: FakeBackend, stop: Stop = lambda: None, workload: Workload = TINY_WORKLOAD) -> Measured:
    asked = request(recipes=("nvfp4",), workload=workload)
    resolved, devices = resolve(asked.workload), devices_of(*backends)
    cases = cases_of(asked, resolved)
    samples = take(devices, cases, cases.variants, TIMING, stop)
    return Measured(cases, samples, resolved, devices.machine().names, layers_bf16=0)


def run_of(
    seconds: Callable[[Case, Variant], float | Failure] = twice_as_fast, stop: Stop = lambda: None, gpus: int = 4
) -> Measured:
    return run_on(*(FakeBackend(seconds, uuid=f"GPU-{index}") for index in range(gpus)), stop=stop)


POWER = NodePower({"layers": 2000.0}, seconds=12.0, updates=120, scope="gpu")
EVIDENCE = RecipeEvidence(ASSUMED, RecipePower(POWER, {}))


def assessed(
    seconds: Callable[[Case, Variant], float | Failure] = twice_as_fast,
    variant: Variant = NVFP4,
    metering: RecipePower = RecipePower(POWER, {}),  # noqa: B008 -- frozen
    probe: Probe = ASSUMED,
    stop: Stop = lambda: None,
) -> RecipeResult:
    return recipe_result(variant, run_of(seconds, stop), RecipeEvidence(probe, metering))


def after(asked: int) -> Stop:
    left = iter(range(asked))
    return lambda: None if next(left, None) is not None else Failure(reason="terminated", message="told to stop")


def test_sums_count_each_gemm_as_often_as_it_runs_and_speedups_are_paired() -> None:
    found = assessed()
    calls = sum(case.count for case in tiny().gemms if case.mode == "autocast")
    assert found.sums[0].seconds.value == pytest.approx(0.5 * calls)
    for speedup in (found.sums[0].speedup, found.sums[1].speedup, found.training.speedup):
        assert (speedup.value, speedup.n) == (pytest.approx(2.0), 3)


@pytest.mark.parametrize(("alone", "tax"), [(0.4, pytest.approx(0.2 * 24 / 27)), (0.6, None)])  # 3 are the head's
def test_a_tax_below_nothing_is_noise_and_no_measured_zero(alone: float, tax: float | None) -> None:
    def seconds(case: Case, variant: Variant) -> float | Failure:
        return alone if isinstance(case, GemmCase) and case.mode == "prequantized" else 0.5

    assert assessed(seconds).quantization_tax == tax


@pytest.mark.parametrize(("most", "upper"), [(0.1, None), (0.3, 0.3)])
def test_a_tax_whose_kernels_nobody_knows_is_told_as_a_bound(most: float, upper: float | None) -> None:
    seen = RecipeEvidence(ASSUMED, RecipePower(POWER, {}), taxes=(Tax(0.09, most - 0.01), Tax(0.11, most + 0.01)))
    result = recipe_result(NVFP4, run_of(twice_as_fast), seen)
    assert result.quantization_tax == pytest.approx(0.1)
    assert result.quantization_tax_most == (upper and pytest.approx(upper))


def test_a_baseline_has_no_speedup_over_itself_and_invalid_power_is_no_energy() -> None:
    found = assessed(variant=Variant("bf16", "bf16"))
    assert (found.training.speedup, found.sums[0].speedup) == (None, None)
    energy = assessed(metering=RecipePower((COUNTER_DISAGREES,), {})).training.energy
    assert (energy.valid, energy.watts, energy.reasons) == (False, None, ("counter_disagrees",))


def fails_at(name: str, only: str = "nvfp4") -> Callable[[Case, Variant], float | Failure]:
    def seconds(case: Case, variant: Variant) -> float | Failure:
        if isinstance(case, GemmCase) and case.name == name and variant.recipe == only and case.mode == "autocast":
            return Failure(reason="cuda_error", message="misaligned address")
        return twice_as_fast(case, variant)

    return seconds


def test_a_failed_gemm_makes_its_own_sum_null_and_a_failed_baseline_the_speedup() -> None:
    found = assessed(fails_at("attn_out"))
    autocast, prequantized = found.sums
    assert autocast.seconds is None
    assert autocast.failure.reason == "part_failed"
    assert "attn_out fprop: cuda_error: GPU-0: misaligned address" in autocast.failure.message
    assert prequantized.seconds is not None
    assert [gemm.failure is not None for gemm in found.gemms] == [
        gemm.name == "attn_out" and gemm.mode == "autocast" for gemm in found.gemms
    ]
    found = assessed(fails_at("qkv", only="bf16"))
    assert found.sums[0].seconds is not None
    assert found.sums[0].speedup is None


def test_a_failed_case_is_not_tried_again_and_segments_begin_with_their_own_load() -> None:
    cases = tiny()
    backend = FakeBackend(fails_at("qkv"))
    take(devices_of(backend), cases, cases.variants, TIMING, lambda: None)
    # three passes of qkv, once in autocast where it fails, six times in prequantized
    assert len([asked for asked in backend.asked if asked[0] == "nvfp4" and "qkv" in asked[1]]) == 3 * (1 + 6)
    cases = tiny()
    backend = FakeBackend(one_second)
    take(devices_of(backend), cases, cases.variants, TIMING, lambda: None)
    assert len(backend.settled) == TIMING.passes * 2 * len(cases.variants)
    assert {seconds for _, seconds in backend.settled} == {1.0}


def test_a_recipe_that_does_not_run_or_whose_gemms_outlast_the_step_has_its_reason() -> None:
    found = assessed(probe=Probe("unsupported", "H100 has no nvfp4"))
    assert (found.availability, found.availability_reason) == ("unsupported", "H100 has no nvfp4")
    assert (found.gemms, found.sums, found.training) == ((), (), None)
    baseline, found = shared(1.2)
    told = "the GEMMs take 20.0% longer than the bf16 step that holds them"
    assert baseline.notes == (told,)
    assert (found.meaning.kind, found.meaning.gemm_share, found.meaning.expected_speedup) == ("unknown", None, None)
    assert told in found.meaning.sentence


def test_an_unfinished_abba_block_is_thrown_away_and_one_alone_gives_no_interval() -> None:
    cases = tiny()
    per_abba_block = 2 * len(cases.variants) * len(cases.all)
    samples = run_of(stop=after(2 * per_abba_block + per_abba_block // 2)).samples
    assert (samples.passes, {len(values) for values in samples.seconds.values()}) == (2, {2})
    assert samples.ended.reason == "terminated"
    found = assessed(stop=after(2 * len(cases.variants) * len(cases.all)))
    failures = [*(gemm.failure for gemm in found.gemms), *(part.failure for part in found.sums), found.training.failure]
    assert {failure.reason if failure else None for failure in failures} == {"too_few_palindromes"}


def test_the_control_is_a_ratio_of_equal_baselines_of_training_else_gemms() -> None:
    found = control_ratio(run_of())
    assert found.value == pytest.approx(1.0)

    def seconds(case: Case, variant: Variant) -> float | Failure:
        if isinstance(case, TrainingCase):
            return Failure(reason="not_available")
        return 2.0 if variant.label == "control" else 4.0

    found = control_ratio(run_of(seconds))
    assert found.value == pytest.approx(2.0)


@dataclass
class Changed(FakeBackend):
    """A device whose training samples the test changes; `after` so many, and of NVFP4 only, where memory grew short."""

    change: Callable[[Sample], Sample] = lambda found: found
    after: int = 0

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        found = super().measure(case, variant, seconds)
        hit = isinstance(case, TrainingCase) and (not self.after or (variant == NVFP4 and len(self.asked) > self.after))
        return self.change(found) if hit and isinstance(found, Sample) else found


@pytest.mark.parametrize(
    "change",
    [
        lambda row: replace(row, layers_measured=1),
        lambda row: replace(row, optimizer_parameters=1000),
        lambda row: replace(row, regions=row.regions | {"optimizer": 0.1}),
    ],
    ids=["layers", "optimizer's weights", "parts"],
)
def test_a_model_that_became_another_one_on_the_way_gives_no_training_figure_but_a_reason(
    change: Callable[[Sample], Sample],
) -> None:
    steady = FakeBackend(twice_as_fast, uuid="GPU-0")
    run = run_on(steady, Changed(twice_as_fast, uuid="GPU-1", change=change, after=30))
    row, baseline = (recipe_result(variant, run, EVIDENCE) for variant in (NVFP4, run.cases.baseline))
    assert row.training.failure.reason == "depth_changed"
    assert baseline.training.tokens_per_second is not None


def test_one_gpu_that_ran_eagerly_is_told_though_the_others_replayed_graphs() -> None:
    cases = tiny()

    def ran(execution: Execution, reason: str = "") -> FakeBackend:
        def change(found: Sample) -> Sample:
            return replace(found, execution=execution, execution_reason=reason)

        return Changed(one_second, change=change)

    devices = devices_of(ran("graph"), ran("eager", "graph_unsupported: refused"))
    fact = take(devices, cases, (NVFP4,), TIMING, lambda: None).facts[NVFP4.label, cases.training]
    assert (fact.execution, fact.execution_reason) == ("eager", "graph_unsupported: refused")


MILLI = 1e-3


def quicker_forward(case: Case, variant: Variant) -> float | Failure:
    """GEMMs of a millisecond, NVFP4's forward ones of a quarter."""
    if isinstance(case, TrainingCase):
        return 1.0
    quick = variant.recipe == "nvfp4" and case.pass_ == "fprop" and case.quantized
    return MILLI / 4 if quick else MILLI


def bf16_and_nvfp4(regions: dict[RegionName, float], workload: Workload = TINY_WORKLOAD) -> tuple[RecipeResult, ...]:
    """Both with meanings, of a step with these parts; the optimizer's comes once in 8 micro batches."""
    parts = Changed(quicker_forward, uuid="GPU-0", change=lambda found: replace(found, regions=regions))
    run = run_on(parts, workload=workload)
    return with_meanings(tuple(recipe_result(Variant(name, name), run, EVIDENCE) for name in ("bf16", "nvfp4")), run)


@pytest.mark.parametrize("recompute", ["None", "Full"])
def test_what_the_gemms_allow_counts_forward_ones_as_often_as_a_step_runs_them(recompute: str) -> None:
    workload = TINY_WORKLOAD.model_copy(update={"recompute": recompute})
    _, row = bf16_and_nvfp4({"layers_forward": 0.2, "head": 0.1, "layers_backward": 0.5, "optimizer": 0.8}, workload)
    gemms = [case for case in tiny().gemms if case.mode == "autocast"]
    layers = sum(case.count for case in gemms if case.pass_ == "fprop" and case.quantized)
    once = sum(case.count for case in gemms)
    again = 2 if recompute == "Full" else 1
    step = again * 0.2 + 0.1 + 0.5 + 0.8 / 8
    whole = once + (again - 1) * layers
    assert row.meaning.gemm_share == pytest.approx(whole * MILLI / step)
    assert row.meaning.gemm_speedup == pytest.approx(whole / (whole - again * layers * 3 / 4))
    assert row.sums[0].seconds.value == pytest.approx(MILLI * (once - layers * 3 / 4)), "a sum counts each GEMM once"


def shared(share: float) -> tuple[RecipeResult, ...]:
    """bf16 and nvfp4 with meanings, where the baseline's GEMMs are this share of its step."""
    gemms = MILLI * sum(case.count for case in tiny().gemms if case.mode == "autocast")
    parts = {"layers_forward": 0.2, "head": 0.1, "layers_backward": 0.6, "optimizer": 0.8}
    return bf16_and_nvfp4({name: part * gemms / share for name, part in parts.items()})  # type: ignore[misc]


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_gemms_may_fill_the_step_that_holds_them(share: float) -> None:
    baseline, found = shared(share)
    assert found.meaning.gemm_share == pytest.approx(share)
    assert baseline.notes == ()


@pytest.mark.parametrize("spent", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_none_is_a_failure_and_no_figure(spent: float) -> None:
    def seconds(case: Case, variant: Variant) -> float | Failure:
        odd = isinstance(case, GemmCase) and case.name == "qkv" and case.pass_ == "fprop" and variant.recipe == "nvfp4"
        return spent if odd else 1.0

    found = assessed(seconds)
    assert {gemm.failure.reason for gemm in found.gemms if gemm.failure} == {"no_time"}
    assert f"GPU-0: not a time: a call: {spent:g} s" in found.sums[0].failure.message


def test_a_part_of_the_step_without_a_time_fails_the_training_figure() -> None:
    cases = tiny()
    devices = devices_of(Changed(one_second, change=lambda part: replace(part, regions={**part.regions, "head": 0.0})))
    failure = take(devices, cases, cases.variants, TIMING, lambda: None).failures[NVFP4.label, cases.training]
    assert (failure.reason, failure.message) == ("no_time", "not a time: head: 0 s")
