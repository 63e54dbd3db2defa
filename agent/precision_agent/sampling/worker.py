"""The process of one device: makes one call after the other, and ends after a CUDA error, which poisons its context.

`python -m precision_agent.sampling.worker FD`, spoken to over that file descriptor in pickled frames. Its stdout is
stderr: the agent's stdout ends with the lines of the result, and libraries print.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from precision_agent.backends.factory import Opening, build
from precision_agent.protocol import Backend, Refusal
from precision_api.exchange.result import FATAL, Failure


def main(descriptor: int) -> int:
    """Serves until the other end closes or the context is poisoned."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a pod's SIGTERM reaches all its processes: the parent decides
    with Connection(descriptor) as wire:
        opening: Opening = wire.recv()
        backend = _built(opening)
        wire.send(backend if isinstance(backend, Refusal | Failure) else None)
        return 1 if isinstance(backend, Refusal | Failure) else _serve(backend, wire)


def _built(opening: Opening) -> Backend | Refusal | Failure:
    try:
        return build(opening)
    except Refusal as refusal:
        return refusal
    except Exception as error:
        return failure_of(error, "opening the device")


def _serve(backend: Backend, wire: Connection) -> int:
    while True:
        try:
            method, arguments = wire.recv()
        except EOFError:
            return 0
        answer = _answer(backend, method, arguments)
        wire.send(answer)
        if isinstance(answer, Failure) and answer.reason in FATAL:
            return 1


def _answer(backend: Backend, method: str, arguments: tuple[Any, ...]) -> Any:
    if method == "name":
        return backend.name
    try:
        return getattr(backend, method)(*arguments)
    except Refusal as refusal:
        return refusal
    except Exception as error:
        return failure_of(error, method)


def failure_of(error: BaseException, what: str) -> Failure:
    """The exception as a named failure: out of memory, a CUDA error, or another one."""
    text = f"{type(error).__name__}: {error}"
    low = text.lower()
    if isinstance(error, MemoryError) or "out of memory" in low or "can't allocate memory" in low:
        reason = "out_of_memory"
    elif "cuda error" in low or "cublas_status" in low or "cudnn_status" in low or "acceleratorerror" in low:
        reason = "cuda_error"
    else:
        reason = "failed"
    return Failure(reason=reason, message=f"{what}: {text}"[:1000])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
