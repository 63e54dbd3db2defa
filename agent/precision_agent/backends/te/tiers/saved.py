"""Bytes that a linear layer keeps for its backward pass: a quantised input is smaller than a BF16 one."""

from typing import Any

import torch

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE, LinearShape, call_linear, linear
from precision_api.facts.recipes import Recipe

SHAPE = LinearShape(1024, 512, 512)


def saved_bytes(api: Api, engine: Engine, recipe: Recipe, shape: LinearShape = SHAPE) -> int:
    """What one call keeps of its own, weights (which stay between calls) not counted."""
    with Owner(api).present():
        te_recipe = recipes.make(api, recipe)
        module = linear(api, shape, engine.device)
        first = None if recipe == "bf16" else True
        drawn = [torch.randn(shape.rows, shape.k, device=engine.device) for _ in range(3)]
        inputs = [x.to(DTYPE).requires_grad_() for x in drawn]
        held: list[Any] = []
        with api.autocast(te_recipe):
            held.append(call_linear(module, shape, inputs[0], first))
        # What two calls have in common is the weight's; what only the second one has is its own.
        seen = []
        for x in inputs[1:]:
            storages: dict[int, int] = {}
            with _watched(storages), api.autocast(te_recipe):
                held.append(call_linear(module, shape, x, None if first is None else False))
            seen.append(storages)
    return sum(size for place, size in seen[1].items() if place not in seen[0])


def saved_bytes_ratio(api: Api, engine: Engine, recipe: Recipe) -> float | None:
    """Saved bytes over those of BF16; None where nothing was seen."""
    reference = saved_bytes(api, engine, "bf16")
    saved = saved_bytes(api, engine, recipe)
    return saved / reference if reference and saved else None


def _watched(storages: dict[int, int]) -> Any:
    """Writes storages that autograd saves within, by address, with their bytes."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if has_own_storage(tensor):
            storage = tensor.untyped_storage()
            if storage.nbytes():
                storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def has_own_storage(tensor: torch.Tensor) -> bool:
    """Whether bytes lie behind this tensor itself.

    A weight that is kept quantised between calls is saved as a subclass of torch.Tensor that only wraps its parts:
    asking its storage where it lies is an error. What a call quantises for itself is saved part by part.
    """
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)
