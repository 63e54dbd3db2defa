"""The quantising modules of a variant's layers: are their quantizers the recipe's, do delayed scales move."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import is_quantized
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import PlainRecipe


def quantising(layers: Sequence[Any], parts: Parts) -> list[tuple[PlainRecipe, Any]]:
    """The modules of all layers that hold quantizers, each with the recipe of its part."""
    held = []
    for layer in layers:
        attention, mlp = layer.self_attention, layer.layernorm_mlp
        parts_of_layer = ((attention, parts.attention), (attention.proj, parts.attention_out), (mlp, parts.mlp))
        of = {id(module): recipe for part, recipe in parts_of_layer for module in part.modules()}
        for module in layer.modules():
            if recipes.quantizers(module) and list(module.parameters(recurse=False)):
                held.append((of.get(id(module), parts.mlp), module))
    return held


def wrong_modules(
    parts: Parts, modules: Sequence[tuple[PlainRecipe, Any]], primary_weights: bool = False
) -> str | None:
    """Why the quantizers of some module are not those of its part's recipe, or its weights are not, or None."""
    for recipe in parts.of_layers:
        if recipes.CALLS[recipe] is not None and recipe not in [of for of, _ in modules]:
            return f"{recipe}: no module of the layers has a quantizer"
    for recipe, module in modules:
        fault = recipes.wrong_quantizers(recipe, recipes.quantizers(module))
        weights = [weight for weight in module.parameters(recurse=False) if weight.ndim == 2]
        if not fault and primary_weights and recipe != "bf16" and not all(map(is_quantized, weights)):
            fault = f"{recipe}: {type(module).__name__} holds its weights in BF16, not in the recipe alone"
        if fault:
            return fault
    return None


def delayed_scales(modules: Sequence[Any]) -> list[torch.Tensor]:
    """Copies of the scales of the forward pass, where a recipe keeps some."""
    states: list[Any] = [getattr(module, "fp8_meta", {}).get("scaling_fwd") for module in modules]
    return [state.scale.detach().clone() for state in states if hasattr(state, "scale")]


def scales_move(modules: Sequence[Any], scales: Sequence[torch.Tensor], replay: Callable[[], object]) -> bool:
    """With a history of amaxes that is scaled up, the next replay must bring other scales; it is emptied then.

    The input can't be scaled as for a single layer: a norm stands before the first matrix.
    """
    histories = [
        state.amax_history
        for module in modules
        for state in (module.fp8_meta["scaling_fwd"], module.fp8_meta["scaling_bwd"])
        if hasattr(state, "amax_history")
    ]
    for history in histories:
        history.mul_(4)
    replay()
    now = delayed_scales(modules)
    for history in histories:
        history.zero_()
    replay()
    replay()
    return bool(scales) and any(not torch.equal(a, b) for a, b in zip(scales, now, strict=True))
