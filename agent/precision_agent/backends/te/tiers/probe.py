"""Does a recipe run here? One forward and backward pass in another process: a CUDA error would poison ours.

`python -m precision_agent.backends.te.tiers.probe FD` is asked for one recipe after the other over that file descriptor
and answers each with a JSON object. Loading everything once costs less than for each recipe. A crash or a CUDA error
ends that process, so it is nobody else's: what fails where others were tried before is tried once more in a fresh one,
and that answer counts.
"""

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, Protocol, cast

import torch

from precision_agent.backends.te.api import Api, Unusable, load
from precision_agent.backends.te.session.engine import CudaEngine, Engine
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import LinearShape, layer_plans, stack
from precision_agent.backends.te.tiers.core_probe import CORE_QUESTION, run_core
from precision_agent.backends.te.tiers.gemm_tier import Unit
from precision_agent.precision.kernel_grammars import KernelClass
from precision_agent.precision.kernels import classify, emulation_seen, share_by_class
from precision_agent.precision.verification import verdict
from precision_agent.protocol import Probe
from precision_api.exchange.result import KernelSeen, NumericErrors
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, PlainRecipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import WHOLE

SHAPE = LinearShape(512, 768, 1024)
"""Multiples of 128: every format takes them, and NVFP4's transform is the fused one."""
SMALL = ModelSpec(
    hidden_size=512,
    intermediate_size=1024,
    num_attention_heads=8,
    num_key_value_heads=4,
    num_hidden_layers=1,
    gated_mlp=True,
)
SEQUENCE = 256
TIMEOUT_SECONDS = 180.0
"""Loading torch and Transformer Engine from a cold disk takes a minute; the first kernels of a recipe some seconds."""
SHOWN = 24
COMMAND = (sys.executable, "-m", __name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a probe ended: 0 and the answer, the code of a process that died, or None where its time ran out."""

    code: int | None
    stdout: str
    stderr: str


def probe_of(recipe: PlainRecipe, ended: Ended) -> Probe:
    """What the end of its process says of a recipe: ok, emulated, unsupported, or probe_failed with the reason."""
    if ended.code is None:
        message = f"{recipe}: no end of the probe within {TIMEOUT_SECONDS:g} s: its process was killed"
        return Probe("probe_failed", message)
    document = _last_object(ended.stdout)
    if document is None:
        last = " ".join(ended.stderr.split())[-300:] or "nothing on its stderr"
        return Probe("probe_failed", f"{recipe}: the probe's process ended with code {ended.code}: {last}"[:1000])
    if "refused" in document:
        return Probe("unsupported", f"{recipe}: {document['refused']}"[:1000])
    if "error" in document:
        return Probe("probe_failed", f"{recipe}: {document['error']}"[:1000])
    return _judged(recipe, document)


def _judged(recipe: PlainRecipe, answer: dict[str, Any]) -> Probe:
    rows = [(str(name), float(seconds)) for name, seconds in answer["kernels"]]
    shares: dict[KernelClass, float] = share_by_class(rows)
    errors = NumericErrors(**answer["errors"])
    relative = [error for error in (errors.y, errors.dx, errors.dw) if error is not None]
    verification = verdict(recipe, shares, emulation_seen(name for name, _ in rows), relative)
    longest = ((classify(name), seconds) for name, seconds in sorted(rows, key=lambda row: -row[1])[:SHOWN])
    seen = tuple(
        KernelSeen(name=row.name[:1024], class_=row.kernel_class, rule=row.rule, seconds=seconds)
        for row, seconds in longest
    )
    verification = verification.model_copy(update={"kernels": seen, "flags": answer.get("flags", {}), "errors": errors})
    return Probe("emulated" if verification.verdict == "emulated" else "ok", verification.message, verification)


def _last_object(stdout: str) -> dict[str, Any] | None:
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                document = json.loads(line)
            except ValueError:
                continue
            return document if isinstance(document, dict) else None
    return None


def run(api: Api, engine: Engine, recipe: PlainRecipe, shape: LinearShape = SHAPE) -> dict[str, Any]:
    """One linear layer and one transformer layer, forward and backward: kernels, errors, flags; or the error.

    What Transformer Engine says that it has not is not tried.
    """
    try:
        available, reason = recipes.hint(api, recipe)
        if not available:
            return {"refused": reason}
        with engine.stream(), recipes.variables(recipe):
            return _run(api, engine, recipe, shape)
    except Exception as error:  # whatever Transformer Engine raises is what the probe is for
        return {"error": f"{type(error).__name__}: {error}"[:800]}


def _run(api: Api, engine: Engine, recipe: PlainRecipe, shape: LinearShape) -> dict[str, Any]:
    unit = Unit(api, engine, shape, recipe, accumulation=1, seed=0)
    kernels = unit.kernels()
    plans = layer_plans(SMALL, WHOLE, Trial(1), SEQUENCE)
    made = stack(api, plans, Parts.of(recipe), engine.device)
    x = torch.randn(SEQUENCE, 1, SMALL.hidden_size, device=engine.device, dtype=torch.bfloat16, requires_grad=True)
    y = made.forward(x, None)
    y.backward(torch.randn_like(y))
    engine.synchronize()
    assert x.grad is not None
    if not bool(torch.isfinite(x.grad).all()):
        return {"error": "the transformer layer's gradients are not finite"}
    errors = unit.checked()
    return {
        "kernels": [[kernel.name, kernel.seconds] for kernel in kernels],
        "errors": errors.model_dump(),
        "flags": recipes.flags_of(unit.modules[0]),
        "te": api.version,
    }


def serve(wire: Connection, tried: Callable[[str], dict[str, Any]]) -> None:
    """Answers until the other end closes."""
    while True:
        try:
            asked = wire.recv_bytes().decode()
        except EOFError:
            return
        valid = asked in RECIPE_NAMES or asked.startswith(CORE_QUESTION)
        document = tried(asked) if valid else {"error": f"no recipe is called {asked[:40]}"}
        wire.send_bytes(json.dumps(document).encode())


def _runner() -> Callable[[str], dict[str, Any]]:
    try:
        api, engine = load(), CudaEngine()
    except Unusable as error:
        failure = {"error": str(error)}
        return lambda recipe: failure

    def tried(recipe: str) -> dict[str, Any]:
        gc.collect()  # of the recipe before: after this one the context may be worth nothing
        engine.release()
        return (
            run_core(api, engine, recipe)
            if recipe.startswith(CORE_QUESTION)
            else run(api, engine, cast(PlainRecipe, recipe))
        )

    return tried


def main(arguments: Sequence[str]) -> int:
    """The program: the file descriptor is the one argument."""
    if len(arguments) != 1 or not arguments[0].isdecimal():
        print("usage: probe FD, a socket on which recipes are asked for", file=sys.stderr)
        return 2
    os.dup2(2, 1)
    with Connection(int(arguments[0])) as wire:
        serve(wire, _runner())
    return 0


class Asks(Protocol):
    """Tries a recipe somewhere else."""

    def ask(self, recipe: str) -> Ended:
        """What came of it."""

    def end(self) -> None:
        """Gives back what it holds; asking begins anew."""


class Prober:
    """The process is begun by the first question and lives until `end`: it holds memory of the GPU.

    `timeout`: seconds after which a recipe counts as hung, loading everything among them.
    """

    def __init__(self, command: Sequence[str] = COMMAND, timeout: float = TIMEOUT_SECONDS) -> None:
        self._command, self.timeout = tuple(command), timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Connection | None = None
        self._told: IO[bytes] | None = None

    def ask(self, recipe: str) -> Ended:
        """The answer of a process in which nothing was broken before."""
        used = self._wire is not None
        ended = self._asked(recipe)
        if used and _broken(ended) and ended.code is not None:  # a hung one has taken its time already
            ended = self._asked(recipe)
        return ended

    def end(self) -> None:
        """Ends the process, whatever it does."""
        if self._wire:
            self._wire.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        if self._told:
            self._told.close()
        self._wire = self._process = self._told = None

    def _asked(self, recipe: str) -> Ended:
        wire = self._wire or self._begun()
        try:
            wire.send_bytes(recipe.encode())
            ended = Ended(0, wire.recv_bytes().decode(), "") if wire.poll(self.timeout) else Ended(None, "", "")
        except (EOFError, OSError):
            ended = self._died()
        if _broken(ended):
            self.end()
        return ended

    def _begun(self) -> Connection:
        ours, theirs = socket.socketpair()
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._told,
                stderr=self._told,
                pass_fds=[theirs.fileno()],
            )
        self._wire = Connection(ours.detach())
        return self._wire

    def _died(self) -> Ended:
        """How a process ended that closed its end, with what it said last."""
        assert self._process is not None
        assert self._told is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        code = self._process.wait()
        self._told.seek(0)
        return Ended(code, "", self._told.read().decode(errors="replace"))


def _broken(ended: Ended) -> bool:
    """Whether the process is gone, silent, or may have been spoiled by an error."""
    return ended.code != 0 or "error" in json.loads(ended.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
