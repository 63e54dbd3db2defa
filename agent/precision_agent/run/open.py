"""Opens the devices of a node: preflight and sensors first, before any context of our own, then a process a device."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from precision_agent.backends.factory import CLASSES, Opening
from precision_agent.backends.replay import Replay
from precision_agent.backends.replay_sensors import sensing as replayed_sensing
from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.power import nvml, preflight, sensor_sampling
from precision_agent.power.energy import Window
from precision_agent.power.sensing import SensorFacts
from precision_agent.protocol import Refusal
from precision_agent.run.trial import on_cpu
from precision_agent.sampling.calibrate import IDLE_SECONDS, idle_watts
from precision_agent.sampling.devices import Devices, LocalDevices, Stop
from precision_agent.sampling.process_pool import ProcessPool
from precision_api.exchange import exits
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure

BACKENDS = ("auto", "replay", "torch", "transformer-engine")
"""`auto` is Transformer Engine where it is installed and can be loaded and a GPU is measured, else torch."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to open. `gpu` is the UUID of one GPU to measure alone; None means all that the request names.

    `sensing`: sensors of these GPUs that run already. What health and idle power they had before any context of ours
    stays; asked again right after our own processes, the GPUs would look as if somebody else were on them.
    """

    backend: str = "auto"
    device: str = "auto"
    options: ReplayOptions = field(default_factory=ReplayOptions)
    gpu: str | None = None
    sensing: SensorFacts | None = None
    idle_seconds: float = IDLE_SECONDS
    places: Mapping[str, tuple[str, str]] = field(default_factory=lambda: CLASSES)


@dataclass(frozen=True, slots=True)
class Opened:
    """The devices and what is known of its sensors; `close` ends processes and sampling."""

    devices: Devices
    sensing: SensorFacts
    closers: tuple[Callable[[], object], ...] = ()
    notes: tuple[str, ...] = ()
    """What the result's reader must know, such as which backend could not be loaded."""

    def close(self) -> None:
        self.devices.close()
        for close in self.closers:
            close()


def open_node(wanted: Wanted, request: MeasurementRequest, stop: Stop) -> Opened:
    """The node's devices for this request; Refusal where a backend, a device or its health is not as needed."""
    if wanted.backend not in BACKENDS:
        raise Refusal(exits.INVALID_REQUEST, f"backend {wanted.backend!r}: known are {', '.join(BACKENDS)}")
    if wanted.device not in ("auto", "cuda", "cpu"):
        raise Refusal(exits.INVALID_REQUEST, f"device {wanted.device!r}: known are auto, cuda and cpu")
    if wanted.backend == "replay":
        gpus = [Replay(request, wanted.options, index) for index in range(request.node.gpus)]
        return Opened(LocalDevices(gpus, request.node.gpus), replayed_sensing(gpus))
    if on_cpu(wanted.device, request):
        opening = Opening(wanted.places["torch"], request, "cpu")
        return Opened(ProcessPool([opening], 1, stop), SensorFacts())
    return _on_gpus(wanted, request, stop)


def _on_gpus(wanted: Wanted, request: MeasurementRequest, stop: Stop) -> Opened:
    promised = 1 if wanted.gpu else request.node.gpus
    reading = nvml.read()
    if reading.failure and reading.failure.reason == "nvml_failed":  # there is a driver, and it says that a GPU is bad
        raise Refusal(exits.GPU_UNHEALTHY, f"nvml_failed: {reading.failure.message}"[:1000])
    if reading.failure or os.environ.get(VISIBLE) == "":
        # Without NVML no GPU is known by UUID: one device, whatever torch sees, and no energy.
        failure = reading.failure or Failure(reason="no_visible_gpu", message=f"{VISIBLE} is empty")
        devices, notes = _open_devices(wanted, request, [None], promised, stop)
        return Opened(devices, SensorFacts(failure=failure), notes=(*notes, *unproved(request, failure.message)))
    uuids = chosen([gpu.uuid for gpu in reading.gpus], os.environ.get(VISIBLE), wanted.gpu)
    if len(uuids) < promised:
        raise Refusal(exits.DEVICE_MISSING, f"the request names {promised} GPUs, NVML shows {len(uuids)}")
    hold_to_claim(uuids, request.node.gpu_uuids, promised)
    uuids = uuids[:promised]
    sensing, closers = (wanted.sensing, ()) if wanted.sensing else _looked_at(uuids, wanted.idle_seconds, stop)
    devices, notes = _open_devices(wanted, request, uuids, promised, stop)
    return Opened(devices, sensing, closers, notes)


def hold_to_claim(seen: Sequence[str], published: Sequence[str] | None, promised: int) -> None:
    """Refusal DevicesNotClaimed where NVML shows a GPU that the claim can't have brought; nothing without a claim.

    `published` are the GPUs that a claim on this node can get, of which it has got `promised`.
    """
    if published is None:
        return
    foreign = [uuid for uuid in seen if uuid not in published]
    if foreign:
        message = f"NVML shows {', '.join(foreign)}, which no claim on this node can get"
        raise Refusal(exits.DEVICES_NOT_CLAIMED, message[:1000])
    if len(seen) > promised:
        raise Refusal(exits.DEVICES_NOT_CLAIMED, f"the claim is for {promised} GPUs, NVML shows {len(seen)}")


def unproved(request: MeasurementRequest, why: str) -> tuple[str, ...]:
    """What to note where GPUs came by claim, and nothing tells which they are."""
    if request.node.gpu_uuids is None:
        return ()
    return (f"that these are the claimed GPUs could not be proved: {why}"[:1024],)


def _open_devices(
    wanted: Wanted, request: MeasurementRequest, uuids: Sequence[str | None], promised: int, stop: Stop
) -> tuple[Devices, tuple[str, ...]]:
    """A process a GPU, and what to note. Where `auto` finds a Transformer Engine that can't be loaded, torch's."""

    def pool_of(name: str) -> ProcessPool:
        openings = [Opening(wanted.places[name], request, "cuda", uuid) for uuid in uuids]
        return ProcessPool(openings, promised, stop)

    name = wanted.backend
    if name == "auto":  # looks without importing it
        name = "transformer-engine" if find_spec("transformer_engine") else "torch"
    devices = pool_of(name)
    if wanted.backend != "auto" or name == "torch":
        return devices, ()
    try:
        devices.machine()
    except Refusal as refusal:
        devices.close()  # its processes begin anew when the run asks: another refusal is told there
        if refusal.exit == exits.BACKEND_UNAVAILABLE and not stop():
            return pool_of("torch"), (f"measured by torch-cuda: {refusal.message}"[:1024],)
    return devices, ()


def chosen(uuids: Sequence[str], visible: str | None, gpu: str | None) -> list[str]:
    """The GPUs to measure: those that CUDA may see, or the one that is named by its UUID or its beginning."""
    seen = list(uuids)
    if visible is not None:
        entries = [entry.strip() for entry in visible.split(",") if entry.strip()]
        seen = [uuid for uuid in (_one(seen, entry) for entry in entries) if uuid]
    if gpu is None:
        return seen
    named = _one(seen, gpu)
    if named is None:
        raise Refusal(exits.DEVICE_MISSING, f"no GPU {gpu!r}: there are {', '.join(seen) or 'none'}")
    return [named]


def _one(uuids: Sequence[str], entry: str) -> str | None:
    """A GPU by UUID, by a UUID's beginning, or by its number in the driver's order."""
    if entry.isdigit():
        return uuids[int(entry)] if int(entry) < len(uuids) else None
    return next((uuid for uuid in uuids if uuid.startswith(entry)), None)


def _looked_at(
    uuids: Sequence[str], idle_seconds: float, stop: Stop
) -> tuple[SensorFacts, tuple[Callable[[], object], ...]]:
    """A running sampler, and the idle power while nothing of ours is on the GPUs; Refusal where one is not healthy."""
    health = preflight.read_health(uuids)
    refused = preflight.refusal(health)
    if refused:
        raise Refusal(*refused)
    modules = {gpu.uuid: gpu.module for gpu in health if gpu.module}
    folder = Path(tempfile.mkdtemp(prefix="precision-agent-"))

    def clean() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    sampler = sensor_sampling.start(uuids, folder)
    if isinstance(sampler, Failure):
        clean()
        return SensorFacts(failure=sampler, health=health, modules=modules), ()
    start = time.monotonic()
    while time.monotonic() < start + idle_seconds and not stop():
        time.sleep(0.1)
    idle = idle_watts(sampler.recordings().gpus, modules, Window(start, time.monotonic())) if idle_seconds else {}
    facts = SensorFacts(sensors=sampler, idle_watts=idle, health=health, modules=modules, began=start, warms_up=True)
    return facts, (sampler.stop, clean)
