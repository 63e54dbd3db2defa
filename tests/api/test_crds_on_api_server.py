"""The CustomResourceDefinitions as a real API server understands them: what it accepts, refuses, fills in and shows."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_api import crdgen
from precision_api.names import API_VERSION, GROUP, PROFILE_KIND, PROFILE_PLURAL, REPORT_KIND, REPORT_PLURAL
from precision_api.profile import ProfileSpec, ProfileStatus
from precision_api.report import ReportSpec, ReportStatus
from tests.support.api_server import MERGE_PATCH, SERVER_SIDE_APPLY, ApiServer
from tests.support.kubectl import Kubectl
from tests.support.random_documents import Raw, documents

pytestmark = pytest.mark.cluster

CRDS = Path(crdgen.__file__).parent.parent
MODEL = {"hiddenSize": 4096, "intermediateSize": 16384, "numAttentionHeads": 32, "numHiddenLayers": 24}
SIZES = {"microBatchSize": 2, "sequenceLength": 512}
NOW = "2026-03-01T10:00:00Z"


@pytest.fixture(scope="module")
def api(cluster: Any, kubectl_everywhere: Kubectl) -> ApiServer:
    return ApiServer(cluster.kubeconfig)


@pytest.fixture
def namespace(api: ApiServer) -> Iterator[str]:
    name = f"crd-{uuid4().hex[:8]}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(cluster: Any, kubectl_everywhere: Kubectl, namespace: str) -> Kubectl:
    return Kubectl(kubectl_everywhere.program, cluster.kubeconfig, namespace)


def profile(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": PROFILE_KIND,
        "metadata": {"name": name},
        "spec": {"workload": {"preset": "llama3-8b"}, **spec},
    }


def report(owner: dict[str, Any], name: str = "r") -> dict[str, Any]:
    metadata = owner["metadata"]
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": API_VERSION,
        "kind": REPORT_KIND,
        "metadata": {"name": name, "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": False}]},
        "spec": {"profile": metadata["name"], "nodeName": "node-1", "nodeUID": "uid-1"},
    }


def path(namespace: str, plural: str, *rest: str) -> str:
    return "/".join([f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}", *rest])


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "AllMeasured", "message": "done", "lastTransitionTime": NOW}


@pytest.mark.parametrize("kind", crdgen.KINDS, ids=lambda kind: kind.kind)
def test_the_server_serves_the_definition_and_finds_its_schema_structural(kind: crdgen.Kind, api: ApiServer) -> None:
    _, found = api.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.plural}.{GROUP}")
    conditions = {row["type"]: row["status"] for row in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("kind", crdgen.KINDS, ids=lambda kind: kind.kind)
def test_the_server_keeps_every_word_of_the_schema(kind: crdgen.Kind, api: ApiServer) -> None:
    _, found = api.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.plural}.{GROUP}")
    assert found["spec"]["versions"] == crdgen.definition(kind)["spec"]["versions"]


INVALID: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "no workload": ("workload", None, ("spec.workload", "Required value")),
    "a workload without a source": ("workload", {}, ("spec.workload", "give exactly one of model, preset")),
    "two sources": (
        "workload",
        {"preset": "llama3-8b", "shapes": [{"m": 1, "k": 1, "n": 1}]},
        ("spec.workload", "give exactly one of model, preset, huggingFaceConfig and shapes"),
    ),
    "a preset nobody knows": (
        "workload",
        {"preset": "gpt-9"},
        ("spec.workload.preset", 'supported values: "codonfm-5b"'),
    ),
    "a zero shape": (
        "workload",
        {"name": "x", "shapes": [{"m": 0, "k": 1, "n": 1}]},
        ("spec.workload.shapes[0].m", "greater than or equal to 1"),
    ),
    "shapes without a name": (
        "workload",
        {"shapes": [{"m": 1, "k": 1, "n": 1}]},
        ("spec.workload", "name is required"),
    ),
    "a model without sizes": (
        "workload",
        {"name": "x", "model": MODEL},
        ("spec.workload", "microBatchSize and sequenceLength are required with model"),
    ),
    "heads that do not divide": (
        "workload",
        {"name": "x", "model": {**MODEL, "hiddenSize": 4095}, **SIZES},
        ("spec.workload.model", "hiddenSize must be a multiple of numAttentionHeads", "give headDim"),
    ),
    "more experts asked than there are": (
        "workload",
        {"name": "x", "model": {**MODEL, "moe": {"numExperts": 4, "topK": 8}}, **SIZES},
        ("spec.workload.model.moe", "topK must be at most moe.numExperts"),
    ),
    "a config from nowhere": (
        "workload",
        {"name": "x", "huggingFaceConfig": {}, **SIZES},
        ("spec.workload.huggingFaceConfig", "give exactly one of text and configMapKeyRef"),
    ),
    "an unknown recipe": ("recipes", ["fp7"], ("spec.recipes[0]", 'supported values: "bf16"')),
    "a recipe twice": ("recipes", ["bf16", "bf16"], ("spec.recipes", "list each one once")),
    "an unknown product": ("target", {"products": ["A100"]}, ("spec.target.products[0]", 'supported values: "GB200"')),
    "too many names": (
        "target",
        {"nodeNames": [f"n{i}" for i in range(1025)]},
        ("spec.target.nodeNames", "must have at most 1024 items"),
    ),
    "In without values": (
        "target",
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        ("spec.target.matchExpressions[0]", "values must be set for In"),
    ),
    "Exists with values": (
        "target",
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        ("spec.target.matchExpressions[0]", "left out for Exists"),
    ),
    "Gt with a word": (
        "target",
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["many"]}]},
        ("spec.target.matchExpressions[0]", "an integer written as a string"),
    ),
    "nothing to measure": (
        "benchmarks",
        {"gemm": {"enabled": False}, "training": {"enabled": False}},
        ("spec.benchmarks", "enable gemm or training"),
    ),
    "no mode": ("benchmarks", {"gemm": {"modes": []}}, ("spec.benchmarks.gemm.modes", "at least 1 items")),
    "no agent at a time": ("rollout", {"maxConcurrent": 0}, ("spec.rollout.maxConcurrent", "from 1 on")),
    "no per cent": ("rollout", {"maxConcurrent": "0%"}, ("spec.rollout.maxConcurrent", 'from "1%" to "100%"')),
    "more than all": ("rollout", {"maxConcurrent": "101%"}, ("spec.rollout.maxConcurrent", 'from "1%" to "100%"')),
    "half an agent": ("rollout", {"maxConcurrent": 1.5}, ("spec.rollout.maxConcurrent", "must be of type integer")),
    "an image with a space": ("agent", {"image": "a b"}, ("spec.agent.image", "write an image reference")),
    "a toleration of everything": (
        "agent",
        {"tolerations": [{"operator": "Exists"}]},
        ("spec.agent.tolerations[0].key", "Required value"),
    ),
    "Exists with a value": (
        "agent",
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        ("spec.agent.tolerations[0]", "value must be left out when operator is Exists"),
    ),
    "no quantity": ("agent", {"resources": {"memory": "lots"}}, ("spec.agent.resources.memory", "for example 4, 500m")),
    "no duration": ("retention", {"deletedNodes": "1 week"}, ("spec.retention.deletedNodes", "for example 24h")),
    "slow by nothing": ("thresholds", {"slowNodePercent": 0}, ("spec.thresholds.slowNodePercent", "equal to 1")),
    "a field with a typing error": ("maxConcurent", 2, ('unknown field "spec.maxConcurent"',)),
}


@pytest.mark.parametrize(("field", "value", "told"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_profile_is_refused_with_field_and_remedy(
    field: str, value: Any, told: tuple[str, ...], api: ApiServer
) -> None:
    body = copy.deepcopy(profile())
    body["spec"] = {key: item for key, item in (body["spec"] | {field: value}).items() if item is not None}
    code, answer = api.call("POST", path("default", PROFILE_PLURAL), body, dryRun="All", fieldValidation="Strict")
    assert code in (400, 422)
    assert [fragment for fragment in told if fragment not in answer["message"]] == []


def test_kubectl_shows_the_refusal_of_a_field_that_does_not_exist(kubectl: Kubectl) -> None:
    refused = kubectl.run("apply", "-f", "-", stdin=json.dumps(profile(maxConcurent=2)))
    assert refused.returncode == 1
    assert 'unknown field "spec.maxConcurent"' in refused.stderr


def test_the_server_fills_in_what_the_models_call_default(api: ApiServer, namespace: str) -> None:
    workload = {"name": "x", "model": MODEL, **SIZES}
    code, stored = api.call("POST", path(namespace, PROFILE_PLURAL), profile(workload=workload, benchmarks={}))
    assert code == 201
    wanted = ProfileSpec.model_validate({"workload": workload}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    assert ProfileSpec.model_validate(stored["spec"]) == ProfileSpec.model_validate({"workload": workload})
    assert stored["spec"]["benchmarks"] == wanted["benchmarks"]
    assert stored["spec"]["rollout"] == {"maxConcurrent": 1}
    assert stored["spec"]["workload"]["model"]["qkNorm"] == "None"


def test_a_null_in_the_spec_means_the_default(api: ApiServer, namespace: str) -> None:
    _, stored = api.call("POST", path(namespace, PROFILE_PLURAL), profile(rollout=None, benchmarks={"gemm": None}))
    assert stored["spec"]["rollout"] == {"maxConcurrent": 1}
    assert stored["spec"]["benchmarks"]["gemm"]["enabled"] is True


SOURCES = ("model", "preset", "huggingFaceConfig", "shapes")


def _one_source(raw: Raw) -> Raw:
    given = [source for source in SOURCES if source in raw] or ["preset"]
    kept = given[len(raw) % len(given)]
    rest = {name: value for name, value in raw.items() if name not in SOURCES or name == kept}
    if kept == "shapes":
        return {"name": "w"} | {name: value for name, value in rest.items() if name not in SIZES}
    return {"name": "w", **({"preset": "llama3-8b"} if kept == "preset" else SIZES), **rest}


def _numbers_that_fit(raw: Raw) -> Raw:
    layers = {"numHiddenLayers": 2048, "numKeyValueHeads": raw["numAttentionHeads"], "headDim": 128}
    return {**raw, **layers, "vocabSize": 32000, "causal": True}


def _experts_that_fit(raw: Raw) -> Raw:
    return {**raw, "topK": min(raw["topK"], raw["numExperts"]), "sharedExpertGate": False, "denseLayers": 1}


def _values_that_fit(raw: Raw) -> Raw:
    without = {name: value for name, value in raw.items() if name != "values"}
    return without if "Exist" in raw["operator"] else {**without, "values": ["1"]}


def _types_once(raw: Raw) -> Raw:
    return raw | {"conditions": list({row["type"]: row for row in raw.get("conditions", [])}.values())}


REPAIRS = {
    "Workload": _one_source,
    "ModelSpec": _numbers_that_fit,
    "MoE": _experts_that_fit,
    "MatchExpression": _values_that_fit,
    "ProfileStatus": _types_once,
}


def _round_trip(api: ApiServer, namespace: str, kind: crdgen.Kind, spec: Raw, status: Raw) -> tuple[Raw, Raw]:
    """Spec and status as they are read back after they were written."""
    name, collection = f"fuzz-{uuid4().hex[:8]}", path(namespace, kind.plural)
    body = {"apiVersion": API_VERSION, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    code, made = api.call("POST", collection, body, fieldValidation="Strict")
    assert code == 201, made["message"]
    made["status"] = status
    code, answer = api.call("PUT", f"{collection}/{name}/status", made, fieldValidation="Strict")
    assert code == 200, answer["message"]
    _, read = api.call("GET", f"{collection}/{name}")
    api.call("DELETE", f"{collection}/{name}")
    return read["spec"], read["status"]


FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@FUZZ
@given(drawn=st.tuples(documents(ProfileSpec, REPAIRS), documents(ProfileStatus, REPAIRS)))
def test_any_valid_profile_comes_back_as_it_was_written(drawn: tuple[Raw, Raw], api: ApiServer) -> None:
    assert _round_trip(api, "default", crdgen.PROFILE, *drawn) == drawn


@FUZZ
@given(drawn=st.tuples(documents(ReportSpec), documents(ReportStatus)))
def test_any_valid_report_comes_back_as_it_was_written(drawn: tuple[Raw, Raw], api: ApiServer) -> None:
    assert _round_trip(api, "default", crdgen.REPORT, *drawn) == drawn


def _undescribed(schema: dict[str, Any], at: str) -> list[str]:
    fields = schema.get("properties", {})
    own = [f"{at}.{name}" for name, field in fields.items() if not field.get("description") and name != "metadata"]
    below = [(field, f"{at}.{name}") for name, field in fields.items()]
    below += [
        (schema[key], f"{at}[]") for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)
    ]
    return own + [name for child, where in below for name in _undescribed(child, where)]


@pytest.mark.parametrize("kind", crdgen.KINDS, ids=lambda kind: kind.kind)
def test_every_field_that_the_server_publishes_is_described(kind: crdgen.Kind, api: ApiServer) -> None:
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
        "phase": "Running",
        "progress": "412/1024",
        "nodes": {"failed": 3, "slow": 1, "waiting": 7, "skipped": 2},
        "data": "measured",
        "best": "nvfp4 1.62x",
        "tokensPerJoule": "8.1",
        "run": "r-1",
    }
    api.call("PATCH", path(namespace, PROFILE_PLURAL, "fleet", "status"), {"status": status}, MERGE_PATCH)
    head, row = kubectl("get", "pp").splitlines()
    assert head.split() == ["NAME", "PHASE", "NODES", "FAILED", "SLOW", "DATA", "AGE"]
    assert row.split()[:-1] == ["fleet", "Running", "412/1024", "3", "1", "measured"]
    head, row = kubectl("get", "pp", "-o", "wide").splitlines()
    assert head.split()[7:] == ["BEST", "TOKENS/J", "WAITING", "SKIPPED", "RUN"]
    assert row.split()[7:] == ["nvfp4", "1.62x", "8.1", "7", "2", "r-1"]


def test_kubectl_get_shows_the_columns_of_a_report(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    api.call("POST", path(namespace, REPORT_PLURAL), report(owner))
    attempt = {"run": "r-1", "number": 1, "outcome": "failed", "reason": "GPUBusy", "finishedAt": NOW}
    hardware = {"product": "GB200", "gpus": 4, "pool": "NVIDIA-GB200"}
    figures = {"state": "Failed", "best": "mxfp8", "tokensPerJoule": "7.2", "data": "measured"}
    status = {"hardware": hardware, "software": {"driver": "580.1"}, "attempt": attempt, **figures}
    api.call("PATCH", path(namespace, REPORT_PLURAL, "r", "status"), {"status": status}, MERGE_PATCH)
    head, row = kubectl("get", "npr", "-o", "wide").splitlines()
    narrow = ["NAME", "NODE", "PROFILE", "PRODUCT", "STATE", "BEST", "TOKENS/J", "DATA", "AGE"]
    assert head.split() == [*narrow, "REASON", "DRIVER"]
    assert [word for number, word in enumerate(row.split()) if number != 8] == [
        *("r", "node-1", "p", "GB200", "Failed", "mxfp8", "7.2", "measured"),
        *("GPUBusy", "580.1"),
    ]


def test_both_kinds_are_listed_by_their_category(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    api.call("POST", path(namespace, REPORT_PLURAL), report(owner))
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
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    api.call("POST", path(namespace, REPORT_PLURAL), report(owner))
    moved = {"spec": {"nodeName": "node-2"}}
    code, answer = api.call("PATCH", path(namespace, REPORT_PLURAL, "r"), moved, MERGE_PATCH)
    assert code == 422
    assert "spec is immutable: a report belongs to one profile and node" in answer["message"]


def test_reports_go_when_their_profile_is_deleted(kubectl: Kubectl, api: ApiServer, namespace: str) -> None:
    _, owner = api.call("POST", path(namespace, PROFILE_PLURAL), profile())
    api.call("POST", path(namespace, REPORT_PLURAL), report(owner))
    code, _ = api.call("DELETE", path(namespace, PROFILE_PLURAL, "p"))
    assert code == 200
    kubectl("wait", "--for=delete", "npr/r", "--timeout=60s")
    assert api.call("GET", path(namespace, REPORT_PLURAL, "r"))[0] == 404
