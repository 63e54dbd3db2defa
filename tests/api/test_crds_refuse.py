"""What the API server refuses, and that its message names the field and what to do."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from precision_api.facts.names import PROFILE_PLURAL
from tests.support.api_server import ApiServer
from tests.support.custom_resources import MODEL, SIZES, path, profile
from tests.support.kubectl import Kubectl

pytestmark = pytest.mark.cluster

INVALID: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "no workload": ("workload", None, ("spec.workload", "Required value")),
    "a workload without a source": ("workload", {}, ("spec.workload", "give exactly one of model, preset")),
    "two sources": (
        "workload",
        {"preset": "llama3-8b", "shapes": [{"m": 1, "k": 1, "n": 1}]},
        ("spec.workload", "give exactly one of model, preset, huggingFaceConfig, gemms and shapes"),
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
    "cordoned nodes without names": (
        "target",
        {"cordoned": "Include"},
        ("spec.target", "cordoned: Include needs nodeNames: name the cordoned nodes to measure"),
    ),
    "shapes that are split over GPUs": (
        "workload",
        {"name": "x", "shapes": [{"m": 1, "k": 1, "n": 1}], "tensorParallel": 2},
        ("spec.workload", "gemms and shapes are taken literally: leave tensorParallel and expertParallel out"),
    ),
    "shapes whose experts are spread": (
        "workload",
        {"name": "x", "shapes": [{"m": 1, "k": 1, "n": 1}], "expertParallel": 2},
        ("spec.workload", "shapes are taken literally", "describe the model instead"),
    ),
    "a GEMM that is no text of three numbers": (
        "workload",
        {"name": "x", "gemms": ["64x64"]},
        ("spec.workload.gemms[0]", "write each GEMM as MxKxN with whole numbers, for example 15872x4096x12288"),
    ),
    "gemms and shapes at once": (
        "workload",
        {"name": "x", "gemms": ["64x64x64"], "shapes": [{"m": 1, "k": 1, "n": 1}]},
        ("spec.workload", "give exactly one of model, preset, huggingFaceConfig, gemms and shapes"),
    ),
    "gemms with tokens": (
        "workload",
        {"name": "x", "gemms": ["64x64x64"], "sequenceLength": 1},
        ("spec.workload", "mean nothing with gemms or shapes"),
    ),
    "a pattern of modules without a hybrid": (
        "workload",
        {"name": "x", "model": {**MODEL, "mtp": {"modules": 1, "pattern": "*"}}, **SIZES},
        ("spec.workload.model", "mtp.pattern belongs to hybrid models, and only to them"),
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
    "a product of no name": (
        "target",
        {"products": ["-"]},
        ("spec.target.products[0]", "write a GPU's name"),
    ),
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
    "a memory limit of 0, which is none": (
        "agent",
        {"resources": {"memory": "0Gi"}},
        ("spec.agent.resources.memory", "write a Kubernetes quantity above 0"),
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
