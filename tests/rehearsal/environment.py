"""What a process needs to meet the device that is not there: its libraries, its size, its name, NVML's script."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.rehearsal.answers import PREFIX
from tests.rehearsal.build import LIBRARIES, RUNTIME
from tests.rehearsal.calls import CALLS, NO_KERNELS

ROOT = Path(__file__).parents[2]
START = Path(__file__).with_name("start")
"""Holds a sitecustomize, which Python imports first of all."""
UUID = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
"""The same as the runtime tells."""
CONTEXT_BYTES = 600 << 20
LINKED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Like:
    """The GPU that is named: its NVML name, memory that CUDA has of it (GiB), and power limit (watts)."""

    name: str
    memory_gib: float
    limit_watts: int


GPUS: Mapping[str, Like] = {"9.0": Like("NVIDIA H100 80GB HBM3", 79.1, 700), "10.0": Like("NVIDIA B200", 178.3, 1000)}
"""By compute capability."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One rehearsal: where the libraries and Transformer Engine are, and the device; `fail` is part of a kernel's name.

    `calls`: the file that the backends' calls are written to; `no_kernels`: the profiler sees none.

    `site`: the folder that Transformer Engine is installed in, None where the interpreter has it itself.
    """

    library: Path
    site: Path | None = None
    compute: str = "9.0"
    memory_gib: float | None = None
    fail: str = ""
    calls: Path | None = None
    no_kernels: bool = False

    @property
    def name(self) -> str:
        """What CUDA and NVML call the device: no reader can take it for a GPU."""
        return PREFIX + GPUS[self.compute].name

    @property
    def gib(self) -> float:
        return GPUS[self.compute].memory_gib if self.memory_gib is None else self.memory_gib

    def missing(self) -> str | None:
        """What is not where it was said to be, with the next step; None: nothing."""
        lacking = [name for name in LIBRARIES if not (self.library / name).is_file()]
        if lacking:
            return f"{self.library} has no {', '.join(lacking)}: build it first (python -m tests.rehearsal build)"
        if self.site and not (self.site / "transformer_engine").is_dir():
            return f"{self.site} has no transformer_engine: give the folder that it was installed in"
        return None


def nvml_script(rehearsal: Rehearsal) -> str:
    """The script of NVML's stand-in; its load is the simulated device's."""
    lines = (
        f"gpu {UUID}",
        f"name {rehearsal.name}",
        f"limit_mw {GPUS[rehearsal.compute].limit_watts * 1000}",
        f"memory {int(rehearsal.gib * 2**30)} {CONTEXT_BYTES}",
        "temperature 55",
        "sm_clock 1755",
    )
    return "".join(line + "\n" for line in lines)


def environment(rehearsal: Rehearsal, script: str, power: str, around: Mapping[str, str]) -> dict[str, str]:
    """The whole environment: `around` with the rehearsal in front. `script` and `power` are paths of NVML's two files.

    What begins with CUDA_ or NVTE_ stands in every result's environment.
    """
    site = (str(rehearsal.site),) if rehearsal.site else ()
    paths = {
        "LD_PRELOAD": (str(rehearsal.library / RUNTIME),),
        "LD_LIBRARY_PATH": (str(rehearsal.library),),
        "PYTHONPATH": (*map(str, (START, ROOT, ROOT / "crds", ROOT / "agent")), *site),
    }
    joined = {name: os.pathsep.join((*paths[name], *filter(None, (around.get(name),)))) for name in LINKED}
    noted = {CALLS: str(rehearsal.calls)} if rehearsal.calls else {}
    return {
        **around,
        **joined,
        **noted,
        **({NO_KERNELS: "1"} if rehearsal.no_kernels else {}),
        "FAKE_NVML_SCRIPT": script,
        "CUDA_REHEARSAL_COMPUTE": rehearsal.compute,
        "CUDA_REHEARSAL_MEMORY_GIB": f"{rehearsal.gib:g}",
        "CUDA_REHEARSAL_NAME": rehearsal.name,
        "CUDA_REHEARSAL_FAIL": rehearsal.fail,
        "CUDA_REHEARSAL_POWER": power,
    }
