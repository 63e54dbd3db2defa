"""The chart's policies on a real API server: what a tenant may not ask for is refused in words, all else is taken."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from precision_api.facts.names import AGENT_APP, LABEL_APP, PROFILE_PLURAL
from precision_lab.builds.binaries import binaries
from precision_lab.lab import KubectlError, Lab
from precision_operator.cluster import paths
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.custom_resources import path, profile
from tests.support.eventually import eventually
from tests.support.helm import Helm, of_kind

pytestmark = pytest.mark.cluster

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
VALUES = {
    "tolerations": {"enabled": True, "allowedKeys": ["team.example/", "dedicated"]},
    "runtimeClass": {"enabled": True, "allowed": ["nvidia"]},
    "idle": {"enabled": True},
    "agents": {"enabled": True},
}
OPERATOR = "system:serviceaccount:profiling:fleet-operator"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "maker", "uid": "uid-maker", "controller": True}
OF_JOB = "batch.kubernetes.io/controller-uid"
AGENT = {LABEL_APP: AGENT_APP, OF_JOB: "uid-maker"}
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example.com/none"}]}
TOLERATED = ("nvidia.com/gpu", "team.example/ml", "dedicated")
RESERVED = {"key": "reserved", "operator": "Exists"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "tolerations": (
        {"agent": {"tolerations": [RESERVED, {"key": "team.example", "value": "a"}, {"key": "dedicated"}]}},
        {"agent": {"tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED]}},
        "spec.agent.tolerations: profiles may not tolerate reserved, team.example. Allowed are: nvidia.com/gpu, "
        "kubernetes.io/arch, team.example/, dedicated. Leave it out, or ask an administrator to add it to the chart "
        "value policies.tolerations.allowedKeys.",
    ),
    "runtime-class": (
        {"agent": {"runtimeClassName": "kata"}},
        {"agent": {"runtimeClassName": "nvidia"}},
        "spec.agent.runtimeClassName: profiles may not name kata. Allowed are: nvidia. Leave it out, or ask an "
        "administrator to add it to the chart value policies.runtimeClass.allowed.",
    ),
    "idle": (
        {"idle": {"required": False}},
        {"idle": {"required": True, "pendingTimeoutSeconds": 60}},
        "spec.idle.required: profiles may not measure nodes on which pods hold GPUs. Leave it out, or set it to true.",
    ),
}
"""Policy: what it refuses, what it allows, and what it says."""


@pytest.fixture(scope="module")
def tenant(cluster: Lab, api: ApiServer) -> Iterator[str]:
    """A namespace that the policies bind, with a profile of each forbidden kind from the time before they came."""
    namespace = cluster.create_namespace(f"tenant-{uuid.uuid4().hex[:10]}")
    for kind, (denied, _, _) in CASES.items():
        code, answer = api.call("POST", path(namespace, PROFILE_PLURAL), profile(f"old-{kind}", **denied))
        assert code == 201, answer
    rendered = Helm(binaries(["helm"])["helm"]).manifests(watchNamespaces=[namespace], policies=VALUES)
    policies = of_kind(rendered, *KINDS)
    assert len(policies) == 2 * len(VALUES)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(policies))
    for denied, _, _ in CASES.values():
        eventually(partial(refuses, api, namespace, denied))
    eventually(lambda: "may not make" in said(cluster, namespace, "jobs", AGENT))
    yield namespace
    cluster.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(policies))
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def create(api: ApiServer, namespace: str, spec: dict[str, Any], **query: str) -> tuple[int, str]:
    """Code and words of the API server to a new profile."""
    body = profile(f"p-{uuid.uuid4().hex[:8]}", **spec)
    code, answer = api.call("POST", path(namespace, PROFILE_PLURAL), body, **query)
    return code, str(answer.get("message", ""))


def refuses(api: ApiServer, namespace: str, spec: dict[str, Any]) -> bool:
    return create(api, namespace, spec, dryRun="All")[0] == 403


@pytest.mark.parametrize("kind", CASES)
def test_a_policy_denies_what_it_forbids_with_its_reason_and_allows_the_rest(
    kind: str, api: ApiServer, tenant: str
) -> None:
    denied, allowed, words = CASES[kind]
    code, said = create(api, tenant, denied)
    policy = f"profiling.fleet.{kind}"
    assert code == 403
    assert said.endswith(f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}")
    assert create(api, tenant, allowed) == (201, "")
    assert create(api, tenant, {}) == (201, "")


@pytest.mark.parametrize("kind", CASES)
def test_a_profile_of_before_can_be_suspended_and_may_not_be_made_worse(kind: str, api: ApiServer, tenant: str) -> None:
    old = path(tenant, PROFILE_PLURAL, f"old-{kind}")
    code, answer = api.call("PATCH", old, {"spec": {"suspend": True}}, kind=MERGE_PATCH)
    assert code == 200, answer
    worse = CASES["idle" if kind == "tolerations" else "tolerations"][0]
    assert api.call("PATCH", old, {"spec": worse}, kind=MERGE_PATCH)[0] == 403
    code, answer = api.call("PATCH", old, {"spec": {"agent": None, "idle": None}}, kind=MERGE_PATCH)
    assert code == 200, answer
    assert api.call("PATCH", old, {"spec": CASES[kind][0]}, kind=MERGE_PATCH)[0] == 403, "it had let go of that"


def test_other_namespaces_are_free(api: ApiServer, tenant: str, namespace: str) -> None:
    for denied, _, _ in CASES.values():
        assert create(api, namespace, denied) == (201, "")


def test_a_profile_has_no_priority_class_to_ask_for(api: ApiServer, tenant: str) -> None:
    body = profile("urgent", agent={"priorityClassName": "system-node-critical"})
    code, answer = api.call("POST", path(tenant, PROFILE_PLURAL), body, fieldValidation="Strict")
    assert (code, 'unknown field "spec.agent.priorityClassName"' in answer.get("message", "")) == (400, True)


def said(cluster: Lab, namespace: str, kind: str, labels: dict[str, str], user: str = "") -> str:
    """What the API server says to a new Job or pod (dry run) of this user, who has all rights; empty: it is taken."""
    spec = {"template": {"spec": POD}} if kind == "jobs" else POD
    version, name = ("batch/v1", "Job") if kind == "jobs" else ("v1", "Pod")
    meta = {"name": "forged", "labels": labels, "ownerReferences": [] if kind == "jobs" else [OWNER]}
    body = {"apiVersion": version, "kind": name, "metadata": meta, "spec": spec}
    acting = (f"--as={user}", "--as-group=system:masters") if user else ()
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", "-n", namespace, *acting, stdin=json.dumps(body))
    except KubectlError as error:
        return " ".join(str(error).split())
    return ""


@pytest.mark.parametrize(("kind", "maker", "other"), [("jobs", OPERATOR, CONTROLLER), ("pods", CONTROLLER, OPERATOR)])
def test_agents_are_made_by_the_operator_and_the_job_controller_alone(
    cluster: Lab, tenant: str, namespace: str, kind: str, maker: str, other: str
) -> None:
    assert said(cluster, tenant, kind, AGENT, maker) == ""
    assert said(cluster, tenant, kind, {LABEL_APP: "trainer"}) == ""
    assert said(cluster, namespace, kind, AGENT) == "", "another namespace is free"
    told = said(cluster, tenant, kind, AGENT, other)
    expected = (
        f"metadata.labels: {other} may not make {kind} with app.kubernetes.io/name: precision-agent, which the "
        "operator takes for its agents. Choose another name."
    )
    assert expected in told


def test_the_job_controller_makes_no_agent_of_another_job_than_its_own(cluster: Lab, tenant: str) -> None:
    """A Job with `manualSelector` names any other one in its pods' labels."""
    assert said(cluster, tenant, "pods", AGENT, CONTROLLER) == ""
    for forged in (AGENT | {OF_JOB: "uid-of-the-operators-job"}, {LABEL_APP: AGENT_APP}):
        assert "which the operator takes for its agents" in said(cluster, tenant, "pods", forged, CONTROLLER)


def test_a_pod_of_an_agent_is_not_given_to_another_job(cluster: Lab, api: ApiServer, tenant: str) -> None:
    job = {"metadata": {"name": "maker"}, "spec": {"suspend": True, "template": {"spec": POD}}}
    code, maker = api.call("POST", paths.jobs(tenant), job)
    assert code == 201, maker
    owner = OWNER | {"uid": maker["metadata"]["uid"]}
    meta = {"name": "agent", "labels": AGENT | {OF_JOB: owner["uid"]}, "ownerReferences": [owner]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": POD}
    acting = (f"--as={CONTROLLER}", "--as-group=system:masters")
    cluster.kubectl("create", "-f", "-", "-n", tenant, *acting, stdin=json.dumps(body))
    path = paths.item(paths.pods(tenant), "agent")
    for changes in ({"labels": {OF_JOB: "another"}}, {"ownerReferences": [owner | {"uid": "another"}]}):
        code, answer = api.call("PATCH", path, {"metadata": changes}, kind=MERGE_PATCH)
        assert (code, "which the operator takes for its agents" in answer.get("message", "")) == (403, True), changes
    assert api.call("PATCH", path, {"metadata": {"labels": {"team": "a"}}}, kind=MERGE_PATCH)[0] == 200


def test_the_agents_label_is_not_put_on_later(cluster: Lab, api: ApiServer, tenant: str) -> None:
    job = {"metadata": {"name": "plain"}, "spec": {"suspend": True, "template": {"spec": POD}}}
    assert api.call("POST", paths.jobs(tenant), job)[0] == 201
    labels = {"metadata": {"labels": AGENT}}
    code, answer = api.call("PATCH", paths.item(paths.jobs(tenant), "plain"), labels, kind=MERGE_PATCH)
    assert (code, "which the operator takes for its agents" in answer.get("message", "")) == (403, True)
