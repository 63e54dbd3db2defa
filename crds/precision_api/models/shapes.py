"""The GEMMs of a training step: forward, data gradient and weight gradient of every linear layer.

For a forward GEMM (m x k) times (k x n), with m tokens, the data gradient is (m x n)(n x k) and the weight gradient (k
x m)(m x n): the same three numbers, another one summed over each time. So training needs all three aligned. A profile
may also give GEMMs literally: as m, k and n, or as MxKxN.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field

from precision_api.facts.mixtures import Mixture, Parts, part_of
from precision_api.facts.recipes import RECIPES, PlainRecipe, Recipe, alignment_error
from precision_api.facts.schema import Document, patterned
from precision_api.models.model import ModelSpec, strict

MAX_DIMENSION = 16_777_216
Dimension = Annotated[int, strict(1, MAX_DIMENSION)]
"""One dimension of an explicit GEMM."""
Pass = Literal["fprop", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("fprop", "dgrad", "wgrad")

RHT_ROWS, RHT_COLUMNS = 64, 128
"""Transformer Engine fuses NVFP4's random Hadamard transform into the cast only for tensors of such multiples."""


HEAD = "lm_head"


class Shape(Document):
    """One explicit forward GEMM: (m x k) times (k x n)."""

    m: Dimension = Field(description="Rows of the input: tokens.")
    k: Dimension = Field(description="Columns of the input: the width that is summed over.")
    n: Dimension = Field(description="Columns of the output.")


def parse_shape(text: str) -> Shape:
    """The shape that `text`, MxKxN, names (15872x4096x12288). ValueError says what is wrong with any other text."""
    match = re.fullmatch(r"([0-9]{1,9})[xX]([0-9]{1,9})[xX]([0-9]{1,9})", text.strip())
    if not match:
        raise ValueError(f"shape {text!r}: write MxKxN with whole numbers, for example 15872x4096x12288")
    m, k, n = (int(part) for part in match.groups())
    for name, size in (("M", m), ("K", k), ("N", n)):
        if not 1 <= size <= MAX_DIMENSION:
            raise ValueError(f"shape {text!r}: {name} is {size}, but must be from 1 to {MAX_DIMENSION}")
    return Shape(m=m, k=k, n=n)


def _readable_gemm(text: object) -> object:
    # Before the pattern, whose message says nothing of M, K and N.
    if isinstance(text, str):
        parse_shape(text)
    return text


GemmText = Annotated[
    str,
    patterned(
        r"^[0-9]{1,9}[xX][0-9]{1,9}[xX][0-9]{1,9}$",
        29,
        "write each GEMM as MxKxN with whole numbers, for example 15872x4096x12288",
    ),
    BeforeValidator(_readable_gemm),
]
"""A forward GEMM as text."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """(m x k) times (k x n), `count` times in one micro batch of the full model.

    `groups` > 1: that many of them (one layer's experts) run as one grouped GEMM, each of m x k x n, tokens spread
    evenly over experts; `count` counts each expert. `quantized` is false where every recipe keeps higher precision.
    """

    name: str
    pass_: Pass
    m: int
    k: int
    n: int
    count: int = 1
    groups: int = 1
    quantized: bool = True

    @property
    def flops(self) -> int:
        """FLOPs of one of the `count` multiplications."""
        return 2 * self.m * self.k * self.n

    @property
    def of_experts(self) -> bool:
        """Whether its rows are those that a router sends to an expert: as many as it likes, so a recipe pads them."""
        return self.name in ("experts_up", "experts_down")

    @property
    def forward(self) -> tuple[int, int, int]:
        """(M, K, N) of the forward GEMM that this one belongs to: tokens, input width, output width."""
        if self.pass_ == "dgrad":
            return self.m, self.n, self.k
        if self.pass_ == "wgrad":
            return self.k, self.m, self.n
        return self.m, self.k, self.n


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """Why a recipe can't take a GEMM (`error`) or takes it slowly (`warning`)."""

    severity: Literal["error", "warning"]
    message: str


def passes(forward: Gemm) -> tuple[Gemm, Gemm, Gemm]:
    """`forward` with its data and weight gradients: (M, K, N), (M, N, K), (K, M, N)."""
    return (
        forward,
        replace(forward, pass_="dgrad", k=forward.n, n=forward.k),
        replace(forward, pass_="wgrad", m=forward.k, k=forward.m),
    )


@dataclass(frozen=True, slots=True)
class Split:
    """How many GPUs share each layer's matrices (`tensor`) and a layer's experts (`expert`)."""

    tensor: int = 1
    expert: int = 1


WHOLE = Split()


def model_gemms(model: ModelSpec, tokens: int, split: Split = WHOLE) -> tuple[Gemm, ...]:
    """All GEMMs of one GPU for a micro batch of `tokens`: all forward ones, then dgrad, then wgrad.

    Tensor parallelism divides N of qkv (of the projections up from latent ranks), of the MLP's first GEMM and of the
    head, and K of the two that lead back to the residual stream; the GPUs of such a group share the tokens. Expert
    parallelism leaves each GPU its own tokens and gives it a share of the experts, which then see the tokens of the
    whole group. What does not divide is refused with ValueError. Routers and the head are listed with `quantized`
    false; a router is whole on each GPU. Left out, since they are no product with a weight matrix: attention itself,
    the convolution and the scan of Mamba-2, the embedding's lookup, scalar gates (`flop_shares` has their shares). Left
    out too: modules for multi-token prediction (`mtp.mtp_gemms`).
    """
    for problem in split_problems(model, split):
        raise ValueError(problem)
    return _in_passes(_forward(model, tokens, split))


def split_problems(model: ModelSpec, split: Split) -> tuple[str, ...]:
    """Sentences for the user on what `split` does not divide: field, number and next step; empty where all does."""
    experts = model.moe.num_experts if model.moe else None
    shared = model.moe.shared_expert_intermediate_size if model.moe else 0
    rows = (
        ("numAttentionHeads", model.num_attention_heads),
        ("numKeyValueHeads", model.kv_heads),
        ("intermediateSize", model.intermediate_size if model.dense_layers else 0),
        ("hybrid.mambaHeads", model.hybrid.mamba_heads if model.hybrid else 0),
        ("hybrid.groups", model.hybrid.groups if model.hybrid else 0),
        ("moe.expertIntermediateSize", model.expert_width if model.moe else 0),
        ("moe.sharedExpertIntermediateSize", shared),
        ("vocabSize", model.vocab_size or 0),
    )
    problems = [_undivided("tensorParallel", split.tensor, name, size) for name, size in rows if size % split.tensor]
    if experts is None and split.expert > 1:
        problems.append(
            f"expertParallel is {split.expert}, but the model has no experts: leave expertParallel out, "
            "or give the model's moe"
        )
    if experts is not None and experts % split.expert:
        problems.append(_undivided("expertParallel", split.expert, "moe.numExperts", experts))
    return tuple(problems)


def _undivided(field: str, parts: int, name: str, size: int) -> str:
    """Why `parts` can't split `size`, with the largest number of parts that can; a vocabulary may be padded too."""
    fits = next(number for number in range(parts, 0, -1) if size % number == 0)
    padded = f", or pad vocabSize to {-(-size // parts) * parts}" if name == "vocabSize" else ""
    return f"{field} {parts} does not divide {name} {size}: use {field} {fits}{padded}"


def explicit_gemms(shapes: Iterable[Shape]) -> tuple[Gemm, ...]:
    """`shapes` as forward GEMMs named by their size, with derived gradients; equal shapes become one with a count."""
    counts = Counter((shape.m, shape.k, shape.n) for shape in shapes)
    return _in_passes(Gemm(f"{m}x{k}x{n}", "fprop", m, k, n, count) for (m, k, n), count in counts.items())


def distinct(gemms: Iterable[Gemm], kind: Callable[[Gemm], object] = lambda gemm: None) -> tuple[Gemm, ...]:
    """`gemms` with equal ones merged: counts added, the first name kept. Each of these is measured once.

    Equal means the same pass too: the passes read their operands in other layouts and formats (gradients are E5M2); and
    the same `kind`.
    """
    merged: dict[tuple[object, ...], Gemm] = {}
    for gemm in gemms:
        key = (gemm.pass_, gemm.m, gemm.k, gemm.n, gemm.groups, gemm.quantized, kind(gemm))
        merged[key] = replace(merged[key], count=merged[key].count + gemm.count) if key in merged else gemm
    return tuple(merged.values())


def training_shape_problems(gemm: Gemm, recipe: Recipe) -> tuple[ShapeProblem, ...]:
    """What stands in the way of training `gemm` with `recipe`: sentences for the user; empty where nothing does.

    All of m, k and n are looked at whatever the pass, because a training step runs all three. An expert's rows are
    padded to the recipe's multiple, as in the training step and in Megatron Core.
    """
    if not gemm.quantized:
        return ()
    m, k, n = padded_rows(gemm, (recipe,)).forward
    error = alignment_error(recipe, {"m": m, "k": k, "n": n})
    if error:
        return (ShapeProblem("error", f"{gemm.name}: {error}"),)
    # the activations are m x k, the gradients m x n
    steps = ("m", m, RHT_ROWS), ("k", k, RHT_COLUMNS), ("n", n, RHT_COLUMNS)
    off = [f"{name}={size} is no multiple of {step}" for name, size, step in steps if size % step]
    if RECIPES[recipe].hadamard and off:
        cliff = f"{recipe} trains without its fused Hadamard transform here, which is much slower"
        return (ShapeProblem("warning", f"{gemm.name}: {cliff}: {', '.join(off)}"),)
    return ()


def padded_rows(gemm: Gemm, recipes: Iterable[Recipe]) -> Gemm:
    """`gemm` with the rows of an expert padded to what all of `recipes` can take; every other GEMM as it is."""
    # powers of two: the largest is enough
    step = max((RECIPES[recipe].expert_rows_multiple_of for recipe in recipes), default=1)
    if not gemm.of_experts:
        return gemm
    if gemm.pass_ == "wgrad":  # summed over the rows
        return replace(gemm, k=-(-gemm.k // step) * step)
    return replace(gemm, m=-(-gemm.m // step) * step)


def same_as_recipe(mixtures: Iterable[Mixture], gemms: Iterable[Gemm]) -> str | None:
    """Which mixture is a recipe of the table in a model of these GEMMs, with the next step; None where none is."""
    present = {part_of(gemm.name, gemm.quantized) for gemm in gemms}
    for name, parts in ((mixture.name, mixture.parts.only(present)) for mixture in mixtures):
        if parts == Parts.of(parts.mlp):
            return f"mixture {name} is {parts.mlp} in all parts of this workload: list {parts.mlp} in its place"
    return None


def step_shape_problems(gemms: Iterable[Gemm], recipe: Recipe | Parts) -> tuple[ShapeProblem, ...]:
    """The problems of all `gemms` with `recipe`, or with the recipes of their parts, each once, errors first."""
    parts = recipe if isinstance(recipe, Parts) else Parts.of(cast(PlainRecipe, recipe))
    of_part: Mapping[str | None, PlainRecipe] = {**asdict(parts)} | {None: "bf16"}
    of_gemms = ((gemm, of_part[part_of(gemm.name, gemm.quantized)]) for gemm in gemms if gemm.pass_ == "fprop")
    low = ((replace(gemm, quantized=True), part) for gemm, part in of_gemms if part != "bf16")
    problems = [problem for gemm, part in low for problem in training_shape_problems(gemm, part)]
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.severity))


def _in_passes(forward: Iterable[Gemm]) -> tuple[Gemm, ...]:
    triples = [passes(gemm) for gemm in forward]
    return tuple(triple[index] for index in range(len(PASSES)) for triple in triples)


def _forward(model: ModelSpec, tokens: int, split: Split) -> Iterator[Gemm]:
    hidden, parts = model.hidden_size, split.tensor
    if model.attention_layers:
        for projection in attention_projections(model, parts):
            yield Gemm(projection.name, "fprop", tokens, projection.k, projection.n, model.attention_layers)
    if model.hybrid:
        into = model.hybrid.inner_width + model.hybrid.convolved_width + model.hybrid.mamba_heads
        yield Gemm("mamba_in", "fprop", tokens, hidden, into // parts, model.mamba_layers)
        yield Gemm("mamba_out", "fprop", tokens, model.hybrid.inner_width // parts, hidden, model.mamba_layers)
    if model.dense_layers:
        yield from _mlp(model, "mlp", tokens, model.intermediate_size // parts, model.dense_layers)
    yield from _experts(model, tokens, split)
    if model.vocab_size:
        yield Gemm(HEAD, "fprop", tokens, hidden, model.vocab_size // parts, quantized=False)


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer of attention: `k` wide input, `n` wide output."""

    name: str
    k: int
    n: int


def attention_projections(model: ModelSpec, parts: int = 1) -> tuple[Projection, ...]:
    """The linear layers of one layer's attention, as one of `parts` tensor-parallel GPUs has them.

    The projections down to the ranks of latent attention are whole on every GPU, as in Megatron Core.
    """
    hidden, heads = model.hidden_size, model.num_attention_heads
    out = Projection("attn_out", model.attention_width // parts, hidden)
    latent = model.latent_attention
    if latent is None:
        return Projection("qkv", hidden, (heads + 2 * model.kv_heads) * model.head_width // parts), out
    queries = model.query_width // parts
    unrotated = model.head_width - latent.rope_head_dim
    down_and_up = (
        (Projection("q_down", hidden, latent.query_rank), Projection("q_up", latent.query_rank, queries))
        if latent.query_rank
        else (Projection("q_proj", hidden, queries),)
    )
    return (
        *down_and_up,
        Projection("kv_down", hidden, latent.key_value_rank + latent.rope_head_dim),
        Projection("kv_up", latent.key_value_rank, heads * (unrotated + latent.value_head_dim) // parts),
        out,
    )


def _mlp(
    model: ModelSpec, name: str, tokens: int, inner: int, count: int, groups: int = 1, width: int | None = None
) -> Iterator[Gemm]:
    """The two GEMMs of an MLP; `width` is that of its input and output, hiddenSize where it is left out."""
    up, width = 2 * inner if model.gated_mlp else inner, width or model.hidden_size
    yield Gemm(f"{name}_up", "fprop", tokens, width, up, count, groups)
    yield Gemm(f"{name}_down", "fprop", tokens, inner, width, count, groups)


def _experts(model: ModelSpec, tokens: int, split: Split) -> Iterator[Gemm]:
    moe, layers = model.moe, model.moe_layers
    if moe is None:
        return
    # Rounded up: where tokens x topK does not divide, the fuller experts of an even spread set the pace.
    rows, local = -(-split.expert * tokens * moe.top_k // moe.num_experts), moe.num_experts // split.expert
    if moe.latent_size:  # whole on each GPU of a tensor-parallel group
        yield Gemm("latent_down", "fprop", tokens, model.hidden_size, moe.latent_size, layers)
        yield Gemm("latent_up", "fprop", tokens, moe.latent_size, model.hidden_size, layers)
    yield Gemm("router", "fprop", tokens, model.hidden_size, moe.num_experts, layers, quantized=False)
    inner, width = model.expert_width // split.tensor, model.expert_input_width
    yield from _mlp(model, "experts", rows, inner, layers * local, local, width)
    if moe.shared_expert_intermediate_size:
        yield from _mlp(model, "shared", tokens, moe.shared_expert_intermediate_size // split.tensor, layers)
