"""A forward GEMM as NVIDIA's benchmark_gemm.py times it (Transformer Engine 2.19+): for comparison, never exported.

One pair of events around all calls, a large product before the first event so that launches are ahead of the GPU; BF16
is a bare matmul, another code path than the recipes' linear layer. No rotation, no check of numbers.

With operands that are quantised already, they are (k, m) and (k, n), both quantised once, and one layout (NT) stands
for all shapes; what reorders scales for the product is within the time. Transformer Engine's `general_gemm` is called
in the place of `tex.generic_gemm` below it, whose arguments differ by version. Block scaling multiplies a tensor scaled
by rows of 128 with one scaled by squares: the tool takes squares for both, which cuBLAS refuses.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import unavailable
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE
from precision_agent.backends.te.steps.recipes import CALLS
from precision_agent.cases import GemmCase
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import RECIPES, Recipe

LEAD = 4096
"""Size of the square product before the first event."""
WORKSPACE_BYTES = 32 << 20
"""For versions whose call takes one (2.8 and 2.9); the tool's."""


def plain(
    api: Api, engine: Engine, case: GemmCase, recipe: Recipe, warmups: int, calls: int, lead: int = LEAD
) -> float | Failure:
    """Mean seconds of a call; a Failure where this version or recipe has none."""
    if case.groups > 1:
        return Failure(reason="not_available", message=f"{case.name}: NVIDIA's tool has no grouped GEMMs")
    if recipe == "bf16":
        a, b = _normal(engine, case.m, case.k), _normal(engine, case.k, case.n)
        big = _normal(engine, lead, lead)
        return _timed(engine, lambda: torch.matmul(a, b), lambda: torch.matmul(big, big), warmups, calls)
    if case.mode == "prequantized":
        alone = prequantized_product(api, engine.device, recipe, case.m, case.k, case.n)
        first = prequantized_product(api, engine.device, recipe, lead, lead, lead)
        if isinstance(alone, Failure):
            return alone
        return first if isinstance(first, Failure) else _timed(engine, alone, first, warmups, calls)
    with Owner(api).present():
        module, before = (
            api.pytorch.Linear(in_features=k, out_features=n, bias=False, params_dtype=DTYPE, device=engine.device)
            for k, n in ((case.k, case.n), (lead, lead))
        )
        x, big = _normal(engine, case.m, case.k), _normal(engine, lead, lead)
        with api.autocast(recipes.make(api, recipe)):
            return _timed(engine, lambda: module(x), lambda: before(big), warmups, calls)


def _normal(engine: Engine, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device=engine.device, dtype=DTYPE)


def _timed(engine: Engine, call: Callable[[], object], before: Callable[[], object], warmups: int, calls: int) -> float:
    for _ in range(warmups):
        call()
    engine.synchronize()
    before()
    first = engine.mark()
    for _ in range(calls):
        call()
    second = engine.mark()
    engine.synchronize()
    return engine.seconds(first, second) / calls


def prequantized_product(
    api: Api, device: torch.device, recipe: Recipe, m: int, k: int, n: int
) -> Callable[[], Any] | Failure:
    """A call that multiplies once, or why this version or recipe has none."""
    made_by = CALLS[recipe]
    if made_by is None or made_by.delayed:  # a delayed scale comes from earlier steps
        return Failure(reason="no_prequantized_mode", message=f"{recipe} has no scales without steps before")
    quantizer = getattr(api.pytorch, made_by.quantizer, None)
    multiply = getattr(getattr(api.pytorch, "cpp_extensions", None), "general_gemm", None)
    if quantizer is None or multiply is None:
        lacking = made_by.quantizer if quantizer is None else "general_gemm"
        return Failure(reason="not_available", message=f"Transformer Engine {api.version} exports no {lacking}")
    element = "kFloat4E2M1" if RECIPES[recipe].format == "fp4" else "kFloat8E4M3"
    element_type = getattr(importlib.import_module("transformer_engine_torch").DType, element)
    where = {"device": device} if "device" in inspect.signature(quantizer).parameters else {}
    workspace: dict[str, Any] = {}
    if "workspace" in inspect.signature(multiply).parameters:
        workspace["workspace"] = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    try:
        a, b = (
            quantizer(element_type, **where, **keyword).quantize(torch.randn(k, columns, device=device, dtype=DTYPE))
            for keyword, columns in zip(made_by.prequantized, (m, n), strict=True)
        )
        out = torch.empty(n, m, device=device, dtype=DTYPE)

        def call() -> Any:
            return multiply(a, b, out_dtype=DTYPE, layout="NT", out=out, **workspace)

        call()
    except Exception as error:
        return unavailable(recipe, error)
    return call
