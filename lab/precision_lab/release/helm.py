"""Helm against a lab's cluster, as a user runs it: install, upgrade, uninstall, and what a release consists of."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from precision_lab.cluster.objects import Object
from precision_lab.lab import Lab
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import CHART, NAMESPACE, RELEASE, Program, helm, program_of


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the chart by Helm itself; whether it is installed is what the cluster says."""

    lab: Lab
    name: str = RELEASE
    namespace: str = NAMESPACE
    program: str = "helm"
    """Which Helm of the lab: `helm` is 3, `helm-4` is 4."""

    def put(self, chart: Path = CHART, **values: Any) -> str:
        """Installs the chart, or upgrades to it; returns its notes. Values that were set before are not kept."""
        output = self.helm(
            "upgrade", self.name, str(chart), "--install", "--create-namespace", "--values=-", stdin=json.dumps(values)
        )
        return notes_of(output)

    def uninstall(self) -> str:
        """Takes it away; returns what Helm said, such as what it keeps."""
        return self.helm("uninstall", self.name, "--wait")

    def objects(self) -> list[Object]:
        """What the release consists of, as it was sent to the cluster."""
        return [item for item in yaml.safe_load_all(self.helm("get", "manifest", self.name)) if item]

    def programs(self) -> dict[str, Program]:
        """Its Deployments as local processes, not started; in the chart's place there would be pods."""
        deployments = [item for item in self.objects() if item["kind"] == "Deployment"]
        ports = free_ports(len(deployments))
        made = [program_of(self.lab, deployment, port) for deployment, port in zip(deployments, ports, strict=True)]
        return {program.name: program for program in made}

    def helm(self, *words: str, stdin: str = "") -> str:
        """What `helm WORDS` prints, said in the repository's folder. Raises ProcessError with its words."""
        where = (f"--namespace={self.namespace}", f"--kubeconfig={self.lab.kubeconfig}")
        return helm(self.lab, *words, *where, stdin=stdin, program=self.program)


def notes_of(output: str) -> str:
    """The notes in what Helm prints after an installation or an upgrade."""
    return output.partition("NOTES:\n")[2]
