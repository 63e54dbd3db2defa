"""Reading NVIDIA's table, and what is made of the turns."""

import pytest

from benchmarks.nvidia_gemm import Turn, parse, request_of, speedup, summary, timed_seconds
from precision_api.models.shapes import Shape

TABLE = """
GEMM Benchmark on NVIDIA H200
Warmup iterations: 10, Timed iterations: 100
==========================================================================================
Shape                     BF16 TFLOPS   BF16 ms  FP8Cur TFLOPS  FP8Cur ms    FP8Block TFLOPS FP8Block ms  Speedup
------------------------------------------------------------------------------------------
8192x4096x6144                  700.0     0.600         1000.0      0.400              900.0       0.500    1.50x
8192x4096x4096                  700.0     0.400          800.0      0.350                N/A         N/A    1.14x
"""


def test_nvidias_table_is_read_and_what_failed_or_is_zero_gives_no_speedup() -> None:
    rows = parse(TABLE)
    assert rows["8192x4096x6144"] == pytest.approx({"bf16": 6e-4, "fp8_current": 4e-4, "fp8_block": 5e-4})
    assert rows["8192x4096x4096"]["fp8_block"] is None
    rows = parse(TABLE)
    assert speedup(rows, "fp8_current") == pytest.approx(1.0 / 0.75)
    assert speedup(rows, "fp8_block") is None
    assert speedup({}, "fp8_current") is None
    assert parse(TABLE.replace("0.350", "0.000"))["8192x4096x4096"]["fp8_current"] is None
    with pytest.raises(ValueError, match="no table"):
        parse("Error: CUDA is not available.")


def test_we_time_as_long_as_nvidia_does_and_tell_spreads_from_run_to_run() -> None:
    assert timed_seconds(parse(TABLE), "fp8_current") == pytest.approx(0.175)
    timing = request_of([Shape(m=8192, k=4096, n=6144)], "fp8_current", 36.0, 3).timing
    assert timing.passes * 2 * 3 * timing.segment_seconds == pytest.approx(36.0)
    found = summary([Turn(1.5, 1.40, 0.004), Turn(1.6, 1.41, 0.006), Turn(None, None, None)])
    assert found["nvidia_spread"] == pytest.approx(0.0707, abs=1e-3)
    assert found["ours_half_width"] == pytest.approx(0.005)
    assert summary([])["nvidia_mean"] is None
