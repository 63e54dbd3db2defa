"""Every profile that a reader can copy, from examples/ or from a page, is one that the operator takes."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_api.facts.names import PROFILE_KIND
from precision_api.models.presets import PRESETS
from precision_api.models.workload import Workload, resolve
from precision_lab.fleet.fleet import demo_fleet, manifests
from precision_operator.core.eligibility.checks import matches
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.observed import Observed, Raw, Settings
from precision_operator.core.observe.views import profile_view

ROOT = Path(__file__).parents[2]
IMAGE = "registry.example.com/agent"
SETTINGS = Settings(
    agent_image=f"{IMAGE}:1", allowed_images=(IMAGE,), priority_class="agent", agent_service_account="agent"
)


def documents(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if path.suffix == ".md" else [text]
    return [
        document
        for block in blocks
        for document in yaml.load_all(block, yaml.CSafeLoader)
        if isinstance(document, dict)
    ]


def profiles() -> list[Any]:
    """One parameter for each profile: it, and the data of the ConfigMaps beside it."""
    paths = [*sorted((ROOT / "examples").glob("*.yaml")), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    rows = []
    for path in paths:
        found = documents(path)
        maps = {item["metadata"]["name"]: item["data"] for item in found if item.get("kind") == "ConfigMap"}
        of_kind = [item for item in found if item.get("kind") == PROFILE_KIND]
        rows += [pytest.param(p, maps, id=f"{path.relative_to(ROOT)}:{p['metadata']['name']}") for p in of_kind]
    return rows


def example(name: str) -> dict[str, Any]:
    return next(item for item in documents(ROOT / "examples" / f"{name}.yaml") if item["kind"] == PROFILE_KIND)


def asked(raw: Raw, maps: dict[str, dict[str, str]]) -> Any:
    """What the profile asks of a node, with these ConfigMaps in its namespace."""
    view = profile_view(raw)
    texts = {(view.namespace, name): data for name, data in maps.items()}
    return resolve_profile(view, Observed(now=datetime.now(UTC), settings=SETTINGS, config_maps=texts))


@pytest.mark.parametrize(("raw", "maps"), profiles())
def test_a_profile_that_a_reader_can_copy_is_accepted_as_it_stands(raw: Raw, maps: dict[str, dict[str, str]]) -> None:
    assert profile_view(raw).problem == ""
    assert isinstance(asked(raw, maps), ResolvedProfile), asked(raw, maps)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").iterdir()), ids=lambda path: path.name)
def test_every_file_in_examples_holds_a_profile_that_kubectl_reads_as_we_do(path: Path) -> None:
    assert PROFILE_KIND in [item["kind"] for item in documents(path)]
    assert yaml_booleans(path.read_text(encoding="utf-8")) == set()


def yaml_booleans(text: str) -> set[str]:
    """Bare words that kubectl (YAML 1.1) reads as true or false and we (PyYAML) as text, such as the key n."""
    scalars = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken) and token.plain]
    return {str(token.value) for token in scalars} & {"y", "Y", "n", "N"}


def test_examples_are_those_of_readme_presets_and_yaml_that_all_read_alike() -> None:
    assert yaml_booleans('{n: 1, "n": 2, k: y}') == {"n", "y"}
    assert example("demo") in documents(ROOT / "README.md")
    maps = {"qwen3-8b": documents(ROOT / "examples" / "huggingface-configmap.yaml")[0]["data"]}
    assert asked(example("huggingface-configmap"), maps).resolved.model == PRESETS["qwen3-8b"].model
    preset = resolve(Workload.model_validate({"preset": "codonfm-5b"}))
    explicit = asked(example("explicit-shapes"), {}).resolved
    sizes = [{(gemm.pass_, gemm.m, gemm.k, gemm.n) for gemm in each.gemms} for each in (preset, explicit)]
    assert sizes[0] == sizes[1]


def test_the_demo_profile_takes_in_every_node_of_the_demo_fleet() -> None:
    spec = profile_view(example("demo")).spec
    facts = [node_facts(node, spec.pool_label, ()) for node in manifests(demo_fleet())]
    assert [each.name for each in facts if not matches(spec.target, each)] == []
    assert spec.rollout.max_concurrent == 4


def test_the_readme_lists_every_preset_with_its_kind() -> None:
    rows = [line.split("|")[1:3] for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    listed = {name: kind.strip() for kind, names in rows for name in re.findall(r"`([^`]+)`", names)}
    for name, row in PRESETS.items():
        words = ("Mamba-2", "latent attention", "mixture of experts", "dense")
        model = row.model
        kinds = (model.hybrid is not None, model.latent_attention is not None, model.moe is not None, True)
        assert words[kinds.index(True)] in listed[name], name
