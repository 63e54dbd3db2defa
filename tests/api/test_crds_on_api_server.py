"""The CustomResourceDefinitions as a real API server understands them: what it accepts, refuses, fills in and shows."""

import json
import subprocess
from typing import Any

import pytest

from precision_api.facts.names import API_VERSION, GROUP, PROFILE_PLURAL, REPORT_PLURAL
from precision_api.kinds import crdgen
from precision_api.kinds.profile import ProfileSpec
from tests.support.api_server import MERGE_PATCH, SERVER_SIDE_APPLY, ApiServer
from tests.support.custom_resources import MODEL, NOW, SIZES, condition, path, profile, report
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.cluster


def reported(api: ApiServer, namespace: str) -> None:
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    api.call("POST", path(namespace, REPORT_PLURAL), report(owner))


@pytest.mark.parametrize("kind", crdgen.KINDS, ids=lambda kind: kind.kind)
def test_the_server_finds_the_schema_structural_and_keeps_every_word(kind: crdgen.ResourceKind, api: ApiServer) -> None:
    _, found = api.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.plural}.{GROUP}")
    conditions = {row["type"]: row["status"] for row in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert found["spec"]["versions"] == crdgen.definition(kind)["spec"]["versions"]


def test_the_server_fills_in_what_the_models_call_default(api: ApiServer, namespace: str) -> None:
    workload = {"name": "x", "model": MODEL, **SIZES}
    code, stored = api.call("POST", path(namespace, PROFILE_PLURAL), profile(workload=workload, benchmarks={}))
    assert code == 201
    wanted = ProfileSpec.model_validate({"workload": workload}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    assert ProfileSpec.model_validate(stored["spec"]) == ProfileSpec.model_validate({"workload": workload})
    assert stored["spec"]["benchmarks"] == wanted["benchmarks"]
    assert stored["spec"]["rollout"] == {
        "maxConcurrent": 1,
        "maxImagePulls": 2,
        "rampSeconds": 0,
        "retry": {"limit": 2, "backoffSeconds": 60},
    }
    assert stored["spec"]["workload"]["model"]["qkNorm"] == "None"


def test_a_null_in_the_spec_means_the_default(api: ApiServer, namespace: str) -> None:
    _, stored = api.call("POST", path(namespace, PROFILE_PLURAL), profile(rollout=None, benchmarks={"gemm": None}))
    assert stored["spec"]["rollout"]["maxConcurrent"] == 1
    assert stored["spec"]["benchmarks"]["gemm"]["enabled"] is True


def _undescribed(node: dict[str, Any], at: str) -> list[str]:
    fields = node.get("properties", {})
    own = [f"{at}.{name}" for name, field in fields.items() if not field.get("description") and name != "metadata"]
    below = [(field, f"{at}.{name}") for name, field in fields.items()]
    below += [(node[key], f"{at}[]") for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
    return own + [name for child, where in below for name in _undescribed(child, where)]


@pytest.mark.parametrize("kind", crdgen.KINDS, ids=lambda kind: kind.kind)
def test_every_field_that_the_server_publishes_is_described(kind: crdgen.ResourceKind, api: ApiServer) -> None:
    _, published = api.call("GET", f"/openapi/v3/apis/{API_VERSION}")
    schema = next(
        schema
        for schema in published["components"]["schemas"].values()
        if {"group": GROUP, "kind": kind.kind, "version": "v1alpha1"}
        in schema.get("x-kubernetes-group-version-kind", [])
    )
    assert _undescribed(schema, kind.kind) == []


def test_kubectl_explain_knows_fields_by_short_name(kubectl: Kubectl) -> None:
    tree = kubectl("explain", "pp", "--recursive")
    assert {"nodeSelector", "huggingFaceConfig", "maxConcurrent", "slowNodes"} <= set(tree.replace("\t", " ").split())
    assert "per cent of the eligible nodes" in " ".join(kubectl("explain", "pp.spec.rollout.maxConcurrent").split())
    assert "UID of the node" in " ".join(kubectl("explain", "npr.spec.nodeUID").split())


def test_kubectl_get_shows_the_columns_of_a_profile(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    kubectl.apply(profile("fleet"))
    status = {
        "phase": "Running", "progress": "412/1024", "nodes": {"failed": 3, "slow": 1, "waiting": 7, "skipped": 2},
        "data": "measured", "eta": "14:35Z", "etaTime": "2026-11-21T14:35:00Z", "waitsFor": "Busy (7)",
        "lastRun": "2026-11-20T10:00:00Z", "nextRun": "2026-11-21T10:00:00Z", "best": "nvfp4 1.62x",
        "teraflopsPerGPU": "1550", "tokensPerJoule": "8.1", "run": "r-1",
    }  # fmt: skip
    api.call("PATCH", path(namespace, PROFILE_PLURAL, "fleet", "status"), {"status": status}, MERGE_PATCH)
    head, row = kubectl("get", "pp").splitlines()
    assert head.split() == ["NAME", "PHASE", "NODES", "FAILED", "SLOW", "ETA", "NEXT", "WAITS", "FOR", "DATA", "AGE"]
    begins, ended = "2026-11-21T10:00:00Z", "2026-11-20T10:00:00Z"
    assert row.split()[:-1] == ["fleet", "Running", "412/1024", "3", "1", "14:35Z", begins, "Busy", "(7)", "measured"]
    head, row = kubectl("get", "pp", "-o", "wide").splitlines()
    assert head.split()[11:] == ["BEST", "TFLOP/S/GPU", "TOKENS/J", "WAITING", "SKIPPED", "ACCEPTED", "LAST", "RUN"]
    assert row.split()[11:] == ["nvfp4", "1.62x", "1550", "8.1", "7", "2", ended, "r-1"]


def test_kubectl_get_shows_the_columns_of_a_report(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    reported(api, namespace)
    attempt = {"run": "r-1", "number": 1, "outcome": "failed", "reason": "GPUBusy", "finishedAt": NOW}
    hardware = {"product": "GB200", "gpus": 4, "pool": "NVIDIA-GB200"}
    figures = {
        "state": "Failed",
        "best": "mxfp8",
        "teraflopsPerGPU": "1440",
        "tokensPerJoule": "7.2",
        "data": "measured",
        "acceptance": {"verdict": "Fail", "reason": "TooSlow"},
    }
    status = {"hardware": hardware, "software": {"driver": "580.1"}, "attempt": attempt, **figures}
    api.call("PATCH", path(namespace, REPORT_PLURAL, "r", "status"), {"status": status}, MERGE_PATCH)
    head, row = kubectl("get", "npr", "-o", "wide").splitlines()
    narrow = ["NAME", "NODE", "PROFILE", "PRODUCT", "STATE", "BEST", "TFLOP/S/GPU", "DATA", "AGE"]
    assert head.split() == [*narrow, "TOKENS/J", "REASON", "DRIVER", "VERDICT", "WHY"]
    assert [word for number, word in enumerate(row.split()) if number != 8] == [
        *("r", "node-1", "p", "GB200", "Failed", "mxfp8", "1440", "measured"),
        *("7.2", "GPUBusy", "580.1", "Fail", "TooSlow"),
    ]


def test_both_kinds_are_listed_by_their_category(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    reported(api, namespace)
    listed = kubectl("get", "precision", "-o", "name").split()
    assert sorted(listed) == [f"nodeprecisionreport.{GROUP}/r", f"precisionprofile.{GROUP}/p"]


def test_kubectl_wait_returns_when_the_profile_is_complete(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    kubectl.apply(profile())
    wait = kubectl.arguments("wait", "--for=condition=Complete", "--timeout=60s", "pp/p")
    with subprocess.Popen(wait, stdout=subprocess.PIPE, text=True) as waiting:
        status = {"status": {"conditions": [condition("Complete")]}}
        api.call("PATCH", path(namespace, PROFILE_PLURAL, "p", "status"), status, MERGE_PATCH)
        said, _ = waiting.communicate(timeout=90)
    assert (waiting.returncode, said.strip()) == (0, f"precisionprofile.{GROUP}/p condition met")


def test_applying_a_profile_twice_changes_nothing(kubectl: Kubectl) -> None:
    assert kubectl.apply(profile()).strip() == f"precisionprofile.{GROUP}/p created"
    first = json.loads(kubectl("get", "pp", "p", "-o", "json"))["metadata"]
    assert kubectl.apply(profile()).strip() == f"precisionprofile.{GROUP}/p unchanged"
    second = json.loads(kubectl("get", "pp", "p", "-o", "json"))["metadata"]
    assert (second["resourceVersion"], second["generation"]) == (first["resourceVersion"], first["generation"])


def test_server_side_apply_keeps_each_manager_to_its_own_fields(api: ApiServer, namespace: str) -> None:
    where = path(namespace, PROFILE_PLURAL, "p")
    code, first = api.call("PATCH", where, profile(recipes=["bf16"]), SERVER_SIDE_APPLY, fieldManager="team")
    assert code == 201
    _, again = api.call("PATCH", where, profile(recipes=["bf16"]), SERVER_SIDE_APPLY, fieldManager="team")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    paused = profile(suspend=True)
    del paused["spec"]["workload"]
    code, both = api.call("PATCH", where, paused, SERVER_SIDE_APPLY, fieldManager="on-call")
    assert (code, both["spec"]["suspend"], both["spec"]["recipes"]) == (200, True, ["bf16"])
    code, refused = api.call("PATCH", where, profile(suspend=False), SERVER_SIDE_APPLY, fieldManager="team")
    assert code == 409
    assert ".spec.suspend" in refused["message"]


def test_conditions_of_a_profile_merge_by_type(api: ApiServer, namespace: str) -> None:
    api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    where = path(namespace, PROFILE_PLURAL, "p", "status")
    for manager, kind in (("a", "Accepted"), ("b", "Complete")):
        body = profile() | {"status": {"conditions": [condition(kind)]}}
        del body["spec"]
        api.call("PATCH", where, body, SERVER_SIDE_APPLY, fieldManager=manager)
    _, found = api.call("GET", where)
    assert [row["type"] for row in found["status"]["conditions"]] == ["Accepted", "Complete"]


def test_status_and_spec_are_written_by_different_doors(api: ApiServer, namespace: str) -> None:
    _, made = api.call("POST", path(namespace, PROFILE_PLURAL), profile() | {"status": {"phase": "Complete"}})
    assert "status" not in made
    body = {"status": {"phase": "Running"}, "spec": {"suspend": True}}
    _, by_status = api.call("PATCH", path(namespace, PROFILE_PLURAL, "p", "status"), body, MERGE_PATCH)
    assert (by_status["status"], by_status["spec"]["suspend"]) == ({"phase": "Running"}, False)
    assert by_status["metadata"]["generation"] == 1
    _, by_spec = api.call("PATCH", path(namespace, PROFILE_PLURAL, "p"), body | {"status": {}}, MERGE_PATCH)
    assert (by_spec["status"], by_spec["spec"]["suspend"]) == ({"phase": "Running"}, True)
    assert by_spec["metadata"]["generation"] == 2


def test_a_report_can_not_be_given_to_another_node(api: ApiServer, namespace: str) -> None:
    reported(api, namespace)
    moved = {"spec": {"nodeName": "node-2"}}
    code, answer = api.call("PATCH", path(namespace, REPORT_PLURAL, "r"), moved, MERGE_PATCH)
    assert code == 422
    assert "spec is immutable: a report belongs to one profile and node" in answer["message"]


def test_reports_go_when_their_profile_is_deleted(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    reported(api, namespace)
    code, _ = api.call("DELETE", path(namespace, PROFILE_PLURAL, "p"))
    assert code == 200
    kubectl("wait", "--for=delete", "npr/r", "--timeout=60s")
    assert api.call("GET", path(namespace, REPORT_PLURAL, "r"))[0] == 404


def test_the_report_of_a_node_is_found_by_the_nodes_name(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    for name, node in (("r", "node-1"), ("s", "node-2")):
        made = report(owner, name)
        made["spec"]["nodeName"] = node
        api.call("POST", path(namespace, REPORT_PLURAL), made)
    for selector in ("spec.nodeName=node-2", "spec.profile=p,spec.nodeName=node-2"):
        assert kubectl("get", "npr", f"--field-selector={selector}", "-o", "name").strip().endswith("/s")
    assert kubectl("get", "npr", "--field-selector=spec.profile=q", "-o", "name") == ""
