"""NVIDIA's method with operands that are quantised before: one product, no cast, and why a version has none."""

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.steps.recipes import CALLS
from precision_agent.backends.te.tiers.plain import plain
from precision_agent.cases import GemmCase
from precision_api.exchange.result import Failure
from precision_api.facts.recipes import RECIPES, Recipe
from tests.support.te_device import FakeEngine, FakeGpu

pytestmark = pytest.mark.torch
CASE = GemmCase("qkv", "fprop", 64, 32, 96, 1, mode="prequantized")
MICROSECONDS = 7.0
SCALED = {recipe: call for recipe, call in CALLS.items() if call is not None and not call.delayed}


@dataclass
class Library:
    """Transformer Engine's quantizers and its GEMM call; writes down what was quantised and multiplied."""

    gpu: FakeGpu = field(default_factory=FakeGpu)
    quantised: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = field(default_factory=list)
    multiplied: list[dict[str, Any]] = field(default_factory=list)
    old: bool = False
    refuses: str = ""

    def api(self) -> Api:
        quantizers = {call.quantizer: self._quantizer(call.quantizer) for call in SCALED.values()}
        gemm = self._with_workspace if self.old else self._without
        pytorch = SimpleNamespace(cpp_extensions=SimpleNamespace(general_gemm=gemm), **quantizers)
        return Api("2.20.0", pytorch, None, None, "autocast", "recipe")

    def _quantizer(self, name: str) -> Any:
        if name == "Float8CurrentScalingQuantizer":  # the only one that asks where its scale lies

            def placed(kind: str, device: torch.device, **given: Any) -> Any:
                return self._made(name, kind, given)

            return placed

        def made(kind: str, **given: Any) -> Any:
            return self._made(name, kind, given)

        return made

    def _made(self, name: str, kind: str, given: dict[str, Any]) -> Any:
        def quantize(tensor: torch.Tensor) -> tuple[str, torch.Size]:
            self.quantised.append((name, kind, tuple(tensor.shape), given))
            return name, tensor.shape

        return SimpleNamespace(quantize=quantize)

    def _without(self, a: Any, b: Any, out_dtype: Any = None, layout: str = "TN", out: Any = None) -> None:
        self._multiplies(a, b, layout, out)

    def _with_workspace(
        self, a: Any, b: Any, workspace: torch.Tensor, out_dtype: Any = None, layout: str = "TN", out: Any = None
    ) -> None:
        assert workspace.numel() == 32 << 20
        self._multiplies(a, b, layout, out)

    def _multiplies(self, a: Any, b: Any, layout: str, out: torch.Tensor) -> None:
        if self.refuses:
            raise RuntimeError(self.refuses)
        self.gpu.now += MICROSECONDS
        self.multiplied.append({"a": a, "b": b, "layout": layout, "out": tuple(out.shape)})


@pytest.fixture(autouse=True)
def elements(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(kFloat8E4M3="E4M3", kFloat4E2M1="E2M1")
    monkeypatch.setitem(sys.modules, "transformer_engine_torch", SimpleNamespace(DType=kinds))


def timed(library: Library, recipe: Recipe, case: GemmCase = CASE) -> float | Failure:
    return plain(library.api(), FakeEngine(library.gpu), case, recipe, 2, 5, lead=16)


@pytest.mark.parametrize("recipe", SCALED)
@pytest.mark.parametrize("old", [False, True], ids=["2.10-on", "with-a-workspace"])
def test_operands_are_quantised_once_and_the_product_alone_is_timed(recipe: Recipe, old: bool) -> None:
    library = Library(old=old)
    assert timed(library, recipe) == pytest.approx(MICROSECONDS * 1e-6)
    assert [(who, what, size) for who, what, size, _ in library.quantised] == [
        (SCALED[recipe].quantizer, "E2M1" if RECIPES[recipe].format == "fp4" else "E4M3", size)
        for size in ((32, 64), (32, 96), (16, 16), (16, 16))
    ]
    assert (library.multiplied[0]["layout"], library.multiplied[0]["out"]) == ("NT", (96, 64))


def test_block_scaling_multiplies_rows_with_squares_and_what_lacks_is_named() -> None:
    library = Library()
    timed(library, "fp8_block")
    assert [given["block_scaling_dim"] for *_, given in library.quantised[:2]] == [1, 2]
    library = Library()
    api = library.api()
    del api.pytorch.NVFP4Quantizer
    found = plain(api, FakeEngine(library.gpu), CASE, "nvfp4", 2, 5, lead=16)
    assert "2.20.0 exports no NVFP4Quantizer" in found.message
    with pytest.raises(RuntimeError, match="illegal memory access"):
        timed(Library(refuses="CUDA error: an illegal memory access was encountered"), "mxfp8")


@pytest.mark.parametrize(
    ("recipe", "reason"), [("fp8_delayed", "no_prequantized_mode"), ("mxfp8", "not_available")], ids=["delayed", "said"]
)
def test_what_can_not_be_multiplied_is_a_reason(recipe: Recipe, reason: str) -> None:
    library = Library(refuses="gemm.cpp:1: Assertion failed: no such layout")
    assert timed(library, recipe).reason == reason
