"""The short model that an agent runs in place of the full one, and the memory that it takes with all recipes. Pure.

The agent holds all recipes of a request at once, since it times them in turns: weights, gradients and optimizer are
shared, and each recipe keeps weights in its own format.
"""

from collections.abc import Iterable

from precision_api.facts.recipes import Recipe
from precision_api.models.memory import ModelPart, memory_of
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split

USABLE_SHARE = 0.85
"""Of a GPU's memory, for the short model. Assumed, not tried on a GPU: the rest is the CUDA context's, the libraries'
and fragmentation."""


def short_model(model: ModelSpec, layers: int, dense: int = 0) -> ModelSpec:
    """The model that runs in place of `model`: `layers` with experts, where it has such, behind `dense` others.

    A dense model, and a mixture whose layers all have experts, is that model itself: any of its layers is like another.
    """
    if model.moe is None or not dense:
        return model
    moe = model.moe.model_copy(update={"dense_layers": dense})
    return model.model_copy(update={"num_hidden_layers": layers + dense, "moe": moe})


def dense_beside(model: ModelSpec) -> int:
    """Dense layers that a short model has beside those with experts: 1 where `model` has both kinds, else 0."""
    return min(1, model.dense_layers) if model.moe else 0


def short_model_bytes(
    model: ModelSpec,
    tokens: int,
    split: Split,
    recipes: Iterable[Recipe],
    *,
    layers: int = 1,
    dense: int = 0,
    head: bool = False,
    optimizer: bool = False,
) -> int:
    """Bytes of one GPU that holds `layers` beside `dense` others in all of `recipes`, for a micro batch of `tokens`.

    By the formula of the full model's memory. The embedding is not there. CUDA graphs keep the activations of the first
    and of the other micro batches; they are counted in BF16, which keeps the most.
    """
    short = short_model(model, layers, dense)
    part = ModelPart(layers + dense, head, embedding=False, optimizer=optimizer)
    bf16 = memory_of(short, tokens, split, "bf16", part=part)
    sizes = (memory_of(short, tokens, split, recipe, part=part).quantized_weights for recipe in recipes)
    return bf16.state + sum(sizes) + 2 * bf16.activations + bf16.peak_beside
