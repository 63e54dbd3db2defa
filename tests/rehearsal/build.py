"""Compiles the CUDA runtime without a device, and NVML's stand-in with the load of that device."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support import fake_nvml

SOURCES = Path(__file__).with_name("src")
RUNTIME, DRIVER, NVML = "librehearsal.so", "libcuda.so.1", "libnvidia-ml.so.1"
LIBRARIES = (RUNTIME, DRIVER, NVML)
SHARED = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
COMPILER, C_COMPILER = "g++", "cc"


class NotBuilt(Exception):
    """A compiler is missing, or refused; the message is its own."""


def commands(include: Path, out: Path) -> tuple[tuple[str, ...], ...]:
    """The compilers' calls, in their order.

    The runtime is bound lazily: it calls cuBLAS's layouts, which torch brings along. libcuda is a name for it.
    """
    runtime = (COMPILER, "-std=c++17", *SHARED, f"-isystem{include}", "-Wl,-z,lazy", f"-Wl,-soname,{RUNTIME}")
    driver = (C_COMPILER, *SHARED, f"-Wl,-soname,{DRIVER}", "-Wl,--no-as-needed", f"-L{out}", "-Wl,-rpath,$ORIGIN")
    nvml = (C_COMPILER, *fake_nvml.FLAGS, "-DFAKE_NVML_LOAD_ELSEWHERE")
    sources = sorted(str(path) for path in SOURCES.glob("*.cpp"))
    return (
        (*runtime, "-o", str(out / RUNTIME), *sources, "-ldl", "-pthread"),
        (*driver, "-o", str(out / DRIVER), "-x", "c", "/dev/null", "-x", "none", f"-l:{RUNTIME}"),
        (*nvml, "-o", str(out / NVML), str(fake_nvml.SOURCE), str(SOURCES / "nvml_power.c"), "-lm"),
    )


def build(include: Path, out: Path) -> None:
    """Writes the three libraries to `out`, all or none; NotBuilt says what a compiler said."""
    if not (include / "cuda_runtime_api.h").is_file():
        raise NotBuilt(
            f"{include} has no cuda_runtime_api.h: give the folder of CUDA's headers (docs/development/rehearsal.md)"
        )
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as made:
        for command in commands(include, Path(made)):
            _run(command)
        for name in LIBRARIES:
            (Path(made) / name).replace(out / name)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise NotBuilt(f"starting {command[0]}: {error}; install a C and a C++ compiler") from None
    if done.returncode:
        raise NotBuilt(f"{command[0]} ended with code {done.returncode}:\n{done.stderr}")
