"""What only the operator can know to be wrong is a condition with a next step, and goes away with its cause."""

import json
from typing import Any

import pytest

from precision_api.facts import names
from tests.support.eventually import eventually
from tests.support.site import MARK, Profile, Scene, specs

pytestmark = pytest.mark.cluster

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
}


def refused(profile: Profile, reason: str) -> str:
    """The message of the condition that says why a profile is not accepted."""
    eventually(lambda: profile.condition(names.ACCEPTED).get("reason") == reason)
    told: dict[str, Any] = profile.condition(names.ACCEPTED)
    assert told["status"] == "False"
    assert profile.status()["phase"] == "Invalid"
    return str(told["message"])


def test_a_missing_config_map_is_named_and_the_run_starts_when_it_is_there(scene: Scene) -> None:
    scene.add_nodes(*specs(1))
    name, namespace = f"{scene.mark}-model", scene.site.namespace
    source = {"configMapKeyRef": {"name": name, "key": "config.json"}}
    workload = {"name": "mine", "huggingFaceConfig": source, "microBatchSize": 1, "sequenceLength": 1024}
    profile = scene.apply(workload=workload)
    message = refused(profile, "ConfigMapMissing")
    assert message == (
        f"ConfigMap {name}, which spec.workload names, does not exist in namespace {namespace}. "
        "Create it, or correct the name."
    )
    data = {"config.json": json.dumps(LLAMA)}
    scene.lab.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}
    )
    profile.completes()
    assert profile.counts()["succeeded"] == 1
    scene.lab.kubectl("delete", "configmap", name, f"--namespace={namespace}")


def test_a_profile_that_matches_no_node_says_so_and_runs_when_a_node_is_labelled(scene: Scene) -> None:
    (node,) = scene.add_nodes(*specs(1))
    profile = scene.completed(target={"nodeSelector": {MARK: scene.mark, "example.com/team": "training"}})
    told = profile.condition(names.COMPLETE)
    assert told["reason"] == "NothingEligible"
    assert "kubectl get nodes --show-labels" in told["message"]
    assert profile.condition(names.ACCEPTED)["status"] == "True"
    scene.lab.kubectl("label", "node", node, "example.com/team=training")
    eventually(lambda: profile.counts().get("succeeded") == 1)
    assert profile.condition(names.COMPLETE)["reason"] == "AllMeasured"
