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
from tests.support.golden import assert_golden
from tests.support.helm import CHART, Helm, of_kind

OURS = "registry.example.com/precision-profiler"
"""Where the default values look for images."""
MANY: dict[str, Any] = {
    "watchNamespaces": ["team-b", "team-a", "team-b-2"],
    "showOtherNamespaces": True,
    "acceptance": {"simulated": True},
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
EVERYTHING: dict[str, Any] = {
    "extraLabels": {"cost-centre": "a17"},
    "operator": {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        "priorityClassName": "system-cluster-critical",
        "schedulerName": "bin-packing",
        "podLabels": {"team": "performance", "cost-centre": "b3"},
        "podSecurityContext": {"runAsUser": 1000},
    },
    "exporter": {"replicas": 2, "metricsLevel": "detail", "shards": 2, "tolerations": [{"operator": "Exists"}]},
    "agent": {
        "imagePullSecrets": [{"name": "agents-registry"}],
        "queueName": "profiling",
        "flavorLabels": ["nvidia.com/gpu.product", "acme.example/capacity"],
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "rack", "operator": "Equal", "value": 'a"b', "effect": "NoSchedule"}],
        "schedulerName": "kai-scheduler",
        "podLabels": {"kai.scheduler/queue": "profiling"},
        "podAnnotations": {"team": "performance"},
        "podSecurityContext": {"runAsUser": 1000620000, "supplementalGroups": [44]},
    },
    "nodes": {"startupTaints": ["acme.example/", "burn-in"], "nvlinkDomainLabels": ["acme.example/domain"]},
    "profilesPerNamespace": {"max": 20, "quota": True},
    "capacityPlans": {"acrossNamespaces": ["platform"]},
    "fleetLimits": {"maxConcurrent": 40, "perTopology": [{"key": "acme.example/rack", "max": 2}]},
    "policies": {
        "namespaceSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["platform"]}]},
        "tolerations": {"enabled": True, "allowedKeys": ["team.example/", "dedicated"]},
        "runtimeClass": {"enabled": True, "allowed": ["nvidia"]},
        "idle": {"enabled": True},
        "agents": {"enabled": True},
    },
    "podSecurityContext": {"fsGroup": 1000620000, "seLinuxOptions": {"level": "s0:c25,c10"}},
    "networkPolicy": {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
        "scrapeFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "rules": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "Precision"}},
}
VALUE_SETS = {"default": {}, "many_namespaces": MANY, "everything": EVERYTHING}
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
    assert helm_4.manifests(**EVERYTHING) == helm.manifests(**EVERYTHING)
    command = [helm_4.program, "install", "fleet", CHART, "--dry-run=client"]
    done = subprocess.run(command, env={"HOME": str(tmp_path)}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "NOTES:" in done.stdout


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_render_is_the_one_that_was_looked_at(name: str, helm: Helm) -> None:
    parts = helm.text(**VALUE_SETS[name]).split("---\n")
    whole = [part for part in parts if not any(f"\nkind: {kind}\n" in part for kind in COPIED)]
    assert_golden(f"chart_{name}.yaml", "---\n".join(whole))
    assert list(yaml.load_all(helm.text(**VALUE_SETS[name]), Loader=OnceLoader))


def test_each_watched_namespace_has_a_quota_of_profiles(helm: Helm) -> None:
    values = MANY | {"profilesPerNamespace": EVERYTHING["profilesPerNamespace"]}
    quotas = of_kind(helm.manifests(**values), "ResourceQuota")
    assert {quota["metadata"]["namespace"] for quota in quotas} == {*MANY["watchNamespaces"]}
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
    "a priority above that of ordinary pods": (
        {"agent": {"priorityClass": {"value": 0}}},
        "at '/agent/priorityClass/value': maximum: got 0, want -1",
    ),
    "a security context that weakens pods": (
        {"agent": {"podSecurityContext": {"runAsNonRoot": False}}},
        "at '/agent/podSecurityContext': additional properties 'runAsNonRoot' not allowed",
    ),
    "a port": ({"exporter": {"port": 70000}}, "at '/exporter/port': maximum: got 70,000, want 65,535"),
    "rules without what they read": (
        {"rules": {"enabled": True}, "exporter": {"enabled": False}},
        "rules.enabled needs exporter.enabled",
    ),
    "a deficit that no profile can ask for": (
        {"acceptance": {"nodeCondition": {"profiles": [{"mostDetectPercent": {"node": 2.5}}]}}},
        "mostDetectPercent/node': got number, want integer",
    ),
    "no shard": ({"exporter": {"shards": 0}}, "exporter.shards is 0: choose 1 to 512."),
    "half a shard": ({"exporter": {"shards": 1.5}}, "at '/exporter/shards': got number, want integer"),
    "a label that the operator finds its pods by": (
        {"agent": {"podLabels": {"precisionprofiler.io/run": "x"}}},
        "agent.podLabels.precisionprofiler.io/run: the chart sets labels",
    ),
    "a label that is none": ({"extraLabels": {"a b": "c"}}, "'a b' does not match pattern"),
    "a tag in the repository": (
        {"operator": {"image": {"repository": "registry.example.com/operator:1.2"}}},
        "move what follows the colon to operator.image.tag.",
    ),
    "a switch": ({"rules": {"enabled": "yes"}}, "at '/rules/enabled': value must be one of"),
    "a toleration of every taint": (
        {"agent": {"tolerations": [{"operator": "Exists"}]}},
        "at '/agent/tolerations/0': missing property 'key'",
    ),
    "a misspelt toleration": (
        {"operator": {"tolerations": [{"keys": "a"}]}},
        "at '/operator/tolerations/0': additional properties 'keys' not allowed",
    ),
    "an amount of memory": (
        {"exporter": {"resources": {"limits": {"memory": "1GB"}}}},
        "at '/exporter/resources/limits/memory': '1GB' does not match",
    ),
    "a digest": ({"agent": {"image": {"digest": "sha256:1"}}}, "at '/agent/image/digest': 'sha256:1' does not match"),
    "an allowed image with a comma": (
        {"agent": {"allowedImages": ["a,b"]}},
        "at '/agent/allowedImages/0': 'a,b' does not match",
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


@pytest.mark.parametrize("prefix", ["registry.example.com/", OURS, f"{OURS}/agent", f"{OURS}/agent:0.3.0"])
def test_an_allowed_prefix_ends_at_a_part_of_the_name(prefix: str, helm: Helm) -> None:
    [operator, *_] = [
        container
        for deployment in of_kind(helm.manifests(agent={"allowedImages": [prefix]}), "Deployment")
        for container in deployment["spec"]["template"]["spec"]["containers"]
        if container["name"] == "operator"
    ]
    assert f"--allowed-images={prefix}" in operator["args"]


def test_each_release_has_its_own_lease_and_the_programs_own_times(helm: Helm) -> None:
    """As the operator itself reads its command line in the chart."""
    [deployment] = [m for m in of_kind(helm.manifests(), "Deployment") if m["metadata"]["name"] == "fleet-operator"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    told = arguments(container["args"])
    assert told.leader_elect
    assert terms_of(told) == LeaseTimings()
    assert told.lease_name == "fleet-operator"


def test_the_generator_wants_the_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main([str(tmp_path)])
    assert "holds no charts/precision-profiler/Chart.yaml: name the repository's folder" in capsys.readouterr().err


def test_the_charts_own_suite_passes() -> None:
    command = [binaries(["helm-unittest"])["helm-unittest"], "--strict", "--file", "tests/*_test.yaml", CHART]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    assert " 0 total" not in done.stdout.partition("Tests:")[2].splitlines()[0]
