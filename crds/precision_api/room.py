"""Whether a layer of a model fits on a GPU, by recipe: the least that a training step of it needs. Pure.

One layer of the heaviest kind (with experts, where the model has them), with its gradients and what its backward pass
needs, without head and optimizer: below that an agent has no training figure to give. By the same formula as the full
model's memory (`memory`); what the scan of Mamba-2 keeps is not known and not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from precision_api.memory import ModelPart, memory_of
from precision_api.model import ModelSpec
from precision_api.recipes import Recipe
from precision_api.resolution import ResolvedWorkload
from precision_api.shapes import Split

USABLE_SHARE = 0.85
"""Of a GPU's memory: the rest is the CUDA context's, the libraries' and fragmentation. Assumed, not measured."""
_ALONE = ModelPart(layers=1, head=False, embedding=False, optimizer=False)


def layer_bytes(model: ModelSpec, tokens: int, split: Split, recipe: Recipe) -> int:
    """Bytes of one layer of the heaviest kind on one GPU, for a micro batch of `tokens`."""
    return max(memory_of(kind, tokens, split, recipe, part=_ALONE).total for kind in _kinds(model))


def layer_room(workload: ResolvedWorkload, recipes: Iterable[Recipe], memory_bytes: int) -> tuple[bool, str] | None:
    """Whether a layer fits in every one of `recipes` on a GPU of so many bytes, and that as a sentence for the user.

    None for bare shapes, which are no model.
    """
    model, tokens, plain = workload.model, workload.tokens_per_micro_batch, workload.workload
    if model is None or tokens is None:
        return None
    split, usable = Split(plain.tensor_parallel, plain.expert_parallel), USABLE_SHARE * memory_bytes
    needed = {recipe: layer_bytes(model, tokens, split, recipe) for recipe in recipes}
    experts = f" with {model.moe.num_experts // split.expert} experts on each GPU" if model.moe else ""
    over = {recipe: size for recipe, size in needed.items() if size > usable}
    of = f"of {_gb(memory_bytes)}, {USABLE_SHARE:.0%} of them usable"
    if not over:
        most = max(needed.values(), default=0)
        return True, f"one layer{experts} fits in every recipe: it takes up to {_gb(most)} {of}"
    each = ", ".join(f"{recipe} {_gb(size)}" for recipe, size in over.items())
    step = _next_step(model, tokens, split, tuple(over), usable)
    return False, f"one layer{experts} does not fit ({each} {of}), so these recipes get no training figure: {step}"


def _next_step(model: ModelSpec, tokens: int, split: Split, recipes: tuple[Recipe, ...], usable: float) -> str:
    def fits(other: Split, share: int = tokens) -> bool:
        return all(layer_bytes(model, share, other, recipe) <= usable for recipe in recipes)

    experts = model.moe.num_experts if model.moe else 1
    wider = next(
        (
            number
            for number in range(split.expert + 1, experts + 1)
            if experts % number == 0 and fits(Split(split.tensor, number))
        ),
        None,
    )
    if wider:
        return f"expertParallel {wider} would do"
    if fits(split, 1):
        return "lower microBatchSize or sequenceLength"
    return "raise tensorParallel" if model.moe is None else "raise tensorParallel and expertParallel"


def _kinds(model: ModelSpec) -> Iterator[ModelSpec]:
    """The model's kinds of layers, each as a model of one layer."""
    moe = model.moe.model_copy(update={"dense_layers": 0}) if model.moe else None
    if model.moe_layers:
        yield _one(model, 0, 0, {"moe": moe})
    if model.dense_layers:
        yield _one(model, 0, 0, {"moe": None})
    if model.hybrid is not None:
        yield _one(model, 1, 0, {"moe": None})
        yield _one(model, 0, 1, {"moe": None})


def _one(model: ModelSpec, mamba: int, attention: int, changes: Mapping[str, Any]) -> ModelSpec:
    update = {"num_hidden_layers": 1, "sliding_window": None, "mtp": None, **changes}
    if model.hybrid is not None:
        update["hybrid"] = model.hybrid.model_copy(update={"mamba_layers": mamba, "attention_layers": attention})
    return model.model_copy(update=update)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"
