"""Where weight gradients of several micro batches add up: in FP32, by the GEMM itself, or in BF16, by autograd.

`fused` is what Megatron Core does: with `fuse_wgrad_accumulation` Transformer Engine's GEMM writes the gradient of a
matrix into `main_grad` (FP32) and gives autograd none. It overwrites `main_grad` in the first micro batch and adds in
the others; without `is_first_microbatch` it adds for ever (module/linear.py, 2.8 to 2.20.2). FusedAdam reads
`decoupled_grad` then, of one type for all. `separate`: autograd adds BF16 gradients in kernels of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from precision_agent.backends.te.api import Api
from precision_api.exchange.result import WeightGradients

_BY_AUTOGRAD = "gradient_by_autograd"


def by_autograd(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """Marks a matrix that torch multiplies itself: its gradient comes by autograd, also where the others' are fused."""
    setattr(parameter, _BY_AUTOGRAD, True)
    return parameter


@dataclass(slots=True)
class Gradients:
    """Gradients of the parameters that all variants share. Their memory stays where it is: graphs write into it."""

    how: WeightGradients
    parameters: Sequence[torch.nn.Parameter]
    accumulation: int

    def __post_init__(self) -> None:
        for parameter in self.parameters:
            if getattr(parameter, "main_grad", parameter.grad) is not None:
                continue  # lent by another variant's
            if self._in_main_grad(parameter):
                parameter.main_grad = _zeros(parameter, torch.float32)
                parameter.decoupled_grad = parameter.main_grad
                continue
            parameter.grad = _zeros(parameter, parameter.dtype)
            if self.how == "fused":
                parameter.decoupled_grad = _zeros(parameter, torch.float32)

    def lent(self, pairs: Sequence[tuple[torch.nn.Parameter, torch.nn.Parameter]]) -> "Gradients":
        """The same memory for a variant that holds some of the weights in its own format: pairs of its and ours."""
        held = {id(theirs): mine for mine, theirs in pairs}
        for mine, theirs in pairs:
            for name in ("main_grad", "decoupled_grad", "grad"):
                if getattr(theirs, name, None) is not None:
                    setattr(mine, name, getattr(theirs, name))
        return replace(self, parameters=[held.get(id(weight), weight) for weight in self.parameters])

    def optimizer(self, api: Api, rate: float, of: tuple[Any, Sequence[torch.nn.Parameter]] | None = None) -> Any:
        """FusedAdam with FP32 master weights, its state made by a step with gradients of zero, or that `of` another
        variant's and its weights: the next step brings these in our format."""
        fused = {"use_decoupled_grad": True} if self.how == "fused" else {}
        optimizer = api.pytorch.optimizers.FusedAdam(params=self.parameters, lr=rate, master_weights=True, **fused)
        if of is None:
            optimizer.step()
        else:
            optimizer.state.update(
                (mine, of[0].state[theirs]) for mine, theirs in zip(self.parameters, of[1], strict=True)
            )
        return optimizer

    def step(self, optimizer: Any) -> None:
        """One optimizer step; gradients are ready for the next micro batches after it."""
        plain = [weight for weight in self.parameters if not self._in_main_grad(weight)]
        gradients = [weight.grad for weight in plain]
        if self.how == "fused" and plain:
            torch._foreach_copy_([weight.decoupled_grad for weight in plain], gradients)
        optimizer.step()
        if gradients:
            torch._foreach_zero_(gradients)
        if self.how == "fused" and self.accumulation == 1:  # its one micro batch is no first one: it would add for ever
            torch._foreach_zero_([weight.main_grad for weight in self.parameters if self._in_main_grad(weight)])

    def microbatch(self, first: bool | None) -> bool | None:
        """What an unquantised module is told of its micro batch: only who writes into `main_grad` must know."""
        return first if self.how == "fused" else None

    def _in_main_grad(self, parameter: torch.nn.Parameter) -> bool:
        """A matrix that a module of Transformer Engine's multiplies; norms and biases are vectors."""
        return self.how == "fused" and parameter.ndim == 2 and not getattr(parameter, _BY_AUTOGRAD, False)


def _zeros(parameter: torch.nn.Parameter, dtype: torch.dtype) -> torch.Tensor:
    """Like the parameter, which may be held quantised, but plain."""
    return torch.zeros(parameter.shape, dtype=dtype, device=parameter.device)
