"""NVIDIA's published table read into our schema, and its method repeated on a device that the test decides.

Reading NVIDIA's table, and what is made of the turns.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from benchmarks.nvidia_gemm import Turn, parse, request_of, speedup, summary, timed_seconds
from precision_agent import __version__
from precision_agent.cases import GemmCase
from precision_agent.method import nvidia_method
from precision_agent.method.nvidia_method import CALLS, WARMUPS, ShapeRow, readings, result_of, tax_seconds
from precision_api.exchange.request import Mode, digest
from precision_api.exchange.result import Failure, MeasurementResult, Software
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import PASSES, Shape
from precision_api.models.workload import ResolvedWorkload, Workload, resolve
from tests.api.test_shapes import NVIDIA_TWELVE
from tests.support.golden import FOLDER
from tests.support.result_objects import HASH, of, request

NOT_PUBLISHED = "not published"
PRINTED = """
GEMM Benchmark on NVIDIA H200
Warmup iterations: 10, Timed iterations: 100
==========================================================================================
Shape                     BF16 TFLOPS   BF16 ms  FP8Cur TFLOPS  FP8Cur ms    FP8Block TFLOPS FP8Block ms  Speedup
------------------------------------------------------------------------------------------
8192x4096x6144                  700.0     0.600         1000.0      0.400              900.0       0.500    1.50x
8192x4096x4096                  700.0     0.400          800.0      0.350                N/A         N/A    1.14x
"""


def published(document: Mapping[str, Any], table: str, product: str) -> tuple[MeasurementResult, tuple[ShapeRow, ...]]:
    """The tables `<table>_autocast` and `<table>_prequantized` of NVIDIA's tutorial in our schema, and their rows.

    Forward GEMMs stand by themselves where they were published so; else, and for both gradients, the sum of a pass's
    four GEMMs is one row named `four_gemms` without a shape. Sums are the printed ones of a layer, which may differ
    from the printed passes (by 0.2 % once). Single figures: each interval has n = 1 and no width.
    """
    workload = Workload(
        name="published",
        model=ModelSpec(**document["model"], causal=False),
        micro_batch_size=document["micro_batch_size"],
        sequence_length=document["sequence_length"],
    )
    resolved = resolve(workload)
    tables: dict[Mode, Mapping[str, Any]] = {mode: document[f"{table}_{mode}"] for mode in get_args(Mode)}
    rows = tuple(row for mode, figures in tables.items() for row in _published_rows(figures, mode, resolved))
    layers = document["model"]["num_hidden_layers"]
    totals = {
        (recipe, mode): _published(mode, recipe, layers * milliseconds)
        for mode, figures in tables.items()
        for recipe, milliseconds in figures["layer"].items()
    }
    basis = {
        "run": NOT_PUBLISHED, "request_hash": digest(document), "node": NOT_PUBLISHED, "backend": "replay",
        "provenance": "replayed",
        "sources": (f"{document['source']}, table {table}: single figures without intervals (n = 1)",),
        "product": product, "software": Software(agent=__version__, stack_hash=digest({"published": table}, 16)),
        "started_at": NOT_PUBLISHED, "finished_at": NOT_PUBLISHED, "duration_seconds": 0.0,
    }  # fmt: skip
    return result_of(rows, resolved, basis, totals), rows


def _published_rows(table: Mapping[str, Any], mode: Mode, workload: ResolvedWorkload) -> list[ShapeRow]:
    """Rows of one table, milliseconds of one layer to seconds; counted once for each layer."""
    model, tokens = workload.model, workload.tokens_per_micro_batch
    assert tokens is not None
    layers, whole = model.num_hidden_layers, GemmCase("four_gemms", "fprop", tokens, 0, 0, 1, mode=mode)
    alone = table.get("fprop_ops", {})
    shapes = {gemm.name: gemm for gemm in workload.gemms if gemm.pass_ == "fprop"}
    rows: list[ShapeRow] = []
    for name, figures in alone.items():
        shape = shapes[name]
        case = GemmCase(name, "fprop", shape.m, shape.k, shape.n, layers, mode=mode)
        rows += [ShapeRow(case, recipe, _published(mode, recipe, value)) for recipe, value in figures.items()]
    for pass_ in PASSES[1:] if alone else PASSES:
        case = replace(whole, pass_=pass_, count=layers)
        rows += [ShapeRow(case, recipe, _published(mode, recipe, value)) for recipe, value in table[pass_].items()]
    return rows


def _published(mode: Mode, recipe: Recipe, milliseconds: float) -> tuple[float, ...] | Failure:
    if mode == "prequantized" and recipe == "fp8_delayed":
        return Failure(reason="no_prequantized_mode", message="what is published in its place is autocast")
    return (milliseconds * 1e-3,)


TABLE: dict[str, Any] = json.loads((FOLDER / "te_gemm_profiling.json").read_text(encoding="utf-8"))
"""Source: NVIDIA Transformer Engine, GEMM profiling tutorial (docs/examples/gemm_profiling)."""
B300, B300_ROWS = published(TABLE, "b300_sxm6", "B300")
H200, H200_ROWS = published(TABLE, "h200_nvl", "H200")
FIGURES = [
    (result, table, mode, recipe)
    for result, table in ((B300, "b300_sxm6"), (H200, "h200_nvl"))
    for mode in ("autocast", "prequantized")
    for recipe in TABLE[f"{table}_{mode}"]["layer"]
    if (mode, recipe) != ("prequantized", "fp8_delayed")
]


@pytest.mark.parametrize(("result", "table", "mode", "recipe"), FIGURES, ids=[f"{t} {m} {r}" for _, t, m, r in FIGURES])
def test_layer_and_model_sums_and_speedups_are_nvidias(
    result: MeasurementResult, table: str, mode: Mode, recipe: Recipe
) -> None:
    printed = TABLE[f"{table}_{mode}"]
    total = next(part for part in of(result, recipe).sums if part.mode == mode)
    layer = total.seconds.value / 24
    assert layer * 1e3 == pytest.approx(printed["layer"][recipe], rel=1e-12)
    assert layer * 24e3 == pytest.approx(printed["model"][recipe], abs=0.02)  # printed from unrounded layers
    speedup = total.speedup
    if recipe == "bf16":
        assert speedup is None
    else:
        assert speedup.value == pytest.approx(printed["layer"]["bf16"] / printed["layer"][recipe], rel=1e-12)


@pytest.mark.parametrize("rows", [B300_ROWS, H200_ROWS], ids=["B300", "H200"])
def test_the_printed_parts_add_up_to_the_printed_sums_within_a_fifth_of_a_per_cent(rows: tuple[ShapeRow, ...]) -> None:
    table = "b300_sxm6" if rows is B300_ROWS else "h200_nvl"
    for (recipe, mode), seconds in nvidia_method.totals_of(rows).items():
        if not isinstance(seconds, Failure):
            assert seconds[0] / 24e-3 == pytest.approx(TABLE[f"{table}_{mode}"]["layer"][recipe], rel=0.002)


def test_the_table_is_read_as_the_method_says_and_told_in_words() -> None:
    found = {(one.name, one.recipe): one for one in readings(B300_ROWS)}
    nvfp4, current = found["attn_out", "nvfp4"], found["attn_out", "fp8_current"]
    assert nvfp4.over["bf16"] == pytest.approx(1.20, abs=0.005)
    assert (nvfp4.over["mxfp8"], nvfp4.kind) == (pytest.approx(1.05, abs=0.005), "faster")
    assert (current.over["bf16"], current.kind) == (pytest.approx(0.97, abs=0.005), "not_beneficial")
    assert {key for key, one in found.items() if one.kind == "not_beneficial"} == {("attn_out", "fp8_current")}
    assert "attn_out fprop: fp8_current 0.97x over bf16, 0.85x over mxfp8: not beneficial at this shape" in (
        of(B300, "fp8_current").notes
    )
    assert "attn_out fprop: nvfp4 1.20x over bf16, 1.05x over mxfp8" in of(B300, "nvfp4").notes


def test_the_tax_is_nvidias_and_an_autocast_figure_is_no_prequantized_one() -> None:
    assert tax_seconds(of(B300, "nvfp4")) / 24 * 1e3 == pytest.approx(6.453 - 3.764, abs=0.003)
    note = next(note for note in of(B300, "nvfp4").notes if "tax" in note)
    assert "NVIDIA's method, forward only" in note
    assert note.startswith("quantisation tax 6.45 - 3.76 = 2.69 ms a layer")
    assert "1.5 to 1.75 times" in note
    assert of(B300, "nvfp4").quantization_tax is None  # that field is a share of kernels, which nobody looked at
    part = next(part for part in of(B300, "fp8_delayed").sums if part.mode == "prequantized")
    assert part.seconds is None
    assert part.failure.reason == "no_prequantized_mode"
    assert tax_seconds(of(B300, "fp8_delayed")) is None


def test_published_figures_are_marked_and_have_the_shapes_that_they_are_for() -> None:
    assert (B300.method, B300.provenance, B300.product) == ("nvidia", "replayed", "B300")
    assert "n = 1" in B300.sources[0]
    for recipe in B300.recipes:
        assert recipe.verification.verdict == "unknown"
        assert {gemm.seconds.n for gemm in recipe.gemms if gemm.seconds} == {1}
    assert B300.recommendation.by_speed is None
    assert MeasurementResult.model_validate_json(B300.model_dump_json(by_alias=True)) == B300
    shapes = {(gemm.name, gemm.m, gemm.k, gemm.n) for gemm in of(B300, "mxfp8").gemms if gemm.k}
    assert shapes == {(name, *sizes) for name, pass_, *sizes in NVIDIA_TWELVE if pass_ == "fprop"}


CODONFM = Workload(preset="codonfm-5b")
Call = tuple[str, str, Recipe, Mode, int, int]


class Bench:
    """Answers as told and writes down what it was asked."""

    def __init__(self, failing: str = "") -> None:
        self.asked: list[Call] = []
        self._failing = failing

    def __call__(self, case: GemmCase, recipe: Recipe, warmups: int, calls: int) -> float | Failure:
        self.asked.append((case.name, case.pass_, recipe, case.mode, warmups, calls))
        if recipe == "mxfp8" and case.name == self._failing and case.mode == "autocast":
            return Failure(reason="cuda_error", message="misaligned address")
        faster = {"bf16": 1.0, "mxfp8": 2.0}[recipe] * (1.25 if case.mode == "prequantized" else 1.0)
        return case.flops * 1e-15 / faster * (1 + 0.001 * (len(self.asked) % 3))


def measured(bench: Bench, repeats: int = 3) -> tuple[ShapeRow, ...]:
    return nvidia_method.measure(request(workload=CODONFM, recipes=("bf16", "mxfp8")), bench, repeats)


def test_the_twelve_shapes_run_with_warm_ups_repeated_runs_give_intervals_and_a_failed_shape_is_not_tried_again() -> (
    None
):
    bench = Bench()
    measured(bench, repeats=1)
    assert len(bench.asked) == 2 * 2 * 12
    assert {(warmups, calls) for *_, warmups, calls in bench.asked} == {(WARMUPS, CALLS)} == {(10, 100)}
    bf16, mxfp8 = nvidia_method.recipe_results(measured(Bench()))
    assert [part.speedup for part in bf16.sums] == [None, None]
    for part in mxfp8.sums:
        assert (part.speedup.value, part.speedup.n) == (pytest.approx(2.0, rel=0.002), 3)
    bench = Bench(failing="qkv")
    measured(bench)
    assert len([call for call in bench.asked if call[:4] == ("qkv", "fprop", "mxfp8", "autocast")]) == 1
    bench = Bench()
    nvidia_method.measure(request(workload=Workload(preset="llama3-8b"), recipes=("mxfp8",)), bench, 1)
    assert "lm_head" not in {name for name, *_ in bench.asked}


@pytest.mark.parametrize("name", ["qkv", "attn_out", "mlp_up", "mlp_down"])
def test_a_failed_shape_makes_its_sum_null_and_never_smaller(name: str) -> None:
    _, mxfp8 = nvidia_method.recipe_results(measured(Bench(failing=name)))
    autocast, prequantized = mxfp8.sums
    assert autocast.seconds is None
    assert f"{name} fprop: cuda_error: misaligned address" in autocast.failure.message
    assert prequantized.seconds is not None
    assert tax_seconds(mxfp8) is None


def test_a_measured_run_is_a_result_of_the_method_nvidia() -> None:
    basis = {
        "run": "local", "request_hash": HASH, "node": "box", "backend": "torch-cuda", "provenance": "measured",
        "product": "H200", "software": Software(agent="0.1.0", stack_hash="00"), "started_at": "", "finished_at": "",
        "duration_seconds": 1.0,
    }  # fmt: skip
    found = nvidia_method.result_of(measured(Bench()), resolve(CODONFM), basis)
    assert (found.method, found.recommendation.by_speed) == ("nvidia", None)
    assert "for comparison" in found.recommendation.sentence


def test_nvidias_table_is_read_and_what_failed_or_is_zero_gives_no_speedup() -> None:
    rows = parse(PRINTED)
    assert rows["8192x4096x6144"] == pytest.approx({"bf16": 6e-4, "fp8_current": 4e-4, "fp8_block": 5e-4})
    assert rows["8192x4096x4096"]["fp8_block"] is None
    rows = parse(PRINTED)
    assert speedup(rows, "fp8_current") == pytest.approx(1.0 / 0.75)
    assert speedup(rows, "fp8_block") is None
    assert speedup({}, "fp8_current") is None
    assert parse(PRINTED.replace("0.350", "0.000"))["8192x4096x4096"]["fp8_current"] is None
    with pytest.raises(ValueError, match="no table"):
        parse("Error: CUDA is not available.")


def test_we_time_as_long_as_nvidia_does_and_tell_spreads_from_run_to_run() -> None:
    assert timed_seconds(parse(PRINTED), "fp8_current") == pytest.approx(0.175)
    timing = request_of([Shape(m=8192, k=4096, n=6144)], "fp8_current", 36.0, 3).timing
    assert timing.passes * 2 * 3 * timing.segment_seconds == pytest.approx(36.0)
    found = summary([Turn(1.5, 1.40, 0.004), Turn(1.6, 1.41, 0.006), Turn(None, None, None)])
    assert found["nvidia_spread"] == pytest.approx(0.0707, abs=1e-3)
    assert found["ours_half_width"] == pytest.approx(0.005)
    assert summary([])["nvidia_mean"] is None
