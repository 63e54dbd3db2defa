"""The Job that is created for one attempt, as a whole, and what of it depends on the profile."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from precision_api.exchange.request import MeasurementRequest, request_hash
from precision_api.facts import names
from precision_api.kinds.profile import Idle
from precision_operator.core.attempts import manifest
from precision_operator.core.attempts.actions import Start
from precision_operator.core.attempts.agent_request import measurement_request
from precision_operator.core.attempts.manifest import owner
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.eligibility.triggers import current_run, run_inputs
from precision_operator.core.observe.configuration import AgentDefaults
from precision_operator.core.observe.nodes import NodeFacts, node_facts
from precision_operator.core.observe.observed import ProfileView, Settings
from precision_operator.core.plan import plan
from tests.support.golden import assert_golden, beside
from tests.support.node_objects import node_object, resource_slice
from tests.support.world import NOW, SETTINGS, nodes, observed, profile

TABLES = beside(__file__)

GB200 = TABLES["gb200"]
TRAY = node_facts(node_object(GB200, name="gb200-0001", gpus="4"))


def made(
    owner: ProfileView, facts: NodeFacts = TRAY, attempt: int = 1, settings: Settings = SETTINGS
) -> dict[str, Any]:
    """The Job for `owner` on a tray of four GB200."""
    asked = resolve_profile(owner, observed())
    assert isinstance(asked, ResolvedProfile)
    found = current_run(run_inputs(asked, facts, None, NOW))
    return manifest.job(asked, facts, found, measurement_request(asked, facts, found.run, attempt), settings)


def pod_spec(settings: Settings = SETTINGS, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(profile(**changes), settings=settings)["spec"]["template"]["spec"]
    return found


def test_the_job_on_a_gb200_tray_is_as_it_was_looked_at() -> None:
    assert_golden("job_gb200.json", json.dumps(made(profile()), indent=2, sort_keys=True) + "\n")


def test_gpus_by_claim_are_asked_for_by_a_template_of_the_profile_and_by_nothing_else() -> None:
    seen = observed(
        [profile(agent={"runtimeClassName": "nvidia"})],
        nodes("n1", labels={}, gpus=None),
        slices=(resource_slice("NVIDIA H100 80GB HBM3", count=8),),
    )
    action = plan(seen).actions[0]
    assert isinstance(action, Start)
    assert action.template is not None
    template, spec = action.template, action.job["spec"]["template"]["spec"]
    asked = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 8}
    assert template["spec"]["spec"] == {"devices": {"requests": [{"name": "gpus", "exactly": asked}]}}
    assert template["metadata"]["ownerReferences"] == [owner("nightly", "uid-nightly")]
    assert "n1" not in json.dumps(template)
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": template["metadata"]["name"]}]
    resources = spec["containers"][0]["resources"]
    assert resources.pop("claims") == [{"name": "gpus"}]
    assert "nvidia.com/gpu" not in json.dumps(resources)
    assert "runtimeClassName" not in spec


def test_the_uuids_of_a_claim_travel_outside_of_the_requests_hash() -> None:
    def document(node: str) -> MeasurementRequest:
        slices = (replace(resource_slice("NVIDIA H100 80GB HBM3", count=8, node=node), node="n1"),)
        action = plan(observed([profile()], nodes("n1", labels={}, gpus=None), slices=slices)).actions[0]
        assert isinstance(action, Start)
        return MeasurementRequest.model_validate_json(environment(action.job))

    one, other = document("n1"), document("n2")
    assert one.node.gpu_uuids is not None
    assert other.node.gpu_uuids is not None
    assert len(one.node.gpu_uuids) == 8
    assert one.node.gpu_uuids != other.node.gpu_uuids
    assert request_hash(one) == request_hash(other)


def environment(job: Mapping[str, Any]) -> str:
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return str(next(row["value"] for row in env if row["name"] == names.REQUEST_ENV))


def test_each_request_is_hashed_and_each_attempt_named_by_itself() -> None:
    job = made(profile())
    environment = {item["name"]: item["value"] for item in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    document = MeasurementRequest.model_validate_json(environment[names.REQUEST_ENV])
    assert job["metadata"]["annotations"][names.ANNOTATION_REQUEST_HASH] == request_hash(document)
    assert (document.node.name, document.node.gpus, document.node.product) == ("gb200-0001", 4, "GB200")
    found = [made(profile(), attempt=attempt)["metadata"]["name"] for attempt in (1, 2, 1)]
    assert found[0] == found[2] != found[1]


def test_what_the_profile_says_of_agents_is_on_the_pod() -> None:
    spec = pod_spec(
        agent={
            "image": "registry.example/special:2",
            "imagePullSecrets": [{"name": "pull"}],
            "runtimeClassName": "nvidia",
            "tolerations": [{"key": "reserved", "value": "ml", "effect": "NoSchedule"}],
            "resources": {"cpu": "8", "memory": "64Gi", "ephemeralStorage": "20Gi"},
        }
    )
    container = spec["containers"][0]
    assert (container["image"], spec["runtimeClassName"]) == ("registry.example/special:2", "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert {"key": "reserved", "operator": "Equal", "value": "ml", "effect": "NoSchedule"} in spec["tolerations"]
    claimed = {"memory": "64Gi", "nvidia.com/gpu": "4"}
    assert container["resources"]["requests"] == claimed | {"cpu": "8", "ephemeral-storage": "0"}
    assert container["resources"]["limits"] == claimed | {"ephemeral-storage": "20Gi"}
    assert spec["volumes"][0] == {"name": "tmp", "emptyDir": {"sizeLimit": "20Gi"}}


def test_no_agent_tolerates_everything() -> None:
    assert all(item.get("key") for item in pod_spec()["tolerations"])
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    included = pod_spec(target={"nodeNames": ["gb200-0001"], "cordoned": "Include"})["tolerations"]
    assert [item for item in included if item not in pod_spec()["tolerations"]] == [cordoned]


def test_the_agent_goes_through_the_scheduler_to_its_one_node() -> None:
    spec = pod_spec()
    assert "nodeName" not in spec
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"] for term in terms] == [
        [{"key": "metadata.name", "operator": "In", "values": ["gb200-0001"]}]
    ]


@pytest.mark.parametrize(("keys", "asked"), TABLES["flavors"])
def test_the_agent_asks_for_the_nodes_values_of_labels_of_flavors(keys: list[str], asked: dict[str, str]) -> None:
    defaults = AgentDefaults.model_validate({"flavorLabels": keys})
    spec = pod_spec(settings=replace(SETTINGS, agent_defaults=defaults))
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    rows = term.get("matchExpressions", [])
    assert rows == [{"key": key, "operator": "In", "values": [value]} for key, value in asked.items()]
    assert [row["values"] for row in term["matchFields"]] == [["gb200-0001"]]


def test_a_user_that_the_cluster_chooses_is_not_named() -> None:
    defaults = AgentDefaults.model_validate({"runAsUser": None, "runAsGroup": None})
    told = pod_spec(settings=replace(SETTINGS, agent_defaults=defaults))["securityContext"]
    assert told == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_what_the_admin_sets_for_all_agents_is_on_the_pod_and_never_in_place_of_the_operators_own_marks() -> None:
    defaults = AgentDefaults.model_validate(
        {
            "schedulerName": "kai-scheduler",
            "podLabels": {"kai.scheduler/queue": "profiling", "sidecar.istio.io/inject": "true"},
            "podAnnotations": {"team": "performance"},
            "supplementalGroups": [44],
        }
    )
    job = made(profile(), settings=replace(SETTINGS, agent_defaults=defaults))
    template = job["spec"]["template"]
    labels, plain = template["metadata"]["labels"], made(profile())["spec"]["template"]["metadata"]["labels"]
    assert labels == plain | defaults.pod_labels
    assert job["metadata"]["labels"].items() >= dict(defaults.pod_labels).items()
    assert template["metadata"]["annotations"]["team"] == "performance"
    assert template["spec"]["schedulerName"] == "kai-scheduler"
    assert template["spec"]["securityContext"]["supplementalGroups"] == [44]


@pytest.mark.parametrize("key", ["app.kubernetes.io/name", "precisionprofiler.io/run"])
def test_a_label_that_the_operator_finds_its_pods_by_can_not_be_set(key: str) -> None:
    with pytest.raises(ValidationError, match=f"{key} is set by the operator: choose another key"):
        AgentDefaults.model_validate({"podLabels": {key: "x"}})


def test_no_sidecar_holds_the_gpus_and_no_autoscaler_takes_the_node_of_a_running_agent() -> None:
    metadata = made(profile())["spec"]["template"]["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"
    assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_the_agent_gets_no_rights_and_no_token() -> None:
    spec = pod_spec()
    assert (spec.get("automountServiceAccountToken"), spec["serviceAccountName"]) == (False, "precision-agent")
    assert spec["securityContext"].get("runAsNonRoot") is True
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("preset", ["quick", "standard"])
def test_each_deadline_leaves_room_for_the_one_inside_it(preset: str) -> None:
    job = made(profile(benchmarks={"preset": preset}))
    environment = job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    agent = json.loads(environment)["deadline_seconds"]
    pod = job["spec"]["template"]["spec"]["activeDeadlineSeconds"]
    assert Idle().start_timeout_seconds + agent + 60 == pod
    assert job["spec"]["activeDeadlineSeconds"] > pod + Idle().pending_timeout_seconds
    for part in (job, job["spec"]["template"]):
        assert part["metadata"]["annotations"][names.ANNOTATION_DEADLINE] == str(agent)


def test_every_label_fits_whatever_the_nodes_name() -> None:
    long = node_facts(node_object(GB200, name="n" * 253, gpus="4", uid="0f0e4f1c-8f8b-4c3f-9a55-1e6f7d2c9b3a"))
    job = made(profile("p" * 253, uid="5a9c1a52-0c3c-4d39-8f0e-3f7b2d9f1c11"), long)
    for part in (job, job["spec"]["template"]):
        assert all(len(value) <= 63 for value in part["metadata"]["labels"].values())
    assert len(job["metadata"]["name"]) <= 63
    assert job["metadata"]["annotations"][names.ANNOTATION_NODE] == "n" * 253
    assert len(manifest.report("ml", "p" * 253, "u", "n" * 253, "v")["metadata"]["name"]) <= 63


def test_no_two_manifests_share_what_can_change_and_a_report_says_nothing_yet() -> None:
    one, other = made(profile()), made(profile())
    one["metadata"]["labels"]["x"] = "y"
    one["spec"]["template"]["metadata"]["labels"]["x"] = "z"
    assert one["metadata"]["labels"]["x"] == "y"
    assert other == made(profile())
    body = manifest.report("ml", "nightly", "uid-p", "n1", "uid-n")
    assert body["spec"] == {"profile": "nightly", "nodeName": "n1", "nodeUID": "uid-n"}
    assert body["metadata"]["ownerReferences"] == [owner("nightly", "uid-p")]
    assert "status" not in body
