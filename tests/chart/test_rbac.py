"""What our programs may do: the table, the chart's copy of it, and what a real API server makes of it."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from precision_operator.core import rbac
from tests.support.api_server import ApiServer
from tests.support.eventually import eventually
from tests.support.golden import FOLDER
from tests.support.helm import Helm, Manifest, of_kind
from tests.support.kubectl import Kubectl

OURS = "precisionprofiler.io"
_READ, _WRITE = "get list watch ", "create delete deletecollection patch update"
Right = tuple[str, str, str]
"""API group, resource, verb."""

PINNED: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "rights.yaml").read_text())
"""By program and scope: verbs of resource.group."""


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for verb in rule["verbs"]
    }


def pinned(component: str, scope: str) -> set[Right]:
    rows = ((name.partition("."), verbs.split()) for name, verbs in PINNED[f"{component} {scope}"].items())
    return {(group, resource, verb) for (resource, _, group), verbs in rows for verb in verbs}


@pytest.mark.parametrize(("component", "scope"), [row.split() for row in PINNED])
def test_the_table_grants_what_is_pinned_here(component: rbac.Component, scope: rbac.Scope) -> None:
    assert rights(rbac.rules(component, scope)) == pinned(component, scope)


def test_the_table_has_no_wildcard_and_no_power_over_rights() -> None:
    words = {word for row in rbac.GRANTS for word in (row.group, *row.resources, *row.verbs)}
    assert words & {"*", "secrets", "rbac.authorization.k8s.io", "impersonate", "escalate", "bind"} == set()
    rbac.rules("operator", "cluster")[0]["verbs"].append("delete")
    assert rights(rbac.rules("operator", "cluster")) == pinned("operator", "cluster")


def test_without_resource_claims_the_chart_grants_no_rights_to_them(helm: Helm) -> None:
    roles = of_kind(helm.manifests(dra={"enabled": False}), "Role", "ClusterRole")
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted
    assert [rule for rule in granted if "resource.k8s.io" in rule["apiGroups"]] == []


@pytest.mark.parametrize("component", rbac.COMPONENTS)
def test_the_charts_roles_are_the_table(component: rbac.Component, helm: Helm) -> None:
    manifests = helm.manifests(watchNamespaces=["a", "b"])
    ours = [m for m in manifests if m["metadata"]["labels"]["app.kubernetes.io/component"] == component]
    roles = {
        scope: [m for m in of_kind(ours, "Role") if m["metadata"]["namespace"] in where]
        for scope, where in (("namespace", ("a", "b")), ("own", ("profiling",)))
    }
    assert [role["rules"] for role in roles["namespace"]] == [rbac.rules(component, "namespace")] * 2
    named = json.dumps(rbac.rules(component, "own")).replace(rbac.OWN_DEPLOYMENT, f"fleet-{component}")
    own = json.loads(named.replace(rbac.OWN_STOP, "fleet-stop"))
    assert [role["rules"] for role in roles["own"]] == ([own] if own else [])
    assert own[-1]["resourceNames"] == [m["metadata"]["name"] for m in of_kind(ours, "Deployment")]
    wanted = rbac.rules(component, "cluster")
    assert [role["rules"] for role in of_kind(ours, "ClusterRole")] == ([wanted] if wanted else [])


PEOPLE = {
    "view": {"precisionprofiles": _READ, "nodeprecisionreports": _READ, "capacityplans": _READ},
    "edit": {"precisionprofiles": _READ + _WRITE, "nodeprecisionreports": _READ, "capacityplans": _READ + _WRITE},
    "admin": {"precisionprofiles": _READ + _WRITE, "nodeprecisionreports": _READ, "capacityplans": _READ + _WRITE},
    "fleet-rerun-nodes": {"nodeprecisionreports": "patch"},
}
"""What each role lets people do with our kinds, by kind."""


@pytest.fixture(scope="module")
def kubectl(cluster: Any) -> Kubectl:
    return Kubectl(binaries(["kubectl"])["kubectl"], cluster.kubeconfig)


@pytest.fixture(scope="module")
def watched(cluster: Any, helm: Helm, kubectl: Kubectl) -> Iterator[str]:
    """A watched namespace, with the rendered rights applied; the release's own is not watched."""
    name, api = f"watched-{uuid4().hex[:8]}", ApiServer(cluster.kubeconfig)
    for namespace in (name, "profiling"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    kubectl.apply(*of_kind(helm.manifests(watchNamespaces=[name]), *kinds))
    for role in PEOPLE:
        full = role.replace("fleet-", "profiling:fleet:")
        kubectl("create", "rolebinding", role, f"--clusterrole={full}", f"--user={role}", "-n", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def allowed(kubectl: Kubectl, account: str, namespace: str) -> set[Right]:
    """What `kubectl auth can-i --list` says of a ServiceAccount, as rules."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:profiling", "system:authenticated")
    user = [f"--as=system:serviceaccount:profiling:{account}", *(f"--as-group={group}" for group in groups)]
    return reviewed(kubectl, user, namespace)


def reviewed(kubectl: Kubectl, user: list[str], namespace: str) -> set[Right]:
    """All rights that the API server says `user` (options of kubectl) has in `namespace`."""
    return rights(review(kubectl, "SelfSubjectRulesReview", {"namespace": namespace}, *user)["resourceRules"])


def review(kubectl: Kubectl, kind: str, spec: Manifest, *user: str) -> Manifest:
    """The status of a review that `user` (options of kubectl) has asked the API server for."""
    asked = json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    answer = kubectl("create", "--validate=false", *user, "-f", "-", "-o", "json", stdin=asked)
    return dict(json.loads(answer)["status"])


@pytest.mark.cluster
@pytest.mark.parametrize("component", rbac.COMPONENTS)
def test_a_service_account_may_do_what_the_table_says_and_no_more(
    component: rbac.Component, watched: str, kubectl: Kubectl
) -> None:
    anybody = allowed(kubectl, "nobody", watched)
    everywhere = rights(rbac.rules(component, "cluster"))
    here = everywhere | rights(rbac.rules(component, "namespace"))
    assert allowed(kubectl, f"fleet-{component}", watched) - anybody == here
    assert allowed(kubectl, f"fleet-{component}", "default") - anybody == everywhere
    assert allowed(kubectl, f"fleet-{component}", "profiling") - anybody == everywhere | rights(
        rbac.rules(component, "own")
    )


@pytest.mark.cluster
@pytest.mark.parametrize("role", PEOPLE)
def test_people_get_our_kinds_with_the_clusters_own_roles_and_nobody_writes_reports(
    role: str, watched: str, kubectl: Kubectl
) -> None:
    wanted = {(OURS, kind, verb) for kind, verbs in PEOPLE[role].items() for verb in verbs.split()}

    def granted() -> set[Right]:
        rows = reviewed(kubectl, [f"--as={role}"], watched)
        return {right for right in rows if right[0] == OURS}

    eventually(lambda: granted() == wanted)  # the aggregation is a controller's


@pytest.mark.cluster
def test_the_agents_account_may_do_nothing(watched: str, kubectl: Kubectl) -> None:
    who = f"--as=system:serviceaccount:{watched}:precision-profiler-agent"
    for verb, what in (("get", "pods"), ("list", "nodes"), ("get", "precisionprofiles.precisionprofiler.io")):
        assert kubectl.run("auth", "can-i", verb, what, "-n", watched).stdout.strip() == "yes", "the positive control"
        assert kubectl.run("auth", "can-i", verb, what, who, "-n", watched).stdout.strip() == "no"


@pytest.mark.cluster
@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_kubelet_may_not_write_reports(watched: str, kubectl: Kubectl, subresource: str) -> None:
    for verb in ("create", "patch", "update", "delete"):
        asked = {"group": OURS, "resource": "nodeprecisionreports", "subresource": subresource}
        asked |= {"verb": verb, "namespace": watched}
        assert may(kubectl, "anybody", ["system:masters"], asked), "the positive control"
        assert not may(kubectl, "system:node:n1", ["system:nodes", "system:authenticated"], asked)


def may(kubectl: Kubectl, user: str, groups: list[str], asked: dict[str, str]) -> bool:
    """Whether all of the API server's authorizers together allow it."""
    spec = {"user": user, "groups": groups, "resourceAttributes": asked}
    return bool(review(kubectl, "SubjectAccessReview", spec)["allowed"])


@pytest.mark.cluster
def test_the_api_server_takes_everything_that_is_rendered(watched: str, helm: Helm, kubectl: Kubectl) -> None:
    manifests = helm.manifests(watchNamespaces=[watched])
    said = kubectl.apply(*manifests, flags=("--dry-run=server", "--validate=strict"))
    assert len(said.splitlines()) == len(manifests)


@pytest.mark.cluster
def test_our_pods_are_admitted_where_pod_security_is_restricted(watched: str, helm: Helm, kubectl: Kubectl) -> None:
    for deployment in of_kind(helm.manifests(watchNamespaces=[watched]), "Deployment"):
        kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(_pod(deployment)))


def _pod(deployment: Manifest) -> Manifest:
    metadata = {"name": deployment["metadata"]["name"], "namespace": "profiling"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deployment["spec"]["template"]["spec"]}
