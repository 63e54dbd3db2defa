"""Multi-head latent attention out of Transformer Engine's modules, for which it has no layer.

As in Megatron Core's multi_latent_attention.py: linear layers down to the ranks, norms fused into those up from them,
attention with heads of different widths for keys and values. A head's rotary part comes first here, so that one kernel
rotates it in place of the whole head; the order of a head's columns means nothing for random weights.
"""

from typing import Any

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.steps.experts import DTYPE, norm
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split


class LatentAttention(torch.nn.Module):  # type: ignore[misc]
    """Norm, projections down and up, rotary positions, attention, output projection, for one GPU's share of the heads.

    `fused`: weight gradients add up in FP32.
    """

    def __init__(
        self, api: Api, model: ModelSpec, split: Split, fused: bool, layer_number: int, device: torch.device
    ) -> None:
        super().__init__()
        te, hidden, latent = api.pytorch, model.hidden_size, model.latent_attention
        assert latent is not None, "only a model with latent attention has such layers"
        self.heads, self.width, self.latent = model.num_attention_heads // split.tensor, model.head_width, latent
        self.rotate = te.attention.rope.apply_rotary_pos_emb
        common = {"bias": False, "params_dtype": DTYPE, "device": device, "fuse_wgrad_accumulation": fused}

        def up(rank: int, outputs: int) -> Any:
            kind = {"eps": 1e-5, "normalization": "RMSNorm"}
            return te.LayerNormLinear(in_features=rank, out_features=outputs, **kind, **common)

        def linear(inputs: int, outputs: int) -> Any:
            return te.Linear(in_features=inputs, out_features=outputs, **common)

        self.norm = norm(api, hidden, False, device)
        self.q_down = linear(hidden, latent.query_rank) if latent.query_rank else None
        queries = self.heads * self.width
        self.q_up = up(latent.query_rank, queries) if latent.query_rank else linear(hidden, queries)
        rank, rope, value = latent.key_value_rank, latent.rope_head_dim, latent.value_head_dim
        self.kv_down = linear(hidden, rank + rope)
        self.kv_up = up(rank, self.heads * (self.width - rope + value))
        self.core_attention = te.DotProductAttention(
            num_attention_heads=self.heads, kv_channels=(self.width, value), attention_dropout=0.0,
            qkv_format="sbhd", attn_mask_type="causal" if model.causal else "no_mask", layer_number=layer_number,
        )  # fmt: skip
        self.proj = linear(self.heads * value, hidden)

    def forward(
        self, hidden_states: torch.Tensor, *, is_first_microbatch: bool | None, rotary_pos_emb: torch.Tensor | None
    ) -> torch.Tensor:
        """Of (sequence, batch, hidden) the same."""
        latent, heads, first = self.latent, self.heads, is_first_microbatch
        x = self.norm(hidden_states)
        sequence, batch, _ = x.shape
        inner = x if self.q_down is None else self.q_down(x, is_first_microbatch=first)
        query = self.q_up(inner, is_first_microbatch=first).view(sequence, batch, heads, self.width)
        down = self.kv_down(x, is_first_microbatch=first)
        ranks, shared = down.split((latent.key_value_rank, latent.rope_head_dim), -1)
        both = self.kv_up(ranks.contiguous(), is_first_microbatch=first).view(sequence, batch, heads, -1)
        plain, value = both.split((self.width - latent.rope_head_dim, latent.value_head_dim), -1)
        key = self._rotated(shared.unsqueeze(2).contiguous(), rotary_pos_emb).expand(-1, -1, heads, -1)
        query, key = self._rotated(query, rotary_pos_emb), torch.cat((key, plain), -1)
        attended = self.core_attention(query, key, value.contiguous())
        projected: torch.Tensor = self.proj(attended, is_first_microbatch=first)
        return projected

    def _rotated(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        if angles is None:
            return x
        rotated: torch.Tensor = self.rotate(x, angles, tensor_format="sbhd", fused=True)
        return rotated
