"""What the API server refuses, that its message names the field and what to do, and that we refuse and say the same."""

from typing import Any

import pytest
from pydantic import ValidationError

from precision_api.facts.names import PROFILE_PLURAL
from precision_api.facts.schema import Document
from precision_api.kinds.capacity_plan import PlanJob
from precision_api.kinds.profile import ProfileSpec
from tests.support.api_server import ApiServer
from tests.support.custom_resources import MODEL, SIZES, path, profile

Invalid = tuple[str, Any, tuple[str, ...]]


def of(place: str, words: str, **value: Any) -> Invalid:
    """A value of the place's first field that is refused there in these words."""
    return place.partition(".")[0], value, (f"spec.{place}", words)


def of_expression(words: str, **expression: Any) -> Invalid:
    return of("target.matchExpressions[0]", words, matchExpressions=[{"key": "a", **expression}])


def of_workload(words: str, **workload: Any) -> Invalid:
    """A workload that is refused in these words."""
    return of("workload", words, name="x", **workload)


def of_model(words: str, *parts: dict[str, Any], at: str = "") -> Invalid:
    """The plain model with these parts, refused in these words."""
    model = {name: value for part in (MODEL, *parts) for name, value in part.items()}
    return "workload", {"name": "x", "model": model, **SIZES}, (f"spec.workload.model{at}", words)


HYBRID = {"mambaLayers": 8, "attentionLayers": 8, "mambaHeads": 8, "mambaHeadDim": 64, "groups": 8, "stateSize": 128}
LATENT = {"headDim": 192, "latentAttention": {"keyValueRank": 512, "ropeHeadDim": 64, "valueHeadDim": 128}}
WINDOW = {"slidingWindow": {"size": 8, "windowedLayers": 2}}
EXPERTS = {"numExperts": 4, "topK": 2}
REFERENCE = {"name": "h100-jan", "sha256": "0" * 64}
ONE_SHAPE = [{"m": 1, "k": 1, "n": 1}]

INVALID: dict[str, Invalid] = {
    "no workload": ("workload", None, ("spec.workload", "Required value")),
    "a workload without a source": of("workload", "give exactly one of model, preset"),
    "two sources": of_workload("give exactly one of model, preset", preset="llama3-8b", shapes=ONE_SHAPE),
    "a preset nobody knows": of("workload.preset", 'supported values: "codonfm-5b"', preset="gpt-9"),
    "a zero shape": of(
        "workload.shapes[0].m", "greater than or equal to 1", name="x", shapes=[{"m": 0, "k": 1, "n": 1}]
    ),
    "shapes without a name": of("workload", "name is required", shapes=ONE_SHAPE),
    "cordoned nodes without names": of(
        "target", "cordoned: Include needs nodeNames: name the cordoned nodes to measure", cordoned="Include"
    ),
    "shapes that are split over GPUs": of_workload(
        "gemms and shapes are taken literally: leave tensorParallel", shapes=ONE_SHAPE, tensorParallel=2
    ),
    "gemms whose experts are spread": of_workload("describe the model instead", gemms=["1x1x1"], expertParallel=2),
    "a GEMM that is no text of three numbers": of(
        "workload.gemms[0]",
        "write each GEMM as MxKxN with whole numbers, for example 15872x4096x12288",
        name="x",
        gemms=["64x64"],
    ),
    "gemms and shapes at once": of_workload("give exactly one of model", gemms=["64x64x64"], shapes=ONE_SHAPE),
    "gemms with tokens": of_workload("mean nothing with gemms or shapes", gemms=["64x64x64"], sequenceLength=1),
    "a model without sizes": of_workload("microBatchSize and sequenceLength are required with model", model=MODEL),
    "a model with one size": of_workload("are required with model", model=MODEL, microBatchSize=1),
    "heads that do not divide": of_model("hiddenSize must be a multiple of numAttentionHeads", {"hiddenSize": 4095}),
    "keys that do not divide": of_model("must be a multiple of numKeyValueHeads", {"numKeyValueHeads": 5}),
    "a head without a vocabulary": of_model("tiedEmbedding needs vocabSize", {"tiedEmbedding": True}),
    "more experts asked than there are": of_model(
        "topK must be at most moe.numExperts", {"moe": EXPERTS | {"topK": 8}}, at=".moe"
    ),
    "a gate of no expert": of_model("needs a shared expert", {"moe": EXPERTS | {"sharedExpertGate": True}}, at=".moe"),
    "no layer with experts": of_model("denseLayers must be less", {"moe": EXPERTS | {"denseLayers": 24}}),
    "more windows than layers": of_model(
        "windowedLayers must be at most", {"slidingWindow": {"size": 8, "windowedLayers": 25}}
    ),
    "a window without a mask": of_model("only known with causal attention", WINDOW, {"causal": False}),
    "more mixers than layers": of_model("at most numHiddenLayers", {"hybrid": HYBRID | {"mambaLayers": 20}}),
    "groups that do not divide": of_model("a multiple of hybrid.groups", {"hybrid": HYBRID | {"groups": 3}}),
    "a hybrid with latent attention": of_model("plain attention alone", LATENT, {"hybrid": HYBRID}),
    "a hybrid with windows": of_model("plain attention alone", WINDOW, {"hybrid": HYBRID}),
    "latent attention in narrow heads": of_model("latentAttention needs headDim", LATENT, {"headDim": 64}),
    "latent attention of few keys": of_model("leave numKeyValueHeads out", LATENT, {"numKeyValueHeads": 8}),
    "latent attention with norms": of_model("leave qkvBias and qkNorm out", LATENT, {"qkNorm": "PerHead"}),
    "latent attention with biases": of_model("leave qkvBias and qkNorm out", LATENT, {"qkvBias": True}),
    "a pattern of modules without a hybrid": of_model(
        "mtp.pattern belongs to hybrid models, and only to them", {"mtp": {"modules": 1, "pattern": "*"}}
    ),
    "modules of experts without any": of_model(
        "mtp.pattern names experts (E)", {"hybrid": HYBRID, "mtp": {"modules": 1, "pattern": "E"}}
    ),
    "a config from nowhere": of(
        "workload.huggingFaceConfig",
        "give exactly one of text and configMapKeyRef",
        name="x",
        huggingFaceConfig={},
        **SIZES,
    ),
    "an unknown recipe": ("recipes", ["fp7"], ("spec.recipes[0]", 'supported values: "bf16"')),
    "a recipe twice": ("recipes", ["bf16", "bf16"], ("spec.recipes", "list each one once")),
    "a product of no name": of("target.products[0]", "write a GPU's name", products=["-"]),
    "too many names": of("target.nodeNames", "must have at most 1024 items", nodeNames=[f"n{i}" for i in range(1025)]),
    "In without values": of_expression("values must be set for In", operator="In"),
    "Exists with values": of_expression("left out for Exists", operator="Exists", values=["b"]),
    "Gt with a word": of_expression("an integer written as a string", operator="Gt", values=["many"]),
    "nothing to measure": of(
        "benchmarks", "enable gemm or training", gemm={"enabled": False}, training={"enabled": False}
    ),
    "a reference without its hash": of(
        "acceptance.reference.sha256",
        "write the 64 digits that `reference show` prints",
        reference={"name": "h100-jan", "sha256": "abc"},
    ),
    "a deficit of nothing": of(
        "acceptance.mustDetectPercent.node",
        "greater than or equal to 1",
        reference=REFERENCE,
        mustDetectPercent={"node": 0},
    ),
    "a verdict on what does not train": (
        "spec",
        {"acceptance": {"reference": REFERENCE}, "benchmarks": {"training": {"enabled": False}}},
        ("spec", "acceptance judges training rates: enable benchmarks.training"),
    ),
    "a verdict on a recipe that is not measured": (
        "spec",
        {"acceptance": {"reference": REFERENCE, "recipes": ["mxfp8"]}, "recipes": ["nvfp4"]},
        ("spec", "acceptance.recipes names a recipe that is not measured: add it to recipes"),
    ),
    "a verdict on results that are not kept": (
        "spec",
        {"acceptance": {"reference": REFERENCE}, "retention": {"detail": "None"}},
        ("spec", "acceptance judges full results: set retention.detail to Full"),
    ),
    "no mode": of("benchmarks.gemm.modes", "at least 1 items", gemm={"modes": []}),
    "no agent at a time": of("rollout.maxConcurrent", "from 1 on", maxConcurrent=0),
    "no per cent": of("rollout.maxConcurrent", 'from "1%" to "100%"', maxConcurrent="0%"),
    "more than all": of("rollout.maxConcurrent", 'from "1%" to "100%"', maxConcurrent="101%"),
    "half an agent": of("rollout.maxConcurrent", "must be of type integer", maxConcurrent=1.5),
    "an image with a space": of("agent.image", "write an image reference", image="a b"),
    "a toleration of everything": of(
        "agent.tolerations[0].key", "Required value", tolerations=[{"operator": "Exists"}]
    ),
    "Exists with a value": of(
        "agent.tolerations[0]",
        "value must be left out when operator is Exists",
        tolerations=[{"key": "a", "operator": "Exists", "value": "b"}],
    ),
    "a memory limit of 0, which is none": of(
        "agent.resources.memory", "write a Kubernetes quantity above 0", resources={"memory": "0Gi"}
    ),
    "no quantity": of("agent.resources.memory", "for example 4, 500m", resources={"memory": "lots"}),
    "no duration": of("retention.deletedNodes", "for example 24h", deletedNodes="1 week"),
    "slow by nothing": of("thresholds.slowNodePercent", "equal to 1", slowNodePercent=0),
    "a field with a typing error": ("maxConcurent", 2, ('unknown field "spec.maxConcurent"',)),
}


CASES = pytest.mark.parametrize(("field", "value", "told"), INVALID.values(), ids=INVALID.keys())
RULES = {rule.message for document in Document.__subclasses__() for rule in document.RULES}


def spec_with(field: str, value: Any) -> dict[str, Any]:
    """The smallest spec with another value of a field (None: without it), or with several fields."""
    changes = value if field == "spec" else {field: value}
    return {key: item for key, item in (profile()["spec"] | changes).items() if item is not None}


@pytest.mark.cluster
@CASES
def test_an_invalid_profile_is_refused_with_field_and_remedy(
    field: str, value: Any, told: tuple[str, ...], api: ApiServer
) -> None:
    body = profile() | {"spec": spec_with(field, value)}
    code, answer = api.call("POST", path("default", PROFILE_PLURAL), body, dryRun="All", fieldValidation="Strict")
    assert code in (400, 422)
    assert [fragment for fragment in told if fragment not in answer["message"]] == []


@CASES
def test_the_models_refuse_the_same_and_a_rule_between_fields_in_the_same_words(
    field: str, value: Any, told: tuple[str, ...]
) -> None:
    with pytest.raises(ValidationError) as refused:
        ProfileSpec.model_validate(spec_with(field, value))
    said = {error["msg"].removeprefix("Value error, ") for error in refused.value.errors()}
    expected = {message for message in RULES if told[-1] in message}
    assert expected & said or not expected


def test_every_rule_between_fields_of_a_profile_is_broken_once() -> None:
    elsewhere = {"size must be above 0", *(rule.message for rule in PlanJob.RULES)}
    assert [rule for rule in RULES - elsewhere if not any(told[-1] in rule for _, _, told in INVALID.values())] == []
