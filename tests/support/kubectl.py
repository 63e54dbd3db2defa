"""kubectl against the lab's cluster: what a user would type, and what they would see."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kubectl:
    """The program, bound to one kubeconfig and, where one is given, to a namespace (kubectl then refuses others)."""

    program: Path
    kubeconfig: Path
    namespace: str = ""

    def arguments(self, *words: str) -> list[str]:
        """The full command line of `kubectl WORDS`. Its cache is the cluster's own: ports, and so names, come again."""
        namespace = [f"--namespace={self.namespace}"] if self.namespace else []
        cache = self.kubeconfig.parent / "kubectl-cache"
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *namespace, *words]

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.arguments(*words), input=stdin, text=True, capture_output=True, timeout=120)

    def __call__(self, *words: str, stdin: str = "") -> str:
        """What it prints. Fails the test with kubectl's own words when it fails."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any], flags: tuple[str, ...] = ()) -> str:
        """What `kubectl apply` says of these objects."""
        return self(
            "apply", *flags, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )
