"""`python -m tests.rehearsal run --module tests.rehearsal.weights`: do weights move equally, whoever adds gradients up?

The real Transformer Engine trains a short model in each recipe that the device runs, with fused and with separate
weight gradients. The first number of each GEMM's product is 1 (CUDA_REHEARSAL_COUNT), so that what reaches the
optimizer counts the micro batches whose gradients it holds: it must be all of this step's, and no earlier one's.
Kernels do nothing: what torch's own would do with these numbers is done here.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import torch

from precision_agent.backends.te.api import load
from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.session.engine import CudaEngine
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
from precision_api.exchange.result import WeightGradients
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import WHOLE

MODEL = ModelSpec(
    hidden_size=512, intermediate_size=1024, num_attention_heads=8, num_hidden_layers=2, vocab_size=512, gated_mlp=True
)
RECIPES: Mapping[str, tuple[Recipe, ...]] = {
    "9.0": ("bf16", "fp8_delayed", "fp8_current"),
    "10.0": ("bf16", "fp8_delayed", "fp8_current", "mxfp8"),
}
"""By compute capability: those whose scales the rehearsal's GEMMs are told by the host."""
STEPS = 2
Counts = tuple[float, ...]
"""Of each matrix, micro batches whose gradients an optimizer step read."""


def first_number(tensor: torch.Tensor) -> float:
    """Of FP32 or BF16, where it lies: the device's memory is the host's."""
    raw = ctypes.string_at(tensor.data_ptr(), tensor.element_size())
    return float(struct.unpack("<f", raw if len(raw) == 4 else b"\0\0" + raw)[0])


def set_zero(tensors: Iterator[torch.Tensor] | list[torch.Tensor]) -> None:
    """What torch's kernel would do, to the first number."""
    for tensor in tensors:
        ctypes.memset(tensor.data_ptr(), 0, tensor.element_size())


def counts(api: Any, engine: Any, recipe: Recipe, accumulation: int, how: WeightGradients) -> list[Counts]:
    """What each optimizer step read, in this order: the matrices of the layers, the head."""
    problem = Problem(MODEL, 1, 256, WHOLE, accumulation, 0, how)
    with engine.stream():
        shared = Shared(api, engine, problem, Trial(2))
        model = VariantModel(shared, Parts.of(recipe))
        matrices = [weight for weight in shared.weights if weight.ndim == 2]
        added = [0.0] * len(matrices)
        for at, weight in enumerate(matrices):
            if how == "separate":
                weight.register_hook(lambda found, at=at: added.__setitem__(at, added[at] + first_number(found)))
        set_zero([weight.main_grad for weight in matrices if how == "fused"])
        read: list[Counts] = []

        def step() -> None:
            if how == "fused":
                assert all(weight.decoupled_grad is weight.main_grad for weight in matrices)
                assert all(weight.decoupled_grad.dtype == torch.float32 for weight in shared.weights)
            read.append(tuple(first_number(w.decoupled_grad) for w in matrices) if how == "fused" else tuple(added))
            added[:] = [0.0] * len(matrices)

        shared.optimizer.step = step
        with model._owner.present():
            for _ in range(STEPS):
                for key in model._cycle():
                    next(region for region in model.program.regions if (region.name, region.batch_kind) == key).work()
        engine.synchronize()
    return read


def main() -> int:
    """Prints a line for each recipe and number of micro batches; 1 where one of them is not as it must be."""
    os.environ["CUDA_REHEARSAL_COUNT"] = "1"  # the runtime asks at its first GEMM
    torch._foreach_zero_ = set_zero
    api, engine, wrong = load(), CudaEngine(), 0
    for recipe in RECIPES[os.environ["CUDA_REHEARSAL_COMPUTE"]]:
        for accumulation in (1, 2, 4):
            found = {how: counts(api, engine, recipe, accumulation, how) for how in get_args(WeightGradients)}
            size = len(found["fused"][0])
            right = all(steps == [(float(accumulation),) * size] * STEPS for steps in found.values())
            told = "equal" if right else f"NOT EQUAL: {found}"
            print(f"{recipe:<12} {accumulation} micro batches, {size} matrices, {STEPS} steps: {told}")
            wrong += not right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
