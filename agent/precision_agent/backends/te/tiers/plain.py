"""A forward GEMM as NVIDIA's benchmark_gemm.py times it (Transformer Engine 2.19+): for comparison, never exported.

One pair of events around all calls, a large product before the first event so that launches are ahead of the GPU;
BF16 is a bare matmul, another code path than the recipes' linear layer. No rotation, no check of numbers.
"""

from collections.abc import Callable

import torch

from precision_agent.backends.te.api import Api, Owner
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE
from precision_agent.backends.te.tiers import prequantized
from precision_agent.cases import GemmCase
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import Recipe

LEAD = 4096
"""Size of the square product before the first event."""


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
        alone = prequantized.product(api, engine.device, recipe, case.m, case.k, case.n)
        first = prequantized.product(api, engine.device, recipe, lead, lead, lead)
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


def _timed(
    engine: Engine, call: Callable[[], object], leading: Callable[[], object], warmups: int, calls: int
) -> float:
    for _ in range(warmups):
        call()
    engine.synchronize()
    leading()
    first = engine.mark()
    for _ in range(calls):
        call()
    second = engine.mark()
    engine.synchronize()
    return engine.seconds(first, second) / calls
