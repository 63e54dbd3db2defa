"""What a profile asks of its nodes, when that is a new question, and why it can't be asked."""

import json
from dataclasses import replace
from typing import Any

import pytest

from precision_api.exchange.request import LossRuns
from precision_api.facts.mixtures import Parts
from precision_operator.core.attempts.agent_request import measurement_request, too_large
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.observed import ProfileView
from precision_operator.core.reasons import REASONS, Said
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.small_model import FROM_CONFIG_MAP, SMALL_LLAMA
from tests.support.world import SETTINGS, WORKLOAD, at_once, observed, profile

TABLES = beside(__file__)

H100 = node_facts(node_object(name="n1"))
GB200 = node_facts(node_object({"nvidia.com/gpu.product": "NVIDIA-GB200"}, name="n2", gpus="4"))

GH200 = node_facts(node_object({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, name="n3", gpus="1"))


def asked(of: ProfileView, texts: dict[str, str] | None = None) -> ResolvedProfile:
    found = resolve_profile(of, observed(config_maps={("ml", "my-model"): texts}))
    assert isinstance(found, ResolvedProfile), found
    return found


def odd(**changes: Any) -> ProfileView:
    return profile(workload={"name": "odd", "shapes": [{"m": 40, "k": 64, "n": 64}]}, **changes)


def of_text(text: str) -> tuple[ProfileView, Any]:
    """A profile whose model is in a ConfigMap, and that with this text."""
    return profile(workload=FROM_CONFIG_MAP), {("ml", "my-model"): {"config.json": text}}


REFUSED: dict[str, tuple[ProfileView, Any, str, str]] = {
    "an image from elsewhere": (
        profile(agent={"image": "registry.example.org/agent"}),
        {},
        "ImageNotAllowed",
        "allowed prefixes (registry.example/)",
    ),
    "a config map in another namespace": (
        profile(workload=FROM_CONFIG_MAP),
        {("other", "my-model"): {"config.json": "{}"}},
        "ConfigMapMissing",
        "in namespace ml",
    ),
    "a text that is no JSON": (*of_text("hello"), "InvalidWorkload", "JSON"),
    "a text that is empty": (*of_text(""), "InvalidWorkload", "ConfigMap my-model, key config.json"),
    "an architecture that is unknown": (
        *of_text(json.dumps(SMALL_LLAMA | {"architectures": ["MambaForCausalLM"]})),
        "InvalidWorkload",
        "MambaForCausalLM",
    ),
    "a mixture's part that the shapes do not fit": (
        odd(recipes=["bf16"], mixtures=[{"name": "mine", "mlp": "mxfp8"}]), {}, "InvalidWorkload",
        "mixture mine: 40x64x64: mxfp8 needs dimensions that are multiples of 32, but m=40",
    ),
    "a mixture that is a recipe": (
        profile(recipes=["mxfp8"], mixtures=[{"name": "it", "mlp": "nvfp4", "mamba": "mxfp8"}]), {}, "InvalidWorkload",
        "mixture it is nvfp4 in all parts of this workload: list nvfp4 in its place",
    ),
    "a baseline that they do not fit": (
        odd(recipes=["bf16"], benchmarks={"baseline": "mxfp8"}), {}, "InvalidWorkload", "another benchmarks.baseline",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("of", "texts", "reason", "words"), REFUSED.values(), ids=REFUSED)
def test_a_profile_that_cannot_be_measured_is_told_why_and_what_to_do(
    of: ProfileView, texts: Any, reason: str, words: str
) -> None:
    resolved = resolve_profile(of, observed(config_maps=texts))
    assert isinstance(resolved, Said)
    assert resolved.reason == reason
    assert words in resolved.message
    assert REASONS[reason].kind == "profile"


@pytest.mark.parametrize(("prefix", "image", "allowed"), TABLES["images"])
def test_a_prefix_allows_whole_parts_of_a_path_only(prefix: str, image: str, allowed: bool) -> None:
    resolved = resolve_profile(
        profile(agent={"image": image}), observed(settings=replace(SETTINGS, allowed_images=(prefix,)))
    )
    assert isinstance(resolved, ResolvedProfile) is allowed


def test_the_operators_own_image_must_be_allowed_too() -> None:
    assert isinstance(resolve_profile(profile(), observed(settings=replace(SETTINGS, allowed_images=()))), Said)


def test_a_config_map_becomes_the_model_and_the_order_of_recipes_is_no_question() -> None:
    found = asked(profile(workload=FROM_CONFIG_MAP), {"config.json": json.dumps(SMALL_LLAMA)})
    assert (found.workload.model.hidden_size, found.workload.hugging_face_config) == (256, None)
    one, other = (profile(recipes=list(order)) for order in (("mxfp8", "nvfp4"), ("nvfp4", "mxfp8")))
    assert asked(one).run == asked(other).run


SAME: list[dict[str, Any]] = [
    {"rollout": at_once(9)},
    {"target": {"products": ["GB200"]}},
    {"retention": {"deletedNodes": "7d"}},
    {"thresholds": {"slowNodePercent": 20}},
    {"suspend": True},
    {"poolLabel": "rack"},
    {"workload": WORKLOAD | {"name": "another name"}},
    {"agent": {"image": SETTINGS.agent_image, "resources": {"cpu": "1"}}},
    {"agent": {"image": "registry.example/agent:2"}},  # a cause of its own, AgentChange: see the tests of what is due
]
NEW = TABLES["new"]


@pytest.mark.parametrize("change", SAME, ids=str)
def test_what_does_not_change_the_measurement_starts_no_new_run(change: dict[str, Any]) -> None:
    assert asked(profile(**change)).run == asked(profile()).run


@pytest.mark.parametrize("change", NEW, ids=str)
def test_what_changes_the_measurement_starts_a_new_run(change: dict[str, Any]) -> None:
    assert asked(profile(**change)).run != asked(profile()).run


LLAMA = {"recipes": ["mxfp8"], "workload": {"preset": "llama3-8b"}}
NODES = {"H100": H100, "GB200": GB200, "GH200": GH200}


@pytest.mark.parametrize(("change", "node", "recipes"), TABLES["recipes"].values(), ids=TABLES["recipes"])
def test_recipes_are_those_that_are_named_or_all_that_the_node_can_run(
    change: dict[str, Any], node: str, recipes: list[str]
) -> None:
    made = measurement_request(asked(profile(**change)), NODES[node], "r1", 1)
    assert ([*made.recipes], made.listed) == (recipes, "recipes" in change)


def test_mixtures_core_and_weights_reach_the_agent_and_each_change_starts_a_new_run() -> None:
    training = {"attentionCore": "fp8_delayed", "primaryWeights": "recipe"}
    mixtures = [{"name": "ours", "mlp": "mxfp8", part: "bf16"} for part in ("attention", "attentionOut")]
    changes = [{}, *({"mixtures": [mixture]} for mixture in mixtures)]
    changes += [{"benchmarks": {"training": {name: value}}} for name, value in training.items()]
    made = [asked(profile(**LLAMA, **change)) for change in changes]
    assert len({one.run for one in made}) == len(changes)
    several = [mixtures[0], mixtures[1] | {"name": "other"}]
    runs = {asked(profile(**LLAMA, mixtures=order)).run for order in (several, several[::-1])}
    assert len(runs) == 1, "their order is no question"
    of = profile(**LLAMA, mixtures=mixtures[:1], benchmarks={"training": training})
    request = measurement_request(asked(of), GB200, "r1", 1)
    assert (request.attention_core, request.primary_weights) == ("fp8_delayed", "recipe")
    assert [(mixture.name, mixture.parts) for mixture in request.mixtures or ()] == [
        ("ours", Parts("mxfp8", "bf16", "mxfp8", "mxfp8", "mxfp8"))
    ]


def test_a_gpu_of_no_class_is_asked_for_by_name_and_a_benchmark_that_is_off_not() -> None:
    of = profile(target={"products": ["GH200"]})
    assert measurement_request(asked(of), GH200, "r1", 1).node.product == "NVIDIA-GH200-480GB"
    of = profile(benchmarks={"gemm": {"enabled": False}})
    assert measurement_request(asked(of), H100, "r1", 1).gemm_modes == ()
    of = profile(benchmarks={"training": {"enabled": False}})
    assert measurement_request(asked(of), H100, "r1", 1).training is False


def test_the_largest_profile_fits_into_the_environment_and_more_is_refused() -> None:
    shapes = [{"m": 16_777_216 - 32 * i, "k": 16_777_216, "n": 16_777_216} for i in range(64)]
    of = profile("p" * 253, workload={"name": "w" * 128, "shapes": shapes})
    assert too_large(measurement_request(asked(of), replace(GB200, name="n" * 253), "r1", 1)) is None
    of = profile()
    found = too_large(measurement_request(asked(of), H100, "r1", 1).model_copy(update={"profile": "p" * 40_000}))
    assert (found.reason, "32768 at most" in found.message) == ("InvalidWorkload", True)


LOSS_ASKED: list[tuple[dict[str, Any], LossRuns | None]] = [
    ({}, None),
    ({"preset": "standard"}, LossRuns(steps=50, seeds=3)),
    ({"preset": "standard", "loss": {"enabled": False}}, None),
    ({"preset": "standard", "loss": {"seeds": 1}}, LossRuns(steps=50, seeds=1)),
    ({"loss": {"enabled": True, "steps": 20}}, LossRuns(steps=20, seeds=1)),
    ({"preset": "standard", "training": {"enabled": False}}, None),
]


@pytest.mark.parametrize(("benchmarks", "expected"), LOSS_ASKED)
def test_loss_runs_come_with_standard_unless_the_profile_says_otherwise(
    benchmarks: dict[str, Any], expected: LossRuns | None
) -> None:
    assert H100.product is not None
    of = asked(profile(workload={"preset": "llama3-8b"}, benchmarks=benchmarks))
    assert measurement_request(of, H100, "run", 1).loss == expected
    without = asked(profile(workload={"preset": "codonfm-5b"}, benchmarks={"preset": "standard"}))
    assert measurement_request(without, H100, "run", 1).loss is None
