"""Tier A: the GEMMs of one linear layer, forward and backward, through the module that training uses.

One unit is one layer in one variant: forward, data gradient (with the quantisation of the incoming gradient) and weight
gradient are three regions of its program, so that one loop gives the samples of all its cases.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.session import graphs
from precision_agent.backends.te.session.engine import Engine, generator
from precision_agent.backends.te.sizes import rotations, working_set_bytes
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE, LinearShape, call_linear, linear
from precision_agent.backends.te.steps.quantising import delayed_scales
from precision_agent.backends.trace import kernels, launches, range_name
from precision_agent.cases import GemmCase
from precision_agent.method.expert_rows import launches as grouped_calls
from precision_agent.precision.verification import numeric_verdict
from precision_agent.protocol import ProfiledKernel, Sample
from precision_api.exchange.result import Failure, NumericErrors
from precision_api.facts.recipes import Recipe
from precision_api.models.shapes import PASSES

PROFILED_STEPS = 10
CHECKED_ROWS = 128


def shape_of(case: GemmCase) -> LinearShape:
    """The forward GEMM that a case belongs to."""
    return LinearShape(*case.forward, case.groups)


def sample_of(case: GemmCase, timings: graphs.Timings, unit: "Unit") -> Sample:
    """The sample of one case out of the loop that ran all passes of its layer: seconds of a single GEMM.

    `autocast` is the mean micro batch of an optimizer step. Of `prequantized` it is the whole time of the micro batches
    that are profiled, to which the GEMM kernels' share belongs: the first one's would bring its cast of the weight
    along.
    """
    kernels_alone = case.mode == "prequantized"
    if kernels_alone:
        timings = graphs.of_batch_kind(timings, unit.profiled_kind)
    return Sample(
        seconds=graphs.by_name(timings, (case.pass_,))[case.pass_] / unit.copies,
        calls=sum(count for (name, _), count in timings.runs.items() if name == case.pass_)
        * timings.cycles
        * unit.rotated,
        start=timings.start,
        end=timings.end,
        execution=unit.program.execution,
        execution_reason=unit.program.reason,
        holds_quantization=kernels_alone,
    )


@dataclass(slots=True, eq=False)
class Unit:
    """One layer in one variant. Owns its modules, its recipe object and its part of Transformer Engine's global state.

    Where one call's buffers would stay in the cache there are several equal modules, called in turn, as the layers of a
    model are: inside one autocast, so that delayed scaling updates all of them once. Where a grouped call takes fewer
    experts than there are, each of them is several modules, a call each.
    """

    api: Api
    engine: Engine
    shape: LinearShape
    recipe: Recipe
    accumulation: int
    seed: int
    program: graphs.Program = field(init=False)
    errors: NumericErrors = field(init=False)
    rotated: int = field(init=False)
    modules: tuple[Any, ...] = field(init=False)
    _owner: Owner = field(init=False)
    te_recipe: Any = field(init=False)
    _shapes: tuple[LinearShape, ...] = field(init=False)
    inputs: list[torch.Tensor] = field(init=False)
    """Of each module."""
    gradients: list[torch.Tensor] = field(init=False)
    """Of each module's output: one for all would lie in the cache when the next module casts it."""
    _y: dict[str, list[torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._owner = Owner(self.api)
        shape = self.shape
        self.rotated = rotations(working_set_bytes(shape.m, shape.k, shape.n, shape.groups), self.engine.l2_bytes)
        calls = grouped_calls(shape.groups, self.recipe)
        self._shapes = tuple(replace(shape, groups=groups) for _ in range(self.rotated) for groups in calls)
        chance = generator(self.engine.device, self.seed)

        def normal(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, generator=chance, device=self.engine.device).to(DTYPE)

        with self._owner.present():
            self.te_recipe = recipes.make(self.api, self.recipe)
            self.modules = tuple(linear(self.api, shape, self.engine.device) for shape in self._shapes)
            self.inputs = [normal(shape.rows, shape.k).requires_grad_() for shape in self._shapes]
            self.gradients = [normal(shape.rows, shape.n) for shape in self._shapes]
            cycle = graphs.cycle_of(PASSES, 1 if self.recipe == "bf16" else self.accumulation)
            self.program = graphs.Program(self.engine, self._regions(), cycle)
            self.program.warm_up()
        self.errors = NumericErrors()

    def prepare(self) -> Failure | None:
        """Checks the numbers and the quantizers, captures; why nothing of this unit can be timed, or None."""
        with self._owner.present():
            errors = self._errors()
            wrong = wrong_numbers(self.recipe, errors)
            if wrong:
                return Failure(reason="numerical_error", message=f"{self._title}: {wrong}")
            self.errors = NumericErrors(**errors)
            self.program.capture(self._evidence)
            for module in self.modules:
                misfit = recipes.wrong_quantizers(self.recipe, recipes.quantizers(module))
                if misfit:
                    return Failure(reason="wrong_quantizer", message=f"{self._title}: {misfit}")
            self.program.pace()
        return None

    def checked(self) -> NumericErrors:
        """Errors of y, dx and dW against FP32; ValueError for a product with anything that is no number."""
        with self._owner.present():
            errors = self._errors()
        if not all(map(math.isfinite, errors.values())):
            raise ValueError(wrong_numbers(self.recipe, errors))
        return NumericErrors(**errors)

    def kernels(self) -> tuple[ProfiledKernel, ...]:
        """Kernels of one eager step, forward and backward. Starts a profiler: of no unit that is timed later."""
        return kernels(launches(self.engine.profile(partial(self.steps, ""))), PROFILED_STEPS)

    def steps(self, mark: str, replayed: bool = False) -> None:
        """PROFILED_STEPS steps of the cycle's common kind, each pass in a range called `mark` and its name.

        Eager, or `replayed` as they are timed: graphs with marks between them, where there are graphs.
        """
        with self._owner.present():
            for _ in range(PROFILED_STEPS):
                for region in self.program.regions:
                    if region.batch_kind != self.profiled_kind:
                        continue
                    passing = "forward" if region.name == "fprop" else "backward"
                    with self.engine.annotate(range_name(passing, region=mark + region.name)):
                        if replayed:
                            self.program.go((region.name, region.batch_kind))
                            self.engine.mark()
                        else:
                            region.work()

    def measure(self, seconds: float) -> graphs.Timings:
        """One loop over all passes."""
        with self._owner.present():
            return self.program.measure(seconds)

    def present(self) -> AbstractContextManager[None]:
        """Transformer Engine's global state is this unit's within."""
        return self._owner.present()

    @property
    def profiled_kind(self) -> str:
        """The kind of micro batch that is profiled: that which finds its weights quantised, where there is such."""
        return self._batch_kinds[-1][0]

    @property
    def copies(self) -> int:
        """How many equal GEMMs one run of a region holds."""
        return self.rotated * self.shape.groups

    @property
    def _title(self) -> str:
        return f"{self.shape.m}x{self.shape.k}x{self.shape.n}"

    @property
    def _batch_kinds(self) -> tuple[tuple[str, bool | None], ...]:
        return graphs.batch_kinds_of(1 if self.recipe == "bf16" else self.accumulation)

    def _regions(self) -> tuple[graphs.Region, ...]:
        made = []
        for batch_kind, first in self._batch_kinds:
            made += [
                graphs.Region("fprop", batch_kind, partial(self._forward, batch_kind, first)),
                graphs.Region("dgrad", batch_kind, partial(self._backward, batch_kind)),
                graphs.Region("wgrad", batch_kind, self._weight_gradients),
            ]
        return tuple(made)

    def _forward(self, batch_kind: str, first: bool | None) -> None:
        for x in self.inputs:
            x.grad = None
        with self.api.autocast(self.te_recipe):
            calls = zip(self.modules, self._shapes, self.inputs, strict=True)
            self._y[batch_kind] = [call_linear(module, shape, x, first) for module, shape, x in calls]

    def _backward(self, batch_kind: str) -> None:
        # as in a model: the first module's comes last, and updates the scales
        calls = zip(self._y.pop(batch_kind), self.gradients, strict=True)
        for y, gradient in reversed(tuple(calls)):
            y.backward(gradient)

    def _weight_gradients(self) -> None:
        for module in reversed(self.modules):
            for weight in module.parameters():
                weight.grad = None
            module.backward_dw()

    def _evidence(self, program: graphs.Program) -> graphs.ReplayEvidence:
        call = recipes.CALLS[self.recipe]
        if call is None:
            return graphs.ReplayEvidence(finite=_finite(self._replayed(program)))
        before, scales = self._replayed(program), delayed_scales(self.modules[:1])
        again = self._replayed(program)
        moved = self._scales_move(program, scales) if call.delayed else None
        differ = not torch.equal(before, again) if call.stochastic else None
        return graphs.ReplayEvidence(moved, differ, _finite(again))

    def _replayed(self, program: graphs.Program) -> torch.Tensor:
        """The input's gradient after one run of everything."""
        program.once()
        self.engine.synchronize()
        gradient = self.inputs[0].grad
        assert gradient is not None
        return gradient.detach().clone()

    def _scales_move(self, program: graphs.Program, scales: list[torch.Tensor]) -> bool:
        """With an input four times as large the scale must fall; the old input and an empty history are put back."""
        if not scales:
            return False
        with torch.no_grad():
            for x in self.inputs:
                x.mul_(4)
        program.once()
        program.once()
        self.engine.synchronize()
        moved = not torch.equal(delayed_scales(self.modules[:1])[0], scales[0])
        with torch.no_grad():
            for x in self.inputs:
                x.div_(4)
            for module in self.modules:
                for key in ("scaling_fwd", "scaling_bwd"):
                    module.fp8_meta[key].amax_history.zero_()
        program.once()
        program.once()
        return moved

    def _errors(self) -> dict[str, float]:
        """Errors of y, dx and dW against FP32, of the first rows of the first module's first group; may be NaN."""
        shape, x, dy = self.shape, self.inputs[0], self.gradients[0]
        batch_kind = self._batch_kinds[0][0]
        self.program.go(("fprop", batch_kind))
        y = self._y[batch_kind][0].detach()
        self.program.go(("dgrad", batch_kind))
        self.program.go(("wgrad", batch_kind))
        weight = next(self.modules[0].parameters())
        rows = min(CHECKED_ROWS, shape.m)
        exact_weight = weight.detach().float()
        exact_x, exact_dy = x.detach()[: shape.m].float(), dy[: shape.m].float()
        assert x.grad is not None
        assert weight.grad is not None
        columns = min(CHECKED_ROWS, shape.n)
        return {
            "y": _relative(y[:rows], exact_x[:rows] @ exact_weight.t()),
            "dx": _relative(x.grad[:rows], exact_dy[:rows] @ exact_weight),
            "dw": _relative(weight.grad[:columns], exact_dy[:, :columns].t() @ exact_x),
        }


def wrong_numbers(recipe: Recipe, errors: Mapping[str, float]) -> str | None:
    """Which error against FP32 is too large for the recipe, or no number; None: no time is told of a wrong product."""
    for name, error in errors.items():
        if numeric_verdict(recipe, error) == "too_large":
            return f"relative error of {name} against FP32 is {error:.2g}, too large for {recipe}"
    return None


def _relative(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.detach().float() - exact).norm() / exact.norm())


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all()) and bool(tensor.abs().sum() > 0)
