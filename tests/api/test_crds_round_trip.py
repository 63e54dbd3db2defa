"""Any object that the models accept comes back from a real API server as it was written: nothing pruned or changed."""

from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_api.facts.names import API_VERSION
from precision_api.kinds import crdgen
from precision_api.kinds.profile import ProfileSpec, ProfileStatus
from precision_api.kinds.report import ReportSpec, ReportStatus
from tests.support.api_server import ApiServer
from tests.support.custom_resources import SIZES, path
from tests.support.random_documents import Raw, documents

pytestmark = pytest.mark.cluster

SOURCES = ("model", "preset", "huggingFaceConfig", "shapes")


def _one_source(raw: Raw) -> Raw:
    given = [source for source in SOURCES if source in raw] or ["preset"]
    kept = given[len(raw) % len(given)]
    rest = {name: value for name, value in raw.items() if name not in SOURCES or name == kept}
    if kept == "shapes":
        whole = {"name": "w", **rest, "tensorParallel": 1, "expertParallel": 1}
        return {name: value for name, value in whole.items() if name not in SIZES}
    return {"name": "w", **({"preset": "llama3-8b"} if kept == "preset" else SIZES), **rest}


def _numbers_that_fit(raw: Raw) -> Raw:
    layers = {"numHiddenLayers": 2048, "numKeyValueHeads": raw["numAttentionHeads"], "headDim": 128}
    return {**raw, **layers, "vocabSize": 32000, "causal": True}


def _values_that_fit(raw: Raw) -> Raw:
    without = {name: value for name, value in raw.items() if name != "values"}
    return without if "Exist" in raw["operator"] else {**without, "values": ["1"]}


REPAIRS = {
    "Workload": _one_source,
    "ModelSpec": _numbers_that_fit,
    "MoE": lambda raw: raw | {"topK": min(raw["topK"], raw["numExperts"]), "sharedExpertGate": False, "denseLayers": 1},
    "MatchExpression": _values_that_fit,
    "ProfileStatus": lambda raw: raw | {"conditions": [*{it["type"]: it for it in raw.get("conditions", [])}.values()]},
}


def _round_trip(api: ApiServer, namespace: str, kind: crdgen.ResourceKind, spec: Raw, status: Raw) -> tuple[Raw, Raw]:
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
