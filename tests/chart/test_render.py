"""What the chart renders to, and what it refuses."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_api import crdgen
from precision_api.names import AGENT_APP, DEFAULT_PRIORITY_CLASS, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY
from precision_operator import generate
from precision_operator.__main__ import arguments, terms_of
from precision_operator.shell.leadership import Terms
from tests.support.golden import assert_golden
from tests.support.helm import CHART, Helm, of_kind

OURS = "registry.example.com/precision-profiler"
"""Where the default values look for images."""
MANY: dict[str, Any] = {
    "watchNamespaces": ["team-b", "team-a", "team-b-2"],
    "crds": {"keep": False},
    "imagePullSecrets": [{"name": "registry"}],
    "operator": {
        "image": {"repository": "registry.example.com:5000/pp/operator", "digest": "sha256:" + "0" * 64},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "podAnnotations": {"team": "performance"},
    },
    "exporter": {"port": 9464, "service": {"annotations": {"note": "fleet"}}},
    "agent": {
        "image": {"repository": "registry.example.com:5000/pp/agent", "tag": "1.2"},
        "allowedImages": ["registry.example.com:5000/pp/", "registry.example.com/other/agent"],
        "serviceAccountName": "agents",
        "priorityClass": {"name": "lowest", "value": -2000000},
    },
}


def without_definitions(text: str) -> str:
    """The rendered text but for the CustomResourceDefinitions, which are compared with the models elsewhere."""
    return "---\n".join(part for part in text.split("---\n") if "\nkind: CustomResourceDefinition\n" not in part)


def test_helm_lint_finds_nothing(helm: Helm) -> None:
    done = subprocess.run([helm.program, "lint", "--strict", CHART], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "values"), [("default", {}), ("many_namespaces", MANY)], ids=["default", "many"])
def test_the_render_is_the_one_that_was_looked_at(name: str, values: dict[str, Any], helm: Helm) -> None:
    assert_golden(f"chart_{name}.yaml", without_definitions(helm.text(**values)))


@pytest.mark.parametrize("keep", [True, False])
def test_the_definitions_are_the_models_and_stay_when_wanted(keep: bool, helm: Helm) -> None:
    found = of_kind(helm.manifests(crds={"keep": keep}), "CustomResourceDefinition")
    assert sorted(crd["metadata"]["name"] for crd in found) == sorted(
        crdgen.definition(kind)["metadata"]["name"] for kind in crdgen.KINDS
    )
    assert {crd["metadata"]["name"]: crd["spec"] for crd in found} == {
        (crd := crdgen.definition(kind))["metadata"]["name"]: crd["spec"] for kind in crdgen.KINDS
    }
    wanted = {"helm.sh/resource-policy": "keep"} if keep else None
    assert [crd["metadata"].get("annotations") for crd in found] == [wanted] * len(found)


def test_the_definitions_can_be_left_out(helm: Helm) -> None:
    assert of_kind(helm.manifests(crds={"enabled": False}), "CustomResourceDefinition") == []


def test_without_the_exporter_nothing_of_it_is_rendered(helm: Helm) -> None:
    names = [manifest["metadata"]["name"] for manifest in helm.manifests(exporter={"enabled": False})]
    assert [name for name in names if "exporter" in name] == []


def test_the_chart_says_the_same_names_as_the_code(helm: Helm) -> None:
    manifests = helm.manifests()
    [policy] = of_kind(manifests, "NetworkPolicy")
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {LABEL_APP: AGENT_APP, LABEL_MANAGED_BY: MANAGED_BY}},
        "policyTypes": ["Ingress", "Egress"],
    }
    [priority] = of_kind(manifests, "PriorityClass")
    assert (priority["metadata"]["name"], priority["value"]) == (DEFAULT_PRIORITY_CLASS, -1_000_000)
    assert (priority["preemptionPolicy"], priority["globalDefault"]) == ("Never", False)


def test_agents_get_no_token(helm: Helm) -> None:
    accounts = of_kind(helm.manifests(**MANY), "ServiceAccount")
    agents = [account for account in accounts if account["metadata"]["name"] == "agents"]
    assert [account["metadata"]["namespace"] for account in agents] == ["team-a", "team-b", "team-b-2"]
    assert [account["automountServiceAccountToken"] for account in accounts] == [False] * len(accounts)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"watchNamespace": "a"}, "additional properties 'watchNamespace' not allowed"),
    "an unknown key below": ({"operator": {"replica": 2}}, "at '/operator': additional properties 'replica'"),
    "no replica": ({"operator": {"replicas": 0}}, "at '/operator/replicas': minimum: got 0, want 1"),
    "a leader that gives up after another has begun": (
        {"operator": {"leaderElection": {"leaseSeconds": 10}}},
        "operator.leaderElection.leaseSeconds is 10: it must be longer than renewDeadlineSeconds, 10",
    ),
    "a leader that gives up after one try": (
        {"operator": {"leaderElection": {"retrySeconds": 9}}},
        "operator.leaderElection.renewDeadlineSeconds is 10: it must be longer than 1.2 times retrySeconds, 9",
    ),
    "a namespace with a capital": ({"watchNamespaces": ["Team"]}, "at '/watchNamespaces/0': 'Team' does not match"),
    "a namespace twice": ({"watchNamespaces": ["a", "a"]}, "at '/watchNamespaces': items at 0 and 1 are equal"),
    "a pull policy": (
        {"operator": {"image": {"pullPolicy": "Often"}}},
        "at '/operator/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
    ),
    "a priority that makes nodes grow": (
        {"agent": {"priorityClass": {"value": 0}}},
        "at '/agent/priorityClass/value': maximum: got 0, want -11",
    ),
    "a port": ({"exporter": {"port": 70000}}, "at '/exporter/port': maximum: got 70,000, want 65,535"),
    "a digest": ({"agent": {"image": {"digest": "sha256:1"}}}, "at '/agent/image/digest': 'sha256:1' does not match"),
    "an allowed image with a comma": (
        {"agent": {"allowedImages": ["a,b"]}},
        "at '/agent/allowedImages/0': 'a,b' does not match",
    ),
    "an agent outside its own list": (
        {"agent": {"allowedImages": ["registry.example.com/other/"]}},
        "Add the image's repository to agent.allowedImages.",
    ),
    "an agent whose name only begins like an allowed one": (
        {"agent": {"allowedImages": [f"{OURS}/age"]}},
        "Add the image's repository to agent.allowedImages.",
    ),
}


@pytest.mark.parametrize(("values", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_values_that_can_not_be_meant_are_refused(values: dict[str, Any], told: str, helm: Helm) -> None:
    done = helm.run(values)
    assert done.returncode == 1
    assert told in done.stderr


@pytest.mark.parametrize("prefix", ["registry.example.com/", OURS, f"{OURS}/agent", f"{OURS}/agent:0.1.0"])
def test_an_allowed_prefix_ends_at_a_part_of_the_name(prefix: str, helm: Helm) -> None:
    [operator, *_] = [
        container
        for deployment in of_kind(helm.manifests(agent={"allowedImages": [prefix]}), "Deployment")
        for container in deployment["spec"]["template"]["spec"]["containers"]
        if container["name"] == "operator"
    ]
    assert f"--allowed-images={prefix}" in operator["args"]


def test_the_times_of_the_election_are_the_programs_own_defaults(helm: Helm) -> None:
    told = operator_options(helm)
    assert told.leader_elect
    assert terms_of(told) == Terms()


def test_each_release_has_a_lease_of_its_own(helm: Helm) -> None:
    assert operator_options(helm).lease_name == "fleet-operator"


def test_replicas_are_kept_apart_and_one_at_a_time_may_be_evicted(helm: Helm) -> None:
    manifests = helm.manifests()
    [operator] = [m for m in of_kind(manifests, "Deployment") if m["metadata"]["name"] == "fleet-operator"]
    [budget] = of_kind(manifests, "PodDisruptionBudget")
    assert operator["spec"]["replicas"] == 2
    assert budget["spec"] == {"maxUnavailable": 1, "selector": operator["spec"]["selector"]}
    [spread] = operator["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == operator["spec"]["selector"]


def test_a_single_replica_has_no_budget_that_would_block_a_drain(helm: Helm) -> None:
    assert of_kind(helm.manifests(operator={"replicas": 1}), "PodDisruptionBudget") == []


def operator_options(helm: Helm) -> argparse.Namespace:
    """The operator's command line in the chart, read by the operator itself."""
    [deployment] = [m for m in of_kind(helm.manifests(), "Deployment") if m["metadata"]["name"] == "fleet-operator"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return arguments(container["args"])


def test_every_value_is_in_the_schema_and_has_its_default_in_the_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _keys(schema) - {"global"} == _set(values)


def _keys(schema: dict[str, Any], at: str = "") -> set[str]:
    fields = schema.get("properties", {})
    return {f"{at}{name}" for name in fields} | {key for n, f in fields.items() for key in _keys(f, f"{at}{n}.")}


def _set(values: dict[str, Any], at: str = "") -> set[str]:
    names = {f"{at}{name}" for name in values}
    deeper = {n: v for n, v in values.items() if isinstance(v, dict) and n != "resources"}
    return names | {key for n, v in deeper.items() for key in _set(v, f"{at}{n}.")}


def test_the_generated_copies_are_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_the_generator_wants_the_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main([str(tmp_path)])
    assert "holds no charts/precision-profiler/Chart.yaml: name the repository's folder" in capsys.readouterr().err
