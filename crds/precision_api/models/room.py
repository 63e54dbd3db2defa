"""Whether an agent can train a layer of a model on a GPU, in all recipes of a request: the least that it runs. Pure.

One layer, with experts where the model has them, beside one dense layer where it has both kinds; with gradients and
what the backward pass needs, without head and optimizer: the last short model that an agent tries. Below that there is
no training figure. The same formula chooses the short model that an agent runs in place of the full one. It holds all
recipes of a request at once, since it times them in turns: weights, gradients and optimizer are shared, and each recipe
keeps weights in its own format.
"""

from collections.abc import Iterable, Mapping, Sequence

from precision_api.facts.mixtures import Mixture, Parts
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import ModelPart, memory_of
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split
from precision_api.models.workload import ResolvedWorkload

USABLE_SHARE = 0.85
"""Of a GPU's memory, for the short model. Assumed, not tried on a GPU: the rest is the CUDA context's, the libraries'
and fragmentation."""


def layer_bytes(model: ModelSpec, tokens: int, split: Split, recipes: Iterable[Recipe | Parts]) -> int:
    """Bytes on one GPU that holds the least short model in all of `recipes`, for a micro batch of `tokens`."""
    return short_model_bytes(model, tokens, split, recipes, dense=dense_beside(model))


def layer_room(
    workload: ResolvedWorkload,
    recipes: Sequence[Recipe],
    memory_bytes: int,
    baseline: Recipe = "bf16",
    mixtures: Iterable[Mixture] | None = None,
) -> tuple[bool, str] | None:
    """Whether one layer fits in all `recipes` and `mixtures` at once on a GPU of so many bytes, and that as a sentence.

    The baseline is held with them, and a second time as the control. None for bare shapes, which are no model, and for
    hybrids, which have no training figure on any GPU.
    """
    model, tokens, plain = workload.model, workload.tokens_per_micro_batch, workload.workload
    if model is None or tokens is None or model.hybrid is not None:
        return None
    split, usable = Split(plain.tensor_parallel, plain.expert_parallel), USABLE_SHARE * memory_bytes
    parts: dict[str, Recipe | Parts] = {name: name for name in (baseline, *recipes)}
    parts |= {mixture.name: mixture.parts for mixture in mixtures or ()}
    held = (*parts, baseline)
    needed, layer = layer_bytes(model, tokens, split, [parts[name] for name in held]), _layer(model, split)
    takes = f"{_gb(needed)} of {_gb(memory_bytes)}, {USABLE_SHARE:.0%} of them usable"
    if needed <= usable:
        return True, f"{layer} fits with all recipes at once: {takes}"
    alone = layer_bytes(model, tokens, split, (baseline,))
    named = f"{', '.join(held[:-1])}: {takes}; {baseline} alone: {_gb(alone)}"
    lost = "some get no training figure" if alone <= usable else "there is no training figure"
    step = _next_step(model, tokens, split, parts, usable)
    return False, f"{layer} does not fit with all recipes at once ({named}), so {lost}: {step}"


def _layer(model: ModelSpec, split: Split) -> str:
    experts = f" with {model.moe.num_experts // split.expert} experts on each GPU" if model.moe else ""
    return f"one layer{experts}{' beside a dense one' if dense_beside(model) else ''}"


def _next_step(model: ModelSpec, tokens: int, split: Split, parts: Mapping[str, Recipe | Parts], usable: float) -> str:
    """What would make room: a wider spread of the experts, fewer recipes, fewer tokens, or more GPUs for a matrix."""
    held = (*parts, next(iter(parts)))

    def fits(other: Split, recipes: tuple[Recipe, ...] = held, share: int = tokens) -> bool:
        return layer_bytes(model, share, other, [parts[name] for name in recipes]) <= usable

    experts = model.moe.num_experts if model.moe else 1
    divisors = (number for number in range(split.expert + 1, experts + 1) if experts % number == 0)
    wider = next((number for number in divisors if fits(Split(split.tensor, number))), None)
    fewer = next((held[:count] for count in range(len(held) - 2, 1, -1) if fits(split, (*held[:count], held[0]))), ())
    steps = [f"expertParallel {wider} would do"] if wider else []
    steps += [f"fewer recipes would do ({', '.join(fewer)})"] if fewer else []
    if not steps and fits(split, share=1):
        steps = ["lower microBatchSize or sequenceLength"]
    wide = "raise tensorParallel" if model.moe is None else "raise tensorParallel and expertParallel"
    return ", or ".join(steps or [wide])


def _gb(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"


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
    recipes: Iterable[Recipe | Parts],
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
