"""What only arithmetic could answer, answered as by a healthy GPU; and where all figures come from: a rehearsal.

Installed by Python's start, so that it holds in every process of a rehearsal. Each row of PATCHES changes one module
right after it was loaded. Imports nothing of the agent itself: most processes need little of it.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.rehearsal.calls import backend_notes, profiler_notes
from tests.support.golden import beside

TABLES = beside(__file__)

PREFIX = "Rehearsal (no GPU), like "
"""How the device's name begins."""
SOURCE = "a rehearsal of the agent on a CUDA runtime without a device: no GPU was there"
SIMULATED = TABLES["simulated"]
"""Fields of the result that nobody measured, and what they were made up from."""


def torch_answers(torch: Any) -> None:
    """On the device all is finite (one answer, which mixes with any tensor) and nothing equal: scales move."""
    isfinite, equal = torch.isfinite, torch.equal
    torch.isfinite = lambda one: torch.ones((), dtype=torch.bool) if one.is_cuda else isfinite(one)
    torch.equal = lambda one, other: False if one.is_cuda else equal(one, other)


def torch_libraries(backends: Any) -> None:
    """The runtime finds cuBLAS, which torch alone keeps to itself; attention is not cuDNN's, which needs a device."""
    backends.enable_cudnn_sdp(False)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    for library in {word for word in maps if "/libcublasLt.so" in word}:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


def unfused_attention(module: Any) -> None:
    """cuDNN's attention needs a device: newer versions find that out, older ones (2.10) take it and end.

    The agent's `load` takes such a variable out of the environment, also where Transformer Engine is loaded already.
    """
    load = module.load

    def loaded() -> Any:
        os.environ.pop("NVTE_FUSED_ATTN", None)  # ours is not among those that the result says were taken out
        api = load()
        os.environ["NVTE_FUSED_ATTN"] = "0"
        return api

    module.load = loaded


def gemm_answers(module: Any) -> None:
    """Products are compared as ever; the errors that are told are the middle of the recipe's band, on a log scale."""
    from precision_agent.precision.verification import ERROR_BANDS

    compare, finite = module.Unit._errors, module._finite

    def errors(unit: Any) -> dict[str, float]:
        band = ERROR_BANDS[unit.recipe]
        return dict.fromkeys(compare(unit), (band.low * band.high) ** 0.5)

    def healthy(tensor: Any) -> bool:
        finite(tensor)
        return True

    module.Unit._errors, module._finite = errors, healthy


def product_answers(module: Any) -> None:
    """The product behind the prefix is found: recipes and peaks are those of the GPU that is named."""
    plain_name = module.plain_name
    module.plain_name = lambda label: plain_name(label.removeprefix(PREFIX))


def provenance_answers(module: Any) -> None:
    """Simulated, with what is."""
    from precision_api.exchange.result import Simulated

    measured = module.ProcessPool.provenance
    made_up = tuple(Simulated(field=name, assumption=told) for name, told in SIMULATED.items())

    def simulated(pool: Any) -> Any:
        return replace(measured(pool), kind="simulated", sources=(SOURCE,), simulated=made_up)

    module.ProcessPool.provenance = simulated


PATCHES: Mapping[str, Callable[[Any], None]] = {
    "torch": torch_answers,
    "torch.backends.cuda": torch_libraries,
    "precision_agent.backends.factory": backend_notes,
    "precision_agent.backends.profiler": profiler_notes,
    "precision_agent.backends.te.api": unfused_attention,
    "precision_agent.backends.te.tiers.gemm_tier": gemm_answers,
    "precision_agent.sampling.process_pool": provenance_answers,
    "precision_api.facts.products": product_answers,
}


class Finder(MetaPathFinder):
    """Finds the modules of PATCHES as ever, and has them changed once they are loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """None for all others."""
        patch = PATCHES.get(name)
        spec = PathFinder.find_spec(name, path, target) if patch else None
        if patch is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def install() -> None:
    sys.meta_path.insert(0, Finder())
