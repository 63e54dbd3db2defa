"""What a layer's experts compute, in plain torch: against which the permutation and the grouped calls are held."""

import torch

from precision_agent.backends.te.steps.experts import Experts


def token_by_token(experts: Experts, x: torch.Tensor) -> torch.Tensor:
    """Of (sequence, batch, hidden) the same: each choice of each token through its expert's own two matrices."""
    tokens = experts.norm(x).reshape(experts.size)
    chosen, weights = experts.router(tokens)
    up, down = (
        torch.stack([weight for group in part for weight in group.parameters()]) for part in (experts.up, experts.down)
    )
    y = torch.zeros_like(tokens, dtype=torch.float32)
    for choice in range(experts.router.top_k):
        of_expert = chosen[:, choice].long()
        inner = experts.activation(torch.einsum("th,tih->ti", tokens, up[of_expert]))
        y = y + torch.einsum("ti,thi->th", inner, down[of_expert]).float() * weights[:, choice, None]
    return y.to(x.dtype).reshape(x.shape)
