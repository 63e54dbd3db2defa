"""A made-up GPU that counts microseconds, and the engine over it: a test knows what must come out."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from precision_agent.backends.te.session.engine import Peaks, Work
from precision_api.facts.recipes import RECIPES, Recipe
from tests.support.golden import beside

TABLES = beside(__file__)

GEMM = TABLES["gemm"]
GEMM |= {name: GEMM[row.variant_of] for name, row in RECIPES.items() if row.variant_of}
"""Kernel and microseconds of a GEMM by recipe; None is bf16."""
ERROR: dict[Recipe, float] = {
    "bf16": 0.002, "fp8_delayed": 0.04, "fp8_current": 0.04, "fp8_block": 0.04, "mxfp8": 0.04, "nvfp4": 0.16,
}  # fmt: skip
ERROR |= {name: ERROR[row.variant_of] for name, row in RECIPES.items() if row.variant_of}
"""Relative errors that the reference quantizers give."""
QUANTISE = ("void transformer_engine::cast_transpose_kernel<__nv_bfloat16, __nv_fp8_e4m3>(float*)", 1.0)
NORM = ("void transformer_engine::normalization::rmsnorm_fwd_kernel(float*)", 2.0)
BATCHED = ("nvjet_tst_128x128_64x6_1x2_h_bz_TNN", 3.0)
"""A product of attention that is not fused: BF16 in every recipe."""
ADAM = ("void multi_tensor_apply_kernel<adam_functor>(int)", 5.0)


@dataclass
class FakeGpu:
    """Microseconds of made-up work, and its trace while a profiler looks. Each launch takes no time on the CPU.

    All kernels of a graph carry the one launch of it: `graph` is its number while it is replayed, 0 else.
    """

    now: float = 0.0
    gap: float = 0.0
    events: list[dict[str, Any]] | None = None
    graph: int = 0

    def kernel(self, name: str, microseconds: float) -> None:
        """Runs a kernel after all others."""
        launched, self.now = self.now, self.now + self.gap
        if self.events is not None:
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched, "dur": 0.0}
            work = {"ph": "X", "cat": "kernel", "name": name, "ts": self.now, "dur": microseconds}
            number = self.graph or len(self.events) + 1
            events = (work,) if self.graph else (launch, work)
            self.events += [event | {"args": {"correlation": number}} for event in events]
        self.now += microseconds

    def replay(self, work: Work, told: bool) -> None:
        """Launches a graph; of one that is not `told` the profiler knows no launch."""
        self.graph = -1
        if self.events is not None and told:
            self.graph = len(self.events) + 1
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": self.now, "dur": 0.0}
            self.events.append(launch | {"args": {"correlation": self.graph}})
        work()
        self.graph = 0


@dataclass
class FakeEngine:
    """The made-up GPU as an engine. `capture_as`: ok, refused, or frozen (scales and rounding are baked in).

    Of every `untold` graphs the profiler misses the launch of one, of 0 none. So many profiles as `no_room_to_profile`
    says end in a lack of memory; a `blind` profiler sees no kernel. `profiles` were begun.
    """

    gpu: FakeGpu = field(default_factory=FakeGpu)
    capture_as: str = "ok"
    l2_bytes: int = 0
    memory_bytes: int = 1 << 40
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    world: Any = None
    released: int = 0
    no_room_to_profile: int = 0
    blind: bool = False
    untold: int = 0
    replays: int = 0
    profiles: int = 0
    _bytes: int = 0

    @contextmanager
    def stream(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None: ...

    def mark(self) -> float:
        return self.gpu.now

    def seconds(self, first: float, second: float) -> float:
        return (second - first) * 1e-6

    def capture(self, work: Work) -> Work:
        if self.capture_as == "refused":
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        work()
        captured = self._frozen(work) if self.capture_as == "frozen" else work

        def replay() -> None:
            self.replays += 1
            self.gpu.replay(captured, not self.untold or self.replays % self.untold != 0)

        return replay

    def _frozen(self, work: Work) -> Work:
        def replay() -> None:
            self.world.frozen = True
            try:
                work()
            finally:
                self.world.frozen = False

        return replay

    @contextmanager
    def annotate(self, name: str) -> Iterator[None]:
        start = self.gpu.now
        self.gpu.now += 1e-3
        yield
        self.gpu.now += 1e-3
        if self.gpu.events is not None:
            length = self.gpu.now - start - 5e-4  # what is launched next is outside
            span = {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": length}
            self.gpu.events.append(span)

    def profile(self, work: Work, keep: Path | None = None, lead: Work = lambda: None) -> Mapping[str, Any]:
        if self.no_room_to_profile:
            self.no_room_to_profile -= 1
            raise torch.OutOfMemoryError("CUDA out of memory: nothing left to profile in")
        self.profiles += 1
        lead()
        self.gpu.events = found = []
        work()
        self.gpu.events, trace = None, {"traceEvents": [] if self.blind else found}
        if keep is not None:
            keep.write_text(json.dumps(trace), encoding="utf-8")
        return trace

    def allocated_bytes(self) -> int:
        self._bytes += 100
        return self._bytes

    def peaks(self) -> Peaks:
        return Peaks(self._bytes + 1000, 2000)

    def forget_peaks(self) -> None: ...

    def release(self) -> None:
        self.released += 1
