"""`python -m tests.rehearsal build` and `... run`; docs/development/rehearsal.md tells how."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.rehearsal.build import NotBuilt, build
from tests.rehearsal.environment import GPUS, Rehearsal, environment, nvml_script

LIBRARY = Path("build/rehearsal")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    build_ = commands.add_parser("build", help="compile the CUDA runtime without a device")
    build_.add_argument("--cuda-include", type=Path, required=True, help="folder of CUDA's headers, 12.8 or newer")
    build_.add_argument("--out", type=Path, default=LIBRARY, help="where the libraries go (%(default)s)")
    run = commands.add_parser("run", help="run precision-agent on it, with this Python")
    run.add_argument("--library", type=Path, default=LIBRARY, help="what build wrote (%(default)s)")
    run.add_argument("--site", type=Path, help="folder with Transformer Engine, where this Python has none itself")
    run.add_argument("--compute", choices=tuple(GPUS), default="9.0", help="compute capability (%(default)s)")
    run.add_argument("--memory-gib", type=float, help="memory of the device, other than that of the GPU it is like")
    run.add_argument("--fail", default="", metavar="KERNEL", help="a kernel with this in its name breaks the context")
    run.add_argument("--calls", type=Path, help="timed windows and profiles are written there: tests.rehearsal.calls")
    run.add_argument("--no-kernels", action="store_true", help="the profiler's traces hold no kernels")
    run.add_argument("--module", default="precision_agent", help="what is run (%(default)s), for example pytest")
    run.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: arguments of precision-agent")
    return made


def rehearsal_of(asked: argparse.Namespace) -> Rehearsal:
    site = asked.site.resolve() if asked.site else None
    calls = asked.calls.resolve() if asked.calls else None
    return Rehearsal(
        asked.library.resolve(), site, asked.compute, asked.memory_gib, asked.fail, calls, asked.no_kernels
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where a compiler refuses or something is missing; `run` becomes the agent and never returns."""
    asked = parser().parse_args(arguments)
    if asked.command == "run":
        rehearsal = rehearsal_of(asked)
        lacking = rehearsal.missing()
        return _said(lacking) if lacking else become(rehearsal, asked.module, asked.arguments)
    try:
        build(asked.cuda_include.resolve(), asked.out.resolve())
    except NotBuilt as error:
        return _said(str(error))
    return 0


def _said(told: str) -> int:
    print(told, file=sys.stderr)
    return 1


def become(rehearsal: Rehearsal, module: str, arguments: Sequence[str]) -> NoReturn:
    """This process becomes the agent: signals and exit code are its own.

    NVML's script and the power are files in memory, which its children reach by its process number and which end with
    it.
    """
    script, power = os.memfd_create("nvml-script", 0), os.memfd_create("power", 0)
    os.write(script, nvml_script(rehearsal).encode())
    files = f"/proc/{os.getpid()}/fd"
    around = environment(rehearsal, f"{files}/{script}", f"{files}/{power}", os.environ)
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], around)


if __name__ == "__main__":
    sys.exit(main())
