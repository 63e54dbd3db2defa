"""The Dockerfile against the rest: what it names must exist and agree. `make images-check` builds it."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from precision_api.facts.names import DEFAULT_PRIORITY_CLASS
from precision_lab.builds.image_archives import version
from precision_lab.release import images_check
from precision_operator.__main__ import arguments as operator_arguments
from precision_operator.core.observe.configuration import AgentDefaults
from precision_operator.exporter.__main__ import arguments as exporter_arguments
from tests.support.helm import Helm, Manifest, of_kind

ROOT = Path(__file__).parents[2]
TARGETS = ("operator", "agent")


def stages() -> dict[str, str]:
    """Stage name to its instructions, one per line."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body for _, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def entrypoint(stage: str) -> list[str]:
    [words] = re.findall(r"^ENTRYPOINT (.*)$", stages()[stage], flags=re.MULTILINE)
    return list(json.loads(words))


def test_all_that_is_copied_exists_and_reaches_the_builder() -> None:
    text = "\n".join(stages().values())
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, flags=re.MULTILINE) for word in line.split()]
    from_context = [path for path in copied if not path.startswith(("--from=", "/"))]
    assert {"crds", "operator", "agent", "requirements/operator.txt", "requirements/agent.txt"} <= set(from_context)
    rules = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in rules
    assert [path for path in from_context if not (ROOT / path).exists() or f"!{path.split('/')[0]}" not in rules] == []


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_installed_is_one_layer_copied_for_caches_with_each_dependency_by_hash(target: str) -> None:
    assert "--mount" not in (ROOT / "Dockerfile").read_text()
    assert f"COPY --from=wheels /wheels/{target} " in stages()[f"{target}-packages"]
    layers = re.findall(r"^(?:COPY|ADD|RUN) .*$", stages()[target], flags=re.MULTILINE)
    folder = f"/opt/precision-{target}"
    assert layers == [f"COPY --from={target}-packages {folder} {folder}"]
    assert re.findall(r"\bPYTHONPATH=(\S+)", stages()[target]) == [folder]
    assert images_check.PACKAGES[target] == folder[1:]
    installs = re.findall(r"pip install .*", stages()[f"{target}-packages"])
    assert ["--require-hashes" in line or line.endswith("/tmp/wheels/*.whl") for line in installs] == [True, True]
    assert ["--no-deps" in line and "--compile" in line for line in installs] == [True, True]
    locked = (ROOT / "requirements" / f"{target}.txt").read_text()
    names = re.findall(r"^([a-z0-9-]+)==", locked, flags=re.MULTILINE)
    assert "pydantic" in names
    assert "torch" not in names


@pytest.mark.parametrize("target", TARGETS)
def test_the_wheel_of_an_image_has_one_program_and_the_version_of_the_repository(target: str, tmp_path: Path) -> None:
    """Neither the test cluster nor the other program is in it, and no command that could not start there."""
    build = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={tmp_path}"]
    subprocess.run(build, cwd=ROOT / target, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    info = f"precision_profiler-{version()}.dist-info"
    assert {name.split("/")[0] for name in names} == {"precision_api", f"precision_{target}", info}
    assert not [name for name in names if name.startswith("precision_operator/cli/") or "entry_points" in name]
    assert {f"{info}/extra_metadata/LICENSE", "precision_api/py.typed"} <= set(names)


@pytest.mark.parametrize("target", TARGETS)
def test_images_run_a_program_of_ours_as_the_charts_user_with_a_home(target: str, helm: Helm) -> None:
    users = re.findall(r"^USER (.*)$", stages()[target], flags=re.MULTILINE)
    pods = [d["spec"]["template"]["spec"] for d in of_kind(helm.manifests(), "Deployment")]
    assert users == ["65532:65532"]
    assert {(p["securityContext"]["runAsUser"], p["securityContext"]["runAsGroup"]) for p in pods} == {(65532, 65532)}
    assert re.findall(r"\bHOME=(\S+)", stages()[target]) == ["/tmp"]
    assert entrypoint(target) == ["python", "-m", f"precision_{target}"]
    helped = subprocess.run([sys.executable, *entrypoint(target)[1:], "--help"], text=True, capture_output=True)
    assert helped.returncode == 0, helped.stderr
    assert "usage" in helped.stdout.lower()


def test_the_agents_image_has_a_name_for_a_user_that_no_file_names() -> None:
    """`getpass.getuser()`, which Inductor calls, asks these before /etc/passwd. Nothing of the operator asks."""
    found = {target: re.findall(r"\b(USER|LOGNAME)=\w+", stages()[target]) for target in TARGETS}
    assert found == {"operator": [], "agent": ["USER", "LOGNAME"]}


def container(helm: Helm, name: str) -> Manifest:
    deployments = of_kind(helm.manifests(watchNamespaces=["b", "a"]), "Deployment")
    pods = [deployment["spec"]["template"]["spec"] for deployment in deployments]
    [found] = [container for pod in pods for container in pod["containers"] if container["name"] == name]
    return found


def probed_ports(of: Manifest) -> set[int]:
    ports = {port["name"]: port["containerPort"] for port in of["ports"]}
    probed = {ports[of[probe]["httpGet"]["port"]] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert len({*ports.values()}) == len(ports), "probes and metrics share a port"
    return probed


def test_the_operator_understands_what_the_chart_tells_it(helm: Helm) -> None:
    found = container(helm, "operator")
    read = operator_arguments(found["args"])
    assert found["command"] == entrypoint("operator")
    assert read.watch_namespaces == ("a", "b")
    assert read.agent_image == "registry.example.com/precision-profiler/agent:0.3.0"
    assert read.allowed_images == ("registry.example.com/precision-profiler/agent",)
    assert (read.priority_class, read.agent_service_account) == (DEFAULT_PRIORITY_CLASS, "precision-profiler-agent")
    assert (read.host, {read.probe_port}) == ("", probed_ports(found))


def test_the_operator_understands_what_agents_get_by_default(helm: Helm) -> None:
    rack = {"key": "rack", "operator": "Equal", "value": "a-b", "effect": "NoSchedule"}
    agent: Manifest = {
        "queueName": "profiling",
        "flavorLabels": ["acme.example/capacity"],
        "runtimeClassName": "nvidia",
        "tolerations": [rack],
        "schedulerName": "kai-scheduler",
        "podLabels": {"kai.scheduler/queue": "profiling"},
        "podAnnotations": {"team": "performance"},
    }
    security: Manifest = {
        "runAsUser": 1000620000,
        "fsGroup": 7,
        "supplementalGroups": [44],
        "seLinuxOptions": {"level": "s0"},
    }
    told = {"agent": {**agent, "podSecurityContext": security}, "extraLabels": {"cost-centre": "a17"}}
    [operator] = [d for d in of_kind(helm.manifests(**told), "Deployment") if d["metadata"]["name"] == "fleet-operator"]
    [found] = operator["spec"]["template"]["spec"]["containers"]
    labels = {"podLabels": {"kai.scheduler/queue": "profiling", "cost-centre": "a17"}}
    assert operator_arguments(found["args"]).agent_defaults == AgentDefaults.model_validate(agent | security | labels)


def test_the_exporter_understands_what_the_chart_tells_it(helm: Helm) -> None:
    found = container(helm, "exporter")
    read = exporter_arguments(found["args"])
    assert found["command"] == ["python", "-m", "precision_operator.exporter"]
    assert tuple(read.watch_namespaces) == ("a", "b")
    assert (read.metrics_level, read.shards) == ("node", 1)
    assert (read.host, {read.probe_port}) == ("", probed_ports(found))
