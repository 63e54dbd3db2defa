"""Tier B: a short model at true width, its step cut into layers forward, head, layers backward and optimizer.

The variants have modules, quantizers and graphs of their own, and share weights, gradients, head and optimizer: what a
recipe costs does not depend on them, and so a model of several variants fits. Recomputation is not run but computed
from the forward time; communication does not happen.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.session import graphs
from precision_agent.backends.te.session.engine import Engine, generator
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.attention_backend import backend, choosing
from precision_agent.backends.te.steps.modules import (
    DTYPE,
    LayerPlan,
    LinearShape,
    Stack,
    call_linear,
    layer_plans,
    rotary,
    share_weights,
    stack,
)
from precision_agent.backends.te.steps.quantising import delayed_scales, quantising, scales_move, wrong_modules
from precision_agent.backends.te.steps.weight_gradients import Gradients
from precision_agent.backends.te.tiers.saved import saved_by
from precision_agent.backends.trace import Launch, range_name
from precision_agent.method.full_depth import REGIONS
from precision_agent.protocol import PARTS, Part, RegionName, TracedPass
from precision_api.exchange.result import Failure, SavedBytes
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import PlainRecipe
from precision_api.models.memory import BF16_GRADIENT_BYTES, FP32_GRADIENT_BYTES

LEARNING_RATE = 1e-6
"""Of the timed steps: weights must stay what they are, for a step's power depends on its data."""


@dataclass(slots=True)
class Shared:
    """What all variants have in common: weights (in the first variant's layers), head, gradients, data, optimizer."""

    api: Api
    engine: Engine
    problem: Problem
    trial: Trial
    plans: tuple[LayerPlan, ...] = field(init=False)
    x: torch.Tensor = field(init=False)
    targets: torch.Tensor = field(init=False)
    gradient: torch.Tensor = field(init=False)
    """For layers without a head behind them."""
    head: Any = field(init=False)
    head_shape: LinearShape = field(init=False)
    rotary: torch.Tensor | None = field(init=False)
    gradients: Gradients = field(init=False)
    optimizer: Any = None
    owner: Stack | None = None
    layer_bytes: int = 0
    """Of the first variant's layers as they were made: their weights."""

    def __post_init__(self) -> None:
        problem, device = self.problem, self.engine.device
        model, split = problem.model, problem.split
        chance = generator(self.engine.device, problem.seed)
        self.plans = layer_plans(model, split, self.trial, problem.tokens, problem.weight_gradients)
        size = (problem.sequence, problem.micro_batch, model.hidden_size)
        self.x = torch.randn(size, generator=chance, device=device).to(DTYPE).requires_grad_()
        self.gradient = torch.randn(size, generator=chance, device=device).to(DTYPE)
        vocabulary = (model.vocab_size or 0) // split.tensor
        self.head_shape = LinearShape(problem.tokens, model.hidden_size, vocabulary)
        self.head = None
        if self.trial.head and vocabulary:
            self.targets = torch.randint(vocabulary, (problem.tokens,), generator=chance, device=device)
            self.head = self.made_head()
        self.rotary = rotary(self.api, model, problem.sequence, device)

    def made_head(self) -> Any:
        """The output layer with weights of its own."""
        return self.api.pytorch.Linear(
            in_features=self.head_shape.k, out_features=self.head_shape.n, bias=False, params_dtype=DTYPE,
            device=self.engine.device, fuse_wgrad_accumulation=self.problem.weight_gradients == "fused",
        )  # fmt: skip

    def adopt(self, layers: Stack, layer_bytes: int) -> tuple[Gradients, Any]:
        """The first variant's layers give their weights to all; gradients and optimizer are made for them.

        Where one of two variants holds a weight quantised, each has its own, and an optimizer that writes it: gradients
        and the optimizer's state, master weights among it, are the first variant's all the same.
        """
        if self.owner is not None:
            both = zip(layers.layers, self.owner.layers, strict=True)
            apart = [pair for mine, theirs in both for pair in share_weights(mine, theirs)]
            if not apart:
                return self.gradients, self.optimizer
            gradients, held = self.gradients.lent(apart), (self.optimizer, self.weights)
            return gradients, self.optimizer and gradients.optimizer(self.api, LEARNING_RATE, held)
        self.owner, self.layer_bytes = layers, layer_bytes
        self.gradients = Gradients(self.problem.weight_gradients, self.weights, self.problem.accumulation)
        if self.trial.optimizer:
            self.optimizer = self.gradients.optimizer(self.api, LEARNING_RATE)  # outside of any variant's memory
        return self.gradients, self.optimizer

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        """All parameters that the optimizer holds."""
        assert self.owner is not None
        weights = [weight for layer in self.owner.layers for weight in layer.parameters()]
        return weights + (list(self.head.parameters()) if self.head is not None else [])

    @property
    def gradient_bytes(self) -> int:
        """Of one weight's gradient: in FP32 where GEMMs add it up, else in BF16."""
        return FP32_GRADIENT_BYTES if self.problem.weight_gradients == "fused" else BF16_GRADIENT_BYTES

    @property
    def optimizer_weights(self) -> int:
        """How many numbers the optimizer held; 0 without one."""
        return sum(weight.numel() for weight in self.weights) if self.optimizer is not None else 0


@dataclass(slots=True)
class _Flow:
    """Tensors between the regions of one kind of micro batch. Kept: a graph reads where they lay when it was made."""

    y: torch.Tensor | None = None
    leaf: torch.Tensor | None = None
    dx: torch.Tensor | None = None
    dense_y: torch.Tensor | None = None
    dense_leaf: torch.Tensor | None = None


@dataclass(slots=True)
class VariantModel:
    """One variant's model: its own layers, recipe objects and program."""

    shared: Shared
    parts: Parts
    program: graphs.Program = field(init=False)
    own_bytes: int = field(init=False)
    bytes_before: int = field(init=False)
    """Allocated before the variant's first step: weights, gradients, optimizer and data of all variants."""
    kept_bytes: int = field(init=False)
    """What the layers' forward pass keeps for the backward pass."""
    pace: Mapping[RegionName, float] = field(default_factory=dict)
    stack: Stack = field(init=False)
    head: Any = field(init=False)
    gradients: Gradients = field(init=False)
    optimizer: Any = field(init=False)
    weight_bytes: int = field(init=False)
    """Of the layers beyond those of the first variant: where weights are held quantised, below 0."""
    eager: tuple[Launch, ...] = ()  # as a profile saw its eager steps
    _owner: Owner = field(init=False)
    _flows: dict[str, _Flow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shared, problem = self.shared, self.shared.problem
        api, engine = shared.api, shared.engine
        self._owner = Owner(api)
        with self._owner.present():
            before = engine.allocated_bytes()
            self.stack = stack(
                api, shared.plans, self.parts, engine.device, problem.attention_core, problem.primary_weights
            )
            made = engine.allocated_bytes() - before
            self.stack.rotary, self.head = shared.rotary, shared.head
            if shared.head is not None and self.parts.head != "bf16":
                self.head = shared.made_head()
                share_weights(self.head, shared.head)
            self.gradients, self.optimizer = shared.adopt(self.stack, made)
            self.weight_bytes = made - shared.layer_bytes if problem.primary_weights else 0
            engine.forget_peaks()
            self.bytes_before = engine.allocated_bytes()
            self.program = graphs.Program(engine, self._regions(), self._cycle())
            self.program.warm_up()
            self.own_bytes = max(0, engine.peaks().allocated - self.bytes_before)
            self.kept_bytes = self._kept_by_forward()

    def prepare(self) -> Failure | None:
        """Captures and checks; why this variant can't be timed, or None."""
        with self._owner.present():
            self.program.capture(self._evidence)
            misfit = wrong_modules(self.parts, self._quantising, self.shared.problem.primary_weights)
            if self.head is not self.shared.head:
                misfit = misfit or recipes.wrong_quantizers(self.parts.head, recipes.quantizers(self.head))
            if any(bool((scale == 1).all()) for scale in delayed_scales(self._delayed_cores)):
                misfit = "attentionCore fp8_delayed: scales are 1 after the warm-up, they never move"
            if misfit:
                return Failure(reason="wrong_quantizer", message=misfit)
            self.program.pace()
            self.pace = regions_of(self.program.time(1))
        return None

    def _kept_by_forward(self) -> int:
        batch_kind = self._batch_kinds[-1][0]
        before = self.shared.engine.allocated_bytes()
        for name in self._forwards:
            self.program.go((name, batch_kind))
        kept = self.shared.engine.allocated_bytes() - before
        for name in self._backwards:
            self.program.go((name, batch_kind))
        return max(0, kept)

    def measure(self, seconds: float) -> graphs.Timings:
        """Whole optimizer steps, as many as fit."""
        with self._owner.present():
            return self.program.measure(seconds)

    def run(self, part: Part) -> None:
        """One call of a part, as power windows replay it."""
        batch_kind = self._batch_kinds[-1][0]
        with self._owner.present():
            for region in PARTS[part]:
                self.program.go((region, "step" if part == "optimizer" else batch_kind))

    def refresh(self) -> None:
        """One run of every region but the optimizer's: what a part reads is this variant's own again."""
        with self._owner.present():
            self._all_but_optimizer(self.program)

    def calls_in(self, part: Part, seconds: float) -> int:
        """About how many calls of a part take `seconds`, at least one."""
        spent = sum(self.pace.get(name, 0.0) for name in PARTS[part])
        return max(1, int(seconds / spent)) if spent > 0 else 1

    def has(self, part: Part) -> bool:
        there = {"layers": True, "dense": self.stack.dense > 0, "head": self.shared.head is not None}
        return there.get(part, self.shared.optimizer is not None)

    def eager_step(self) -> None:
        """One micro batch of the common kind, eager, region by region, told by name in the profiler's trace."""
        batch_kind = self._batch_kinds[-1][0]
        kept = replace(self._flows[batch_kind])
        try:
            self._told_step(lambda region: region.work())
        finally:  # also of a step that failed half-way: a graph's memory stays taken
            for field_ in fields(kept):
                setattr(self._flows[batch_kind], field_.name, getattr(kept, field_.name))

    def replayed_step(self) -> None:
        """The same micro batch as it is timed: region by region the replay of its graph, with marks between them."""

        def go(region: graphs.Region) -> None:
            self.program.go((region.name, region.batch_kind))
            self.shared.engine.mark()

        self._told_step(go)

    def _told_step(self, go: Callable[[graphs.Region], None]) -> None:
        batch_kind = self._batch_kinds[-1][0]
        passes: dict[str, TracedPass] = dict.fromkeys(self._forwards, "forward")
        passes |= dict.fromkeys(self._backwards, "backward")
        with self._owner.present():
            for region in self.program.regions:
                if region.batch_kind != batch_kind:
                    continue
                module = "head" if region.name == "head" else ""
                with self.shared.engine.annotate(range_name(passes.get(region.name, "other"), module, region.name)):
                    go(region)

    def saved(self) -> tuple[tuple[SavedBytes, ...], str | None]:
        """What the last layer's modules keep for the backward pass, and the backend of its attention."""
        stack_, layer = self.stack, self.stack.layers[-1]

        def forward(first: bool) -> torch.Tensor:
            return stack_.through((layer,), self.shared.x.detach().clone().requires_grad_(), first)

        with self._owner.present(), choosing(self.shared.api) as said:
            return saved_by(dict(layer.named_modules()), forward), backend(said)

    @property
    def flags(self) -> dict[str, bool]:
        """Quantizers' flags of the last layer's last module."""
        modules = self._quantising
        return recipes.flags_of(modules[-1][1]) if modules else {}

    @property
    def _forwards(self) -> tuple[RegionName, ...]:
        """The layers' regions in the order of the forward pass."""
        return ("dense_forward", "layers_forward") if self.stack.dense else ("layers_forward",)

    @property
    def _backwards(self) -> tuple[RegionName, ...]:
        """The same of the backward pass."""
        return ("layers_backward", "dense_backward") if self.stack.dense else ("layers_backward",)

    @property
    def _batch_kinds(self) -> tuple[tuple[str, bool | None], ...]:
        return graphs.batch_kinds_of(self.shared.problem.accumulation)

    def _regions(self) -> tuple[graphs.Region, ...]:
        made = []
        for batch_kind, first in self._batch_kinds:
            self._flows[batch_kind] = _Flow()
            works = {
                "dense_forward": self._dense_forward(batch_kind, first),
                "layers_forward": self._forward(batch_kind, first),
                "head": self._head(batch_kind, first),
                "layers_backward": self._backward(batch_kind),
                "dense_backward": self._backward(batch_kind, dense=True),
            }
            made += [graphs.Region(name, batch_kind, works[name]) for name in self._micro]
        if self.optimizer is not None:
            made.append(graphs.Region("optimizer", "step", partial(self.gradients.step, self.optimizer)))
        return tuple(made)

    def _cycle(self) -> tuple[tuple[str, str], ...]:
        cycle = graphs.cycle_of(self._micro, self.shared.problem.accumulation)
        return (*cycle, ("optimizer", "step")) if self.shared.optimizer is not None else cycle

    @property
    def _micro(self) -> tuple[RegionName, ...]:
        """The regions of one micro batch, in order."""
        return (*self._forwards, *(("head",) if self.shared.head is not None else ()), *self._backwards)

    def _dense_forward(self, batch_kind: str, first: bool | None) -> Any:
        flow, stack_ = self._flows[batch_kind], self.stack

        def work() -> None:
            self.shared.x.grad = None
            flow.dense_y = stack_.through(stack_.layers[: stack_.dense], self.shared.x, first)
            flow.dense_leaf = flow.dense_y.detach().requires_grad_()

        return work

    def _forward(self, batch_kind: str, first: bool | None) -> Any:
        flow, stack_ = self._flows[batch_kind], self.stack

        def work() -> None:
            x = flow.dense_leaf if stack_.dense else self.shared.x
            assert x is not None
            x.grad = None
            flow.y = stack_.through(stack_.layers[stack_.dense :], x, first)
            flow.leaf = flow.y.detach().requires_grad_()

        return work

    def _head(self, batch_kind: str, first: bool | None) -> Any:
        flow, shared = self._flows[batch_kind], self.shared
        te_recipe = self.stack.recipes.get(self.parts.head)
        microbatch = first if te_recipe else self.gradients.microbatch(first)

        def work() -> None:
            assert flow.leaf is not None
            flow.leaf.grad = None
            flat = flow.leaf.reshape(shared.head_shape.m, shared.head_shape.k)
            with shared.api.autocast(te_recipe) if te_recipe else nullcontext():
                logits = call_linear(self.head, shared.head_shape, flat, microbatch)
            functional.cross_entropy(logits.float(), shared.targets).backward()

        return work

    def _backward(self, batch_kind: str, dense: bool = False) -> Any:
        flow = self._flows[batch_kind]

        def work() -> None:
            y, leaf = (flow.dense_y, flow.dense_leaf) if dense else (flow.y, flow.leaf)
            assert y is not None
            assert leaf is not None
            # What came from behind, else what stands for it: where there is no head, or a part is replayed alone.
            y.backward(leaf.grad if leaf.grad is not None else self.shared.gradient)
            flow.dx = self.shared.x.grad

        return work

    def _evidence(self, program: graphs.Program) -> graphs.ReplayEvidence:
        first = self._replayed(program)
        linear = [module for recipe, module in self._quantising if recipe == "fp8_delayed"]
        delayed = [(modules, delayed_scales(modules)) for modules in (linear, self._delayed_cores) if modules]
        second = self._replayed(program)
        calls = [call for recipe in self.parts.recipes if (call := recipes.CALLS[recipe])]
        finite, stochastic = bool(torch.isfinite(second).all()), any(call.stochastic for call in calls)
        moved = [scales_move(*held, lambda: self._replayed(program)) for held in delayed]
        return graphs.ReplayEvidence(
            all(moved) if moved else None, not torch.equal(first, second) if stochastic else None, finite
        )

    def _replayed(self, program: graphs.Program) -> torch.Tensor:
        self._all_but_optimizer(program)
        self.shared.engine.synchronize()
        gradient = self.shared.x.grad
        assert gradient is not None
        return gradient.detach().clone()

    def _all_but_optimizer(self, program: graphs.Program) -> None:
        """Without the optimizer: it would change the weights from one run to the next."""
        for region in program.regions:
            if region.name != "optimizer":
                program.go((region.name, region.batch_kind))

    @property
    def _delayed_cores(self) -> list[Any]:
        """Attention's cores, where their scales are delayed: no module that trains shows it."""
        cores = [layer.self_attention.core_attention for layer in self.stack.layers]
        return cores if self.stack.core == "fp8_delayed" else []

    @property
    def _quantising(self) -> list[tuple[PlainRecipe, Any]]:
        """The layers' modules that hold quantizers, each with the recipe that they must be of."""
        return quantising(self.stack.layers, self.parts)


def regions_of(timings: graphs.Timings) -> Mapping[RegionName, float]:
    """Seconds of one run of each region: of a micro batch, and of one optimizer step."""
    seconds = graphs.by_name(timings, REGIONS)
    return {name: seconds[name] for name in REGIONS if name in seconds}
