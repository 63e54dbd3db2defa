"""A device for worker processes: real time, and a fault by recipe."""

import os
import signal
import time

from precision_agent.cases import Case, GemmCase, TrainingCase, Variant
from precision_agent.protocol import Device, Load, Part, Probe, Refusal, Sample
from precision_api.exchange.exits import BACKEND_UNAVAILABLE
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure, Gpu, Memory, Software, Verification
from tests.support.fake_backend import FakeBackend

PROBE = GemmCase("probe", "fprop", 64, 64, 64, 1, mode="autocast")


USABLE = Probe("ok", verification=Verification(verdict="emulated"))
"""Its runs measure, so that nothing may be assumed, and show no kernels that would verify."""


class WorkerBackend(FakeBackend):
    """`faults`: what happens when a case of that recipe is measured; `refuse`: when it is opened."""

    def __init__(
        self, request: MeasurementRequest, device: str, faults: dict[str, str] | None = None, refuse: str = ""
    ) -> None:
        super().__init__()
        self.real_time = device == "cuda"
        if refuse:
            raise Refusal(BACKEND_UNAVAILABLE, refuse)
        self.faults = faults or {}
        print("a library prints to stdout")

    def device(self) -> Device:
        uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpu = Gpu(uuid=uuid, name="NVIDIA H200", memory_bytes=150 * 10**9) if uuid.startswith("GPU-") else None
        environment = {"NVTE_EXAMPLE": "1"}
        return Device("H200" if gpu else "CPU", Software(agent="0.1.0", stack_hash="0123"), gpu, environment)

    def settle(self, variant: Variant, seconds: float, load: Load | None = None) -> Sample | Failure:
        return self.measure(PROBE, variant, seconds)

    def power_window(
        self, variant: Variant, part: Part, seconds: float, longest_pause_seconds: float, seed: int, calls: int = 1
    ) -> Sample | Failure:
        return self.measure(PROBE, variant, seconds)

    def probe(self, variant: Variant) -> Probe:
        return USABLE

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        self.fail(self.faults.get(variant.label, ""))
        start = time.monotonic()
        time.sleep(seconds if self.real_time else min(seconds, 0.002))
        each = 0.5 if variant.recipe == "nvfp4" else 1.0
        if not isinstance(case, TrainingCase):
            return Sample(each, 1, start, time.monotonic())
        regions = {"layers_forward": each / 3, "layers_backward": each * 2 / 3}
        return Sample(each, 1, start, time.monotonic(), regions, case.layers)  # type: ignore[arg-type]

    def fail(self, fault: str) -> None:
        if fault == "cuda_error":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if fault == "out_of_memory":
            raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if fault == "died":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hung":
            time.sleep(3600)

    def memory(self, variant: Variant) -> Memory:
        return Memory(process_peak_bytes=os.getpid(), allocated_peak_bytes=10**9 * len(variant.recipe))


class Brief(WorkerBackend):
    """In real time, but at most a tenth of a second at once."""

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        return super().measure(case, variant, min(seconds, 0.1))


class Unloadable(WorkerBackend):
    """Refuses as Transformer Engine does whose libraries are not there, without the seconds of importing torch."""

    def __init__(self, request: MeasurementRequest, device: str) -> None:
        super().__init__(request, device, refuse="loading Transformer Engine: OSError: libcudart.so.13: cannot open")


class ShortOfMemory(WorkerBackend):
    """Holds a micro batch of one; after a larger one the fake driver says for ever how busy the GPU was."""

    def __init__(self, request: MeasurementRequest, device: str) -> None:
        super().__init__(request, device)
        self.fits = (request.workload.micro_batch_size or 1) < 2

    def prepare(self, case: Case, variant: Variant) -> Failure | None:
        if self.fits or not isinstance(case, TrainingCase):
            return None
        with open(os.environ["FAKE_NVML_SCRIPT"], "a", encoding="utf-8") as script:
            script.write("utilisation 60\nmemory 150000000000 90000000000\n")
        return Failure(reason="out_of_memory", message="2 GiB")
