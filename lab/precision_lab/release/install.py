"""Installs Precision Profiler in a lab as its chart says: all objects applied, its Deployments run as local processes.

Each of those gets a kubeconfig with a token of the Deployment's own service account, so it has exactly the rights that
the chart gives it. In the cluster the Deployments have no replicas, and say why: what reads the operator's settings
there, as kubectl precision does, finds those that it runs with.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from precision_lab.builds.binaries import binaries
from precision_lab.cluster.objects import Object
from precision_lab.lab import Lab
from precision_lab.names import PREFIX
from precision_lab.processes.ports import free_ports
from precision_lab.processes.processes import ProcessError, ticks

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "precision-profiler"
RELEASE = "precision-profiler"
NAMESPACE = "precision-system"
READY_SECONDS = 60.0
HELM_SECONDS = 300
RUNS_AS = f"{PREFIX}/runs-as"
"""Annotation of a Deployment without replicas."""


@dataclass(frozen=True, slots=True)
class Program:
    """One Deployment of the chart as a local process; `name` is its container's, and the process's in the lab."""

    lab: Lab
    name: str
    argv: tuple[str, ...]
    kubeconfig: Path
    port: int

    @property
    def url(self) -> str:
        """Where it serves probes and metrics."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it (again); returns when it is ready. Raises ProcessError with its log's end when it ends instead."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts its process, and does not wait for it."""
        self.lab.processes.start(self.name, self.argv, env={"KUBECONFIG": str(self.kubeconfig)}, grace_seconds=10.0)

    def is_ready(self) -> bool:
        """Whether its probe says so."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        """Returns when it is ready. Raises ProcessError with its log's end when it ends instead."""
        for _ in ticks(READY_SECONDS):
            if self.is_ready():
                return
            self.lab.processes.check(self.name)
        tail = self.lab.processes.log(self.name)[-1500:]
        raise ProcessError(f"{self.name} was not ready within {READY_SECONDS:.0f} s. It said: {tail}")


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed chart: the namespace of its profiles (the first one) and its programs by name."""

    namespace: str
    programs: Mapping[str, Program]


def install(lab: Lab, watch: Sequence[str] = (), values: Sequence[str] = (), start: bool = True) -> Installation:
    """Renders the chart with `values` (`key=value`), applies it, and starts its programs unless told not to.

    `watch` are the namespaces whose profiles are served, made here; without them the release's own.
    """
    namespace = NAMESPACE
    for name in (namespace, *watch):
        lab.create_namespace(name)
    values = [*values, *([f"watchNamespaces={{{','.join(watch)}}}"] if watch else [])]
    objects = render(lab, namespace, values)
    definitions = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
    deployments = [item for item in objects if item["kind"] == "Deployment"]
    _apply(lab, definitions)
    lab.wait_until_established(*(str(item["metadata"]["name"]) for item in definitions))
    _apply(lab, [without_pods(item) if item in deployments else item for item in objects if item not in definitions])
    ports = free_ports(len(deployments))
    programs = [program_of(lab, deployment, port) for deployment, port in zip(deployments, ports, strict=True)]
    if start:
        for program in programs:
            program.launch()
        for program in programs:
            program.wait_until_ready()
    return Installation((*watch, namespace)[0], {program.name: program for program in programs})


def render(lab: Lab, namespace: str, values: Sequence[str] = ()) -> list[Object]:
    """The chart's objects for this cluster, as `helm template` prints them."""
    version = lab.get("--raw=/version")["gitVersion"]
    settings = ["--no-hooks", *(part for value in values for part in ("--set", value))]
    where = (f"--namespace={namespace}", f"--kube-version={version}")
    return [item for item in yaml.safe_load_all(helm(lab, "template", RELEASE, str(CHART), *settings, *where)) if item]


def helm(lab: Lab, *words: str, stdin: str = "", program: str = "helm") -> str:
    """What `helm WORDS` prints, said in the repository's folder. Raises ProcessError with its words when it fails."""
    homes = {f"HELM_{kind}_HOME": str(lab.run_dir / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [str(binaries([program])[program]), *words],
        cwd=REPOSITORY,
        input=stdin,
        env={**homes, "HOME": str(lab.run_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_SECONDS,
    )
    if done.returncode != 0:
        raise ProcessError(f"{program} {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def without_pods(deployment: Object) -> Object:
    """The Deployment with all that it says of its pods, and none of them: its program runs beside the cluster."""
    runs_as = {RUNS_AS: "a local process of the lab, with these arguments"}
    meta = deployment["metadata"]
    return {
        **deployment,
        "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **runs_as}},
        "spec": {**deployment["spec"], "replicas": 0},
    }


def program_of(lab: Lab, deployment: Object, port: int) -> Program:
    """A Deployment's only container, with its arguments as the chart has them, but on a loopback port of its own."""
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    _, *command = container["command"]  # `python`: here it is this one
    listens = ("--host=127.0.0.1", f"--port={port}", "--probe-port=0")
    argv = (sys.executable, *command, *container.get("args", []), *listens)
    kubeconfig = lab.service_account_kubeconfig(deployment["metadata"]["namespace"], pod["serviceAccountName"])
    return Program(lab, container["name"], argv, kubeconfig, port)


def _apply(lab: Lab, objects: Sequence[Object]) -> None:
    # As JSON: a name such as `n` in a schema's `required` is a string to one YAML parser and `false` to another.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=text)
