"""Multi-head latent attention out of Transformer Engine's modules, for which it has no layer.

As in Megatron Core's multi_latent_attention.py: linear layers down to the ranks, norms fused into those up from them,
attention with heads of different widths for keys and values. A head's rotary part comes first here, so that one kernel
rotates it in place of the whole head; the order of a head's columns means nothing for random weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.steps.experts import DTYPE, norm
from precision_api.exchange.result import WeightGradients
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split


@dataclass(frozen=True, slots=True)
class LatentPlan:
    """Latent attention as one GPU of a tensor-parallel group has it: `heads` are its share.

    `width`: of a head's query and key, `rope` of it with rotary positions; `value`: of a head's value.
    """

    hidden: int
    heads: int
    query_rank: int | None
    rank: int
    width: int
    rope: int
    value: int
    causal: bool
    fused: bool


def latent_plan(model: ModelSpec, split: Split, weight_gradients: WeightGradients) -> LatentPlan | None:
    """The latent attention of each layer; None for models with plain attention."""
    latent = model.latent_attention
    if latent is None:
        return None
    return LatentPlan(
        hidden=model.hidden_size,
        heads=model.num_attention_heads // split.tensor,
        query_rank=latent.query_rank,
        rank=latent.key_value_rank,
        width=model.head_width,
        rope=latent.rope_head_dim,
        value=latent.value_head_dim,
        causal=model.causal,
        fused=weight_gradients == "fused",
    )


class LatentAttention(torch.nn.Module):  # type: ignore[misc]
    """Norm, projections down and up, rotary positions, attention, output projection."""

    def __init__(self, api: Api, plan: LatentPlan, layer_number: int, device: torch.device) -> None:
        super().__init__()
        te, heads = api.pytorch, plan.heads
        self.plan, self.rotate = plan, te.attention.rope.apply_rotary_pos_emb
        common = {"bias": False, "params_dtype": DTYPE, "device": device, "fuse_wgrad_accumulation": plan.fused}

        def up(rank: int, outputs: int) -> Any:
            kind = {"eps": 1e-5, "normalization": "RMSNorm"}
            return te.LayerNormLinear(in_features=rank, out_features=outputs, **kind, **common)

        def linear(inputs: int, outputs: int) -> Any:
            return te.Linear(in_features=inputs, out_features=outputs, **common)

        self.norm = norm(api, plan.hidden, False, device)
        self.q_down = linear(plan.hidden, plan.query_rank) if plan.query_rank else None
        queries = heads * plan.width
        self.q_up = up(plan.query_rank, queries) if plan.query_rank else linear(plan.hidden, queries)
        self.kv_down = linear(plan.hidden, plan.rank + plan.rope)
        self.kv_up = up(plan.rank, heads * (plan.width - plan.rope + plan.value))
        self.core_attention = te.DotProductAttention(
            num_attention_heads=heads, kv_channels=(plan.width, plan.value), attention_dropout=0.0,
            qkv_format="sbhd", attn_mask_type="causal" if plan.causal else "no_mask", layer_number=layer_number,
        )  # fmt: skip
        self.proj = linear(heads * plan.value, plan.hidden)

    def forward(
        self, hidden_states: torch.Tensor, *, is_first_microbatch: bool | None, rotary_pos_emb: torch.Tensor | None
    ) -> torch.Tensor:
        """Of (sequence, batch, hidden) the same."""
        plan, first = self.plan, is_first_microbatch
        x = self.norm(hidden_states)
        sequence, batch, _ = x.shape
        inner = x if self.q_down is None else self.q_down(x, is_first_microbatch=first)
        query = self.q_up(inner, is_first_microbatch=first).view(sequence, batch, plan.heads, plan.width)
        ranks, shared = self.kv_down(x, is_first_microbatch=first).split((plan.rank, plan.rope), -1)
        both = self.kv_up(ranks.contiguous(), is_first_microbatch=first)
        plain, value = both.view(sequence, batch, plan.heads, -1).split((plan.width - plan.rope, plan.value), -1)
        key = self._rotated(shared.unsqueeze(2).contiguous(), rotary_pos_emb).expand(-1, -1, plan.heads, -1)
        query, key = self._rotated(query, rotary_pos_emb), torch.cat((key, plain), -1)
        attended = self.core_attention(query, key, value.contiguous())
        projected: torch.Tensor = self.proj(attended, is_first_microbatch=first)
        return projected

    def _rotated(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        if angles is None:
            return x
        rotated: torch.Tensor = self.rotate(x, angles, tensor_format="sbhd", fused=True)
        return rotated
