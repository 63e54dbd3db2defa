"""What somebody could do who has a token of ours: all rights of each ServiceAccount, and the acts that matter, tried.

The rights are those that the API server itself tells of the running release. Each act is tried with the token and, as
the positive control, by an admin: so a refusal is the rights' doing and not the command's.
"""

import json
import re
from pathlib import Path

import pytest

from precision_lab.lab import KubectlError
from precision_lab.release.install import NAMESPACE as OWN
from tests.support.golden import assert_golden
from tests.support.site import Scene, Site, specs

pytestmark = pytest.mark.cluster
AGENT = "precision-profiler-agent"
ELSEWHERE = "default"
CONTAINER = {"name": "c", "image": "example.com/any:1"}
POD = {"containers": [CONTAINER], "restartPolicy": "Never"}


def manifest(kind: str, version: str, **fields: object) -> str:
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "stolen"}, **fields})


JOB = manifest("Job", "batch/v1", spec={"template": {"spec": POD}})
ACTS: dict[str, tuple[tuple[str, ...], str]] = {
    "read Secrets": (("get", "secrets", "-n", "e2e"), ""),
    "make a pod": (("create", "-f", "-", "-n", ELSEWHERE, "--dry-run=server"), manifest("Pod", "v1", spec=POD)),
    "make a Job elsewhere": (("create", "-f", "-", "-n", ELSEWHERE, "--dry-run=server"), JOB),
    "make a Job in the watched namespace": (
        ("create", "-f", "-", "-n", "e2e", "--dry-run=server", "--validate=false"),
        JOB,
    ),
    "give itself rights": (
        ("create", "clusterrolebinding", "stolen", "--clusterrole=cluster-admin", "--user=me", "--dry-run=server"),
        "",
    ),
    "make another token": (("create", "token", AGENT, "-n", "e2e"), ""),
    "change a node": (("label", "nodes", "--all", "stolen=yes", "--dry-run=server"), ""),
    "change a profile": (("label", "pp", "--all", "stolen=yes", "-n", "e2e", "--dry-run=server"), ""),
    "read ConfigMaps of another namespace": (("get", "configmaps", "-n", "kube-system"), ""),
    "list all pods": (("get", "pods", "--all-namespaces"), ""),
    "read profiles": (("get", "pp", "-n", "e2e"), ""),
}
ALLOWED = {
    "operator": {"make a Job in the watched namespace", "list all pods", "read profiles"},
    "exporter": {"read profiles"},
}
"""What each token is good for; docs/security.md says what follows from it."""


@pytest.mark.parametrize("component", ALLOWED)
def test_the_rights_of_a_token_of_the_running_release_are_those_that_were_looked_at(site: Site, component: str) -> None:
    token = kubeconfig(site, component)
    anybody = listed(site, impersonating("nobody-at-all"))
    rows = []
    for place, namespace in (("the watched", "e2e"), ("the release's", OWN), ("any other", ELSEWHERE)):
        rows += [f"# in {place} namespace", *sorted(listed(site, ("-n", namespace), token) - anybody), ""]
    assert_golden(f"rights_{component}.txt", "\n".join(rows))


def test_the_agents_account_has_the_rights_of_anybody(site: Site) -> None:
    assert AGENT in site.lab.kubectl("get", "serviceaccounts", "-n", "e2e", "-o", "name")
    assert listed(site, impersonating(AGENT)) == listed(site, impersonating("nobody-at-all"))


@pytest.mark.parametrize("act", ACTS)
def test_a_token_is_good_for_what_is_said_and_for_nothing_else(site: Site, acted_on: Scene, act: str) -> None:
    words, stdin = ACTS[act]
    site.lab.kubectl(*words, stdin=stdin)  # the positive control: an admin may
    for component, allowed in ALLOWED.items():
        token = kubeconfig(site, component)
        if act in allowed:
            site.lab.kubectl(*words, stdin=stdin, kubeconfig=token)
        else:
            with pytest.raises(KubectlError, match=r"(?i)forbidden"):
                site.lab.kubectl(*words, stdin=stdin, kubeconfig=token)


@pytest.fixture(scope="module")
def acted_on(stage: Scene) -> Scene:
    """A node and a profile, so that there is something to change."""
    stage.add_nodes(*specs(1))
    stage.apply().completes()
    return stage


def kubeconfig(site: Site, component: str) -> Path:
    """Holds the token that the program runs with."""
    return {"operator": site.operator, "exporter": site.exporter}[component].kubeconfig


def impersonating(account: str) -> tuple[str, ...]:
    """Options of kubectl for a ServiceAccount of the watched namespace, whether it is there or not."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:e2e", "system:authenticated")
    return (f"--as=system:serviceaccount:e2e:{account}", *(f"--as-group={group}" for group in groups), "-n", "e2e")


def listed(site: Site, words: tuple[str, ...], token: Path | None = None) -> set[str]:
    """The rows of `kubectl auth can-i --list`: resource, URLs, names and verbs, two spaces apart."""
    rows = site.lab.kubectl("auth", "can-i", "--list", "--no-headers", *words, kubeconfig=token).splitlines()
    return {"  ".join(re.split(r"\s{2,}", row.strip())) for row in rows}
