"""Opens a backend by name; imports only the one that was asked for."""

from __future__ import annotations

from precision_agent.backends.protocol import Backend, Refusal
from precision_agent.backends.replay import Replay, ReplayOptions
from precision_api.exits import BACKEND_UNAVAILABLE, INVALID_REQUEST
from precision_api.request import MeasurementRequest

BACKENDS = ("replay", "torch")


def open_backend(name: str, request: MeasurementRequest, options: ReplayOptions, device: str) -> Backend:
    """The backend of this name for this request; Refusal where it or its device is not there."""
    if name == "replay":
        return Replay(request, options)
    if name != "torch":
        raise Refusal(INVALID_REQUEST, f"backend {name!r}: known are {', '.join(BACKENDS)}")
    try:
        from precision_agent.backends.torch_gemm import TorchGemm
    except ImportError as error:
        raise Refusal(BACKEND_UNAVAILABLE, f"importing torch: {error}"[:500]) from None
    return TorchGemm(request, device)
