"""A Transformer Engine for the CPU, made from the signatures of one of its tags: what can't bind there can't be called.

Errors are of the size that the reference quantizers give, times are a made-up GPU's that counts microseconds: a test
knows what must come out. Kernels have names that were seen on GPUs.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from precision_agent.backends.te.api import NEEDS, Api, api_of
from precision_agent.backends.te.steps.recipes import CALLS
from precision_api.facts.recipes import RECIPES, Recipe
from tests.support.te_device import ADAM, ERROR, GEMM, QUANTISE, FakeEngine, FakeGpu
from tests.support.te_fake_parts import Attention, step_parts
from tests.support.te_signatures import signatures

QUANTIZER = {
    "DelayedScaling": "Float8Quantizer", "Float8CurrentScaling": "Float8CurrentScalingQuantizer",
    "Float8BlockScaling": "Float8BlockQuantizer", "MXFP8BlockScaling": "MXFP8Quantizer",
    "NVFP4BlockScaling": "NVFP4Quantizer",
}  # fmt: skip


@dataclass
class World:
    """What the fake shares: its GPU, who is in which autocast, what was called, where its memory ends."""

    tag: str
    gpu: FakeGpu
    calls: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    autocasts: list[Any] = field(default_factory=list)
    frozen: bool = False
    most_layers: int = 1 << 30
    most_experts: int = 1 << 20
    garbage: float = 0.0
    """Relative error of every product, NaN too, in the place of the recipe's own; 0: its own."""
    lies: Mapping[str, Any] = field(default_factory=dict)
    chance: Random = field(default_factory=lambda: Random(0))
    quantised_weights: int = 0
    fast_math: set[str | None] = field(default_factory=set)
    """Values of NVTE_USE_FAST_MATH at quantizations."""
    own_call_slower: float = 1.0
    """How many times as long general_gemm takes as the modules' GEMM."""
    casts: Mapping[Recipe, float] = field(default_factory=dict)
    """Microseconds of a recipe's cast, where it is another than QUANTISE's."""
    pending: dict[int, Any] = field(default_factory=dict)

    def bind(self, symbol: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        """The arguments by name, as the tag's signature binds them; writes the call down."""
        first = _positional(self.tag, symbol, len(arguments), tuple(named))
        found = dict(zip(first, arguments, strict=True)) | named
        self.calls.append((symbol, frozenset(found)))
        return found

    @property
    def recipe(self) -> Any | None:
        return self.autocasts[-1] if self.autocasts else None

    def quantise(self, recipe: Recipe) -> None:
        self.fast_math.add(os.environ.get("NVTE_USE_FAST_MATH"))
        name, microseconds = QUANTISE
        self.gpu.kernel(name, self.casts.get(recipe, microseconds))


@cache
def _positional(tag: str, symbol: str, count: int, named: tuple[str, ...]) -> list[str]:
    """What the tag's signature calls the first `count` arguments of a call; TypeError where it can't take them all."""
    signature = signatures(tag)[symbol]
    bound = signature.bind(*range(count), **dict.fromkeys(named))
    rest = {name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD}
    return [name for name in bound.arguments if name not in rest.union(named)]


class FakeRecipe:
    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values

    @property
    def ours(self) -> Recipe:
        rows = {recipe: {**call.fields, **call.later} for recipe, call in CALLS.items() if call}
        named = [recipe for recipe in rows if RECIPES[recipe].te_class == self.name]
        return next(recipe for recipe in named if rows[recipe] | self.values == rows[recipe])


@dataclass(frozen=True)
class Quantised:
    """A tensor as a quantizer of this recipe leaves it."""

    recipe: Recipe


class _Product(torch.autograd.Function):
    """x W^T with quantised operands; the weight's gradient is put off where the module says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, module: Any, first: bool | None) -> torch.Tensor:
        world, recipe = module.world, module.world.recipe
        name = recipe.ours if recipe else "bf16"
        module.seen(recipe, x)
        if recipe:
            world.quantise(name)
            if first is not False:
                world.quantise(name)
                world.quantised_weights += 1
        world.gpu.kernel(*GEMM[name if recipe else None])
        ctx.save_for_backward(x, weight)
        ctx.module, ctx.name, ctx.recipe, ctx.first, ctx.owner = module, name, recipe, first, weight
        return _times(world, x, weight, name).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        module, world = ctx.module, ctx.module.world
        if ctx.recipe:
            world.quantise(ctx.name)
        world.gpu.kernel(*GEMM[ctx.name if ctx.recipe else None])
        dx = _times(world, dy, weight.t(), ctx.name).to(x.dtype)

        def weight_gradient() -> torch.Tensor:
            world.gpu.kernel(*GEMM[ctx.name if ctx.recipe else None])
            flat = [one.reshape(-1, one.shape[-1]).t() for one in (dy, x)]
            found = _times(world, flat[0], flat[1], ctx.name)
            return found if module.fused else found.to(weight.dtype)

        if module.fused:
            # As the GEMM writes it: in FP32, over what the first micro batch finds there, else added to it.
            sums, gradient = ctx.owner.main_grad, weight_gradient()
            assert sums.dtype == torch.float32
            sums.copy_(gradient) if ctx.first is True else sums.add_(gradient)
            return dx, None, None, None
        if module.delayed:
            module.store.append((weight, weight_gradient))
            return dx, None, None, None
        return dx, weight_gradient(), None, None


def _times(world: World, a: torch.Tensor, b: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """a b^T, wrong by a factor of the recipe's size and of chance; frozen chance gives the same error again."""
    chance = Random(1) if world.frozen else world.chance
    error = (world.garbage or ERROR[recipe]) * (0.9 + 0.2 * chance.random())
    rows = a if a.ndim == 2 else a.reshape(-1, a.shape[-1])
    product = torch.mm(rows.float(), b.float().t()).mul_(1 + error)
    return product if a.ndim == 2 else product.reshape(*a.shape[:-1], b.shape[0])


class _Holder(torch.nn.Module):
    """What all quantising modules have: weights, quantizers of the recipe they first met, delayed scaling's state."""

    def __init__(self, world: World, sizes: list[tuple[int, int]], delayed: bool = False, fused: bool = False) -> None:
        super().__init__()
        self.world, self.delayed, self.fused = world, delayed, fused
        self.store: list[Any] = []
        self.quantizers: dict[str, Any] = {"scaling_fwd": {}, "scaling_bwd": {}}
        self.fp8_meta: dict[str, Any] = {}
        for index, (out, inner) in enumerate(sizes):
            drawn = torch.randn(out, inner) * 0.05  # by torch's own generator, as the real one does
            name = "weight" if len(sizes) == 1 else f"weight{index}"
            self.register_parameter(name, torch.nn.Parameter(drawn.to(torch.bfloat16)))

    def seen(self, recipe: FakeRecipe | None, x: torch.Tensor) -> None:
        """Makes quantizers for a recipe of a new class, and only then: as Transformer Engine does."""
        if recipe is None:
            return
        if self.fp8_meta.get("class") != recipe.name:
            self.fp8_meta = {"class": recipe.name}
            self.quantizers = _quantizers(self.world, recipe, self)
            for key in ("scaling_fwd", "scaling_bwd"):
                if recipe.name == "DelayedScaling":
                    self.fp8_meta[key] = SimpleNamespace(scale=torch.ones(3), amax_history=torch.zeros(4, 3))
        if recipe.name == "DelayedScaling":
            self.fp8_meta["scaling_fwd"].amax_history[0, 0] = x.abs().max().float()
            self.world.pending.setdefault(id(self), self)

    def product(self, x: torch.Tensor, name: str, first: bool | None) -> torch.Tensor:
        found: torch.Tensor = _Product.apply(x, getattr(self, name), self, first)  # type: ignore[no-untyped-call]
        return found

    def forward(self, x: torch.Tensor, first: bool | None) -> torch.Tensor:
        return self.product(x, "weight", first)

    def backward_dw(self, *arguments: Any, **named: Any) -> None:
        for _ in range(len(list(self.parameters()))):
            weight, compute = self.store.pop(0)
            weight.grad = compute()


def _quantizers(world: World, recipe: FakeRecipe, module: Any) -> dict[str, Any]:
    def quantise(self: Any, tensor: torch.Tensor) -> Quantised:
        assert self.rowwise_usage
        assert self.columnwise_usage
        return Quantised(recipe.ours)

    def set_usage(self: Any, *, rowwise: bool, columnwise: bool) -> None:
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    usual = {"__call__": quantise, "set_usage": set_usage, "rowwise_usage": True, "columnwise_usage": False}
    kind = type(QUANTIZER[recipe.name], (), usual)

    def made(role: str) -> Any:
        found = kind()
        if recipe.name == "NVFP4BlockScaling":
            rht = not recipe.values.get("disable_rht", False)
            found.with_rht = rht and role != "weight"
            found.stochastic_rounding = role == "gradient"
            found.with_2d_quantization = role == "weight"
            found.nvfp4_use_4over6 = role == recipe.values.get("nvfp4_4over6", "none").removesuffix("s")
        if recipe.values.get("enable_2d_quantization"):
            found.with_2d_quantization = role == "weight"
        for name, value in world.lies.items():
            setattr(found, name, value)
        return found

    groups = getattr(module, "groups", 1)
    forward = [made("input"), made("weight"), made("input")] * groups
    return {"scaling_fwd": forward, "scaling_bwd": [made("gradient")] * (2 * groups)}


def fake_api(tag: str, world: World) -> Api:
    """The tag's API. TypeError at a call that its signature does not take."""
    made = _Maker(tag, world)
    pytorch = SimpleNamespace(
        cpp_extensions=SimpleNamespace(general_gemm=made.general_gemm()),
        module=SimpleNamespace(base=SimpleNamespace(get_workspace=lambda: torch.empty(1))),
        Linear=made.linear("pytorch.Linear"),
        GroupedLinear=made.grouped(),
        TransformerLayer=made.layer(),
        RotaryPositionEmbedding=made.rotary(),
        optimizers=SimpleNamespace(FusedAdam=made.adam()),
    )
    vars(pytorch).update(step_parts(made, _Holder))
    for name, key in (("autocast", "recipe"), ("fp8_autocast", "fp8_recipe")):
        if f"pytorch.{name}" in signatures(tag):
            setattr(pytorch, name, made.autocast(f"pytorch.{name}", key))
    recipes = {name: made.recipe(f"common.recipe.{name}", name) for name in QUANTIZER}
    recipes |= {"Format": SimpleNamespace(**{name: name for name in ("E2M1", "E4M3", "HYBRID")})}
    recipes |= {"MMParams": lambda use_split_accumulator: use_split_accumulator}
    return api_of(f"{tag.removeprefix('v')}.0+fake", pytorch, SimpleNamespace(**recipes), made.manager())


def listed_calls() -> dict[str, set[str]]:
    """The parameters that each call may name: what the backend says that it needs, and the fields of recipes."""
    rows = {f"common.recipe.{RECIPES[name].te_class}": call for name, call in CALLS.items() if call}
    fields = {symbol: {*call.fields, *call.later} for symbol, call in rows.items()}
    return {symbol: set(names) for symbol, names in NEEDS.items()} | fields


def fakes(tag: str = "v2.20", **engine: Any) -> tuple[World, Api, FakeEngine]:
    """A made-up GPU in its world, the tag's API on it and its engine."""
    world = World(tag, FakeGpu())
    return world, fake_api(tag, world), FakeEngine(world.gpu, world=world, **engine)


@dataclass
class _Maker:
    tag: str
    world: World

    def named(self, symbol: str, function: Callable[..., Any], method: bool = False) -> Callable[..., Any]:
        """Tells the tag's signature to whoever asks."""
        found = signatures(self.tag)[symbol]
        if method:
            self_ = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
            found = found.replace(parameters=[self_, *found.parameters.values()])
        function.__signature__ = found  # type: ignore[attr-defined]
        return function

    def cls(self, symbol: str, base: type, **methods: Callable[..., Any]) -> Any:
        """A class with the tag's constructor and methods."""
        told = {name: self.named(f"{symbol}.{name}", function, method=True) for name, function in methods.items()}
        made = type(symbol.rsplit(".", 1)[-1], (base,), told)
        made.__signature__ = signatures(self.tag)[symbol]  # type: ignore[attr-defined]
        return made

    def linear(self, symbol: str) -> Any:
        world = self.world
        methods: dict[str, Any] = {}

        class Base(_Holder):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                given = world.bind(symbol, *arguments, **named)
                size = (given["out_features"], given["in_features"])
                fused = given.get("fuse_wgrad_accumulation", False)
                super().__init__(world, [size], given.get("delay_wgrad_compute", False), fused)

        def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
            given = world.bind(f"{symbol}.forward", *arguments, **named)
            found: torch.Tensor = self.product(given["inp"], "weight", given.get("is_first_microbatch"))
            return found

        methods["forward"] = forward
        if f"{symbol}.backward_dw" in signatures(self.tag):
            methods["backward_dw"] = lambda self: _Holder.backward_dw(self)
        return self.cls(symbol, Base, **methods)

    def grouped(self) -> Any:
        world, symbol = self.world, "pytorch.GroupedLinear"

        class Base(_Holder):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                given = world.bind(symbol, *arguments, **named)
                size = (given["out_features"], given["in_features"])
                fused = given.get("fuse_wgrad_accumulation", False)
                super().__init__(world, [size] * given["num_gemms"], given.get("delay_wgrad_compute", False), fused)
                self._offsets = {"input": 0, "weight": 1, "output": 2, "grad_output": 0, "grad_input": 1}
                self.groups = given["num_gemms"]

        def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
            given = world.bind(f"{symbol}.forward", *arguments, **named)
            if self.groups > world.most_experts:
                raise RuntimeError(
                    f"hadamard.cu:408: Assertion failed: {self.groups} tensors, at most {world.most_experts}"
                )
            parts = given["inp"].split(given["m_splits"])
            first = given.get("is_first_microbatch")
            return torch.cat([self.product(part, f"weight{index}", first) for index, part in enumerate(parts)])

        return self.cls(symbol, Base, forward=forward, backward_dw=lambda self: _Holder.backward_dw(self))

    def layer(self) -> Any:
        world, symbol = self.world, "pytorch.TransformerLayer"

        class Mlp(_Holder):
            def __init__(self, given: Mapping[str, Any]) -> None:
                inner, hidden = given["ffn_hidden_size"], given["hidden_size"]
                wide = 2 * inner if given["activation"] == "swiglu" else inner
                fused = given.get("fuse_wgrad_accumulation", False)
                super().__init__(world, [(wide, hidden), (hidden, inner)], fused=fused)
                self.inner = inner
                self.norm = torch.nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))

            def forward(self, x: torch.Tensor, first: bool | None) -> tuple[torch.Tensor, None]:
                found = torch.tanh(self.product(x * self.norm, "weight0", first)[..., : self.inner])
                return self.product(found, "weight1", first), None

        class Base(torch.nn.Module):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                given = world.bind(symbol, *arguments, **named)
                super().__init__()
                if given["layer_number"] > world.most_layers:
                    raise torch.OutOfMemoryError(f"CUDA out of memory at layer {given['layer_number']}")
                self.self_attention, self.layernorm_mlp = Attention(world, _Holder, given), Mlp(given)

        def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
            given = world.bind(f"{symbol}.forward", *arguments, **named)
            first = given.get("is_first_microbatch")
            x = given["hidden_states"]
            x = x + self.self_attention(x, first=first)[0]
            found: torch.Tensor = x + self.layernorm_mlp(x, first)[0]
            return found

        return self.cls(symbol, Base, forward=forward)

    def rotary(self) -> Any:
        world, symbol = self.world, "pytorch.RotaryPositionEmbedding"

        class Base(torch.nn.Module):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__()
                self.dim = world.bind(symbol, *arguments, **named)["dim"]

        def forward(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
            return torch.zeros(world.bind(f"{symbol}.forward", *arguments, **named)["max_seq_len"], 1, 1, self.dim)

        return self.cls(symbol, Base, forward=forward)

    def adam(self) -> Any:
        world, symbol = self.world, "pytorch.optimizers.FusedAdam"

        class Base:
            def __init__(self, *arguments: Any, **named: Any) -> None:
                given = world.bind(symbol, *arguments, **named)
                self.weights, self.rate, self.taken = list(given["params"]), given["lr"], 0
                self.read = "decoupled_grad" if given.get("use_decoupled_grad") else "grad"
                self.moments = [(torch.zeros_like(w).float(), torch.zeros_like(w).float()) for w in self.weights]
                self.masters = [weight.detach().float() for weight in self.weights]

            def update(self) -> None:
                """Adam by hand: torch.optim's import alone takes longer than all of these tests."""
                self.taken += 1
                states = zip(self.weights, self.masters, self.moments, strict=True)
                for weight, master, (first, second) in states:
                    found = getattr(weight, self.read, None)
                    if found is None:
                        continue
                    gradient = found.float()
                    first.lerp_(gradient, 0.1)
                    second.lerp_(gradient.square(), 0.001)
                    down = second.div(1 - 0.999**self.taken).sqrt_().add_(1e-8)
                    master.addcdiv_(first, down, value=-self.rate / (1 - 0.9**self.taken))
                    weight.detach().copy_(master)

        def step(self: Any, *arguments: Any, **named: Any) -> None:
            world.bind(f"{symbol}.step", *arguments, **named)
            world.gpu.kernel(*ADAM)
            self.update()

        return self.cls(symbol, Base, step=step)

    def recipe(self, symbol: str, name: str) -> Any:
        def make(*arguments: Any, **named: Any) -> FakeRecipe:
            return FakeRecipe(name, self.world.bind(symbol, *arguments, **named))

        return self.named(symbol, make)

    def autocast(self, symbol: str, key: str) -> Any:
        world = self.world

        @contextmanager
        def enter(*arguments: Any, **named: Any) -> Iterator[None]:
            given = world.bind(symbol, *arguments, **named)
            world.autocasts.append(given.get(key) if given.get("enabled", True) else None)
            yield
            world.autocasts.pop()
            if not world.autocasts and not world.frozen:
                _update(world.pending)

        return self.named(symbol, enter)

    def general_gemm(self) -> Any:
        world, symbol = self.world, "pytorch.cpp_extensions.general_gemm"

        def call(*arguments: Any, **named: Any) -> tuple[Any, ...]:
            given = world.bind(symbol, *arguments, **named)
            recipe = given["A"].recipe if isinstance(given["A"], Quantised) else None
            name, microseconds = GEMM[recipe]
            world.gpu.kernel(name, microseconds * world.own_call_slower)
            if recipe is not None or not isinstance(given["A"], torch.Tensor):
                return None, None, None, None
            a, b = given["A"].float(), given["B"].float()
            product = {"TN": lambda: b @ a.t(), "NN": lambda: b @ a, "NT": lambda: b.t() @ a}[given["layout"]]
            return product().to(given["out_dtype"]), None, None, None

        return self.named(symbol, call)

    def manager(self) -> Any:
        world = self.world

        class Manager:
            global_amax_buffer: ClassVar[dict[str, Any]] = {}

            @classmethod
            def reset(cls) -> None:
                cls.global_amax_buffer = {}

            @classmethod
            def is_fp8_available(cls) -> tuple[bool, str]:
                return True, ""

            @classmethod
            def is_nvfp4_available(cls) -> tuple[bool, str]:
                return False, "Device compute capability 10.0 or higher required for NVFP4 execution."

        assert world.tag == self.tag
        return Manager


def _update(pending: dict[int, Any]) -> None:
    """Delayed scaling at the outermost autocast's end: scale from the greatest amax of the history, which moves on."""
    for module in pending.values():
        state = module.fp8_meta["scaling_fwd"]
        greatest = state.amax_history.amax(0)
        state.scale.copy_(torch.where(greatest > 0, 448.0 / greatest.clamp(min=1e-9), state.scale))
        state.amax_history.copy_(torch.roll(state.amax_history, 1, 0))
    pending.clear()
