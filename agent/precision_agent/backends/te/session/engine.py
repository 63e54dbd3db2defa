"""The device under Transformer Engine: its stream, clock, CUDA graphs, profiler and memory; and what the device is."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import torch

from precision_agent import __version__
from precision_agent.backends.profiler import annotated, profiled
from precision_agent.backends.te.api import Api
from precision_agent.power import nvml
from precision_agent.protocol import Device
from precision_api.exchange.request import digest
from precision_api.exchange.result import Gpu, Software

Work = Callable[[], None]
Mark = Any
"""A moment in the order of the device's work."""
TOLD = ("NVTE_", "CUBLAS", "CUDNN", "NVIDIA_TF32", "PYTORCH_", "TORCH_", "CUDA_")
"""Prefixes of environment variables that change what is measured."""
MOST_VARIABLES = 64
UNSET = "unset before Transformer Engine was imported; it was "


def generator(device: torch.device, seed: int) -> torch.Generator:
    """For data: other random numbers than those from which Transformer Engine, seeded alike, draws its weights."""
    return torch.Generator(device=device).manual_seed(seed ^ 0x5EED)


class Engine(Protocol):
    """What the tiers need of a device. All work, also a graph's, is on one stream: captured and eager work agree."""

    @property
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    def l2_bytes(self) -> int:
        """Second-level cache."""

    @property
    def memory_bytes(self) -> int:
        """Memory of the device."""

    def stream(self) -> AbstractContextManager[None]:
        """All device work within is on the one stream."""

    def synchronize(self) -> None:
        """Returns when the device has nothing left to do."""

    def mark(self) -> Mark:
        """A mark after all that was launched so far."""

    def seconds(self, first: Mark, second: Mark) -> float:
        """Device seconds between two marks, both passed."""

    def capture(self, work: Work) -> Work:
        """`work` as a CUDA graph: the answer replays it. RuntimeError where it can't be captured."""

    def annotate(self, name: str) -> AbstractContextManager[None]:
        """A range of this name in the profiler's trace."""

    def profile(self, work: Work, keep: Path | None = None, lead: Work = lambda: None) -> Mapping[str, Any]:
        """The trace of `work`, in Chrome's format, `lead` right before it left out; a copy of it at `keep`."""

    def allocated_bytes(self) -> int:
        """What tensors take now."""

    def peaks(self) -> "Peaks":
        """The highest since `forget_peaks`."""

    def forget_peaks(self) -> None:
        """Peaks begin anew."""

    def release(self) -> None:
        """Memory that no tensor uses goes back to the device."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes of tensors, and of the allocator with what it keeps."""

    allocated: int
    reserved: int


class CudaEngine:
    """One NVIDIA GPU: the first that this process sees."""

    def __init__(self, index: int = 0) -> None:
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 64 << 20)
        self.memory_bytes = int(properties.total_memory)
        self._stream = torch.cuda.Stream(self.device)
        # One pool for all graphs: they never run at the same time, and each program reads nothing that an earlier one
        # left in memory that is free, so what one has freed the next may use.
        self._pool = torch.cuda.graph_pool_handle()
        self._refused: list[Any] = []
        """Graphs whose capture failed: the allocator may ask them once more which stream they were for."""

    @contextmanager
    def stream(self) -> Iterator[None]:
        """The backend's own stream: AccumulateGrad must run on the stream that is captured."""
        with torch.cuda.stream(self._stream):
            yield

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def mark(self) -> Mark:
        """An event on the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def seconds(self, first: Mark, second: Mark) -> float:
        return float(first.elapsed_time(second)) * 1e-3

    def capture(self, work: Work) -> Work:
        """The graph's replay. After a failed capture the stream is whole again, or the error is a CUDA error."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                work()
        except RuntimeError:
            self._refused.append(graph)
            self.synchronize()
            end_of_capture(self.device, self._pool)
            self._pool = torch.cuda.graph_pool_handle()
            raise
        self.synchronize()
        replay: Work = graph.replay
        return replay

    def annotate(self, name: str) -> AbstractContextManager[None]:
        """record_function's range."""
        return annotated(name)

    def profile(self, work: Work, keep: Path | None = None, lead: Work = lambda: None) -> Mapping[str, Any]:
        """By torch's profiler."""
        return profiled(work, self.synchronize, keep, lead)

    def allocated_bytes(self) -> int:
        """By the caching allocator."""
        return int(torch.cuda.memory_allocated(self.device))

    def peaks(self) -> Peaks:
        """Of the caching allocator."""
        allocated, reserved = torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)
        return Peaks(int(allocated), int(reserved))

    def forget_peaks(self) -> None:
        """Resets the allocator's."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def release(self) -> None:
        """Empties the allocator's cache."""
        torch.cuda.empty_cache()


def end_of_capture(device: torch.device, pool: Any) -> None:
    """Makes torch whole after a capture that CUDA refused.

    torch.cuda.graph's exit raises there before it tells the allocator and the generator that the capture is over: the
    next capture, the next `empty_cache` and the next random number would fail for it (torch's CUDAGraph::capture_end,
    2.2 to 2.10). Where torch has done it already, both calls do nothing.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    end = end or getattr(torch._C, "_cuda_endAllocateCurrentStreamToPool", None)
    if end is not None:
        with contextlib.suppress(RuntimeError):
            end(device.index, pool)
    generator = torch.cuda.default_generators[device.index]
    if hasattr(generator, "graphsafe_set_state"):
        with contextlib.suppress(RuntimeError):
            generator.graphsafe_set_state(generator.clone_state())


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What of the environment changes the figures, Transformer Engine's first, at most 64, cut at 256 letters; in place
    of the last how many more there are."""
    names = sorted((name for name in variables if name.startswith(TOLD)), key=lambda name: (TOLD[0] not in name, name))
    listed = names if len(names) <= MOST_VARIABLES else names[: MOST_VARIABLES - 1]
    left_out = {"left out": f"{len(names) - len(listed)} more variables"} if len(listed) < len(names) else {}
    return {name: variables[name][:256] for name in listed} | left_out


def cublas_version() -> dict[str, str]:
    """Of NVIDIA's wheel, where it is installed as such."""
    for suffix in ("", "-cu13", "-cu12"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return {"cublas": metadata.version(f"nvidia-cublas{suffix}")}
    return {}


def device_of(api: Api, product: str, uuid: str, memory_bytes: int, reading: nvml.GpuReadings) -> Device:
    """The device, with the versions that Transformer Engine tells. Without NVML's word on it, what CUDA says."""
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, **api.versions}
    stack = digest(versions | cublas_version(), 16)
    software = Software(agent=__version__, **versions, driver=reading.driver, stack_hash=stack)
    seen = next((gpu for gpu in reading.gpus if gpu.uuid.removeprefix("GPU-") == uuid), None)
    gpu = seen or Gpu(uuid=f"GPU-{uuid}"[:64], name=product[:128], memory_bytes=memory_bytes)
    unset = {name: f"{UNSET}{value}" for name, value in api.unset.items() if name not in os.environ}
    return Device(product[:64], software, gpu, environment({**os.environ, **unset}))
