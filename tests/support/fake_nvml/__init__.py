"""The fake NVML: a C file that tests compile and script, so that nvidia-ml-py itself is exercised without a GPU.

nvidia-ml-py loads `libnvidia-ml.so.1` by its bare name, once a process: so whatever uses it runs in a process of its
own, with the library's folder in front of the loader's path.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml.c")
ROOT = Path(__file__).parents[3]
FORKING = """
import json, os, sys, traceback
import pynvml, precision_agent.power.preflight, precision_agent.run.run, tests.support.fake_nvml.virtual
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    code = 1
    try:
        out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ["FAKE_NVML_SCRIPT"] = asked["script"]
        sys.argv[1:] = asked["arguments"]
        exec(asked["code"], {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""
"""Has imported what the tests' programs import, and forks for each: none has asked NVML for anything before."""
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libnvidia-ml.so.1")


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """The compiled library with one script; `by` is a process of `forking`, where there is one."""

    library: Path
    script: Path
    by: subprocess.Popen[str] | None = None

    def environment(self) -> dict[str, str]:
        """What a process needs to load it."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_SCRIPT": str(self.script),
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "crds", "agent")),
        }

    def run(self, code: str, *arguments: str) -> Any:
        """Runs Python `code` on the library in a process of its own; the JSON that it printed."""
        if self.by:
            return self._forked(self.by, code, *arguments)
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, env=os.environ | self.environment(), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def _forked(self, by: subprocess.Popen[str], code: str, *arguments: str) -> Any:
        out = self.script.with_suffix(".out")
        asked = {"script": str(self.script), "out": str(out), "code": code, "arguments": arguments}
        by.stdin.write(json.dumps(asked) + "\n")
        by.stdin.flush()
        assert by.stdout.readline().strip() == "0", out.read_text()
        return json.loads(out.read_text())


@contextmanager
def forking(library: Path) -> Iterator[subprocess.Popen[str]]:
    """A process on the library that forks for each program."""
    environment = os.environ | FakeNvml(library, Path()).environment()
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        yield child


def compile_nvml(folder: Path) -> Path:
    """The library, built with the machine's C compiler; its errors are the test's."""
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", *FLAGS, "-o", str(library), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return library
