"""The replay: published figures come back where they were published, and everything else is named as made up."""

import json
import time
from functools import cache
from typing import Any

import pytest

from precision_agent.backends.replay_tables import FAULTS, ReplayOptions, families
from precision_agent.run.run import Clock, run_request
from precision_api.exchange.request import RequestNode, Timing
from precision_api.exchange.result import MeasurementResult, Software
from precision_api.facts.mixtures import Mixture
from precision_api.facts.products import PRODUCT_CLASSES, part
from precision_api.facts.recipes import RECIPE_NAMES, Recipe, recipes_for
from precision_api.models.model import ModelSpec
from precision_api.models.workload import Workload
from tests.support.golden import assert_golden
from tests.support.result_objects import of, request, request_text

CODONFM = Workload(
    name="codonfm-5b",
    model=ModelSpec(hidden_size=4096, intermediate_size=16384, num_attention_heads=32, num_hidden_layers=24),
    micro_batch_size=31,
    sequence_length=512,
)
MOMENT = Clock(wall=lambda: 1_795_252_800.0, monotonic=lambda: 0.0)


REPLAYED_SECONDS = 300.0
"""A replay of the default request asks for a little more on its own clock."""


@cache
def replayed(options: ReplayOptions | None = None, **changes: Any) -> MeasurementResult:
    """The result of a replay on one GPU if nothing else is asked, frozen: one for all tests that ask for the same."""
    return replayed_anew(options, **changes)


def replayed_anew(options: ReplayOptions | None = None, **changes: Any) -> MeasurementResult:
    changes = {"recipes": RECIPE_NAMES, "gpus": 1} | changes
    outcome = run_request(request_text(**changes), "replay", options, clock=MOMENT)
    assert outcome.result is not None
    return outcome.result


def rate(result: MeasurementResult, recipe: Recipe = "bf16") -> float:
    return of(result, recipe).training.tokens_per_second.value


@pytest.mark.parametrize("product", PRODUCT_CLASSES)
def test_every_product_is_replayed_with_figures_for_all_that_it_can_run(product: str) -> None:
    running = [recipe for recipe in replayed(product=product).recipes if recipe.availability in ("ok", "emulated")]
    assert [recipe.recipe for recipe in running] == [recipe for recipe, _ in recipes_for(part(product).compute)]
    assert all(recipe.training and recipe.training.tokens_per_second for recipe in running)
    assert all(recipe.sums[0].seconds for recipe in running)
    assert set(families()) == set(PRODUCT_CLASSES)


def test_the_request_may_name_a_part_and_what_hopper_lacks_is_unsupported() -> None:
    assert of(replayed(product="H100"), "nvfp4").availability == "unsupported"
    assert of(replayed(product="H100"), "fp8_block").availability == "ok"
    block = of(replayed(product="GB200"), "fp8_block")
    assert (block.availability, block.verification.verdict) == ("emulated", "assumed")
    assert block.verification.message == "replayed: no kernel ran; it would be emulated"
    assert request(product="NVIDIA-H100-80GB-HBM3").node.product == "NVIDIA-H100-80GB-HBM3"
    assert replayed(product="NVIDIA-H100-80GB-HBM3").product == "H100"


def test_a_replay_says_that_it_is_simulated_what_was_assumed_and_what_was_published() -> None:
    found = replayed()
    assert (found.backend, found.provenance) == ("replay", "simulated")
    assert {"training.energy", "verification", "gpus", "memory"} <= {row.field for row in found.simulated}
    assert all(row.assumption for row in found.simulated)
    assert any("Megatron-Bridge" in source for source in found.sources)
    assert found.recommendation.sentence.startswith("Simulated: ")


def test_node_and_run_replay_the_same_again_nodes_spread_a_little_and_noise_lies_inside_the_intervals() -> None:
    other = RequestNode(name="node-1", uid="another", product="GB200", gpus=1)
    assert replayed() == replayed_anew()
    bf16, other_run = (rate(replayed(run=run, recipes=("bf16",), gemm_modes=())) for run in ("r1", "r2"))
    other_node = rate(replayed(node=other, recipes=("bf16",), gemm_modes=()))
    assert len({bf16, other_run, other_node}) == 3
    assert bf16 == pytest.approx(other_run, rel=0.01)
    assert bf16 == pytest.approx(other_node, rel=0.05)
    nodes = [RequestNode(name=f"n{i}", uid=f"u{i}", product="GB200", gpus=1) for i in range(40)]
    rates = [rate(replayed(node=node, recipes=("bf16",), gemm_modes=(), timing=Timing(passes=2))) for node in nodes]
    mean = sum(rates) / len(rates)
    spread = (sum((value / mean - 1) ** 2 for value in rates) / (len(rates) - 1)) ** 0.5
    assert 0.003 < spread < 0.01
    found = replayed(timing=Timing(passes=8, seed=3), recipes=("bf16",), gemm_modes=())
    assert found.control_ratio.lower <= 1 <= found.control_ratio.upper
    assert found.control_ratio.upper - found.control_ratio.lower < 0.02


def test_a_slow_node_and_a_paced_replay_change_no_ratio_or_figure() -> None:
    some = {"recipes": ("bf16", "nvfp4"), "gemm_modes": ()}
    slow, well = replayed(ReplayOptions(scale=0.8), **some), replayed(**some)
    assert rate(slow) / rate(well) == pytest.approx(0.8)
    slow_training, training = of(slow, "nvfp4").training, of(well, "nvfp4").training
    assert slow_training.speedup.value == pytest.approx(training.speedup.value)
    assert "scale" in {row.field for row in slow.simulated}
    began = time.monotonic()
    paced = replayed(ReplayOptions(pace=0.001))
    assert time.monotonic() - began > 0.001 * REPLAYED_SECONDS
    assert rate(paced) == rate(replayed())


def test_delayed_scaling_has_no_prequantized_mode_failures_are_named_and_a_silent_fallback_is_not_recommended() -> None:
    autocast, prequantized = of(replayed(), "fp8_delayed").sums
    assert autocast.seconds is not None
    assert prequantized.failure.reason == "no_prequantized_mode"
    probed = of(replayed(ReplayOptions(fault="probe_failed")), "nvfp4")
    assert (probed.availability, probed.sums) == ("probe_failed", ())
    broken = of(replayed(ReplayOptions(fault="gemm_failed"), product="H100"), "fp8_current")
    assert broken.sums[0].failure.reason == "part_failed"
    found = replayed(ReplayOptions(fault="silent_fallback"))
    assert of(found, "nvfp4").verification.verdict == "fallback"
    assert rate(found, "nvfp4") == pytest.approx(rate(found), rel=0.02)
    assert found.recommendation.by_speed not in (None, "nvfp4")


def test_a_mixture_says_which_of_its_recipes_is_emulated_and_may_be_the_baseline() -> None:
    mixtures = Mixture(name="m2", mlp="mxfp8", attention="fp8_block"), Mixture(name="m3", mlp="bf16", head="mxfp8")
    made = replayed(product="B200", recipes=("bf16", "mxfp8"), mixtures=mixtures, baseline="m3")
    assert (key := made.baseline) == made.recipes[0].recipe == "m3.bbbbbm"
    assert of(made, "m2.mkmmmb").availability_reason == "B200 runs fp8_block through the kernels of mxfp8"
    for row in made.recipes[1:]:
        assert row.training.speedup.value == pytest.approx(rate(made, row.recipe) / rate(made, key), rel=0.01)
        assert key not in row.meaning.sentence + made.recommendation.sentence
    assert made.recipes[0].meaning.kind == "baseline"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_purpose_is_told_in_the_result(fault: str) -> None:
    found = replayed(ReplayOptions(fault=fault), gpus=2, recipes=("bf16", "nvfp4"), timing=Timing(passes=2))
    assert FAULTS[fault] in {row.assumption for row in found.simulated}


def test_the_whole_result_of_a_gb200_is_as_it_was_looked_at() -> None:
    found = replayed(workload=Workload(preset="llama3-8b"), recipes=("bf16", "fp8_current", "mxfp8", "nvfp4"), gpus=4)
    # the version of whoever runs the test is not part of the figure
    fixed = found.model_copy(update={"software": Software(agent="VERSION", stack_hash="HASH")})
    text = fixed.model_dump_json(by_alias=True)
    # six digits: the last ones depend on the machine's libm
    document = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    assert_golden("result_gb200.json", json.dumps(document, indent=1) + "\n")
