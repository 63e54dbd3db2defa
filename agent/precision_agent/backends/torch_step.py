"""A short transformer of plain torch at the model's width: four timed regions of a training step, and loss runs.

A layer is norm, fused QKV, causal attention with grouped heads, output projection, norm, MLP (gated or not); weights
are FP32 masters, multiplied in bf16 or FP8 with current scales (E4M3, gradients E5M2: the HYBRID format of Transformer
Engine), quantised anew each time. Left out: rotary positions, biases, sliding windows (every layer attends to the whole
sequence), and the embedding's lookup, which is in none of the regions. The optimizer is Adam.

What bounds a GEMM of m x k x n: 2mkn operations at the format's peak, or its operands' and result's bytes at the
memory's bandwidth. FP8 by `torch._scaled_mm` wants the first operand row-major and the second column-major, so that
both run along k; dgrad and wgrad hold one operand the other way round, and its transposed copy is part of their
quantisation.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from time import monotonic, sleep
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- its usual name

from precision_agent.method.loss import LEAST_TOKENS, divergence, sequence, source
from precision_agent.protocol import LossPlan, LossTrack, Part, RegionName, Sample
from precision_api.exchange.request import Mode
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Pass

LEARNING_RATE = 1e-3
"""Adam's usual one for small models."""
INITIAL_SPREAD = 0.02
PLAIN_RECIPES: frozenset[Recipe] = frozenset({"bf16", "fp8_current"})
"""What plain torch can multiply."""
GemmCall = Callable[[], torch.Tensor]


class _Multiply(torch.autograd.Function):  # type: ignore[misc]
    """x (tokens, in) times weight (out, in) transposed, with both gradients, all three in the recipe."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, recipe: Recipe) -> torch.Tensor:
        low = weight.to(torch.bfloat16)
        ctx.save_for_backward(x, low)
        ctx.recipe = recipe
        return product(x, low.t(), "fprop", recipe)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, low = ctx.saved_tensors
        dy = gradients[0].contiguous()
        dx = product(dy, low, "dgrad", ctx.recipe)
        return dx, product(x.t(), dy, "wgrad", ctx.recipe).t().float(), None


class _Linear(nn.Module):  # type: ignore[misc]
    def __init__(self, inner: int, outer: int, recipe: Recipe) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) * INITIAL_SPREAD)
        self.recipe = recipe

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = _Multiply.apply(x.reshape(-1, x.shape[-1]), self.weight, self.recipe)
        return product.reshape(*x.shape[:-1], -1)


class _Norm(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight).to(torch.bfloat16)


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, model: ModelSpec, attention: Recipe, mlp: Recipe) -> None:
        super().__init__()
        self.heads, self.kv, self.width = model.num_attention_heads, model.kv_heads, model.head_width
        self.causal, self.gated = model.causal, model.gated_mlp
        hidden, inner = model.hidden_size, model.intermediate_size
        self.norm1, self.norm2 = _Norm(hidden), _Norm(hidden)
        self.qkv = _Linear(hidden, (self.heads + 2 * self.kv) * self.width, attention)
        self.out = _Linear(self.heads * self.width, hidden, attention)
        self.up = _Linear(hidden, (2 if self.gated else 1) * inner, mlp)
        self.down = _Linear(inner, hidden, mlp)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        sizes = [self.heads * self.width, self.kv * self.width, self.kv * self.width]
        q, k, v = (
            part.reshape(batch, length, -1, self.width).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(sizes, dim=-1)
        )
        k, v = (part.repeat_interleave(self.heads // self.kv, dim=1) for part in (k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, -1))
        inner = self.up(self.norm2(x))
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = F.silu(gate) * inner
        else:
            inner = F.gelu(inner)
        return x + self.down(inner)


class _Head(nn.Module):  # type: ignore[misc]
    """The last norm, the projection to the vocabulary in bf16, and the loss."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.norm = _Norm(model.hidden_size)
        self.project = _Linear(model.hidden_size, model.vocab_size or 0, "bf16")

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.project(self.norm(x)).float().flatten(0, 1), labels.flatten())


class ShortModel:
    """A variant's own modules, optimizer and data, for life."""

    def __init__(
        self, model: ModelSpec, batch: int, length: int, layers: int, recipes: tuple[Recipe, Recipe], seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        self.device, self.measured = device, layers
        self.layers = nn.ModuleList(_Layer(model, *recipes) for _ in range(layers)).to(device)
        self.head = _Head(model).to(device) if model.vocab_size else None
        self.parameters = [*self.layers.parameters(), *(self.head.parameters() if self.head else ())]
        self.optimizer = torch.optim.Adam(self.parameters, lr=LEARNING_RATE)
        self.x = torch.randn(batch, length, model.hidden_size, device=device).to(torch.bfloat16)
        self.labels = torch.randint(model.vocab_size or 1, (batch, length), device=device)
        # a loss's gradient is small beside what leaves the layers: data that is all zeros would run faster
        self.gradient = torch.randn_like(self.x) * 1e-3

    @property
    def held(self) -> int:
        """Weights that the optimizer works through."""
        return sum(parameter.numel() for parameter in self.parameters)

    def step(self, mark: Callable[[], None]) -> None:
        """One micro batch; `mark` is called after the layers' forward pass, the head, the layers' backward pass."""
        x = self.x.detach().requires_grad_()
        out = self._forward(x)
        mark()
        gradient = self._through_head(out) if self.head else self.gradient
        mark()
        out.backward(gradient)
        mark()

    def told_parts(self) -> Iterator[tuple[str, nn.Module]]:
        """Modules with the names that a profile tells; the product of queries, keys and values is in none of them."""
        for layer in self.layers:
            yield from (("attention", layer.qkv), ("attention", layer.out), ("mlp", layer.up), ("mlp", layer.down))
        if self.head:
            yield "head", self.head

    def play(self, part: Part) -> None:
        """One call of a part alone, as a power window replays it."""
        if part == "layers":
            self._forward(self.x.detach().requires_grad_()).backward(self.gradient)
        elif part == "head":
            self._through_head(self.x)
        else:
            self.optimizer.step()

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def _through_head(self, out: torch.Tensor) -> torch.Tensor:
        assert self.head is not None
        x = out.detach().requires_grad_()
        self.head(x, self.labels).backward()
        assert x.grad is not None
        return x.grad

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a power window can replay."""
        return ("layers", "head", "optimizer") if self.head else ("layers", "optimizer")


def timed(model: ShortModel, seconds: float, wait: Callable[[], None]) -> Sample:
    """Micro batches for about `seconds`, one at least, and an optimizer step after each quarter of them at most.

    On a GPU the marks wait for it: a region is then its own time, not that of its launch.
    """
    spans: list[list[float]] = []
    optimizer: list[float] = []
    if not model.optimizer.state:  # Adam makes its state in its first step, which takes longer than all others
        model.step(wait)
        _optimizer_step(model, wait)
    wait()
    start = monotonic()
    while not spans or monotonic() < start + seconds:
        marks = [monotonic()]

        def mark(marks: list[float] = marks) -> None:
            wait()
            marks.append(monotonic())

        model.step(mark)
        spans.append([later - earlier for earlier, later in pairwise(marks)])
        if not optimizer or len(spans) % 4 == 0:
            optimizer.append(_optimizer_step(model, wait))
    end = monotonic()
    forward, head, backward = (math.fsum(part) / len(spans) for part in zip(*spans, strict=True))
    regions: dict[RegionName, float] = {"layers_forward": forward}
    if model.head:
        regions["head"] = head
    regions |= {"layers_backward": backward, "optimizer": math.fsum(optimizer) / len(optimizer)}
    return Sample(
        forward + head + backward, len(spans), start, end, regions, model.measured, model.held, execution="eager",
        windowed_layers=0, weight_gradients="separate",
    )  # fmt: skip


def _optimizer_step(model: ShortModel, wait: Callable[[], None]) -> float:
    began = monotonic()
    model.optimizer.step()
    wait()
    spent = monotonic() - began
    model.optimizer.zero_grad(set_to_none=False)
    return spent


def replayed(
    model: ShortModel,
    part: Part,
    seconds: float,
    wait: Callable[[], None],
    waits: Iterator[float] | None = None,
    calls: int = 1,
) -> Sample:
    """One part of the step again and again, pausing as `waits` says after each group of `calls`; `Sample.seconds` is
    without the pauses, `Sample.running` what they left."""
    spent: list[float] = []
    wait()
    start = monotonic()
    while not spent or monotonic() < start + seconds:
        began = monotonic()
        model.play(part)
        wait()
        spent.append(monotonic() - began)
        if waits and len(spent) % calls == 0:
            sleep(next(waits))
    end = monotonic()
    running = math.fsum(spent) / (end - start) if waits else 1.0
    return Sample(math.fsum(spent) / len(spent), len(spent), start, end, running=running)


def loss_track(
    model: ModelSpec, layers: int, length: int, recipes: tuple[Recipe, Recipe], plan: LossPlan, device: torch.device
) -> LossTrack:
    """Trains a short model with an embedding on tokens of the seeded chain; ends at the first step that diverged."""
    assert model.vocab_size, "a loss needs a vocabulary"
    short = ShortModel(model, 1, length, layers, recipes, plan.seed, device)
    assert short.head is not None
    embedding = nn.Embedding(model.vocab_size, model.hidden_size).to(device)
    nn.init.normal_(embedding.weight, std=1.0)
    parameters = [*short.parameters, *embedding.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE * plan.learning_rate_factor)
    losses: list[float] = []
    norms: list[float] = []
    for tokens in _batches(model, plan, length, device):
        optimizer.zero_grad()
        hidden = short._forward(embedding(tokens[:, :-1]).to(torch.bfloat16))
        loss = short.head(hidden, tokens[:, 1:])
        loss.backward()
        norms.append(float(_norm(parameters)))
        losses.append(float(loss.detach()))
        if divergence(losses, norms):
            break
        optimizer.step()
    return LossTrack(tuple(losses), tuple(norms))


def _batches(model: ModelSpec, plan: LossPlan, length: int, device: torch.device) -> Iterator[torch.Tensor]:
    """Sequences for each step: input and, shifted by one, its labels."""
    chain = source(model.vocab_size or 0, plan.seed)
    sequences = -(-LEAST_TOKENS // length)
    tokens = sequence(chain, plan.steps * sequences * length + 1, plan.seed)
    for step in range(plan.steps):
        starts = range(step * sequences, (step + 1) * sequences)
        yield torch.tensor([tokens[at * length : (at + 1) * length + 1] for at in starts], device=device)


def _norm(parameters: list[nn.Parameter]) -> float:
    """Of all gradients together."""
    norms = [float(parameter.grad.float().norm()) for parameter in parameters if parameter.grad is not None]
    return math.sqrt(math.fsum(value * value for value in norms))


def product(a: torch.Tensor, b: torch.Tensor, pass_: Pass, recipe: Recipe) -> torch.Tensor:
    """a times b in bf16, quantised on the way where the recipe says so."""
    return a @ b if recipe == "bf16" else fp8_product(a, b, pass_, "autocast")()


def fp8_product(a: torch.Tensor, b: torch.Tensor, pass_: Pass, mode: Mode) -> GemmCall:
    """The call that multiplies in FP8, with quantisation (autocast) or with operands quantised before."""
    a_type = torch.float8_e5m2 if pass_ == "dgrad" else torch.float8_e4m3fn
    b_type = torch.float8_e5m2 if pass_ == "wgrad" else torch.float8_e4m3fn

    def quantised() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        a8, a_scale = _quantised(a, a_type)
        b8, b_scale = _quantised(b.t(), b_type)
        return a8, b8.t(), a_scale, b_scale

    def multiplied(a8: torch.Tensor, b8: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        if a8.is_cpu:  # the same numbers: torch's own FP8 product takes a thousand times as long on some Xeons
            return ((a8.float() @ b8.float()) * (a_scale * b_scale)).to(torch.bfloat16)
        return torch._scaled_mm(a8, b8, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    if mode == "autocast":
        return lambda: multiplied(*quantised())
    ready = quantised()
    return lambda: multiplied(*ready)


def _quantised(tensor: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """`tensor` in FP8, row-major, and the FP32 scale that undoes it: amax -> the format's largest number."""
    amax = tensor.abs().amax().float().clamp(min=1e-12)
    scale = torch.finfo(kind).max / amax
    return (tensor * scale.to(tensor.dtype)).to(kind).contiguous(), scale.to(tensor.dtype).float().reciprocal()
