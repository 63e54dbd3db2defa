"""`precision-agent check` under a real kubelet, as the Job that `reference show` prints and as an init container."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import yaml

from precision_api.acceptance.reference import Reference, sha256_of, text_of
from precision_lab.builds.image_archives import NAMES, version
from precision_operator.cli.commands.reference import to_paste
from tests.support.eventually import eventually
from tests.support.golden_nodes import replayed_draft
from tests.support.installed import GPU_NODE, TEAM, Installed, Object

pytestmark = pytest.mark.node
ASKED: dict[str, Any] = {"product": "H100", "gpus": 8, "recipes": ("bf16",), "gemm_modes": ("autocast",)}
SLOW_GPU = "--replay-fault=slow_gpu"
EATS_MEMORY = "kept = [bytearray(1 << 24) for _ in range(1 << 10)]"


@pytest.fixture(scope="module")
def reference(bare: Installed) -> Reference:
    """Of nine replayed nodes, as a ConfigMap in the cluster."""
    made = replayed_draft(**ASKED)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gold", "namespace": TEAM}, "immutable": True}
    bare.lab.apply(body | {"data": {"reference.json": text_of(made)}})
    return made


def job(name: str, made: Reference, *words: str, memory: str = "1Gi", **changes: str) -> Object:
    """The Job that the plugin prints, its blanks filled in."""
    manifest: Object = next(yaml.safe_load_all(to_paste("gold", text_of(made), made)))
    pod = manifest["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["args"] = [changes.get(word, word) for word in container["args"]] + list(words)
    container["image"] = f"{NAMES['agent']}:{version()}"
    container["resources"]["limits"] |= {"memory": memory, "cpu": "1"}
    del container["resources"]["requests"]
    manifest["metadata"] = {"name": name, "namespace": TEAM}
    template = {"metadata": {"labels": {"of": name}}, "spec": pod | {"nodeName": GPU_NODE}}
    return manifest | {"spec": manifest["spec"] | {"template": template}}


def ended(installed: Installed, name: str, where: str = "containerStatuses") -> Object:
    """How the container of a pod with this label ended."""

    def look() -> Object | None:
        pods = installed.lab.get("pods", "--namespace", TEAM, "--selector", f"of={name}")["items"]
        states = [status["state"] for pod in pods for status in pod["status"].get(where, ())]
        return next((state["terminated"] for state in states if "terminated" in state), None)

    found = eventually(look, 90)
    assert found
    return found


CASES: Mapping[str, tuple[int, str, str, tuple[str, ...]]] = {
    "passes": (0, "Complete", "WithinLimits", ("--accept-simulated",)), "simulated": (31, "Failed", "Simulated", ()),
    "fails": (30, "Failed", "TooSlow", ("--accept-simulated",)), "mistyped": (2, "Failed", "", ("--acept",)),
    "replaced": (31, "Failed", "ReferenceReplaced", ("--accept-simulated",)),
    "module-missing": (1, "Failed", "", ("--accept-simulated",)),
    "out-of-memory": (137, "Failed", "", ("--accept-simulated",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_how_a_job_ends_is_the_answer(bare: Installed, reference: Reference, name: str) -> None:
    code, shown, reason, words = CASES[name]
    instead = {"module-missing": "import nosuch", "out-of-memory": EATS_MEMORY}.get(name)
    other = {sha256_of(text_of(reference)): "0" * 64} if name == "replaced" else {}
    bare.real.replay_options(*([SLOW_GPU] if name == "fails" else ["--replay-seed=77"]))
    with bare.real.agents_run(instead) if instead else nullcontext():
        bare.lab.apply(job(name, reference, *words, memory="256Mi" if instead == EATS_MEMORY else "1Gi", **other))
        end = ended(bare, name)
    bare.real.replay_options()
    assert end["exitCode"] == code, end
    message = end.get("message", "")
    assert (json.loads(message)["reason"] if message.startswith("{") else "") == reason
    assert eventually(lambda: shown in bare.lab.kubectl("get", "jobs", name, "-n", TEAM))
    bare.lab.kubectl("delete", "job", name, "-n", TEAM)


@pytest.mark.parametrize(
    ("name", "fault", "phase"), [("sound", "--replay-seed=77", "Succeeded"), ("slow", SLOW_GPU, "Failed")]
)
def test_as_an_init_container_it_lets_a_pod_start_or_not(
    bare: Installed, reference: Reference, name: str, fault: str, phase: str
) -> None:
    pod = job(name, reference, "--accept-simulated")["spec"]["template"]["spec"]
    first = pod["containers"][0]
    work = {"name": "work", "image": first["image"], "command": ["true"], "securityContext": first["securityContext"]}
    spec = pod | {"initContainers": [first], "containers": [work]}
    meta = {"name": f"init-{name}", "namespace": TEAM, "labels": {"of": name}}
    bare.real.replay_options(fault)
    bare.lab.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    end = ended(bare, name, "initContainerStatuses")
    bare.real.replay_options()
    answer = (0, "Pass") if phase == "Succeeded" else (30, "Fail")
    assert (end["exitCode"], json.loads(end["message"])["verdict"]) == answer
    assert eventually(lambda: bare.lab.get("pod", meta["name"], "--namespace", TEAM)["status"]["phase"] == phase)
    bare.lab.kubectl("delete", "pod", str(meta["name"]), "-n", TEAM)
