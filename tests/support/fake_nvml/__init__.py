"""The fake NVML: a C file that tests compile and script, so that nvidia-ml-py itself is exercised without a GPU.

nvidia-ml-py loads `libnvidia-ml.so.1` by its bare name, once a process: so whatever uses it runs in a process of its
own, with the library's folder in front of the loader's path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml.c")
ROOT = Path(__file__).parents[3]
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libnvidia-ml.so.1")


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """The compiled library with one script."""

    library: Path
    script: Path

    def environment(self) -> dict[str, str]:
        """What a process needs to load it."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_SCRIPT": str(self.script),
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "crds", "agent")),
        }

    def run(self, code: str, *arguments: str) -> Any:
        """Runs Python `code` on the library in a process of its own; the JSON that it printed."""
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, env=os.environ | self.environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def compile_nvml(folder: Path) -> Path:
    """The library, built with the machine's C compiler; its errors are the test's."""
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", *FLAGS, "-o", str(library), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return library
