"""The agents' Jobs and pods as the API server keeps them, in a namespace that enforces the restricted pod standard."""

import json
import re

import pytest

from precision_api.facts import names
from tests.support.golden import assert_golden
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, specs

pytestmark = pytest.mark.cluster

SERVERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
"""What the server writes into every object's metadata."""


@pytest.fixture(scope="module")
def measured(stage: Scene) -> Profile:
    """A profile after its run over one GB300 node, a user's wishes for the agents among it."""
    stage.add_nodes(*specs(1, "reserved:research", products=("GB300",)))
    toleration = {"key": "example.com/reserved", "value": "research", "effect": "NoSchedule"}
    agent = {"tolerations": [toleration], "resources": {"cpu": "8", "memory": "64Gi"}}
    return stage.completed(agent=agent)


def plain(item: Object, profile: Profile) -> str:
    """An object as text, without what differs from run to run."""
    meta = {key: value for key, value in item["metadata"].items() if key not in SERVERS}
    text = json.dumps({**item, "metadata": meta}, indent=2, sort_keys=True) + "\n"
    node = item["metadata"]["labels"][names.LABEL_NODE_UID]
    text = text.replace(profile.uid, "<profile uid>").replace(node, "<node uid>")
    text = re.sub(rf'("{names.ANNOTATION_BOOT}": )"[0-9a-f-]+"', r'\1"<boot id>"', text)
    text = re.sub(rf'("{names.ANNOTATION_WATTS}": )".*"', r'\1"<by all profiles of the namespace>"', text)
    text = text.replace(f'"{item["metadata"].get("uid")}"', '"<job uid>"')
    text = re.sub(r"\bs[0-9]+(-[0-9]{2})?\b", lambda found: "<node>" if found[1] else "<profile>", text)
    return re.sub(r"\bpp-[0-9a-f]{16}(-[a-z0-9]{5})?", "<job>", text)


def test_the_servers_copy_of_a_job_is_as_it_was_looked_at(measured: Profile) -> None:
    (job,) = created(measured.history(), "jobs")
    job = {**job, "status": None}
    assert_golden("agent_job.json", re.sub(r"\b[0-9a-f]{64}\b", "<hash>", plain(job, measured)))


def test_an_agents_pod_has_no_token_and_no_rights(measured: Profile) -> None:
    (pod,) = created(measured.history(), "pods")
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    volumes = {volume["name"]: sorted(volume.keys() - {"name"}) for volume in spec["volumes"]}
    assert volumes == {"tmp": ["emptyDir"], "shm": ["emptyDir"]}
    mounts = {mount["mountPath"] for container in spec["containers"] for mount in container["volumeMounts"]}
    assert mounts == {"/tmp", "/dev/shm"}
    assert not [name for name in spec if name.startswith("host")]
