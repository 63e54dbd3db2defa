"""All devices of a node as one: each call goes to every device at once, and an answer comes back from each.

The next call is made when every device has answered the last one: that is the barrier which keeps them in step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from precision_agent.cases import Variant
from precision_agent.protocol import Backend, Device, Refusal, ResultProvenance
from precision_api.exchange.exits import DEVICE_MISSING
from precision_api.exchange.result import Backend as BackendName
from precision_api.exchange.result import Failure, Gpu, Software

Stop = Callable[[], Failure | None]
"""Why the run must end now, or None."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is measured: `devices` GPUs (or 1 CPU) computing at once. A CPU has no `gpus`."""

    product: str
    devices: int
    gpus: tuple[Gpu, ...]
    software: Software
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each device: its GPU's UUID, else its number."""
        return tuple(gpu.uuid for gpu in self.gpus) or tuple(f"device-{index}" for index in range(self.devices))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a method of `Backend`; `seconds` is what it is expected to take, for the deadline of a hung one."""

    method: str
    arguments: tuple[Any, ...] = ()
    seconds: float = 0.0
    variant: Variant | None = None
    """Whose call it is: after a fatal failure the variant is not tried again on that device."""


class Devices(Protocol):
    """The devices of a node. An answer is what the method returns, or a Failure: never an exception."""

    @property
    def name(self) -> BackendName:
        """Which backend, as the result names it."""

    def machine(self) -> Machine:
        """The devices and the software; raises Refusal where they are not what the request promised."""

    def provenance(self) -> ResultProvenance:
        """Where the figures of this run come from; asked after the last sample."""

    def all(self, call: Call) -> tuple[Any, ...]:
        """The same call for every device at once; an answer of each, in the order of `Machine.names`."""

    def spread(self, calls: Sequence[Call]) -> tuple[Any, ...]:
        """Calls that one device each is enough for, spread over all of them; an answer to each."""

    def close(self) -> None:
        """Ends what was begun."""


def machine_of(devices: Sequence[Device], promised: int) -> Machine:
    """The node that these devices make up; Refusal where they are fewer than promised or differ."""
    first = devices[0]
    if first.gpu is not None and len(devices) < promised:
        raise Refusal(DEVICE_MISSING, f"the request names {promised} GPUs, the backend sees {len(devices)}")
    odd = [device.product for device in devices if device.product != first.product]
    if odd:
        raise Refusal(DEVICE_MISSING, f"the GPUs of this node differ: {first.product} and {odd[0]}")
    gpus = tuple(device.gpu for device in devices if device.gpu)
    return Machine(first.product, len(devices), gpus, first.software, first.environment)


class LocalDevices:
    """Devices in this process, one after the other: for backends whose clock is not the machine's."""

    def __init__(self, backends: Sequence[Backend], promised: int = 1) -> None:
        self._backends = tuple(backends)
        self._promised = promised

    @property
    def name(self) -> BackendName:
        return self._backends[0].name

    def machine(self) -> Machine:
        """What the backends say of themselves."""
        return machine_of([backend.device() for backend in self._backends], self._promised)

    def provenance(self) -> ResultProvenance:
        """The first device's: all play from the same data."""
        return self._backends[0].provenance()

    def all(self, call: Call) -> tuple[Any, ...]:
        """Each device's answer."""
        return tuple(self._answer(index, call) for index in range(len(self._backends)))

    def spread(self, calls: Sequence[Call]) -> tuple[Any, ...]:
        """In turn on each device."""
        return tuple(self._answer(index % len(self._backends), call) for index, call in enumerate(calls))

    def close(self) -> None:
        """Nothing was begun."""

    def _answer(self, index: int, call: Call) -> Any:
        return getattr(self._backends[index], call.method)(*call.arguments)
