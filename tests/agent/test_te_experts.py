"""Training steps of experts and of latent attention on a Transformer Engine made from each tag's signatures."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from precision_agent.backends.te.api import STEP_PARTS, absent_part, missing
from precision_agent.backends.te.steps.experts import Experts
from precision_agent.method.full_depth import depth_of, full_depth
from precision_agent.protocol import LossPlan, LossTrack, RegionName
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.models.workload import resolve
from tests.support.experts import token_by_token
from tests.support.te_bench import Bench, request, sample
from tests.support.te_device import FakeGpu
from tests.support.te_fake import World, fake_api, listed_calls
from tests.support.te_signatures import TAGS, signatures

pytestmark = pytest.mark.torch

MIXTURE: dict[str, Any] = {
    "hiddenSize": 32, "intermediateSize": 64, "numAttentionHeads": 2, "numHiddenLayers": 2, "vocabSize": 128,
    "gatedMLP": True, "moe": {"numExperts": 4, "topK": 2, "expertIntermediateSize": 16},
}  # fmt: skip
LATENT = MIXTURE | {
    "numHiddenLayers": 4,
    "headDim": 24,
    "latentAttention": {"queryRank": 16, "keyValueRank": 16, "ropeHeadDim": 8, "valueHeadDim": 16},
    "moe": MIXTURE["moe"] | {"sharedExpertIntermediateSize": 16, "denseLayers": 2},
}
GPT_OSS = MIXTURE | {
    "qkvBias": True, "outBias": True, "attentionSinks": True, "moe": MIXTURE["moe"] | {"expertBias": True},
}  # fmt: skip


def asked(model: dict[str, Any], **workload: Any) -> MeasurementRequest:
    return request(workload={"model": model, "gradientAccumulation": 2, "sequenceLength": 64} | workload)


@pytest.mark.parametrize("tag", [TAGS[0], TAGS[-1]])
@pytest.mark.parametrize("model", [MIXTURE, LATENT], ids=["mixture", "latent"])
def test_all_calls_of_a_step_are_carried_out_on(tag: str, model: dict[str, Any], tmp_path: Path) -> None:
    bench = Bench(tag, asked(model))
    backend, dense = bench.backend, model is LATENT
    for label in ("bf16", "nvfp4"):
        variant = bench.variant(label)
        assert backend.prepare(bench.training, variant) is None
        found = sample(backend.measure(bench.training, variant, 0.0))
        micro = sum(spent for name, spent in found.regions.items() if name != "optimizer")
        assert found.seconds == pytest.approx(micro), "of both kinds of layers"
        assert set(found.regions) == {name for name in get_args(RegionName) if dense or "dense" not in name}
        assert (found.layers_measured, found.dense_measured) == (2, int(dense))
        for part in ("layers", "head", "optimizer", *(("dense",) if dense else ())):
            sample(backend.power_window(variant, part, 0.0, 0.0, 1))  # type: ignore[arg-type]
        profile = backend.profile(variant, "training", 0.0, tmp_path / "trace.json")
        assert {"attention", "core_attention", "mlp", "head"} <= {kernel.module for kernel in profile.kernels}
        assert {kernel.dense for kernel in profile.kernels} == ({False, True} if dense else {False})
        assert "tokens spread evenly by force" in backend.inspect(variant).notes[0]
    second = sample(backend.second_depth(bench.variant("nvfp4"), 0.0))
    assert (second.layers_measured, second.dense_measured) == (1, int(dense))
    assert isinstance(backend.loss_run(bench.variant("fp8_delayed"), LossPlan(2, 0)), LossTrack)
    listed = listed_calls()
    for part in STEP_PARTS.values():
        for symbol, names in part.needs.items():
            listed.setdefault(symbol, set()).update(names)
    listed["pytorch.RMSNorm"] |= {"normalized_shape", "device", "dtype"}  # by position, and handed on
    listed["pytorch.attention.rope.apply_rotary_pos_emb"] |= {"t", "freqs"}  # by position
    listed["pytorch.cpp_extensions.general_gemm"].add("workspace")  # of the older versions
    for symbol, names in bench.world.calls:
        if not symbol.endswith("autocast"):
            assert names <= listed[symbol], f"{symbol} is called with {names - listed[symbol]}, which nobody lists"


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("part", STEP_PARTS)
def test_a_part_is_there_from_the_version_on_that_is_told(tag: str, part: str) -> None:
    version = tuple(int(number) for number in tag.removeprefix("v").split("."))
    since = tuple(int(number) for number in STEP_PARTS[part].since.split("."))
    assert (missing(signatures(tag), STEP_PARTS[part].needs) == ()) is (version >= since)


def test_gpt_oss_has_a_step_where_the_version_has_its_parts_else_the_part_is_named() -> None:
    bench = Bench("v2.20", asked(GPT_OSS))
    assert bench.backend.prepare(bench.training, bench.variant("fp8_current")) is None
    called = dict(bench.world.calls)
    assert "softmax_type" in called["pytorch.MultiheadAttention"]
    assert "pytorch.ops.ClampedSwiGLU" in called
    old = Bench("v2.8", asked(GPT_OSS))
    assert old.backend.prepare(old.training, old.variant("fp8_current")).message == (
        "not_available(moe.expertBias): Transformer Engine 2.8.0+fake lacks pytorch.ops.ClampedSwiGLU, which 2.9 has; "
        "the GEMMs are measured"
    )
    assert absent_part(fake_api("v2.8", World("v2.8", FakeGpu())), ("moe", "latentAttention", "attentionSinks")) is None


def experts_of(bench: Bench, *labels: str) -> list[Experts]:
    """Of the short models of these variants, once they are built."""
    for label in labels:
        assert bench.backend.prepare(bench.training, bench.variant(label)) is None
    modules = [bench.backend._models[label].stack.layers[-1].layernorm_mlp for label in labels]
    assert all(isinstance(experts, Experts) for experts in modules)
    return modules


def test_nvfp4_takes_as_many_experts_in_a_call_as_its_kernels_do_with_the_weights_of_all_others() -> None:
    model = MIXTURE | {"moe": {"numExperts": 130, "topK": 2, "expertIntermediateSize": 16}, "numHiddenLayers": 1}
    bench = Bench("v2.20", asked(model, sequenceLength=65, gradientAccumulation=1))
    bench.world.most_experts = 130
    whole, parts = experts_of(bench, "bf16", "nvfp4")
    assert (whole.groups, parts.groups) == ((130,), (64, 64, 2))
    for name in ("up", "down"):
        mine = [weight for group in getattr(parts, name) for weight in group.parameters()]
        assert all(one is other for one, other in zip(mine, getattr(whole, name)[0].parameters(), strict=True))


def test_the_router_is_even_rows_are_padded_for_the_recipe_and_experts_are_a_loop_over_tokens() -> None:
    experts, padded = experts_of(Bench("v2.20", asked(MIXTURE, sequenceLength=255)), "bf16", "fp8_current")
    assert experts.rows == [128, 128, 127, 127]
    for seed in range(3):
        torch.manual_seed(seed)
        chosen, weights = experts.router(torch.randn(255, 32).to(torch.bfloat16))
        assert torch.bincount(chosen.flatten(), minlength=4).tolist() == experts.rows
        assert torch.allclose(weights.sum(-1), torch.ones(255))
    assert experts.pad is None
    assert padded.padded == [128, 128, 128, 128]
    x = torch.randn(255, 1, 32).to(torch.bfloat16)
    assert torch.allclose(experts(x, None).float(), padded(x, None).float(), atol=0.02, rtol=0.05)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    y, expected = experts(ours, None), token_by_token(experts, theirs)
    assert torch.allclose(y.float(), expected.float(), atol=0.02, rtol=0.05)
    for found in (y, expected):
        found.backward(torch.ones_like(found))
    assert float((ours.grad - theirs.grad).float().norm() / theirs.grad.float().norm()) < 0.02


def test_the_router_multiplies_bf16_into_fp32_scores_and_keeps_no_tokens_in_fp32() -> None:
    router, seen = experts_of(Bench("v2.20", asked(MIXTURE, sequenceLength=64)), "bf16")[0].router, []

    def seeing(a: torch.Tensor, b: torch.Tensor, **named: Any) -> Any:
        seen.append((a.dtype, b.dtype, named["out_dtype"]))
        return multiply(a, b, **named)

    multiply, router.gemm = router.gemm, seeing
    tokens = torch.randn(64, 32).to(torch.bfloat16)
    ours, theirs = (tokens.clone().requires_grad_() for _ in range(2))
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        weights = router(ours)[1]
    assert {one.dtype for one in kept if one.shape == tokens.shape} == {torch.bfloat16}
    scores = (theirs.float() @ router.weight.float().t()).softmax(-1)
    chosen = scores.gather(1, router(tokens)[0].long())
    exact = chosen / chosen.sum(-1, keepdim=True)
    assert torch.allclose(weights, exact, atol=1e-5)
    for found in (weights, exact):
        (found * torch.arange(2.0)).sum().backward()
    assert torch.allclose(ours.grad.float(), theirs.grad.float(), atol=1e-4, rtol=0.02)
    bf16, fp32 = torch.bfloat16, torch.float32
    assert [kinds for kinds in seen if kinds[0] == bf16] == [(bf16, bf16, fp32)] * 2
    assert [kinds for kinds in seen if kinds[0] == fp32] == [(fp32, fp32, fp32)] * 2


@pytest.mark.parametrize("how", ["fused", "separate"])
def test_weights_of_routers_and_experts_move(how: str) -> None:
    bench = Bench("v2.20", asked(LATENT).model_copy(update={"weight_gradients": how}))
    assert bench.backend.prepare(bench.training, bench.variant("bf16")) is None
    model = bench.backend._models["bf16"]
    model.shared.optimizer.rate = 0.1
    before = [weight.detach().clone() for weight in model.shared.weights]
    for key in model._cycle():
        model.program.go(key)
    moved = [not torch.equal(weight, old) for weight, old in zip(model.shared.weights, before, strict=True)]
    names = [name for layer in model.stack.layers for name, _ in layer.named_parameters()]
    assert [name for name, has in zip(names, moved, strict=False) if not has] == []


def test_the_full_depth_step_has_each_kind_of_layer_as_often_as_the_model() -> None:
    workload = resolve(asked(LATENT).workload)
    regions = {
        "dense_forward": 1.0, "layers_forward": 8.0, "head": 5.0, "layers_backward": 12.0, "dense_backward": 2.0,
        "optimizer": 0.0,
    }  # fmt: skip
    depth = depth_of(workload, 2, dense_measured=1)
    found = full_depth({name: (value,) for name, value in regions.items()}, depth)  # type: ignore[misc]
    assert not isinstance(found, Failure)
    assert found.values == pytest.approx((2 * (8 + 12) / 2 + 2 * 3 + 5,))
    without = {name: (value,) for name, value in regions.items() if "dense" not in name}
    failed = full_depth(without, depth)  # type: ignore[arg-type]
    assert failed.message.startswith("dense_forward was not timed")


def test_the_last_layers_in_bf16_are_those_with_experts_first() -> None:
    workload = resolve(asked(LATENT).workload)
    low: dict[RegionName, Any] = {
        "dense_forward": (1.0,), "layers_forward": (2.0,), "layers_backward": (0.0,), "dense_backward": (0.0,),
    }  # fmt: skip
    high = {name: (10 * value[0],) for name, value in low.items()}
    for kept, expected in ((1, 2 + 1 + 10), (2, 1 + 10 + 1 + 10), (4, 40)):
        depth = depth_of(workload, 2, dense_measured=1, layers_bf16=kept)
        found = full_depth(low, depth, high)  # type: ignore[arg-type]
        assert not isinstance(found, Failure)
        assert found.values == (expected,), kept
