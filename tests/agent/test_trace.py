"""Kernels, their passes and modules out of a profiler's trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.trace import Launch, Shares, busy, kernels, launches, range_name, shares

BF16 = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
CAST = "void transformer_engine::cast_transpose_kernel<__nv_bfloat16>(float*)"


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
    told = [(one.pass_, one.module, one.region) for one in found]
    assert told == [
        ("forward", "attention", "layers_forward"),
        ("forward", "", "layers_forward"),
        ("backward", "", "layers_backward"),
        ("other", "", ""),
    ]
    assert found[0].seconds == pytest.approx(30e-6)


def test_a_kernel_without_a_known_launch_is_counted_and_belongs_nowhere() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": BF16, "ts": 5, "dur": 2, "args": {}}
    found = launches(trace(range_(0, 100, pass_="forward"), kernel))
    assert [(one.name, one.pass_) for one in found] == [(BF16, "other")]


def test_ranges_of_others_and_their_gpu_annotations_are_no_kernels() -> None:
    foreign = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step", "ts": 0, "dur": 9}
    gpu = {"ph": "X", "cat": "gpu_user_annotation", "name": range_name(pass_="forward"), "ts": 0, "dur": 9}
    assert launches(trace(foreign, gpu)) == ()


def test_launches_are_added_up_by_name_pass_and_module_as_one_step() -> None:
    found = [Launch(BF16, 0, 2, "forward", "mlp"), Launch(BF16, 4, 6, "forward", "mlp"), Launch(CAST, 7, 8, "forward")]
    rows = kernels(found, steps=2)
    assert [(row.name, row.seconds, row.pass_, row.module) for row in rows] == [
        (BF16, 2.0, "forward", "mlp"),
        (CAST, 0.5, "forward", ""),
    ]


def test_the_gemms_share_counts_an_unknown_kernel_as_a_gemm() -> None:
    found = [
        Launch(BF16, 0, 6, region="dgrad"),
        Launch(CAST, 6, 8, region="dgrad"),
        Launch("x9", 8, 10, region="dgrad"),
    ]
    assert shares([*found, Launch(CAST, 0, 99, region="fprop")], "dgrad") == Shares(gemm=8, other=2)
    assert Shares(8, 2).gemm_share == 0.8
    assert Shares(0, 0).gemm_share is None


def test_what_ends_a_gemm_is_part_of_its_time() -> None:
    reduction = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasSplitKParams<float>)"
    found = [Launch(BF16, 0, 6, region="wgrad"), Launch(reduction, 6, 7, region="wgrad")]
    assert shares(found, "wgrad") == Shares(gemm=7, other=0)


def test_busy_counts_overlapping_kernels_once() -> None:
    assert busy([Launch("a", 0, 4), Launch("b", 2, 5), Launch("c", 9, 10)]) == pytest.approx(0.6)
    assert busy([]) is None


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=30))
def test_busy_is_the_covered_part_of_the_span(spans: list[tuple[int, int]]) -> None:
    covered = {tick for start, length in spans for tick in range(start, start + length)}
    first, last = min(start for start, _ in spans), max(start + length for start, length in spans)
    found = busy([Launch("k", float(start), float(start + length)) for start, length in spans])
    assert found == pytest.approx(len(covered) / (last - first))
