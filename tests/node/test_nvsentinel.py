"""integrations/nvsentinel opens sound nodes alone, by stand-ins that decide in NVSentinel's published order (1.28).

docs/configuration/{validation,preflight}.md; lifecycle-manager/internal/controller and preflight/pkg/webhook.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from precision_api.acceptance.reference import Reference, sha256_of, text_of
from precision_lab.builds.binaries import binaries
from precision_lab.builds.image_archives import NAMES, version
from precision_lab.lab import KubectlError
from tests.support.eventually import eventually
from tests.support.golden_nodes import replayed_draft
from tests.support.helm import Helm
from tests.support.installed import GPU_NODE, TEAM, Installed, Object, conditions

FOLDER = Path(__file__).parents[2] / "integrations" / "nvsentinel"
PLACE, GPU, CHECKS = "nvsentinel", "nvidia.com/gpu", "nvsentinel.nvidia.com/preflight-checks"
COPIED = ("NCCL_*", "LD_LIBRARY_PATH", "CUDA_DEVICE_ORDER")
GOOD, SLOW = "--replay-seed=77", "--replay-fault=slow_gpu"


def values(name: str, blanks: Mapping[str, str]) -> Object:
    """What a file of the folder says of this part of NVSentinel, its blanks filled in."""
    text = (FOLDER / f"{name}.yaml").read_text()
    for blank, value in blanks.items():
        assert blank in text, blank
        text = text.replace(blank, value)
    return dict(yaml.safe_load(text)[name])


OURS = values("lifecycle-manager", {})["config"]
RETRIES, PERIOD = (
    OURS["providers"]["precision-check-provider"]["retries"],
    OURS["newNodeValidation"]["batchPeriodSeconds"],
)


def job(config: Object, request: str, folder: Path) -> Object:
    """The Job of a test group, rendered by Go's text/template, as Helm does it for strings."""
    test = config["tests"][config["newNodeValidation"]["newNodeTests"][0]]
    provider = config["providers"][test["provider"]]
    cordoned = {"Key": "node.kubernetes.io/unschedulable", "Value": "", "Operator": "Exists", "Effect": "NoSchedule"}
    context = {
        "ValidationRequestName": request, "TestGroupName": "group-1-1", "Namespace": PLACE, "Image": test["image"],
        "Nodes": [{"NodeName": GPU_NODE}], "TimeoutSeconds": provider["timeoutSeconds"], "Command": test["command"],
        "Tolerations": [cordoned],
    }  # fmt: skip
    (folder / "templates").mkdir()
    text = config["templates"][provider["templateFile"]]
    (folder / "templates" / "a.yaml").write_text(f"{{{{with .Values}}}}{text}{{{{end}}}}")
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: a, version: 1.0.0}")
    done = Helm(binaries(["helm"])["helm"]).run(context, folder)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout))


def ending(conditions: Collection[str], ready: bool = True, late: bool = False) -> str:
    """How an attempt on a node that is there ends, in the order that decides; empty while it runs."""
    order = {"NodeReadinessViolation": not ready, "Succeeded": "Complete" in conditions, "TestTimeout": late}
    return next((end for end, holds in order.items() if holds), "TestFailed" if "Failed" in conditions else "")


def failed(nodes: Sequence[str], retries: int, attempt: Callable[[str], str]) -> set[str]:
    """The nodes that a request marks as failed: all, where one of its groups (a node each) failed every attempt."""
    opened = [any(attempt(node) == "Succeeded" for _ in range(1 + retries)) for node in nodes]
    return set() if all(opened) else set(nodes)


def injected(config: Object, pod: Object) -> Object:
    """The Pod of one container as the webhook leaves it: no volume is added for a check."""
    pod, asked = deepcopy(pod), pod["metadata"].get("annotations", {}).get(CHECKS)
    (user,) = pod["spec"]["containers"]
    gpus = {GPU: user["resources"]["limits"][GPU]}
    for check in deepcopy(config["initContainers"]):
        by_default, image, resources = check.pop("defaultEnabled"), check["image"], check["resources"]
        if by_default if asked is None else check["name"] in asked.split(","):
            check["image"] = f"{image['repository']}:{image['tag']}"
            requests = {"cpu": "100m", "memory": "500Mi"} | resources["requests"] | gpus
            check["resources"] = {"requests": requests, "limits": resources["limits"] | gpus}
            copied = [row for row in user["env"] if any(fnmatch(row["name"], pattern) for pattern in COPIED)]
            check["env"] = [*{row["name"]: row for row in [*copied, *check["env"]]}.values()]
            pod["spec"].setdefault("initContainers", []).append(check)
    return pod


def test_a_slow_node_closes_itself_alone_but_in_a_batch_all_18() -> None:
    nodes = [(f"n{at}", 2.0 * at) for at in range(18)]
    ends = dict.fromkeys(dict(nodes), ending({"Complete"}, late=True)) | {"n3": ending({"Failed"})}
    for period, closed in ((OURS["newNodeValidation"]["batchPeriodSeconds"], {"n3"}), (600, {*ends})):
        batches = [[name for name, _ in batch] for _, batch in groupby(nodes, lambda row, p=period: row[1] // p)]
        assert {node for batch in batches for node in failed(batch, RETRIES, ends.__getitem__)} == closed
    assert ending({"Complete"}, ready=False) == "NodeReadinessViolation"


def test_a_slow_gpu_is_asked_once_but_with_five_retries_until_it_has_a_good_moment() -> None:
    for retries, closed in ((RETRIES, {"n3"}), (5, set())):
        looks = iter(["TestFailed"] * 4 + ["Succeeded"] * 2)
        assert failed(["n3"], retries, lambda _, looks=looks: next(looks)) == closed


@pytest.fixture(scope="module")
def reference(bare: Installed) -> Reference:
    made = replayed_draft(product="H100", gpus=8, recipes=("bf16",), gemm_modes=("autocast",))
    bare.lab.create_namespace(PLACE)
    meta = {"name": "precision-reference", "namespace": PLACE}
    bare.lab.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"reference.json": f"{text_of(made)}\n"}},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "runc"},
    )
    return made


def filled(name: str, made: Reference, **blanks: str) -> Object:
    """NVSentinel's values as the folder tells to fill them in, for this small machine."""
    image, tag = NAMES["agent"], version()
    blanks |= {"SHA256": sha256_of(text_of(made)), 'cpu: "4"': 'cpu: "0"', "32Gi": "1Gi"}
    own = {"REPOSITORY": image, "TAG": tag, "LIBRARIES": "/ours"}
    return values(name, blanks | (own if name == "preflight" else {"AGENT-IMAGE": f"{image}:{tag}"}))


NODES = {"sound": (GOOD, "Pass"), "slow": (SLOW, "Fail"), "without-gpus": (GOOD, "Inconclusive")}


@pytest.mark.node
@pytest.mark.parametrize("name", NODES)
def test_a_job_opens_a_sound_node_alone_and_leaves_evidence(
    bare: Installed, reference: Reference, tmp_path: Path, name: str
) -> None:
    fault, verdict = NODES[name]
    os.chown(tmp_path, 65532, 65532)
    folders = dict.fromkeys(("/var/lib/precision", "/var/log/precision"), str(tmp_path))
    made = job(filled("lifecycle-manager", reference, **folders)["config"], name, tmp_path)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["args"].append("--accept-simulated")
    if name == "without-gpus":
        del container["resources"]["limits"][GPU]
    bare.lab.kubectl("cordon", GPU_NODE)
    bare.real.replay_options(fault)
    bare.lab.apply(made)
    told = made["metadata"]["name"], f"--namespace={PLACE}"
    end = eventually(lambda: ending(conditions(bare.lab.get("job", *told).get("status", {}))), 90)
    bare.real.replay_options()
    bare.lab.kubectl("delete", "job", *told, "--cascade=foreground")
    if end == "Succeeded":
        bare.lab.kubectl("uncordon", GPU_NODE)
    assert bare.lab.get("node", GPU_NODE)["spec"].get("unschedulable", False) is (name != "sound")
    bare.lab.kubectl("uncordon", GPU_NODE)
    (evidence,) = tmp_path.glob(f"check-*-{GPU_NODE}.json")
    assert json.loads(evidence.read_text())["verdict"] == verdict


PODS = {
    "sound": (GOOD, "8", "Pass", "Succeeded"), "slow": (SLOW, "8", "Fail", "Failed"),
    "partial": (SLOW, "1", "Skipped", "Succeeded"),
}  # fmt: skip


@pytest.mark.node
@pytest.mark.parametrize("name", PODS)
def test_a_pod_that_asks_starts_on_a_sound_node_alone(bare: Installed, reference: Reference, name: str) -> None:
    fault, gpus, verdict, phase = PODS[name]
    config = filled("preflight", reference, **{"/reference.json": "env:REFERENCE"})
    (check,) = config["initContainers"]
    check["args"].append("--accept-simulated")
    check["env"].append({"name": "REFERENCE", "value": text_of(reference)})
    work = {"name": "work", "image": f"{NAMES['agent']}:{version()}", "command": ["true"]}
    work |= {"securityContext": check["securityContext"], "resources": {"limits": {GPU: gpus}}}
    work["env"] = [{"name": "LD_LIBRARY_PATH", "value": "/theirs"}, {"name": "NCCL_DEBUG", "value": "INFO"}]
    spec = {"nodeName": GPU_NODE, "restartPolicy": "Never", "containers": [work]}
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TEAM}, "spec": spec}
    assert injected(config, pod) == pod, "it did not ask"
    pod["metadata"]["annotations"] = {CHECKS: check["name"]}
    bare.real.replay_options(fault)
    bare.lab.apply(injected(config, pod))
    told = name, f"--namespace={TEAM}"
    assert eventually(lambda: bare.lab.get("pod", *told)["status"]["phase"] == phase, 90)
    bare.real.replay_options()
    seen = bare.lab.get("pod", *told)
    end = seen["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert (end["exitCode"], json.loads(end["message"])["verdict"]) == (30 if phase == "Failed" else 0, verdict)
    env = {row["name"]: row["value"] for row in seen["spec"]["initContainers"][0]["env"]}
    assert (env["LD_LIBRARY_PATH"], env["NCCL_DEBUG"]) == ("/ours", "INFO")
    bare.lab.kubectl("delete", "pod", *told)
    check["volumeMounts"] = [{"name": "reference", "mountPath": "/reference"}]
    with pytest.raises(KubectlError, match="volumeMounts"):
        bare.lab.apply(injected(config, pod))
