"""The quantising modules of a variant's layers: are their quantizers the recipe's, do delayed scales move."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from precision_agent.backends.te.steps import recipes
from precision_api.exchange.result import RecipeScope
from precision_api.facts.recipes import Recipe


def quantising(layers: Sequence[Any], scope: RecipeScope) -> list[Any]:
    """The modules of all layers that hold quantizers; with scope `mlp` those behind attention."""
    parts = layers if scope == "all" else [layer.layernorm_mlp for layer in layers]
    return [
        module
        for part in parts
        for module in part.modules()
        if recipes.quantizers(module) and list(module.parameters(recurse=False))
    ]


def wrong_modules(recipe: Recipe, modules: Sequence[Any]) -> str | None:
    """Why the quantizers of some module are not the recipe's, or None."""
    if recipes.CALLS[recipe] is not None and not modules:
        return f"{recipe}: no module of the layers has a quantizer"
    faults = (recipes.wrong_quantizers(recipe, recipes.quantizers(module)) for module in modules)
    return next((fault for fault in faults if fault), None)


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
