"""What a person reads: the verdict at the end, where each figure comes from, and how far a run is."""

import io
import math
import re
from functools import cache

import pytest
from rich.console import Console

from precision_agent.method.duration import phases, total_seconds
from precision_agent.results.explain import as_document, as_text, explain
from precision_agent.run.progress import Bar, clock, seconds_left, share_done
from precision_agent.run.publish import verdict_text
from precision_agent.run.run import run_request
from precision_api.exchange import result as wire
from precision_api.exchange.request import Timing
from tests.support.result_objects import interval, recipe_result, request, request_text, result


@cache
def replayed() -> wire.MeasurementResult:
    """One for all tests, which only read it."""
    outcome = run_request(request_text(timing=Timing(passes=3, segment_seconds=3.0, discard_seconds=1.0)), "replay")
    assert outcome.result is not None
    return outcome.result


def explained(measured: wire.MeasurementResult, figure: str, recipe: str = "nvfp4") -> tuple[str, str]:
    return next((row.value, row.source) for row in explain(measured) if (row.of, row.figure) == (recipe, figure))


def with_recipe(**changes: object) -> wire.MeasurementResult:
    rows = (recipe_result("bf16"), recipe_result("nvfp4", 1.6, **changes))
    return result(recipes=rows, provenance="measured", backend="transformer-engine")


def training_of(**figures: object) -> wire.Training:
    return wire.Training(**({"tokens_per_second": interval(1.0)} | figures))  # type: ignore[arg-type]


def test_every_figure_has_a_source_what_nobody_measured_is_marked_and_rows_for_programs_hold_the_same() -> None:
    rows = explain(replayed())
    for row in rows:
        assert row.source.strip(), row
        assert row.figure
    assert {row.of for row in rows[-3:]} == {"nvfp4 (simulated)"}
    assert any(row.figure == "simulated training.energy" for row in rows)
    assert "SIMULATED, nothing of it was measured here" in verdict_text(replayed())
    own_layers = with_recipe(quantization_tax=0.451, last_layers_bf16=5)
    assert "without the layers in BF16" in explained(own_layers, "quantisation tax")[1], "sums of GEMMs hold those too"
    seen = wire.Verification(verdict="verified", attention="FlashAttention (2.7.4)")
    assert explained(with_recipe(verification=seen), "attention")[0] == "FlashAttention (2.7.4)"
    text = as_text(rows)
    assert len(as_document(rows)) == len(rows)
    for row in rows:
        assert f"  {row.figure}: {row.value}" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("      ")) <= 110


def test_the_full_depth_formula_is_told_with_the_runs_own_numbers() -> None:
    seconds_of = {"layers_forward": 0.012, "layers_backward": 0.020, "head": 0.016, "optimizer": 0.004}
    training = wire.Training(
        tokens_per_second=interval(1e5),
        regions=tuple(wire.Region(name=name, seconds=interval(seconds)) for name, seconds in seconds_of.items()),
        layers=32,
        layers_measured=4,
        trial_tokens_per_second=5.6e5,
        missing=("optimizer",),
        synchronous_tokens_per_second=interval(9e4),
        slowest_gpu="GPU-3",
        depth_check=1.01,
    )
    found = with_recipe(training=training)
    _, source = explained(found, "tokens/s")
    assert "32 x 32.00 ms / 4 layers that ran + 16.00 ms of head + a share of 4.000 ms of optimizer" in source
    assert "WITHOUT optimizer" in source
    assert "560,000 a second, which says nothing" in source
    assert "GPU-3" in explained(found, "tokens/s in step")[1]
    assert explained(found, "depth check")[0] == "1.010"
    dense = (wire.Region(name=f"dense_{way}", seconds=interval(0.0015)) for way in ("forward", "backward"))
    both = training.model_copy(update={"dense_measured": 1, "regions": (*training.regions, *dense)})
    _, source = explained(with_recipe(training=both), "tokens/s")
    assert (
        "32 layers: those with experts x 32.00 ms / 4 that ran + dense ones x 3.000 ms / 1 that ran + 16.00" in source
    )


def test_what_is_not_there_is_told_with_its_reason() -> None:
    lost = wire.Failure(reason="part_failed", message="qkv fprop: cuda_error")
    found = with_recipe(
        sums=(wire.GemmSum(mode="autocast", failure=lost),),
        training=training_of(energy=wire.Energy(valid=False, reasons=("phase_locked",))),
    )
    assert explained(found, "GEMMs (autocast)") == ("none", "part_failed: qkv fprop: cuda_error")
    value, source = explained(found, "energy")
    assert value == "none"
    assert source.startswith("no figure, for: phase_locked: The step's period is locked to the sensor's")
    failed = with_recipe(training=wire.Training(failure=wire.Failure(reason="out_of_memory", message="4 layers")))
    assert explained(failed, "training") == ("none", "out_of_memory: 4 layers")


def test_a_gpu_without_known_peaks_has_no_share_of_one() -> None:
    gpus = (wire.Gpu(uuid="GPU-a", name="NVIDIA GH200 480GB", memory_bytes=1),)
    utilisation = wire.Utilisation(value=0.4, peak_flops_per_second=1e15, peak="of its data sheet")
    training = wire.Training(tokens_per_second=interval(1000.0), mfu=utilisation)
    assert explained(with_recipe(training=training).model_copy(update={"gpus": gpus}), "MFU")[0] == "40.0%"
    unknown = with_recipe(training=training.model_copy(update={"mfu": None})).model_copy(update={"gpus": gpus})
    assert explained(unknown, "MFU") == ("unknown", "the peak of NVIDIA GH200 480GB is unknown")


def test_the_verdict_ends_with_the_recommendation_and_loss_runs_have_a_column() -> None:
    lines = verdict_text(replayed()).splitlines()
    assert lines[0] == "tiny on 4 x NVIDIA GB200: replay, simulated"
    assert lines[2].split()[:2] == ["RECIPE", "TFLOP/S/GPU"]
    assert replayed().recommendation.sentence.split()[0] in "\n".join(lines[-3:])
    assert max(map(len, lines)) <= 128
    assert "LOSS" not in verdict_text(with_recipe())
    assert "healthy" in verdict_text(with_recipe(loss=wire.Loss(verdict="healthy")))


def test_a_row_of_the_table_names_risk_and_layers_in_bf16_with_figures_as_people_write_them() -> None:
    sums = tuple(
        wire.GemmSum(mode=mode, seconds=interval(seconds, 0), speedup=interval(1.5))
        for mode, seconds in (("autocast", 13.0642), ("prequantized", 0.15201))
    )
    row = recipe_result("nvfp4_no_rht", 1.6, sums=sums, last_layers_bf16=5)
    text = verdict_text(result(recipes=(recipe_result("bf16"), row)))
    assert re.search(r"\nnvfp4_no_rht \(at risk, last 5 in BF16\) .* 13,060 ms 1\.50x +152\.0 ms 1\.50x", text)
    assert 'Risk of nvfp4_no_rht: NVFP4 without RHT "may degrade convergence' in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partial": wire.Failure(reason="terminated", message="told to stop")}, "PARTIAL: told to stop"),
        ({"product": "CPU"}, "A trial on the CPU: these figures say nothing of a GPU"),
        ({"steadiness": wire.Steadiness(state="not_steady", message="SM clock rises")}, "not steady: SM clock rises"),
        ({"simulated": (wire.Simulated(field="memory", assumption="a share"),), "provenance": "simulated"},
         "SIMULATED, nothing of it was measured here: memory"),
    ],
)  # fmt: skip
def test_what_to_doubt_is_said(changes: dict[str, object], words: str) -> None:
    assert words in verdict_text(result(**changes))


VOID = wire.Energy(valid=False, reasons=("phase_locked", "too_short"))
OTHER_KERNELS = "partial: GEMM time by kernel class: nvfp4 60.0%"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"throttled": wire.ThrottleShare(reason="software_thermal", share=0.25)},
         "nvfp4 was throttled: software_thermal, 25.0% of the time."),
        ({"training": training_of(missing=("head",))}, "nvfp4: without head, which did not fit."),
        ({"training": training_of(energy=VOID)}, "No energy figure of nvfp4: phase_locked, too_short."),
        ({"loss": wire.Loss(verdict="diverged")}, "its loss diverged in the smoke test"),
        ({"loss": wire.Loss(failure=wire.Failure(reason="out_of_memory", message="2 layers"))},
         "nvfp4: out_of_memory: 2 layers"),
        ({"verification": wire.Verification(verdict="partial", message=OTHER_KERNELS[9:])}, f"nvfp4: {OTHER_KERNELS}"),
    ],
    ids=["throttled", "without a part", "no energy", "diverged", "no loss run", "another precision"],
)  # fmt: skip
def test_what_to_doubt_of_a_recipe_is_said_with_its_name(changes: dict[str, object], words: str) -> None:
    assert words in verdict_text(with_recipe(**changes))
    assert words not in verdict_text(with_recipe())


def test_a_slow_gpu_is_named_with_what_a_job_in_step_gets() -> None:
    training = wire.Training(
        tokens_per_second=interval(1e5),
        synchronous_tokens_per_second=interval(8.2e4),
        slowest_gpu="GPU-3",
        gpu_spread=0.82,
    )
    text = verdict_text(with_recipe(training=training))
    assert "GPU-3 is slow: 82.0% of the GPUs' mean with nvfp4, and a job that waits for all GPUs gets 82,000" in text
    assert "is slow" not in verdict_text(with_recipe(training=training.model_copy(update={"gpu_spread": 0.99})))


def test_a_note_of_the_whole_run_is_told_once_and_no_recipe_is_named_twice() -> None:
    shared, own = "1 palindrome was measured twice", "nvfp4: its own"
    rows = (recipe_result("bf16", notes=(shared,)), recipe_result("nvfp4", notes=(shared, own)))
    lines = verdict_text(result(recipes=rows)).splitlines()
    assert lines.count(shared) == 1
    assert own in lines


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("transformer-engine", "share of profiled steps, applied to the timed ones"),
        ("torch-cpu", "both operands were quantised before the clock started"),
        ("replay", "by the published tables"),
    ],
)
def test_each_backends_own_way_to_the_gemms_alone_is_told(backend: str, words: str) -> None:
    sums = (wire.GemmSum(mode="prequantized", seconds=interval(0.01)),)
    rows = (recipe_result("bf16"), recipe_result("nvfp4", sums=sums, quantization_tax=0.2))
    measured_result = result(recipes=rows, provenance="measured", backend=backend)
    assert words in explained(measured_result, "GEMMs (prequantized)")[1]
    assert explained(measured_result, "quantisation tax")[1].startswith("no kernels at their clock were seen")
    for load, source in (
        ("training", "in profiled steps: non-GEMM kernel time beyond bf16's"),
        ("gemms", "in profiled GEMMs"),
    ):
        profiled = {"quantization_tax_load": load, "quantization_tax_most": 0.3}
        seen = measured_result.model_copy(update={"recipes": tuple(row.model_copy(update=profiled) for row in rows)})
        assert explained(seen, "quantisation tax")[0] == "at least 20.0%, at most 30.0%"
        assert explained(seen, "quantisation tax")[1].startswith(source)


def test_nvidias_method_is_not_told_as_ours() -> None:
    text = as_text(explain(with_recipe(training=None).model_copy(update={"method": "nvidia"})))
    for ours in ("palindrome", "segment", "by one forward and backward pass", "share of profiled steps"):
        assert ours not in text


def test_what_the_recipes_are_used_for_is_said_and_one_device_is_no_node_of_many() -> None:
    old = with_recipe().model_copy(update={"recipe_scope": "mlp", "baseline": "fp8_block", "timing": "1/quick/mlp"})
    found = old.model_copy(update={"timing": "1/quick/mlp-bf16"})
    assert "attention's projections in fp8_block" in verdict_text(old).splitlines()[0]
    assert "attention's projections in bf16" in verdict_text(found).splitlines()[0]
    assert any(row.figure == "recipes' scope" for row in explain(found))
    found = old.model_copy(update={"timing": "1/quick/separate/mxfp8-attention/primary-weights"})
    words = "attention's core in mxfp8; weight gradients added by autograd; weights in the recipe's format alone"
    assert words in as_text(explain(found))
    assert words.replace("; ", ", ") in verdict_text(found).splitlines()[0]
    assert "projections" not in verdict_text(with_recipe()) + as_text(explain(with_recipe()))
    training = training_of(synchronous_tokens_per_second=interval(1.0))
    text = as_text(explain(with_recipe(training=training).model_copy(update={"product": "CPU", "gpus": ()})))
    assert "None" not in text
    assert "all GPUs" not in text


def test_a_recipe_that_can_not_run_and_a_missing_control_are_told() -> None:
    gone = recipe_result(
        "nvfp4", availability="unsupported", availability_reason="H200 has no nvfp4", sums=(), gemms=(), training=None
    )
    text = verdict_text(result(recipes=(recipe_result("bf16"), gone)))
    assert "nvfp4   -" in text
    assert "nvfp4: unsupported: H200 has no nvfp4" in text
    found = with_recipe()
    known = found.model_copy(update={"control_ratio": interval(1.0), "noise_floor": 0.005})
    assert "The control has no figure" in verdict_text(found.model_copy(update={"control_ratio": None}))
    assert "The control has no figure" not in verdict_text(known)


PLAN = phases(request())


def test_progress_never_goes_back_and_on_a_terminal_the_bar_has_the_time_left_the_phases_own() -> None:
    shares = [share_done(PLAN, phase.name, done) for phase in PLAN for done in (0.0, 0.5, 1.0)]
    assert (shares, shares[0], shares[-1]) == (sorted(shares), 0.0, pytest.approx(1.0))
    names = [phase.name for phase in PLAN]
    after = sum(phase.seconds for phase in PLAN[names.index("measure") + 1 :])
    assert seconds_left(PLAN, "measure", 0.5, 100.0) == pytest.approx(100 + after)
    measuring = next(phase.seconds for phase in PLAN if phase.name == "measure")
    assert seconds_left(PLAN, "measure", 0.5, math.nan) == pytest.approx(measuring / 2 + after)
    assert seconds_left(PLAN, PLAN[0].name, 0.0, math.nan) == pytest.approx(total_seconds(PLAN))
    assert (clock(200.4), clock(-1)) == ("3:20", "0:00")
    out = io.StringIO()
    with Bar(PLAN, Console(file=out, force_terminal=True, width=100)) as bar:
        bar("measure", 0.5, 100.0)
        bar.note("recipe nvfp4: [probe_failed]")
    assert "measuring" in out.getvalue()
    assert "left" in out.getvalue()
    assert "recipe nvfp4: [probe_failed]" in out.getvalue()


def test_tokens_per_joule_have_the_paired_ratio_a_modules_no_counter_and_an_absent_net_figure_its_reason() -> None:
    ratio = wire.Interval(value=1.25, lower=1.2, upper=1.3, n=4)
    energy = wire.Energy(valid=True, watts=9e3, tokens_per_joule=10.0, tokens_per_joule_ratio=ratio)
    measured = with_recipe(training=wire.Training(tokens_per_second=interval(9e4), energy=energy))
    value, source = explained(measured, "tokens/J ratio")
    assert value == "1.2500 (95 %: 1.2000 to 1.3000, n = 4)"
    assert source.startswith("tokens/J over bf16's, paired within each of 4 palindromes")
    assert "10.00 1.25x ±4.0%" in verdict_text(measured)
    energy = wire.Energy(valid=True, scope="module", watts=9e3, tokens_per_joule=10.0, net_reason="idle_unknown")
    measured = with_recipe(training=wire.Training(tokens_per_second=interval(9e4), energy=energy))
    assert explained(measured, "power")[1].startswith("integral of the modules' power")
    assert explained(measured, "tokens/J net") == (
        "none",
        "idle_unknown: Idle power was not measured: there are gross figures only.",
    )


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((0.99, 1.01), "1.000x ±1.0%"), ((0.5, 2.0), "1.000x -50%/+100%"), ((0.9997, 1.0003), "1.000x  ")],
    ids=["narrow", "wide", "narrower than its last digit"],
)
def test_a_wide_interval_is_told_by_both_of_its_ends(bounds: tuple[float, float], words: str) -> None:
    ratio = wire.Interval(value=1.0, lower=bounds[0], upper=bounds[1], n=4)
    assert words in verdict_text(with_recipe(training=wire.Training(tokens_per_second=interval(9e4), speedup=ratio)))
