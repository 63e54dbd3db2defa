"""The torch backend's arithmetic on the CPU: right numbers before any time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from precision_agent.backends.protocol import Refusal
from precision_agent.backends.torch_gemm import TorchGemm
from precision_agent.cases import Arm, GemmCase, TrainingCase
from precision_agent.verification import numeric_verdict
from precision_api.recipes import Recipe
from precision_api.request import Mode
from precision_api.result import Failure
from precision_api.shapes import PASSES, Pass
from tests.support.result_objects import request

pytestmark = pytest.mark.torch

BF16, FP8 = Arm("bf16", "bf16"), Arm("fp8_current", "fp8_current")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on shared cores would make these tests slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def backend() -> TorchGemm:
    return TorchGemm(request(product="CPU", gpus=1), "auto")


def case(pass_: Pass = "fprop", mode: Mode = "autocast", m: int = 64) -> GemmCase:
    return GemmCase("qkv", pass_, m, 128, 96, 1, mode)


@pytest.mark.parametrize("mode", ["autocast", "prequantized"])
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_current"])
def test_each_pass_multiplies_right_within_its_precision(recipe: Recipe, pass_: Pass, mode: Mode) -> None:
    assert numeric_verdict(recipe, backend()._error(case(pass_, mode), recipe)) == "within"


@pytest.mark.parametrize("arm", [BF16, FP8], ids=lambda arm: arm.label)
def test_a_probe_verifies_by_numerical_error_and_says_what_it_could_not_see(arm: Arm) -> None:
    found = backend().probe(arm)
    assert (found.availability, found.verification.verdict) == ("ok", "verified")
    assert "kernel names unavailable on the CPU" in found.verification.message


def test_fp8_is_less_exact_than_bf16() -> None:
    assert backend()._error(case(), "fp8_current") > 5 * backend()._error(case(), "bf16")


def test_a_time_is_positive_seconds() -> None:
    seconds = backend().measure(case(), BF16, 0.01)
    assert isinstance(seconds, float)
    assert 0 < seconds < 10


def test_the_timed_call_quantises_in_autocast_only() -> None:
    def operations(mode: Mode) -> set[str]:
        call = backend()._call(case(mode=mode), "fp8_current")
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            call()
        return {str(row.key) for row in seen.key_averages()}

    assert "aten::_scaled_mm" in operations("prequantized")
    assert "aten::amax" not in operations("prequantized")
    assert {"aten::_scaled_mm", "aten::amax"} <= operations("autocast")


def test_training_is_not_available_and_says_why() -> None:
    found = backend().measure(TrainingCase(64, 1e9), BF16, 0.01)
    assert isinstance(found, Failure)
    assert found.reason == "not_available"
    assert "Transformer Engine" in found.message


def test_a_gemm_that_does_not_fit_is_a_failure_not_a_crash() -> None:
    found = backend().measure(GemmCase("huge", "fprop", 1 << 24, 1 << 24, 16, 1, "autocast"), FP8, 0.01)
    assert isinstance(found, Failure)
    assert found.reason == "out_of_memory"
    assert found.message.startswith("huge fprop")


def test_a_gpu_node_needs_cuda_unless_the_cpu_is_asked_for_by_name() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(Refusal, match="no CUDA device"):
            TorchGemm(request(product="GB200"), "auto")
    assert TorchGemm(request(product="GB200"), "cpu").machine().product == "CPU"
    with pytest.raises(Refusal, match="known are auto, cuda and cpu"):
        TorchGemm(request(), "tpu")
