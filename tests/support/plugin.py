"""`kubectl precision ...` as a user has it: the plugin and its completion found by kubectl on PATH."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_lab.lab import Lab
from tests.support.site import Profile

PROGRAMS = {
    "kubectl-precision": "precision_operator.cli",
    "kubectl_complete-precision": "precision_operator.cli.complete",
}
"""Name on PATH -> module whose `main` it calls, as pip writes them."""


@dataclass(frozen=True)
class Plugin:
    """The programs, bound to one kubeconfig; `folder` is where they lie and where commands run."""

    kubectl: Path
    kubeconfig: Path
    folder: Path

    @classmethod
    def of(cls, lab: Lab, folder: Path) -> "Plugin":
        for name, module in PROGRAMS.items():
            program = folder / name
            program.write_text(f"#!{sys.executable}\nfrom {module} import main\n\nmain()\n")
            program.chmod(0o755)
        return cls(lab.binaries["kubectl"], lab.kubeconfig, folder)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join((str(self.folder), str(self.kubectl.parent), os.defpath)),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.folder),
            "MPLCONFIGDIR": str(self.folder),
        }

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Runs `kubectl WORDS`; its output can be read while it runs, and it ends with the block at the latest."""
        command = [str(self.kubectl), *words]
        with subprocess.Popen(
            command, env=self.environment, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs `kubectl precision WORDS`, whatever comes of it."""
        with self.start("precision", *words) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def __call__(self, *words: str) -> str:
        """What it prints. Fails the test with its own words when it fails."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))

    def why(self, node: str, profile: Profile) -> dict[str, Any]:
        (only,) = self.json("why", node, "-n", profile.site.namespace, "--profile", profile.name)
        assert isinstance(only, dict)
        return only
