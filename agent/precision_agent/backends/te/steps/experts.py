"""A layer's mixture of experts out of Transformer Engine's modules: norm, router, permutation, grouped linear layers.

The router chooses in earnest, among scores to which a constant was added: so each expert gets the same number of tokens
in every step, and a CUDA graph can hold it. Tokens are sorted by expert here (`permutation` says why), and merged with
the router's weights as Transformer Engine puts them back by index: that kernel is in its library, while those by mask
are compiled by Triton at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from precision_agent.backends.te.api import Api, general_gemm
from precision_agent.backends.te.steps.gating import Gemm, gating_scores
from precision_agent.backends.te.steps.permutation import permuted
from precision_agent.backends.te.steps.weight_gradients import by_autograd
from precision_agent.method.expert_rows import expert_rows, launches
from precision_api.exchange.result import WeightGradients
from precision_api.facts.recipes import RECIPES, Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split

DTYPE = torch.bfloat16
CHOSEN = 2.0
"""Added to the scores of the experts that a token is sent to: scores are below 1."""


@dataclass(frozen=True, slots=True)
class ExpertsPlan:
    """The experts of a layer as one GPU has them; widths are those of its share of the matrices.

    `width`: of what a routed expert takes. `inner`, `shared_inner`: without the doubling of a gate; 0: no shared one.
    """

    tokens: int
    hidden: int
    width: int
    inner: int
    shared_inner: int
    experts: int
    expert_parallel: int
    top_k: int
    gated: bool
    bias: bool
    layer_norm: bool
    fused: bool

    @property
    def local(self) -> int:
        """Experts on the GPU."""
        return self.experts // self.expert_parallel


def experts_plan(model: ModelSpec, split: Split, tokens: int, weight_gradients: WeightGradients) -> ExpertsPlan | None:
    """The experts of each layer that has some; None for a dense model."""
    moe = model.moe
    if moe is None:
        return None
    return ExpertsPlan(
        tokens=tokens,
        hidden=model.hidden_size,
        width=model.expert_input_width,
        inner=model.expert_width // split.tensor,
        shared_inner=moe.shared_expert_intermediate_size // split.tensor,
        experts=moe.num_experts,
        expert_parallel=split.expert,
        top_k=moe.top_k,
        gated=model.gated_mlp,
        bias=moe.expert_bias,
        layer_norm=model.norm_bias,
        fused=weight_gradients == "fused",
    )


class Router(torch.nn.Module):  # type: ignore[misc]
    """Scores in FP32, the choice of experts, and the weights of those that were chosen."""

    def __init__(self, plan: ExpertsPlan, gemm: Gemm, device: torch.device) -> None:
        super().__init__()
        self.gemm = gemm
        self.top_k = plan.top_k
        drawn = torch.randn(plan.experts, plan.hidden, device=device).to(DTYPE) * plan.hidden**-0.5
        self.weight = by_autograd(torch.nn.Parameter(drawn))
        places = torch.arange(plan.tokens * plan.top_k, device=device).remainder_(plan.experts)
        forced = torch.zeros(plan.tokens, plan.experts, device=device)
        self.forced = forced.scatter_(1, places.view(plan.tokens, plan.top_k), CHOSEN)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of (tokens, hidden): numbers of the chosen experts and their weights, both (tokens, topK)."""
        scores = gating_scores(tokens, self.weight, self.gemm).softmax(-1)
        chosen = (scores.detach() + self.forced).topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, chosen)
        return chosen.int(), weights / weights.sum(-1, keepdim=True)


class Experts(torch.nn.Module):  # type: ignore[misc]
    """Norm, router, experts, shared expert and the projections of latent experts: a layer's part behind attention."""

    def __init__(self, api: Api, plan: ExpertsPlan, recipe: Recipe, device: torch.device) -> None:
        super().__init__()
        self.api, self.plan = api, plan
        te, hidden = api.pytorch, plan.hidden
        gates = 2 if plan.gated else 1
        self.norm = norm(api, hidden, plan.layer_norm, device)
        gemm = general_gemm(api)
        assert gemm is not None, "a version without it has no step of experts (STEP_PARTS)"
        self.router = Router(plan, gemm, device)
        by_expert = expert_rows(plan.tokens, plan.top_k, plan.experts, plan.expert_parallel, recipe)
        self.rows, self.padded = list(by_expert.rows), list(by_expert.padded)
        self.groups = launches(plan.local, recipe)
        common = {"params_dtype": DTYPE, "device": device, "fuse_wgrad_accumulation": plan.fused}

        def grouped(inputs: int, outputs: int) -> torch.nn.ModuleList:
            sizes = {"in_features": inputs, "out_features": outputs, "bias": plan.bias}
            return torch.nn.ModuleList(te.GroupedLinear(num_gemms=count, **sizes, **common) for count in self.groups)

        def linear(inputs: int, outputs: int) -> Any:
            return te.Linear(in_features=inputs, out_features=outputs, bias=False, **common)

        self.up, self.down = grouped(plan.width, gates * plan.inner), grouped(plan.inner, plan.width)
        self.activation = activation(api, plan)
        align = {"num_gemms": plan.local, "align_size": RECIPES[recipe].expert_rows_multiple_of}
        self.pad = te.Fp8Padding(**align) if self.padded != self.rows else None
        self.unpad = te.Fp8Unpadding(**align) if self.padded != self.rows else None
        latent, shared = plan.width != hidden, plan.shared_inner
        self.latent_down = linear(hidden, plan.width) if latent else None
        self.latent_up = linear(plan.width, hidden) if latent else None
        self.shared_up = linear(hidden, gates * shared) if shared else None
        self.shared_down = linear(shared, hidden) if shared else None

    def forward(self, x: torch.Tensor, is_first_microbatch: bool | None) -> torch.Tensor:
        """Of (sequence, batch, hidden) the same."""
        te, first, plan = self.api.pytorch, is_first_microbatch, self.plan
        tokens = self.norm(x).reshape(plan.tokens, plan.hidden)
        chosen, weights = self.router(tokens)
        sent = tokens if self.latent_down is None else self.latent_down(tokens, is_first_microbatch=first)
        rows, row_map = permuted(sent, chosen, te.moe_unpermute)
        if self.pad is not None:
            rows, _ = self.pad(inp=rows, m_splits=self.rows)
        rows = self._through(rows, first)
        if self.unpad is not None:
            rows = self.unpad(inp=rows, m_splits=self.rows)
        y: torch.Tensor = te.moe_unpermute(inp=rows, row_id_map=row_map, merging_probs=weights, map_type="index")
        if self.latent_up is not None:
            y = self.latent_up(y, is_first_microbatch=first)
        if self.shared_up is not None and self.shared_down is not None:
            inner = self.activation(self.shared_up(tokens, is_first_microbatch=first))
            y = y + self.shared_down(inner, is_first_microbatch=first)
        return y.reshape(x.shape)

    def _through(self, rows: torch.Tensor, first: bool | None) -> torch.Tensor:
        """The experts' two projections with the activation between them, a grouped call after the other."""
        ends = list(accumulate(self.groups))
        splits = [self.padded[end - count : end] for count, end in zip(self.groups, ends, strict=True)]
        # split, not slices: the gradients of slices are filled with zeros to the full size and added
        parts = rows.split([sum(group) for group in splits]) if len(splits) > 1 else (rows,)
        outputs = []
        for group, part, up, down in zip(splits, parts, self.up, self.down, strict=True):
            inner = self.activation(up(part, m_splits=group, is_first_microbatch=first))
            outputs.append(down(inner, m_splits=group, is_first_microbatch=first))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def norm(api: Api, width: int, layer_norm: bool, device: torch.device) -> Any:
    """The norm before a part of a layer whose first matrix has none of its own."""
    kind = api.pytorch.LayerNorm if layer_norm else api.pytorch.RMSNorm
    return kind(width, eps=1e-5, device=device, dtype=DTYPE)


def activation(api: Api, plan: ExpertsPlan) -> Any:
    """The same fused kernel in every recipe: quantisation is apart. Experts with biases are GPT-OSS's, which clamp."""
    if not plan.gated:
        return api.pytorch.ops.GELU()
    return api.pytorch.ops.ClampedSwiGLU() if plan.bias else api.pytorch.ops.SwiGLU()
