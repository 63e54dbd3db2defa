"""Builds the cluster's programs from their pinned Go modules into a folder of the user's cache."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from precision_lab.builds.programs import Module
from precision_lab.builds.toolchain import find_go
from precision_lab.processes.locks import locked
from precision_lab.processes.supervisor import die_with

SAY_EVERY_SECONDS = 20.0
SCRATCH = ".building-"
Say = Callable[[str], None]


class BuildFailed(Exception):
    """`go build` ended with an error; the message holds the end of what it said."""


def say(text: str) -> None:
    """One line of progress, on stderr: stdout belongs to what the command prints."""
    print(f"precision-lab: {text}", file=sys.stderr, flush=True)


def build(modules: Sequence[Module], cache: Path) -> None:
    """Make every module's folder `<cache>/bin/<key>`; a second process waits for the first and then has nothing to do.

    An interrupted build leaves no half folder, and Go's own cache keeps what was compiled: the next call goes on there.
    Raises BuildFailed, NoToolchain.
    """
    cache.mkdir(parents=True, exist_ok=True)
    if not missing(modules, cache):
        return
    with locked(cache / "build.lock", lambda: say("another process builds the cluster's programs: waiting for it")):
        todo = missing(modules, cache)
        if not todo:
            return
        go = find_go(cache, todo[0].folder)
        say(announcement(todo, go))
        for leftover in (cache / "bin").glob(f"{SCRATCH}*"):  # of a build that was killed; ours is the lock
            shutil.rmtree(leftover)
        for number, module in enumerate(todo, 1):
            _build_one(go, module, cache, f"[{number}/{len(todo)}]")


def announcement(todo: Sequence[Module], go: Path) -> str:
    """What people should know before they wait."""
    minutes = max(1, round(sum(module.cold_seconds for module in todo) / 60))
    names = ", ".join(module.name for module in todo)
    return (
        f"building {names} with {go}: the first build takes about {minutes} min on 2 cores, later ones take seconds; "
        "interrupted, it goes on where it was"
    )


def missing(modules: Sequence[Module], cache: Path) -> list[Module]:
    """Those of `modules` that `cache` does not hold yet."""
    return [module for module in modules if not folder_of(module, cache).is_dir()]


def folder_of(module: Module, cache: Path) -> Path:
    """Where the programs of this exact version of the module lie; there whole or not at all."""
    return cache / "bin" / module.key()


def _build_one(go: Path, module: Module, cache: Path, prefix: str) -> None:
    target = folder_of(module, cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    what = f"{prefix} {', '.join(module.program_names)}"
    say(f"{what}: building")
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=target.parent) as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        _go_build(go, module, out, what)
        os.replace(out, target)
    say(f"{prefix} {module.name}: done after {time.monotonic() - began:.0f} s")


def _go_build(go: Path, module: Module, out: Path, what: str) -> None:
    """One `go build` for all programs of a module: they share nearly all packages, and linking goes side by side.

    A single program is named by us: Go would call it by its package's folder (etcd: `server`).
    """
    packages = [package for _, package in module.programs]
    output = out / module.program_names[0] if len(packages) == 1 else out
    command = [str(go), "build", "-buildvcs=false", *module.flags(), "-o", str(output), *packages]
    environment = {**os.environ, "CGO_ENABLED": str(int(module.cgo)), "GOWORK": "off"}
    with tempfile.TemporaryFile("w+") as log, _running(command, module.folder, environment, log.fileno()) as process:
        _wait(process, what)
        if process.returncode != 0:
            log.seek(0)
            raise BuildFailed(
                f"Building {what} failed (go build ended with {process.returncode}): {log.read()[-2000:].strip()}\n"
                "Run the same command again: what was built is kept. Go needs its module proxy (GOPROXY) to be reached."
            )


@contextmanager
def _running(command: list[str], folder: Path, settings: dict[str, str], log: int) -> Iterator[subprocess.Popen[bytes]]:
    """The compiler as a child that never outlives this block, whatever ends it."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=settings,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with(os.getpid()),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], what: str) -> None:
    began = time.monotonic()
    while True:
        try:
            process.wait(SAY_EVERY_SECONDS)
            return
        except subprocess.TimeoutExpired:
            say(f"{what}: building since {time.monotonic() - began:.0f} s")
