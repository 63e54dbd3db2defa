"""Rows that the experts of one GPU multiply in a training step: an even spread, padded to the recipe's alignment. Pure.

Token t is sent to experts (t x topK + j) mod experts, j < topK: the same number of rows for every expert, one more for
the first ones where they do not divide. With expert parallelism a GPU gets its experts' rows of the whole group, which
are as many as its own tokens send out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.workload import ResolvedWorkload

MOST_IN_A_LAUNCH: Mapping[Recipe, int] = {recipe: 64 for recipe, row in RECIPES.items() if row.format == "fp4"}
"""Experts of one grouped call: NVFP4's kernels for groups take no more tensors (kMaxTensorsPerKernel, 2.11 to 2.20)."""


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Rows of each expert of one GPU, as the tokens give them and as they run."""

    rows: tuple[int, ...]
    padded: tuple[int, ...]

    @property
    def padding(self) -> float:
        """Rows that are padding over those that are tokens."""
        return sum(self.padded) / sum(self.rows) - 1


def expert_rows(tokens: int, top_k: int, experts: int, expert_parallel: int, recipe: Recipe) -> ExpertRows:
    """The rows of the experts of one GPU, `experts` / `expert_parallel` of them.

    ValueError where there are fewer rows than experts: some would have none.
    """
    sent = tokens * top_k
    if sent < experts:
        raise ValueError(
            f"moe: {tokens} tokens of a micro batch x topK {top_k} are fewer than {experts} experts: "
            "raise microBatchSize or sequenceLength"
        )
    by_expert = [sent // experts + (place < sent % experts) for place in range(experts)]
    rows = [sum(by_expert[place : place + expert_parallel]) for place in range(0, experts, expert_parallel)]
    step = RECIPES[recipe].expert_rows_multiple_of
    return ExpertRows(tuple(rows), tuple(-(-count // step) * step for count in rows))


def launches(experts: int, recipe: Recipe) -> tuple[int, ...]:
    """Experts of each grouped call of a layer with so many on the GPU."""
    most = MOST_IN_A_LAUNCH.get(recipe, experts)
    return tuple(min(most, experts - start) for start in range(0, experts, most))


def expert_notes(workload: ResolvedWorkload, recipe: Recipe) -> Sequence[str]:
    """What a training figure of a mixture of experts does and does not hold, in words; empty for other models."""
    model, tokens = workload.model, workload.tokens_per_micro_batch
    if model is None or model.moe is None or tokens is None:
        return ()
    group, moe = workload.workload.expert_parallel, model.moe
    local = moe.num_experts // group
    notes = [
        f"experts: {local} of a layer's {moe.num_experts} are on the GPU, their tokens spread evenly by force; "
        f"{'no all-to-all between the GPUs of expertParallel, ' if group > 1 else ''}no load imbalance and no dropped "
        "tokens are in the figure; they run in plain GroupedLinear, published MXFP8 rows in a fused grouped MLP"
    ]
    try:
        rows = expert_rows(tokens, moe.top_k, moe.num_experts, group, recipe)
    except ValueError:
        return notes  # no step runs, and its failure says so
    if rows.padding:
        more = f"{rows.padding:.1%} more than tokens: they are in the time, not in tokens or FLOPs"
        notes.append(f"experts' rows are padded to multiples of {RECIPES[recipe].expert_rows_multiple_of}, {more}")
    parts = launches(local, recipe)
    if len(parts) > 1:
        notes.append(f"experts run in {len(parts)} grouped calls of at most {MOST_IN_A_LAUNCH[recipe]} each")
    return notes
