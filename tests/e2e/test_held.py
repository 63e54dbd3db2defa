"""Against another tenant only what is held counts: pods and Jobs that hold nothing stop nobody's measurements."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from precision_api.facts import names
from precision_operator.cluster import paths
from tests.support import kueue
from tests.support.eventually import eventually
from tests.support.site import Profile, Scene, Site, profile_manifest, reasons, specs
from tests.support.tenant import TENANT

pytestmark = pytest.mark.cluster

NODES, PLACES = 4, 2
YOUNG_SECONDS = 60
"""So long a Job that the operator has just made keeps its place without a pod that is bound."""


@pytest.fixture(scope="module", autouse=True)
def capped(site: Site) -> Iterator[None]:
    """The operator lets few agents of all namespaces run at once; when all is done the tenant's objects go."""
    limits = json.dumps({"maxConcurrent": PLACES, "poolLabel": names.DEFAULT_POOL_LABEL})
    operator = replace(site.operator, argv=(*site.operator.argv, f"--fleet-limits={limits}"))
    with site.operated_by(operator):
        yield
        for kind in ("pp", "jobs", "pods"):
            site.lab.kubectl("delete", kind, "--all", "-n", TENANT, "--wait=false")
    kueue.remove(site)


def pretend(site: Site, node: str, uid: str, profile_uid: str) -> None:
    """A gated pod that asks for nothing, a suspended Job and a Job of gated pods, each labelled as the node's agent."""
    labels = {
        names.LABEL_APP: names.AGENT_APP,
        names.LABEL_PROFILE_UID: profile_uid,
        names.LABEL_NODE_UID: uid,
        names.LABEL_RUN: "r1",
        names.LABEL_ATTEMPT: "1",
    }
    notes = {names.ANNOTATION_NODE: node}
    container = {"name": names.AGENT_CONTAINER, "image": "registry.example.com/none"}
    gated: dict[str, Any] = {"schedulingGates": [{"name": "tenant.example/never"}], "containers": [container]}
    meta = {"namespace": TENANT, "labels": labels, "annotations": notes}
    mine = meta | {"name": f"pod-{node}", "labels": labels | {"batch.kubernetes.io/job-name": "any"}}
    site.api.ask("POST", paths.pods(TENANT), {"metadata": mine, "spec": gated})
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": gated | {"restartPolicy": "Never"}}
    held = meta | {"name": f"held-{node}", "finalizers": ["tenant.example/never"]}
    site.api.ask("POST", paths.jobs(TENANT), {"metadata": held, "spec": {"suspend": True, "template": template}})
    plain = {"namespace": TENANT, "name": f"plain-{node}"}
    site.api.ask("POST", paths.jobs(TENANT), {"metadata": plain, "spec": {"template": template}})


def test_labelled_pods_and_jobs_that_hold_nothing_take_no_node_and_no_place(scene: Scene) -> None:
    site = scene.site
    added = scene.add_nodes(*specs(NODES))
    theirs = site.api.ask("POST", paths.profiles(TENANT), profile_manifest(TENANT, "theirs", suspend=True))
    uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in scene.nodes()}
    for number, node in enumerate(added):
        pretend(site, node, uids[node], theirs["metadata"]["uid"] if number % 2 else "any")
    site.operator_has_looked()
    ours = scene.apply(rollout={"maxConcurrent": NODES})
    eventually(lambda: ours.counts().get("succeeded") == NODES, seconds=YOUNG_SECONDS - 15)
    events = paths.collection("v1", "events", TENANT)
    eventually(lambda: any(event["reason"] == "NotAnAgent" for event in site.get(events)["items"]))
    for job in site.get(paths.jobs(TENANT))["items"]:
        site.lab.kubectl(
            "patch", "job", job["metadata"]["name"], "-n", TENANT, "-p", '{"metadata":{"finalizers":null}}'
        )
    site.lab.kubectl("delete", "pp,jobs,pods", "--all", "-n", TENANT, "--wait=false")


PINNED: tuple[dict[str, Any], ...] = (
    {"resourceClaims": [{"name": "g", "resourceClaimName": "never-made"}]},
    {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "never-made"}]},
    {"containers": [{"name": "c", "image": "any", "resources": {"limits": {"nvidia.com/mig-none": "1"}}}]},
)
"""Of pods that their tenant binds itself: GPUs that they never get."""


def test_pods_that_their_tenant_binds_keep_no_node_by_gpus_that_they_never_get(scene: Scene) -> None:
    for number, (node, asked) in enumerate(zip(scene.add_nodes(*specs(len(PINNED))), PINNED, strict=True)):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "any"}]} | asked
        scene.site.api.ask("POST", paths.pods(TENANT), {"metadata": {"name": f"pinned-{number}"}, "spec": spec})
    ours = scene.apply(rollout={"maxConcurrent": len(PINNED)})
    eventually(lambda: ours.counts().get("succeeded") == len(PINNED))


def test_a_queue_that_admits_nothing_holds_up_nobody_and_waits_again_at_its_turn(scene: Scene) -> None:
    site = scene.site
    kueue.serve(site, "v1beta2")
    queue = kueue.queue(site, "without-quota")
    site.lab.apply(queue | {"metadata": queue["metadata"] | {"namespace": TENANT}})
    scene.add_nodes(*specs(NODES))
    target = scene.manifest()["spec"]["target"]
    spec = {"target": target, "agent": {"queueName": "without-quota"}, "rollout": {"maxConcurrent": NODES}}
    made = site.api.ask("POST", paths.profiles(TENANT), profile_manifest(TENANT, "queued", **spec))
    queued = Profile(replace(site, namespace=TENANT), "queued", made["metadata"]["uid"])
    eventually(lambda: reasons(queued.status()) == {"WaitsInQueue": PLACES, "FleetLimitReached": NODES - PLACES})
    ours = scene.apply(rollout={"maxConcurrent": NODES})
    ours.completes((NODES + 1) * YOUNG_SECONDS)  # where each node is held once by a young Job of the queue
    assert ours.counts()["succeeded"] == NODES
    eventually(lambda: reasons(queued.status()).get("WaitsInQueue") == PLACES)
