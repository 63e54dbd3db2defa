"""How big things are made: rotations against the cache, depth of the short model, order of what is given up. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.room import USABLE_SHARE, dense_beside, short_model_bytes
from precision_api.models.shapes import Split

MOST_ROTATIONS = 32
QUANTISED_BYTES_A_WEIGHT = 2
"""FP8 weights in both directions, of a layer that is timed alone; FP4 keeps less."""


def working_set_bytes(m: int, k: int, n: int, groups: int = 1) -> int:
    """Bytes of x, weight and y of one linear layer in BF16, of all groups."""
    return 2 * groups * (m * k + k * n + m * n)


def rotations(working_set: int, l2_bytes: int) -> int:
    """How many sets of buffers to go round, so that no call finds its own in the cache: together twice the cache."""
    return max(1, min(MOST_ROTATIONS, -(-2 * l2_bytes // working_set)))


@dataclass(frozen=True, slots=True)
class Trial:
    """The short model: how many layers, and which of the other parts it has.

    `dense`: dense layers beside `layers` with experts; 0 where all layers of the model are alike.
    """

    layers: int
    head: bool = True
    optimizer: bool = True
    dense: int = 0


def ladder(layers: int, head: bool, depth: int = 4, dense: int = 0) -> tuple[Trial, ...]:
    """What is tried in turn where memory ends: fewer layers first, then without optimizer, then without head."""
    deep = min(depth, layers)
    steps = [Trial(count, head, dense=dense) for count in dict.fromkeys((deep, min(2, deep), 1))]
    steps.append(Trial(1, head, optimizer=False, dense=dense))
    if head:
        steps.append(Trial(1, head=False, optimizer=False, dense=dense))
    return tuple(steps)


def trials_of(model: ModelSpec) -> tuple[Trial, ...]:
    """The short models of `model`: one dense layer beside those with experts where it has both kinds."""
    dense = model.dense_layers if model.moe else 0
    return ladder(model.num_hidden_layers - dense, bool(model.vocab_size), dense=dense_beside(model))


def needed_bytes(model: ModelSpec, tokens: int, split: Split, trial: Trial, recipes: Sequence[Recipe]) -> int:
    """A guess of the memory that the short model of `trial` takes in `recipes`, one for each variant."""
    return short_model_bytes(
        model, tokens, split, recipes,
        layers=trial.layers, dense=trial.dense, head=trial.head, optimizer=trial.optimizer,
    )  # fmt: skip


def unit_bytes(m: int, k: int, n: int, groups: int, l2_bytes: int) -> int:
    """A guess of what a linear layer that is timed alone holds: x, dx, y of two micro batches, dy, weight, gradient."""
    buffers = 2 * m * (2 * k + 3 * n) + k * n * (2 + 2 + QUANTISED_BYTES_A_WEIGHT)
    return rotations(working_set_bytes(m, k, n, groups), l2_bytes) * groups * buffers


def first_trial(
    model: ModelSpec,
    tokens: int,
    split: Split,
    recipes: Sequence[Recipe],
    memory_bytes: int,
    trials: tuple[Trial, ...],
    beside_bytes: int = 0,
) -> Trial:
    """The first of `trials` that should fit, the last where none should. A hint: what fits is found by trying.

    For what is kept `beside` the model it is made shallower, but gives up neither optimizer nor head.
    """
    kept = USABLE_SHARE * memory_bytes
    whole = [trial for trial in trials if trial.optimizer]
    needs = [needed_bytes(model, tokens, split, trial, recipes) for trial in trials]
    alone = next((at for at, need in enumerate(needs) if need <= kept), len(trials) - 1)
    beside = next((at for at, need in enumerate(needs) if need <= kept - beside_bytes), len(trials) - 1)
    return trials[max(alone, min(beside, len(whole) - 1))]


def second_depth(measured: int, layers: int) -> int | None:
    """Layers of the check's model; None where there is no other depth."""
    if measured > 1:
        return max(1, measured // 2)
    return 2 if layers > 1 else None


def windowed(model: ModelSpec, depth: int) -> tuple[bool, ...]:
    """Which of the short model's layers have a sliding window: the model's share of them, evenly spread."""
    share = model.sliding_window.windowed_layers / model.num_hidden_layers if model.sliding_window else 0.0
    return tuple(int((index + 1) * share + 0.5) > int(index * share + 0.5) for index in range(depth))
