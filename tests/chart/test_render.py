"""What the chart renders to, and what it refuses.

The chart's own suite, charts/precision-profiler/tests, as people run it by `helm unittest`.
"""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_api.facts.names import AGENT_APP, DEFAULT_PRIORITY_CLASS, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY
from precision_api.kinds import crdgen
from precision_lab.builds.binaries import binaries
from precision_operator import generate
from precision_operator.__main__ import arguments, terms_of
from precision_operator.shell.leader_election import LeaseTimings
from tests.support.golden import FOLDER, assert_golden
from tests.support.helm import CHART, Helm, of_kind

VALUE_SETS: dict[str, dict[str, Any]] = {
    name: yaml.safe_load((FOLDER / f"values_{name}.yaml").read_text()) for name in ("many_namespaces", "everything")
}
VALUE_SETS["default"] = {}
COPIED = ("CustomResourceDefinition", "PrometheusRule", "ConfigMap")
"""Kinds whose objects hold generated copies: they are compared with what they are copied from, not with a golden."""


@pytest.fixture(scope="module")
def helm_4() -> Helm:
    return Helm(binaries(["helm-4"])["helm-4"])


@pytest.mark.parametrize(("fixture", "version"), [("helm", "v3."), ("helm_4", "v4.")])
def test_helm_lint_finds_nothing(fixture: str, version: str, request: pytest.FixtureRequest) -> None:
    program = request.getfixturevalue(fixture).program
    assert subprocess.run([program, "version", "--short"], text=True, capture_output=True).stdout.startswith(version)
    done = subprocess.run([program, "lint", "--strict", CHART], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_helm_4_renders_alike_and_shows_an_install_without_a_cluster(helm: Helm, helm_4: Helm, tmp_path: Path) -> None:
    assert helm_4.manifests(**VALUE_SETS["everything"]) == helm.manifests(**VALUE_SETS["everything"])
    listless = "--set=acceptance.nodeCondition.enabled=true"
    command = [helm_4.program, "install", "fleet", CHART, "--dry-run=client", listless]
    done = subprocess.run(command, env={"HOME": str(tmp_path)}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "its list of profiles is empty" in done.stdout.partition("NOTES:")[2]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_render_is_the_one_that_was_looked_at(name: str, helm: Helm) -> None:
    parts = helm.text(**VALUE_SETS[name]).split("---\n")
    whole = [part for part in parts if not any(f"\nkind: {kind}\n" in part for kind in COPIED)]
    assert_golden(f"chart_{name}.yaml", "---\n".join(whole))
    assert list(yaml.load_all(helm.text(**VALUE_SETS[name]), Loader=OnceLoader))


def test_each_watched_namespace_has_a_quota_of_profiles(helm: Helm) -> None:
    values = VALUE_SETS["many_namespaces"] | {"profilesPerNamespace": VALUE_SETS["everything"]["profilesPerNamespace"]}
    quotas = of_kind(helm.manifests(**values), "ResourceQuota")
    assert {quota["metadata"]["namespace"] for quota in quotas} == {*VALUE_SETS["many_namespaces"]["watchNamespaces"]}
    kinds = ("precisionprofiles", "capacityplans")
    assert all(q["spec"]["hard"] == {f"count/{kind}.precisionprofiler.io": 20 for kind in kinds} for q in quotas)


@pytest.mark.parametrize("release", ["1234", "1e3", "y", "null"])
@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_release_and_a_namespace_may_be_called_as_yaml_calls_a_number(name: str, release: str, helm: Helm) -> None:
    values = VALUE_SETS[name]
    plain = replace(helm, release="marked-release", namespace="marked-namespace").manifests(**values)
    marked = json.dumps(plain).replace("marked-release", release).replace("marked-namespace", "5678")
    rendered = replace(helm, release=release, namespace="5678").manifests(**values)
    assert sorted(map(json.dumps, rendered)) == sorted(map(json.dumps, json.loads(marked)))


class OnceLoader(yaml.CSafeLoader):
    """Refuses a mapping with a key that stands in it twice, of which YAML parsers take one or the other."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice: {node.start_mark}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("keep", [True, False])
def test_the_definitions_are_the_models_and_stay_when_wanted(keep: bool, helm: Helm) -> None:
    found = of_kind(helm.manifests(crds={"keep": keep}), "CustomResourceDefinition")
    assert sorted(crd["metadata"]["name"] for crd in found) == sorted(
        crdgen.definition(kind)["metadata"]["name"] for kind in crdgen.KINDS
    )
    assert {crd["metadata"]["name"]: crd["spec"] for crd in found} == {
        (crd := crdgen.definition(kind))["metadata"]["name"]: crd["spec"] for kind in crdgen.KINDS
    }
    wanted = crdgen.KEPT_BY_GITOPS | {"helm.sh/resource-policy": "keep"} if keep else None
    assert [crd["metadata"].get("annotations") for crd in found] == [wanted] * len(found)


def test_the_chart_says_the_same_names_as_the_code(helm: Helm) -> None:
    manifests = helm.manifests()
    [policy] = of_kind(manifests, "NetworkPolicy")
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {LABEL_APP: AGENT_APP, LABEL_MANAGED_BY: MANAGED_BY}},
        "policyTypes": ["Ingress", "Egress"],
    }
    [priority] = of_kind(manifests, "PriorityClass")
    assert (priority["metadata"]["name"], priority["value"]) == (DEFAULT_PRIORITY_CLASS, -10)
    assert (priority.get("preemptionPolicy"), priority["globalDefault"]) == ("Never", False)


def test_each_release_has_its_own_lease_and_the_programs_own_times(helm: Helm) -> None:
    """As the operator itself reads its command line in the chart."""
    [deployment] = [m for m in of_kind(helm.manifests(), "Deployment") if m["metadata"]["name"] == "fleet-operator"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    told = arguments(container["args"])
    assert told.leader_elect
    assert terms_of(told) == LeaseTimings()
    assert told.lease_name == "fleet-operator"


def test_two_releases_that_would_write_one_condition_have_one_policy_for_one_account(helm: Helm) -> None:
    values, other = {"acceptance": {"nodeCondition": {"enabled": True}}}, replace(helm, release="b", namespace="b")
    kind = "ValidatingAdmissionPolicy"
    (here,), (there,) = (
        [it for it in of_kind(release.manifests(**values), kind) if it["metadata"]["name"].endswith("node-condition")]
        for release in (helm, other)
    )
    assert here["metadata"]["name"] == there["metadata"]["name"], "Helm refuses the second"
    assert here["spec"]["matchConditions"] != there["spec"]["matchConditions"]


def test_the_generator_wants_the_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main([str(tmp_path)])
    assert "holds no charts/precision-profiler/Chart.yaml: name the repository's folder" in capsys.readouterr().err


def test_the_charts_own_suite_passes() -> None:
    command = [binaries(["helm-unittest"])["helm-unittest"], "--strict", "--file", "tests/*_test.yaml", CHART]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    assert " 0 total" not in done.stdout.partition("Tests:")[2].splitlines()[0]
