"""Whether an agent can train a layer of a model on a GPU, in all recipes of a request: the least that it runs. Pure.

One layer, with experts where the model has them, beside one dense layer where it has both kinds; with gradients and
what the backward pass needs, without head and optimizer: the last short model that an agent tries. Below that there is
no training figure. By the same formula as the agent's own choice (`short_model`).
"""

from collections.abc import Iterable, Sequence

from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split
from precision_api.models.short_model import USABLE_SHARE, dense_beside, short_model_bytes
from precision_api.models.workload import ResolvedWorkload


def layer_bytes(model: ModelSpec, tokens: int, split: Split, recipes: Iterable[Recipe]) -> int:
    """Bytes on one GPU that holds the least short model in all of `recipes`, for a micro batch of `tokens`."""
    return short_model_bytes(model, tokens, split, recipes, dense=dense_beside(model))


def layer_room(
    workload: ResolvedWorkload, recipes: Sequence[Recipe], memory_bytes: int, baseline: Recipe = "bf16"
) -> tuple[bool, str] | None:
    """Whether one layer fits in all `recipes` at once on a GPU of so many bytes, and that as a sentence for the user.

    The baseline is held with them, and a second time as the control. None for bare shapes, which are no model, and for
    hybrids, which have no training figure on any GPU.
    """
    model, tokens, plain = workload.model, workload.tokens_per_micro_batch, workload.workload
    if model is None or tokens is None or model.hybrid is not None:
        return None
    split, usable = Split(plain.tensor_parallel, plain.expert_parallel), USABLE_SHARE * memory_bytes
    held = (*dict.fromkeys((baseline, *recipes)), baseline)
    needed, layer = layer_bytes(model, tokens, split, held), _layer(model, split)
    takes = f"{_gb(needed)} of {_gb(memory_bytes)}, {USABLE_SHARE:.0%} of them usable"
    if needed <= usable:
        return True, f"{layer} fits with all recipes at once: {takes}"
    alone = layer_bytes(model, tokens, split, (baseline,))
    named = f"{', '.join(held[:-1])}: {takes}; {baseline} alone: {_gb(alone)}"
    lost = "some get no training figure" if alone <= usable else "there is no training figure"
    step = _next_step(model, tokens, split, held, usable)
    return False, f"{layer} does not fit with all recipes at once ({named}), so {lost}: {step}"


def _layer(model: ModelSpec, split: Split) -> str:
    experts = f" with {model.moe.num_experts // split.expert} experts on each GPU" if model.moe else ""
    return f"one layer{experts}{' beside a dense one' if dense_beside(model) else ''}"


def _next_step(model: ModelSpec, tokens: int, split: Split, held: tuple[Recipe, ...], usable: float) -> str:
    """What would make room: a wider spread of the experts, fewer recipes, fewer tokens, or more GPUs for a matrix."""

    def fits(other: Split, recipes: tuple[Recipe, ...] = held, share: int = tokens) -> bool:
        return layer_bytes(model, share, other, recipes) <= usable

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
