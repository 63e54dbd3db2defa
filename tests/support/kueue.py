"""What of Kueue an operator meets, played here: its kind LocalQueue in some versions, and what it does to a Job.

A Job of a queue is held (suspended), given a flavor by its pod's label expressions, let go with that flavor's labels in
its nodeSelector, and perhaps taken back, with the nodeSelector that it had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from precision_operator.cluster import paths
from precision_operator.shell.observing.local_queues import GROUP, PLURAL
from tests.support.api_server import MERGE_PATCH
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.site import Site

QUEUE_LABEL = f"{GROUP}/queue-name"
ACCOUNT = "system:serviceaccount:queues:kueue"
"""It may be called otherwise than Kueue's chart calls it: `policies.agents.kueueAccount`."""
DEFINITION = f"{PLURAL}.{GROUP}"
Keys = Literal["group", "flavor"]
"""By which label keys flavors are told apart: those of all flavors of a resource group together (Kueue up to the change
12449, and by what its maintainers plan in 15136), or each flavor by its own alone."""


@dataclass(frozen=True)
class Flavor:
    """A ResourceFlavor: its name and spec.nodeLabels."""

    name: str
    labels: Mapping[str, str]


def serve(site: Site, *served: str) -> None:
    """The cluster serves LocalQueues in these versions; as Kueue's upgrades have it, the other one is still defined."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    stored = served[-1]
    versions = [
        {"name": version, "served": version in served, "storage": version == stored, "schema": schema}
        for version in ("v1beta1", "v1beta2")
    ]
    site.lab.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {
                "group": GROUP,
                "names": {"kind": "LocalQueue", "plural": PLURAL, "singular": "localqueue"},
                "scope": "Namespaced",
                "versions": versions,
            },
        }
    )
    site.lab.wait_until_established(DEFINITION)
    groups = lambda: {group["name"]: group["versions"] for group in site.get("/apis")["groups"]}  # noqa: E731
    eventually(lambda: {row["version"] for row in groups().get(GROUP, ())} == set(served))


def remove(site: Site) -> None:
    """Kueue is uninstalled, and its queues with it."""
    site.lab.kubectl("delete", "crd", DEFINITION, "--ignore-not-found")


def queue(site: Site, name: str, version: str = "v1beta2") -> Object:
    """A LocalQueue in the watched namespace."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {"clusterQueue": "all"},
    }


def flavor_of(job: Object, flavors: Sequence[Flavor], keys: Keys) -> Flavor | None:
    """The first flavor whose labels the pod's required node affinity fits; None: Kueue would hold the Job for ever.

    Fields of nodes (`matchFields`) are not looked at, nor expressions on labels that no flavor is told apart by; a term
    of nothing else fits every flavor.
    """
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    of_all = {key for flavor in flavors for key in flavor.labels}
    for flavor in flavors:
        relevant = of_all if keys == "group" else flavor.labels.keys()
        for term in terms:
            rows = [row for row in term.get("matchExpressions", ()) if row["key"] in relevant]
            assert all(row["operator"] == "In" for row in rows)
            if all(flavor.labels.get(row["key"]) in row["values"] for row in rows):
                return flavor
    return None


def admit(site: Site, job: Object, flavor: Flavor | None = None) -> None:
    """Let a held Job go, its pod bound to the flavor's labels."""
    template = {"spec": {"nodeSelector": dict(flavor.labels)}} if flavor else {}
    _patch(site, job, {"spec": {"suspend": False, "template": template}})


def take_back(site: Site, job: Object) -> None:
    """Hold a Job again: its pod is deleted, and its nodeSelector is what it was when the Job was made."""
    _patch(site, job, {"spec": {"suspend": True}})
    added = site.get(_path(site, job))["spec"]["template"]["spec"].get("nodeSelector")
    if added:
        eventually(lambda: _is_held(site, job))  # until then the Job's controller writes to it, too
        _patch(site, job, {"status": {"startTime": None}}, "status")
        _patch(site, job, {"spec": {"template": {"spec": {"nodeSelector": None}}}})


def _is_held(site: Site, job: Object) -> bool:
    """Whether the Job's controller has suspended it, and ended its pod."""
    status = site.get(_path(site, job)).get("status", {})
    suspended = [row["status"] for row in status.get("conditions", ()) if row["type"] == "Suspended"]
    return suspended == ["True"] and not status.get("active")


def _path(site: Site, job: Object) -> str:
    return paths.item(paths.jobs(site.namespace), job["metadata"]["name"])


def _patch(site: Site, job: Object, body: Object, subresource: str = "") -> None:
    path = paths.item(paths.jobs(site.namespace), job["metadata"]["name"], subresource)
    status, answer = site.api.acting_as(ACCOUNT).call("PATCH", path, body, kind=MERGE_PATCH)
    assert status == 200, answer
