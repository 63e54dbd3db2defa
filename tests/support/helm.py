"""Helm on our chart: what it renders, or what it says when it refuses."""

import json
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "precision-profiler"
KUBERNETES = "1.36.3"
"""Told to Helm, since rendering asks no cluster."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    program: Path
    release: str = "fleet"
    namespace: str = "profiling"

    def run(self, values: Manifest, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
        """`helm template` with these values, whatever comes of it; of our chart, once for all tests."""
        render = _rendered_once if chart == CHART else _rendered
        return render(self, json.dumps(values), chart)

    def text(self, **values: Any) -> str:
        """What the chart renders to. Fails the test with Helm's own words when it refuses."""
        done = self.run(values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manifests(self, **values: Any) -> list[Manifest]:
        """The objects that the chart renders to."""
        return [document for document in yaml.load_all(self.text(**values), yaml.CSafeLoader) if document]


def _rendered(helm: Helm, values: str, chart: Path) -> subprocess.CompletedProcess[str]:
    command = [str(helm.program), "template", helm.release, str(chart), f"--namespace={helm.namespace}", "--values=-"]
    return subprocess.run([*command, f"--kube-version={KUBERNETES}"], input=values, text=True, capture_output=True)


_rendered_once = cache(_rendered)


def command_in_docs(begin: str, section: str) -> list[str]:
    """The command of docs/install.md that begins so under this heading, without its program."""
    text = (CHART.parents[1] / "docs" / "install.md").read_text().replace("\\\n", " ")
    [under] = [part for part in text.split("\n## ") if part.startswith(f"{section}\n")]
    [line] = [line for line in under.splitlines() if line.startswith(begin)]
    return shlex.split(line, comments=True)[1:]


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]
