"""Kernels, their passes and modules out of a profiler's trace.

Overlapping kernels are counted once, and nothing is lost.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.trace import Launch, gaps, kernel_seconds, kernels, launches, placed, range_name, shares
from precision_agent.precision.occupancy import divided, union
from precision_agent.protocol import KernelSeconds

BF16 = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
CAST = "void transformer_engine::cast_transpose_kernel<__nv_bfloat16>(float*)"
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda it: (float(it[0]), float(sum(it)))))


def range_(start: float, end: float, **told: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": range_name(**told), "ts": start, "dur": end - start}


def work(number: int, launched: float, start: float, dur: float, name: str = BF16) -> list[dict[str, Any]]:
    call = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "ts": launched, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": dur}
    return [event | {"args": {"correlation": number}} for event in (call, kernel)]


def trace(*events: dict[str, Any]) -> dict[str, Any]:
    return {"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}


def test_a_kernel_belongs_to_the_ranges_that_were_open_at_its_launch_not_when_it_ran() -> None:
    found = launches(
        trace(
            range_(0, 100, pass_="forward", region="layers_forward"),
            range_(10, 50, module="attention"),
            range_(100, 200, pass_="backward", region="layers_backward"),
            *work(1, 20, 150, 30),  # launched within forward and attention, run much later
            *work(2, 60, 180, 10),
            *work(3, 110, 190, 10),
            *work(4, 300, 310, 10),
        )
    )
    assert [(one.pass_, one.module, one.region) for one in found] == [
        ("forward", "attention", "layers_forward"),
        ("forward", "", "layers_forward"),
        ("backward", "", "layers_backward"),
        ("other", "", ""),
    ]
    assert found[0].end - found[0].start == pytest.approx(30e-6)


def test_a_kernel_without_a_known_launch_belongs_nowhere_and_copies_fills_and_ranges_are_no_kernels() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": BF16, "ts": 5, "dur": 2, "args": {}}
    found = launches(trace(range_(0, 100, pass_="forward"), kernel))
    assert [(one.name, one.pass_) for one in found] == [(BF16, "other")]
    fill = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 5, "dur": 2, "args": {}}
    assert launches(trace(range_(0, 100, pass_="forward"), fill)) == ()
    foreign = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step", "ts": 0, "dur": 9}
    gpu = {"ph": "X", "cat": "gpu_user_annotation", "name": range_name(pass_="forward"), "ts": 0, "dur": 9}
    assert launches(trace(foreign, gpu)) == ()


def test_replayed_kernels_lie_where_the_eager_ones_of_their_region_did_or_none_does() -> None:
    names = {"layers_forward": [(CAST, "attention"), (BF16, "attention"), (BF16, "mlp")], "head": [(BF16, "head")]}
    eager = [Launch(name, 0, 1, region=region, module=at) for region, rows in names.items() for name, at in rows]
    played = [Launch(name, 2, 3, region=region) for region, rows in names.items() for name, _ in rows]
    assert [one.module for one in placed(played, eager)] == ["attention", "attention", "mlp", "head"]
    other = [*played, Launch("Memset (Device)", 3, 4, region="head")]
    assert placed(other, eager)[-1].module == "", "what multiplies nothing may be launched otherwise"
    for wrong in (played[:-1], [*played, played[1]], [*played[:3], Launch(BF16, 2, 3, region="layers_forward")]):
        assert placed(wrong, eager) == ()


def test_launches_add_up_by_name_pass_and_module_as_one_step_and_side_by_side_take_the_time_of_one() -> None:
    found = [Launch(BF16, 0, 2, "forward", "mlp"), Launch(BF16, 4, 6, "forward", "mlp"), Launch(CAST, 7, 8, "forward")]
    assert [(row.name, row.seconds, row.pass_, row.module) for row in kernels(found, steps=2)] == [
        (BF16, 2.0, "forward", "mlp"),
        (CAST, 0.5, "forward", ""),
    ]
    # four experts at once after a cast: two thirds of the time are GEMMs', not the eight ninths of the sums
    found = [Launch(CAST, 0, 1, region="fprop"), *(Launch(BF16, 1, 3, region="fprop", stream=n) for n in range(4))]
    seen = shares(found, "fprop", steps=1)
    assert (seen.gemm, seen.other, seen.launches, seen.streams) == (2, 1, 4, 4)
    assert seen.gemm_share == pytest.approx(2 / 3)
    assert {row.name: row.seconds for row in kernels(found, steps=1)} == {BF16: 2.0, CAST: 1.0}
    assert kernel_seconds(found, steps=1) == 3


def test_the_gemms_share_counts_unknown_kernels_and_what_ends_a_gemm_and_neither_casts_beside_one_nor_gaps() -> None:
    runs = [Launch(BF16, 0, 6, region="dgrad"), Launch(CAST, 6, 8, region="dgrad"), Launch("x9", 8, 10, region="dgrad")]
    seen = shares([*runs, Launch(CAST, 0, 99, region="fprop")], "dgrad", steps=2)
    assert (seen, seen.gemm_share) == (KernelSeconds(gemm=4, other=1, launches=1, streams=1), 0.8)
    assert shares([], "dgrad", steps=2).gemm_share is None
    reduction = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasSplitKParams<float>)"
    runs = [Launch(BF16, 0, 6, region="wgrad"), Launch(reduction, 6, 7, region="wgrad")]
    assert shares(runs, "wgrad", steps=1) == KernelSeconds(gemm=7, other=0, launches=2, streams=1)
    seen = shares([Launch(BF16, 0, 4, region="dgrad"), Launch(CAST, 3, 5, region="dgrad")], "dgrad", steps=1)
    assert (seen.gemm, seen.other) == (4, 1)
    assert kernel_seconds([Launch(BF16, 0, 4), Launch(BF16, 9, 10), Launch(CAST, 20, 30)], steps=2) == 7.5
    assert kernel_seconds([], steps=2) == 0


@pytest.mark.parametrize("early", [0, 3])
def test_kernels_of_a_graph_are_their_regions_by_its_one_launch_and_gaps_reach_to_the_next_graph(early: int) -> None:
    """Three replays of two graphs, the second launched while the first runs; once the host was late.

    By order: the profiler's two clocks may put a launch `early`, before its range.
    """
    events: list[dict[str, Any]] = []
    for step, late in enumerate((0, 50, 0)):
        at = 1000 * step
        for number, (region, ran) in enumerate((("fprop", ((10, 4), (15, 4))), ("wgrad", ((22 + late, 6),)))):
            events.append(range_(at + 2 * number, at + 2 * number + 1, region=region))
            launch = work(100 * step + number, at + 2 * number + 0.5 - early, at + 500, 0)[0]
            events.append(launch | {"name": "cudaGraphLaunch"})
            kernels_ = [{"ph": "X", "cat": "kernel", "name": BF16, "ts": at + ts, "dur": dur} for ts, dur in ran]
            events += [kernel | {"args": {"correlation": 100 * step + number}} for kernel in kernels_]
    found = launches(trace(*events))
    assert [one.region for one in found] == ["fprop", "fprop", "wgrad"] * 3
    assert gaps(found)["fprop"] == pytest.approx(4e-6), "1 within, 3 before the next graph"
    assert gaps([]) == {}


@pytest.mark.parametrize(
    ("spans", "each"),
    [
        *(([], []), ([(0, 4), (10, 12)], [4, 2]), ([(0, 4), (0, 4)], [2, 2]), ([(0, 4), (2, 6)], [3, 3])),
        *(([(2, 6), (0, 4)], [3, 3]), ([(0, 12), (3, 6), (3, 6)], [10, 1, 1]), ([(0, 3), (3, 5)], [3, 2])),
        ([(1, 1), (0, 2)], [0, 2]),
    ],
    ids=["none", "apart", "equal", "shifted", "in-any-order", "nested", "touching", "of-no-length"],
)
def test_a_moment_is_shared_equally_by_what_runs_in_it(spans: list[tuple[float, float]], each: list[float]) -> None:
    assert divided(spans) == pytest.approx(each)


@given(SPANS)
def test_spans_divide_the_time_in_which_anything_ran_by_their_share(spans: list[tuple[float, float]]) -> None:
    covered = {tick for start, end in spans for tick in range(int(start), int(end))}
    assert union(spans) == pytest.approx(len(covered))
    assert sum(divided(spans)) == pytest.approx(len(covered))
    for (start, end), got in zip(spans, divided(spans), strict=True):
        assert (end - start) / max(1, len(spans)) - 1e-9 <= got <= end - start + 1e-9
