"""Tokens per joule over the baseline's: paired within ABBA blocks, with an interval that holds the truth.

Faster, slower, or no difference: beyond the variant's own interval and beyond the run's noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from precision_agent.cases import Variant
from precision_agent.method.full_depth import Depth, full_depth_watts
from precision_agent.power.reasons import COUNTER_DISAGREES
from precision_agent.protocol import Part, RegionName
from precision_agent.results.power_windows import NodePower
from precision_agent.results.train import Measured, RecipePower, difference, training_of
from precision_agent.run.run import run_request
from precision_agent.sampling.sample import POWER_PARTS
from precision_api.exchange import stats
from precision_api.exchange.result import Interval, MeasurementResult
from precision_api.models.workload import Workload
from tests.agent.test_assess import NVFP4, run_of
from tests.support.result_objects import request_text

DRIFT = (1.0, 1.1, 0.8)


def power(watts: float, factors: Sequence[float] = DRIFT) -> NodePower:
    """All layers, of three ABBA blocks."""
    each = {place: {"layers": watts * factor} for place, factor in enumerate(factors)}
    return NodePower({"layers": watts}, 12.0, 120, "gpu", each)  # type: ignore[arg-type]


@cache
def run() -> Measured:
    """NVFP4 twice as fast as bf16, on one GPU; only read."""
    return run_of(gpus=1)


def ratio(metering: RecipePower, variant: Variant = NVFP4, on: Measured | None = None) -> Interval | None:
    return training_of(variant, on or run(), metering).energy.tokens_per_joule_ratio


def test_a_shared_drift_falls_out_and_what_is_not_shared_is_the_width() -> None:
    found = ratio(RecipePower(power(1100), {}, baseline=power(1000)))
    assert (found.value, found.n) == (pytest.approx(2 / 1.1), 3)
    assert found.upper - found.lower < 1e-9
    apart = (1.02, 0.99, 1.0)
    found = ratio(RecipePower(power(1000, apart), {}, baseline=power(1000, (1.0, 1.0, 1.0))))
    expected = stats.paired_ratio([2 / factor for factor in apart], [1.0] * 3)
    assert (found.lower, found.upper) == pytest.approx((expected.lower, expected.upper))


@pytest.mark.parametrize(
    ("metering", "variant"),
    [
        (RecipePower(power(1000), {}, baseline=power(1000)), Variant("bf16", "bf16")),
        (RecipePower(power(1000), {}, baseline=(COUNTER_DISAGREES,)), NVFP4),
        (RecipePower((COUNTER_DISAGREES,), {}, baseline=power(1000)), NVFP4),
        (RecipePower(power(1000), {}, baseline=power(1000, DRIFT[:1])), NVFP4),
    ],
    ids=["the baseline", "no draw of the baseline", "no draw", "one palindrome in common"],
)
def test_without_two_pairs_there_is_no_ratio(metering: RecipePower, variant: Variant) -> None:
    assert ratio(metering, variant) is None


def test_steps_with_other_parts_are_not_held_against_each_other() -> None:
    whole = run()
    with_head = tuple({**regions, "head": (0.1,) * whole.samples.passes} for regions in whole.samples.regions["bf16"])
    samples = replace(whole.samples, regions={**whole.samples.regions, "bf16": with_head})
    head: dict[int, Mapping[Part, float]] = {place: {"layers": 1000.0, "head": 900.0} for place in range(3)}
    baseline = NodePower({"layers": 1000.0, "head": 900.0}, 12.0, 120, "gpu", head)
    assert ratio(RecipePower(power(1000), {}, baseline=baseline), on=replace(whole, samples=samples)) is None


@cache
def replayed(kept: int = 0) -> MeasurementResult:
    workload = Workload(preset="llama3-8b")
    found = run_request(request_text(workload=workload, last_layers_bf16=kept, gpus=1, gemm_modes=()), "replay").result
    assert found is not None
    return found


@pytest.mark.parametrize("kept", [0, 16])
def test_the_ratio_of_a_whole_run_is_that_of_its_figures_and_holds_kept_layers(kept: int) -> None:
    energies = [row.training.energy for row in replayed(kept).recipes if row.training]
    figures = [energy.tokens_per_joule for energy in energies if energy and energy.tokens_per_joule]
    ratios = [energy.tokens_per_joule_ratio for energy in energies if energy]
    assert len(figures) == len(ratios) == 4
    assert ratios[0] is None
    for figure, found in zip(figures[1:], ratios[1:], strict=True):
        assert found.value == pytest.approx(figure / figures[0], rel=1e-3)
        assert found.lower < found.value < found.upper
        assert found.n == 3


SECONDS: dict[RegionName, float] = {"layers_forward": 0.1, "layers_backward": 0.2, "head": 0.18, "optimizer": 0.2}
WATTS: dict[Part, float] = {"layers": 900.0, "head": 700.0, "optimizer": 400.0}
DEPTH = Depth(layers=32, measured=4)
NOISE = 0.02


def noisy(chance: Random, abba_blocks: int) -> NodePower:
    """Power of one variant, each window with an error of its own, parts in turn as a run replays them."""
    each: dict[int, dict[Part, float]] = {}
    for slot in range(2 * abba_blocks):
        part = POWER_PARTS[slot % len(POWER_PARTS)]
        part = "layers" if part == "dense" else part  # as a run does where all layers are alike
        each.setdefault(slot // 2, {})[part] = WATTS[part] * chance.lognormvariate(0.0, NOISE)
    return NodePower(WATTS, 12.0, 120, "gpu", each)


@pytest.mark.parametrize(
    ("abba_blocks", "head", "least"),
    [(4, 0.18, 0.93), (12, 0.18, 0.93), (12, 1.6, 0.88)],
    ids=["quick", "standard", "a third of the energy is the head's"],
)
def test_the_interval_holds_the_truth_though_head_and_optimizer_are_seldom_replayed(
    abba_blocks: int, head: float, least: float
) -> None:
    chance, held, nodes, seconds = Random(3), 0, 500, {**SECONDS, "head": head}
    for _ in range(nodes):
        watts = []
        for variant in (noisy(chance, abba_blocks), noisy(chance, abba_blocks)):
            found = [full_depth_watts(seconds, variant.of_abba_block(place), DEPTH) for place in range(abba_blocks)]
            watts.append([value for value in found if isinstance(value, float)])
        interval = stats.paired_ratio(*watts)
        held += interval.lower <= 1 <= interval.upper
    assert least <= held / nodes <= 0.97


def speedup_of(value: float, half: float) -> Interval:
    return Interval(value=value, lower=value - half, upper=value + half, n=3)


QUIET = speedup_of(1.0, 0.001)


@pytest.mark.parametrize(
    ("variant", "control", "expected"),
    [
        (speedup_of(1.3, 0.01), QUIET, "faster"),
        (speedup_of(0.8, 0.01), QUIET, "slower"),
        (speedup_of(1.3, 0.31), QUIET, "no_difference"),
        (speedup_of(1.004, 0.0001), QUIET, "no_difference"),
        (speedup_of(1.02, 0.001), speedup_of(1.01, 0.015), "no_difference"),
        (speedup_of(1.03, 0.001), speedup_of(1.01, 0.015), "faster"),
        (speedup_of(0.97, 0.001), speedup_of(0.99, 0.015), "slower"),
        (speedup_of(1.006, 0.0005), None, "faster"),
    ],
)
def test_a_difference_needs_both(variant: Interval, control: Interval | None, expected: str) -> None:
    assert difference(variant, control) == expected
