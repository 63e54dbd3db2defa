"""`precision-agent check` under a real kubelet, as the Job that `reference show` prints and as an init container."""

import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import chain
from typing import Any

import pytest
import yaml

from precision_api.acceptance.reference import Reference, text_of
from precision_lab.builds.image_archives import NAMES, version
from precision_operator.cli.commands.reference import to_paste
from tests.support.eventually import eventually
from tests.support.golden_nodes import replayed_draft
from tests.support.installed import GPU_NODE, TEAM, Installed, Object

pytestmark = pytest.mark.node
ASKED: dict[str, Any] = {"product": "H100", "gpus": 8, "recipes": ("bf16",), "gemm_modes": ("autocast",)}
SLOW_GPU = "--replay-fault=slow_gpu"
EATS_MEMORY = "kept = [bytearray(1 << 24) for _ in range(1 << 10)]"
TERMINATES = "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)"


@pytest.fixture(scope="module")
def reference(bare: Installed) -> Reference:
    """Of nine replayed nodes, as a ConfigMap in the cluster."""
    made = replayed_draft(**ASKED)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gold", "namespace": TEAM}, "immutable": True}
    bare.lab.apply(body | {"data": {"reference.json": text_of(made)}})
    return made


def job(name: str, made: Reference, *words: str, **changes: Any) -> Object:
    """The Job that the plugin prints, its blanks filled in; a folder of 4 KiB is there too."""
    manifest: Object = next(yaml.safe_load_all(to_paste("gold", text_of(made), made)))
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": f"{NAMES['agent']}:{version()}", "args": [*container["args"], *words]} | changes
    container["resources"]["limits"] |= {"memory": "256Mi" if name == "out-of-memory" else "1Gi", "cpu": "1"}
    del container["resources"]["requests"]
    container["volumeMounts"].append({"name": "small", "mountPath": "/small"})
    pod["volumes"].append({"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "4Ki"}})
    manifest["metadata"] = {"name": name, "namespace": TEAM}
    template = {"metadata": {"labels": {"of": name}}, "spec": pod | {"nodeName": GPU_NODE}}
    return manifest | {"spec": manifest["spec"] | {"template": template}}


def in_front(manifest: Object) -> Object:
    """A pod of which the Job's container is the init container."""
    template = manifest["spec"]["template"]
    (first,) = template["spec"]["containers"]
    work = {"name": "work", "image": first["image"], "command": ["true"], "securityContext": first["securityContext"]}
    spec = template["spec"] | {"initContainers": [first], "containers": [work]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": manifest["metadata"] | template["metadata"], "spec": spec}


def ended(installed: Installed, name: str) -> Object:
    """How the container that checks ended, in the pod with this label."""

    def look() -> Object | None:
        pods = installed.lab.get("pods", "--namespace", TEAM, "--selector", f"of={name}")["items"]
        of = "initContainerStatuses", "containerStatuses"
        rows = chain(*(pod["status"].get(where, ()) for pod in pods for where in of))
        states = [row["state"] for row in rows if row["name"] == "check"]
        return next((state["terminated"] for state in states if "terminated" in state), None)

    found = eventually(look, 90)
    assert found
    return found


DOOR, SMALL, OTHER = "--accept-simulated", ("--state=/small", "--evidence=/small"), f"--reference-sha256={'0' * 64}"
CASES: Mapping[str, tuple[int, str, tuple[str, ...]]] = {
    "passes": (0, "WithinLimits", (DOOR,)), "fails": (30, "TooSlow", (DOOR,)), "simulated": (31, "Simulated", ()),
    "replaced": (31, "ReferenceReplaced", (DOOR, OTHER)), "full-disk": (0, "WithinLimits", (DOOR, *SMALL)),
    "mistyped": (2, "", ("--acept",)), "module-missing": (1, "", (DOOR,)), "out-of-memory": (137, "", (DOOR,)),
    "terminated": (143, "", (DOOR,)), "broken-image": (128, "", (DOOR,)),
}  # fmt: skip
"""Exit code, reason, options."""
INSTEAD = {"module-missing": "import nosuch", "out-of-memory": EATS_MEMORY, "terminated": TERMINATES}


@pytest.mark.parametrize("name", CASES)
def test_how_it_ends_is_a_jobs_answer_and_lets_a_pod_start_or_not(
    bare: Installed, reference: Reference, name: str
) -> None:
    code, reason, words = CASES[name]
    manifest = job(name, reference, *words, **({"command": ["nosuch"]} if name == "broken-image" else {}))
    bare.real.replay_options(*([SLOW_GPU] if name == "fails" else ["--replay-seed=77"]))
    with bare.real.agents_run(INSTEAD[name]) if name in INSTEAD else nullcontext():
        for body, said in (manifest, "Failed" if code else "Complete"), (in_front(manifest), "Init:[A-Z]|Completed"):
            bare.lab.apply(body)
            end = ended(bare, name)
            assert end["exitCode"] == code, end
            message = end.get("message", "")
            assert (json.loads(message)["reason"] if message.startswith("{") else "") == reason
            told = (body["kind"], name, "-n", TEAM)
            assert eventually(lambda told=told, said=said: re.search(said, bare.lab.kubectl("get", *told)))
            log = bare.lab.kubectl("logs", "-n", TEAM, "-l", f"of={name}", "-c", "check") if reason else ""
            assert ("No space left" in log) is (name == "full-disk")
            bare.lab.kubectl("delete", *told, "--cascade=foreground")
    bare.real.replay_options()


def test_an_image_that_is_not_there_gives_no_answer(bare: Installed, reference: Reference) -> None:
    bare.lab.apply(job("no-image", reference, image="nosuch.invalid/agent:1"))
    assert eventually(lambda: "ImagePull" in bare.lab.kubectl("get", "pods", "-n", TEAM, "-l", "of=no-image"), 60)
    assert not {"Complete", "Failed"} & {*bare.lab.kubectl("get", "jobs", "no-image", "-n", TEAM).split()}
    bare.lab.kubectl("delete", "job", "no-image", "-n", TEAM)
