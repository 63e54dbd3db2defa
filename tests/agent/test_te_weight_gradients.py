"""Weights move by the sum of their micro batches' gradients, whoever adds it up: the GEMM in FP32, or autograd."""

from typing import Any, get_args

import pytest
import torch

from precision_agent.backends.te.problem import Problem, problem_of
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import WeightGradients
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import WHOLE
from tests.support.result_objects import request
from tests.support.te_device import FakeEngine, FakeGpu
from tests.support.te_fake import World, fake_api

pytestmark = pytest.mark.torch

MODEL = ModelSpec(
    hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=48, gated_mlp=True
)
STEPS = 3
RATE = 1e-6
"""Of the tier."""


def stepped(
    how: WeightGradients, accumulation: int, recipe: Recipe = "bf16", tag: str = "v2.20"
) -> tuple[VariantModel, list[torch.Tensor]]:
    """A model after three optimizer steps, and how far each of its FP32 master weights has moved."""
    torch.manual_seed(0)
    world = World(tag, FakeGpu(), frozen=True)
    problem = Problem(MODEL, 2, 16, WHOLE, accumulation, 0, how)
    shared = Shared(fake_api(tag, world), FakeEngine(world.gpu, world=world), problem, Trial(2))
    model = VariantModel(shared, Parts.of(recipe))
    _forget_the_warm_up(shared)
    before = [master.clone() for master in shared.optimizer.masters]
    for _ in range(STEPS):
        for key in model._cycle():
            model.program.go(key)
    return model, [after - start for after, start in zip(shared.optimizer.masters, before, strict=True)]


def _forget_the_warm_up(shared: Shared) -> None:
    """It runs micro batches in an order of its own: moments and what has added up begin anew."""
    shared.optimizer.taken = 0
    for moment in (moment for pair in shared.optimizer.moments for moment in pair):
        moment.zero_()
    for weight in shared.weights:
        for name in ("grad", "main_grad", "decoupled_grad"):
            found = getattr(weight, name, None)
            if found is not None:
                found.zero_()


@pytest.mark.parametrize("accumulation", [1, 2, 8])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_delayed"])
def test_weights_move_equally_whoever_adds_their_gradients_up(accumulation: int, recipe: Recipe) -> None:
    fused, separate = (stepped(how, accumulation, recipe)[1] for how in get_args(WeightGradients))
    assert len(fused) == len(separate) == 2 * 5 + 1  # qkv, proj, fc1, fc2, a norm in each layer; the head
    for mine, other in zip(fused, separate, strict=True):
        assert mine.abs().max() > RATE  # all of them move, the norms and the head too
        assert torch.nn.functional.cosine_similarity(mine.flatten(), other.flatten(), dim=0) > 0.999
        assert float(mine.norm()) == pytest.approx(float(other.norm()), rel=0.01)


def test_main_grad_holds_one_steps_sum_and_is_gone_after_a_single_micro_batch() -> None:
    model, _ = stepped("fused", 4)
    weights = [weight for weight in model.shared.weights if weight.ndim == 2]
    single, _ = stepped("fused", 1)  # zeroed after its step: the gradient of one more micro batch is alone there
    for key in (("layers_forward", "only"), ("head", "only"), ("layers_backward", "only")):
        single.program.go(key)
    alone = [weight.main_grad.clone() for weight in single.shared.weights if weight.ndim == 2]
    for weight, one in zip(weights, alone, strict=True):
        assert float(weight.main_grad.norm()) == pytest.approx(4 * float(one.norm()), rel=0.02)
        assert weight.grad is None
        assert weight.main_grad.dtype == torch.float32
    model, _ = stepped("fused", 1)
    for weight in model.shared.weights:
        found = weight.main_grad if weight.ndim == 2 else weight.grad
        assert not found.any()


@pytest.mark.parametrize(("how", "size"), [("fused", 4), ("separate", 2)])
def test_gradients_take_the_bytes_that_memory_reckons_with(how: WeightGradients, size: int) -> None:
    model, _ = stepped(how, 2)
    weights = [weight for weight in model.shared.weights if weight.ndim == 2]
    held: list[Any] = [weight.main_grad if how == "fused" else weight.grad for weight in weights]
    assert {one.element_size() for one in held} == {size} == {model.shared.gradient_bytes}


@pytest.mark.parametrize(("asked", "expected"), [(None, "fused"), ("fused", "fused"), ("separate", "separate")])
def test_the_request_says_how_and_left_out_it_is_as_in_production(
    asked: WeightGradients | None, expected: WeightGradients
) -> None:
    of: MeasurementRequest = request(weight_gradients=asked)
    assert problem_of(of, fake_api("v2.20", World("v2.20", FakeGpu()))).weight_gradients == expected
