"""Agents through Kueue, which is played here, on the real API server: its versions change, its flavors bind pods."""

import copy
from collections.abc import Iterator

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.fleet.hardware import HARDWARE
from tests.support import kueue
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.kueue import Flavor, Keys
from tests.support.site import Profile, Scene, Site, reasons

pytestmark = pytest.mark.cluster

PRODUCT = names.DEFAULT_POOL_LABEL
H100 = Flavor("hopper", {PRODUCT: HARDWARE["H100"].label})
GB200 = Flavor("blackwell", {PRODUCT: HARDWARE["GB200"].label})
FLAVORS = (H100, GB200)
"""In this order Kueue tries them."""


@pytest.fixture(scope="module", autouse=True)
def without_kueue(site: Site) -> Iterator[None]:
    kueue.remove(site)
    yield
    kueue.remove(site)


def answer(profile: Profile) -> tuple[str, str]:
    """Status and reason of the condition Accepted; of the spec as it is now, else empty."""
    found, now = profile.condition(names.ACCEPTED), profile.get()["metadata"]["generation"]
    return (found["status"], found["reason"]) if found.get("observedGeneration") == now else ("", "")


def test_queues_are_found_in_whichever_version_is_served_while_the_operator_runs(scene: Scene) -> None:
    profile = scene.apply(agent={"queueName": "gpus"})
    eventually(lambda: answer(profile) == ("False", "QueueMissing"))
    for served in (("v1beta1",), ("v1beta1", "v1beta2"), ("v1beta2",)):
        kueue.serve(scene.site, *served)
        name = f"of-{served[0]}-and-{served[-1]}"
        scene.lab.apply(kueue.queue(scene.site, name, served[0]))
        profile.patch(agent={"queueName": name})
        eventually(lambda: answer(profile)[0] == "True")


@pytest.mark.parametrize("keys", ["group", "flavor"])
def test_the_flavor_that_kueue_chooses_is_the_nodes_whose_labels_keep_the_agent(scene: Scene, keys: Keys) -> None:
    kueue.serve(scene.site, "v1beta2")
    scene.lab.apply(kueue.queue(scene.site, "gpus"))
    gb200, h100 = scene.add_nodes(NodeSpec("GB200"), NodeSpec("H100"))
    profile = scene.apply(agent={"queueName": "gpus"}, rollout={"maxConcurrent": 2})
    eventually(lambda: reasons(profile.status()) == {"WaitsInQueue": 2})
    jobs = {job["metadata"]["annotations"][names.ANNOTATION_NODE]: job for job in profile.jobs()}
    for node, flavor in ((gb200, GB200), (h100, H100)):
        chosen = kueue.flavor_of(jobs[node], FLAVORS, keys)
        assert chosen == flavor
        kueue.admit(scene.site, jobs[node], chosen)
    blind = kueue.flavor_of(by_name_alone(jobs[gb200]), FLAVORS, keys)
    assert blind == H100, "by the node's name alone Kueue sees nothing, and takes its first flavor"
    profile.completes()
    assert {node: attempt["outcome"] for node, attempt in profile.attempts().items()} == {
        gb200: "succeeded",
        h100: "succeeded",
    }


def by_name_alone(job: Object) -> Object:
    """The same Job, its pod bound to its node by name and by no label."""
    bare = copy.deepcopy(job)
    affinity = bare["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    for term in affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        term.pop("matchExpressions")
    return bare
