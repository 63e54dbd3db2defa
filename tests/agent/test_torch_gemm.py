"""The torch backend's arithmetic on the CPU: right numbers before any time."""

from collections import Counter

import pytest
import torch
from torch.autograd.profiler import profile

from precision_agent.backends.profiler import profiled, told_modules
from precision_agent.backends.torch_gemm import MOST_COPIES, TorchGemm
from precision_agent.backends.torch_step import _Multiply
from precision_agent.cases import GemmCase, TrainingCase, Variant, cases_of
from precision_agent.method.loss import divergence
from precision_agent.power.sensing import SensorFacts
from precision_agent.precision.verification import numeric_verdict
from precision_agent.protocol import PARTS, LossPlan, Part, Refusal
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.run import Surroundings, run_wanted
from precision_agent.sampling.devices import LocalDevices, Stop
from precision_api.exchange.exits import DEVICE_MISSING
from precision_api.exchange.request import LossRuns, MeasurementRequest, Mode, Timing
from precision_api.facts.recipes import Recipe
from precision_api.models.model import MoE
from precision_api.models.shapes import PASSES, Pass
from precision_api.models.workload import Workload, resolve
from tests.support.result_objects import TINY, request, request_text

pytestmark = pytest.mark.torch

BF16, FP8 = Variant("bf16", "bf16"), Variant("fp8_current", "fp8_current")
NARROW = Workload(
    name="narrow",
    model=TINY.model_copy(update={"hidden_size": 64, "intermediate_size": 128, "vocab_size": 128}),
    micro_batch_size=1,
    sequence_length=64,
)
"""For what trains many steps: a CPU without bf16 instructions is slow at the tiny workload's."""


def backend() -> TorchGemm:
    return TorchGemm(request(product="CPU", gpus=1), "auto")


def case(pass_: Pass = "fprop", mode: Mode = "autocast", m: int = 64) -> GemmCase:
    return GemmCase("qkv", pass_, m, 128, 96, 1, mode=mode)


@pytest.mark.parametrize("mode", ["autocast", "prequantized"])
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_current"])
def test_each_pass_multiplies_right_within_its_precision(recipe: Recipe, pass_: Pass, mode: Mode) -> None:
    assert numeric_verdict(recipe, backend()._error(case(pass_, mode), recipe)) == "within"


@pytest.mark.parametrize("variant", [BF16, FP8], ids=lambda variant: variant.label)
def test_a_probe_verifies_by_numerical_error_and_says_what_it_could_not_see(variant: Variant) -> None:
    found = backend().probe(variant)
    assert (found.availability, found.verification.verdict) == ("ok", "unknown")
    assert "kernel names unavailable on the CPU" in found.verification.message


def test_fp8_is_less_exact_than_bf16_and_operands_are_rotated() -> None:
    assert backend()._error(case(), "fp8_current") > 5 * backend()._error(case(), "bf16")
    assert len(backend()._rotation(case(), "bf16")) == MOST_COPIES
    assert len(backend()._rotation(case(m=1 << 19), "bf16")) == 1


def test_a_sample_is_positive_seconds_and_what_does_not_fit_a_failure() -> None:
    result = backend().measure(case(), BF16, 0.01)
    assert 0 < result.seconds < 10
    assert result.calls * result.seconds == pytest.approx(result.end - result.start)
    result = backend().measure(GemmCase("huge", "fprop", 1 << 24, 1 << 24, 16, 1, mode="autocast"), FP8, 0.01)
    assert result.reason == "out_of_memory"
    assert result.message.startswith("huge fprop")


def test_the_timed_call_quantises_in_autocast_only() -> None:
    def operations(mode: Mode) -> set[str]:
        call = backend()._rotation(case(mode=mode), "fp8_current")[0]
        with profile() as seen:
            call()
        return {str(row.key) for row in seen.key_averages()}

    assert "aten::mm" in operations("prequantized")
    assert "aten::amax" not in operations("prequantized")
    assert {"aten::mm", "aten::amax"} <= operations("autocast")


def step() -> TrainingCase:
    found = cases_of(request(), resolve(request().workload)).training
    assert found is not None
    return found


@pytest.mark.parametrize("variant", [BF16, FP8], ids=lambda variant: variant.label)
def test_a_training_step_has_its_four_regions_and_they_add_up(variant: Variant) -> None:
    one = backend()
    assert one.prepare(step(), variant) is None
    result = one.measure(step(), variant, 0.05)
    assert list(result.regions) == ["layers_forward", "head", "layers_backward", "optimizer"]
    assert min(result.regions.values()) > 0
    assert result.seconds == pytest.approx(sum(result.regions.values()) - result.regions["optimizer"])
    assert (result.layers_measured, result.optimizer_parameters) == (2, TINY_WEIGHTS)


TINY_WEIGHTS = 2 * (128 * 384 + 128 * 128 + 128 * 512 + 256 * 128 + 2 * 128) + 128 * 512 + 128
"""Layers, head and norms of the tiny model, without its embedding."""


@pytest.mark.parametrize("part", sorted(set(PARTS) - {"dense"}))  # of a mixture alone, which plain torch does not train
def test_each_part_of_the_step_can_be_replayed_for_a_power_window(part: Part) -> None:
    one = backend()
    one.prepare(step(), BF16)
    found = one.power_window(BF16, part, 0.02, 0.001, seed=1)
    assert found.calls * found.seconds <= found.end - found.start
    assert found.running == pytest.approx(found.calls * found.seconds / (found.end - found.start))
    whole = one.power_window(BF16, part, 0.02, 0.0, seed=1)
    assert whole.running == 1.0, "without pauses nothing is taken off, not even the gaps between calls"


def test_a_model_without_a_vocabulary_has_no_head_to_replay() -> None:
    workload = Workload(
        name="bare", model=TINY.model_copy(update={"vocab_size": None}), micro_batch_size=1, sequence_length=64
    )
    one = TorchGemm(request(product="CPU", gpus=1, workload=workload), "auto")
    assert one.power_window(BF16, "head", 0.01, 0.0, seed=1).reason == "no_such_part"


def test_the_gradients_of_a_step_are_those_of_fp32_within_bf16() -> None:
    x = torch.randn(64, 128, requires_grad=True)
    weight = torch.randn(96, 128, requires_grad=True)
    _Multiply.apply(x.to(torch.bfloat16), weight, "bf16").float().pow(2).sum().backward()
    found = [x.grad, weight.grad]
    x.grad = weight.grad = None
    (x @ weight.t()).pow(2).sum().backward()
    for mine, exact in zip(found, (x.grad, weight.grad), strict=True):
        assert (mine - exact).norm() / exact.norm() < 0.01


def test_with_the_scope_mlp_the_attention_stays_in_bf16_whatever_the_baseline() -> None:
    one = TorchGemm(request(product="CPU", gpus=1, recipe_scope="mlp", baseline="fp8_current"), "auto")
    assert one._recipes(FP8) == ("bf16", "fp8_current")
    assert backend()._recipes(FP8) == ("fp8_current", "fp8_current")


@pytest.mark.parametrize("variant", [BF16, FP8], ids=lambda variant: variant.label)
def test_a_healthy_run_learns_and_one_with_a_hundred_times_the_learning_rate_diverges(variant: Variant) -> None:
    one = TorchGemm(request(product="CPU", gpus=1, workload=NARROW), "auto")
    healthy, planted = (one.loss_run(variant, LossPlan(*plan)) for plan in ((30, 1, 1.0), (10, 1, 100.0)))
    assert divergence(healthy.loss, healthy.gradient_norm) is None
    assert healthy.loss[-1] < healthy.loss[0] - 1
    assert divergence(planted.loss, planted.gradient_norm) is not None


def test_a_whole_cpu_run_has_regions_full_depth_figures_and_a_planted_divergence() -> None:
    text = request_text(
        product="CPU", gpus=1, workload=NARROW, recipes=("bf16",), gemm_modes=("autocast",),
        timing=Timing(passes=2, segment_seconds=0.05, discard_seconds=0.0),
        loss=LossRuns(steps=10, learning_rate_factor=100),
    )  # fmt: skip

    def opener(wanted: Wanted, asked: MeasurementRequest, stop: Stop) -> Opened:
        """In this process, which has torch; test_cli.py runs it in the agent's own ones."""
        return Opened(LocalDevices([TorchGemm(asked, "cpu")]), SensorFacts())

    found = run_wanted(text, Wanted("torch", "cpu"), Surroundings(opener=opener)).result
    assert (found.backend, found.product) == ("torch-cpu", "CPU")
    training = found.recipes[0].training
    assert training.tokens_per_second is not None
    assert [region.name for region in training.regions] == ["layers_forward", "head", "layers_backward", "optimizer"]
    assert (training.layers, training.layers_measured, training.missing) == (2, 2, ())
    assert training.energy.reasons == ("no_power_sensor",)
    assert found.recipes[0].loss.verdict == "diverged"
    assert found.recommendation.by_speed is None


def test_experts_odd_shapes_and_tensor_parallel_layers_have_no_training_figure() -> None:
    experts = TINY.model_copy(update={"moe": MoE(num_experts=4, top_k=2)})
    odd = TINY.model_copy(update={"intermediate_size": 250})
    for model, reason in ((experts, "not_available"), (odd, "misaligned")):
        workload = Workload(name="x", model=model, micro_batch_size=1, sequence_length=64)
        one = TorchGemm(request(product="CPU", gpus=1, workload=workload), "auto")
        assert one.prepare(step(), FP8).reason == reason
    asked = request()
    workload = asked.workload.model_copy(update={"tensor_parallel": 2})
    refused = TorchGemm(asked.model_copy(update={"workload": workload}), "cpu").prepare(step(), Variant("bf16", "bf16"))
    assert (refused.reason, refused.message) == ("not_available", "tensorParallel: plain torch measures whole layers")


def test_a_gpu_node_needs_cuda_unless_the_cpu_is_asked_for_by_name() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(Refusal, match="torch sees no CUDA device") as refused:
            TorchGemm(request(product="GB200"), "auto")
        assert refused.value.exit == DEVICE_MISSING
    assert TorchGemm(request(product="GB200"), "cpu").device().product == "CPU"
    with pytest.raises(Refusal, match="known are auto, cuda and cpu"):
        TorchGemm(request(), "tpu")


def test_a_profiled_step_tells_attention_mlp_and_head_forward_and_backward() -> None:
    backend = TorchGemm(request(), "cpu")
    variant = Variant("bf16", "bf16")
    assert backend.prepare(step(), variant) is None
    model = backend._models[variant.label]
    with told_modules(model.told_parts()):
        trace = profiled(lambda: model.step(lambda: None), lambda: None)
    told = Counter(event["name"] for event in trace["traceEvents"] if event.get("name", "").startswith("pp:"))
    layers = model.measured
    each = {"attention": 2 * layers, "mlp": 2 * layers, "head": 1}
    assert told == {f"pp:{way}:{name}:": count for name, count in each.items() for way in ("forward", "backward")}
    assert not any(module._forward_hooks for _, module in model.told_parts())
